"""No block of the docs slips through: every line of a shell, and every block of another language,
is run by a test that is named here, or there stands why it is not.

Python is run by test_docs_snippets.py, whatever it says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.unit.test_docs_commands import RUN
from tests.unit.test_docs_snippets import PAGES, ROOT, name_of

PROGRAMS = (
    *("PYTHONPATH=", "curl ", "eval ", "make ", "openssl "),
    *("penstock ", "python ", "pytest ", "source "),
)
COMMANDS = "unit/test_docs_commands.py"
DEPLOYED = "integration/test_docs_deployed.py"
ON_KAFKA = "integration/test_docs_on_kafka.py"
SECURED = "integration/test_docs_secured.py"
TUTORIAL = "integration/test_tutorial.py"
TYPED: dict[str, dict[str, str]] = {
    "README.md": {
        "eval ": TUTORIAL,
        "penstock topics": TUTORIAL,
        "penstock run": TUTORIAL,
        "penstock records": TUTORIAL,
        "penstock query": TUTORIAL,
        "penstock console": TUTORIAL,
        "penstock status": TUTORIAL,
        "penstock example list": COMMANDS,
        "penstock produce-test-data": ON_KAFKA,
    },
    "docs/concepts/changelogs.md": {"penstock topics": ON_KAFKA},
    "docs/console.md": {"penstock console": COMMANDS},
    "docs/deploying.md": {
        "export PENSTOCK_TOKEN": DEPLOYED,
        "export PENSTOCK_TLS_CERTIFICATE_FILE=host.pem": DEPLOYED,
        "PENSTOCK_COORDINATOR_LISTEN": DEPLOYED,
        "penstock instance": DEPLOYED,
        "export PENSTOCK_TLS_CERTIFICATE_FILE=/etc": DEPLOYED,
        "export PENSTOCK_TLS_CA_FILE=/etc": DEPLOYED,
        "spark-submit --master spark://": DEPLOYED,
    },
    "docs/http.md": {
        "penstock query app.py": COMMANDS,
        "penstock query pulse-counts --from": COMMANDS,
        "url=": COMMANDS,
        "curl": COMMANDS,
        "openssl": COMMANDS,
        "PENSTOCK_HTTP_LISTEN": DEPLOYED,
        "penstock query pulse-counts ann --url https://localhost": DEPLOYED,
        "PENSTOCK_INSTANCE_HTTP_LISTEN": DEPLOYED,
        "penstock instance": DEPLOYED,
    },
    "docs/kafka-security.md": {"": SECURED},
    "docs/monitoring.md": {"openssl": DEPLOYED, "PENSTOCK_HTTP_LISTEN": DEPLOYED},
    "docs/operating.md": {"penstock bootstrap": ON_KAFKA},
    "docs/topology-changes.md": {"penstock topology": DEPLOYED},
    "docs/tutorial.md": {"": TUTORIAL},
}
"""By page and beginning of a line: the test that types it."""
NOT_TYPED: dict[tuple[str, str], str] = {
    ("README.md", "make demo"): "it is `penstock demo`, of which unit/test_cli_demo.py has what it "
    "says, and integration/test_examples.py what it runs",
    ("README.md", "make test"): "this is it",
    ("README.md", "source .venv"): "tests run in an environment that is made already",
    ("README.md", "penstock prepare"): "`make test` types it before all tests",
    ("README.md", "penstock example run"): "it starts a Kafka and a Spark of its own; "
    "integration/test_examples.py has what it runs",
    ("docs/tutorial.md", "make demo"): "as in the README",
    ("docs/tutorial.md", "source .venv"): "tests run in an environment that is made already",
    ("docs/tutorial.md", "penstock prepare"): "`make test` types it before all tests",
    ("docs/concepts/changelogs.md", "PYTHONPATH"): "five minutes of a machine that has nothing "
    "else to do",
    ("docs/concepts/internal-and-external.md", "PYTHONPATH"): "a minute of such a machine",
    ("docs/deploying.md", "spark-submit --master yarn"): "there is no YARN here",
    ("docs/operating.md", "penstock run"): "the tutorial's program, which that page runs",
    ("docs/http.md", "penstock query pulse-counts ann --url https://queries"): "a host of that "
    "name; the page's other line asks this one",
}
"""What cannot be typed on a machine for tests, or is typed elsewhere, and why."""
SHOWN: dict[tuple[str, str], str] = {
    ("docs/coming-from/kafka-streams.md", "java"): "integration/test_docs_java.py",
    ("docs/external-stores.md", "sql"): "integration/test_postgres_task.py",
    ("docs/http.md", "json"): "unit/test_docs_http.py",
    ("docs/monitoring.md", "json"): "unit/test_json_logs.py",
    ("docs/monitoring.md", "yaml"): "unit/test_monitoring.py",
}
"""Blocks of other languages, and the tests that have them."""
_BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Line:
    """A command that a page shows."""

    page: str
    text: str

    @property
    def is_alone(self) -> bool:
        """Whether it needs so little that it is found, and run, without being named here."""
        return any((name_of(page), line) == (self.page, self.bare) for page, line in RUN)

    @property
    def bare(self) -> str:
        return re.split(r"  #| > | \| ", self.text)[0].strip()

    def named(self) -> list[tuple[str, str]]:
        """By which beginnings it is in the tables."""
        typed = [(self.page, each) for each in TYPED.get(self.page, {}) if each != ""]
        known = [key for key in (*typed, *NOT_TYPED) if key[0] == self.page]
        found = [key for key in known if self.text.startswith(key[1])]
        if not found and "" in TYPED.get(self.page, {}):
            found.append((self.page, ""))
        return found


def blocks() -> Iterator[tuple[str, str, str]]:
    """Page, language and text of every block but those of Python."""
    for page in PAGES:
        for found in _BLOCK.finditer(page.read_text()):
            if found[2] != "python":
                yield name_of(page), found[2], found[3]


def is_typed(language: str, text: str) -> bool:
    """Whether a block is what somebody types; others without a language are what is printed."""
    return language == "sh" or (not language and text.startswith(PROGRAMS))


def lines() -> Iterator[Line]:
    for page, language, text in blocks():
        if is_typed(language, text):
            for line in text.replace("\\\n", " ").splitlines():
                # What goes on from the line before it is no command.
                if line and not line.startswith(" ") and line != "done":
                    yield Line(page, line)


def test_every_line_is_typed_by_a_test_or_it_is_said_why_not() -> None:
    found = {line: line.named() for line in lines()}
    assert {
        line.text: line.page for line, keys in found.items() if not (keys or line.is_alone)
    } == {}
    assert {line.text: keys for line, keys in found.items() if len(keys) > 1} == {}
    # And nothing is said of what is not there.
    used = {key for keys in found.values() for key in keys}
    told = {(page, each) for page, known in TYPED.items() for each in known} | set(NOT_TYPED)
    assert told - used == set()


def test_what_is_printed_has_no_commands_in_it() -> None:
    printed = [text for _, language, text in blocks() if not is_typed(language, text)]
    assert [text for text in printed if re.search(rf"^({'|'.join(PROGRAMS)})", text, re.M)] == []


def test_every_block_of_another_language_is_in_a_test() -> None:
    there = {(page, language) for page, language, _ in blocks()} - {
        (page, language) for page, language, _ in blocks() if language in ("", "sh", "text")
    }
    assert there == set(SHOWN)


@pytest.mark.parametrize("page", TYPED)
def test_the_tests_know_the_page(page: str) -> None:
    for file in set(TYPED[page].values()):
        text = (ROOT / "tests" / file).read_text()
        # Those of the unit tests find every page by themselves.
        assert page.rpartition("/")[2].removesuffix(".md").upper() in text.upper() or (
            file == COMMANDS and "PAGES" in text
        ), (page, file)
