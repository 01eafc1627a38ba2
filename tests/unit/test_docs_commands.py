"""Commands that the docs show are run where a Kafka is not needed, over an application in memory.

The tutorial's are all typed, on a real Kafka, by tests/integration/test_tutorial.py.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import shlex
import shutil
import subprocess
import sys
import webbrowser
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock as ps
from penstock.cli import main
from penstock.config import Config
from penstock.driver.http_service import HttpOrder, http_service
from penstock.queries.driver_file import read_driver_file
from penstock.queries.live import LiveQueries
from penstock.queries.probes import Probes
from tests.unit.queries_in_memory import InMemoryQueries, Shelf
from tests.unit.test_cli_query import wake
from tests.unit.test_docs_snippets import PAGES, ROOT, commands, name_of, snippets

APPLICATION = "pulse-monitor"
PROGRAM = f"""
import penstock as ps
app = ps.Application({APPLICATION!r})
beats = app.stream("pulse-events", key=str, value=int).group_by_key()
beats.count("pulse-counts").to_stream().to("pulse-totals")
"""
HTTP = ROOT / "docs" / "http.md"
ALONE = ("topology", "example list", "query", "console")
"""What needs neither Kafka nor time."""
ELSEWHERE = ("--url", "topology diff", "word_count.py")


@contextlib.contextmanager
def answering(config: Config) -> Iterator[None]:
    """An application that answers questions, and has announced itself in its state directory."""
    queries = InMemoryQueries()
    entries: dict[tuple[str, int | None], int] = {("ann", None): 72, ("bob", None): 64}
    queries.shelves["pulse-counts"] = Shelf(kind="key_value", key=str, value=int, entries=entries)
    order = HttpOrder(
        application_id=APPLICATION,
        config=config,
        queries=(live := LiveQueries(state=lambda: ps.ApplicationState.RUNNING)),
        probes=Probes(live=lambda: True, ready=lambda: True),
    )
    with http_service(order):
        live.open(queries)
        yield


@pytest.fixture(scope="module")
def state_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where an application has announced itself that answers questions."""
    directory = tmp_path_factory.mktemp("state")
    with answering(Config(state_dir=directory)):
        wake(directory, APPLICATION)
        yield directory


@pytest.fixture
def folder(tmp_path: Path, state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of somebody who follows the docs."""
    for name in ("app.py", "pulse_monitor.py"):
        (tmp_path / name).write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PENSTOCK_STATE_DIR", str(state_dir))
    monkeypatch.setattr(webbrowser, "open", lambda _address: True)
    return tmp_path


def is_alone(line: str) -> bool:
    words = line.removeprefix("penstock ")
    return words.startswith(ALONE) and not any(each in words for each in ELSEWHERE)


RUN = [(page, line) for page in PAGES for line in dict.fromkeys(commands(page)) if is_alone(line)]


@pytest.mark.parametrize(
    ("page", "line"), RUN, ids=[f"{name_of(page)}: {line}" for page, line in RUN]
)
def test_what_needs_no_kafka_is_run(
    page: Path, line: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(shlex.split(line)[1:])
    told = capsys.readouterr()
    assert (ended.value.code or 0, told.err) == (0, "")
    assert told.out.strip()


def test_a_browser_is_started_without_the_token(
    folder: Path,
    state_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    started: list[str] = []
    monkeypatch.setattr(webbrowser, "open", started.append)
    with pytest.raises(SystemExit):
        main(["console", "app.py", "--open"])
    told = capsys.readouterr()
    assert started == [(state_dir / APPLICATION / "console.html").resolve().as_uri()]
    assert read_driver_file(state_dir, APPLICATION).token in told.out
    # Here none was.
    assert "open the address in one" in told.err


def test_the_answer_on_the_page_is_that_of_the_client(folder: Path) -> None:
    [code] = [each.code for each in snippets(HTTP) if each.why_not == "needs application"]
    shown: dict[str, object] = {}
    exec(compile(code.replace("    client.", "    found = client."), name_of(HTTP), "exec"), shown)
    assert shown["found"] == [72, 64]


def shell_block(words: str) -> str:
    """The block of the page on HTTP that has a line with these words at its beginning."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", HTTP.read_text(), re.DOTALL | re.MULTILINE)
    [block] = [each for each in blocks if re.search(rf"^{words}", each, re.MULTILINE)]
    return str(block)


@pytest.mark.parametrize("needed", ["curl", "openssl rand"])
def test_what_is_typed_into_a_shell_runs(needed: str, folder: Path, state_dir: Path) -> None:
    programs = {"curl": ("jq", "curl"), "openssl rand": ("openssl",)}[needed]
    if missing := [each for each in programs if shutil.which(each) is None]:
        pytest.skip(f"not installed: {', '.join(missing)}")
    block = shell_block(needed)
    # The rest of the second is an application on other machines.
    text = block if needed == "curl" else block.splitlines()[0]
    (folder / "driver.json").write_bytes((state_dir / APPLICATION / "driver.json").read_bytes())
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", text],
        env={**os.environ, "PATH": path, "no_proxy": "127.0.0.1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    if needed == "curl":
        assert '"key":"ann","value":72' in done.stdout.replace(" ", "")
    else:
        token = folder / "token"
        assert (token.stat().st_mode & 0o777, len(token.read_text().strip())) == (0o600, 64)


@pytest.mark.parametrize("shows_certificate", [False, True])
def test_the_service_answers_over_tls_as_the_page_shows(
    shows_certificate: bool, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("not installed: openssl")
    served, trial = shell_block("openssl rand"), shell_block("openssl req").replace("\\\n", " ")
    *signing, asking = trial.splitlines()
    script = "\n".join([served.splitlines()[0], *signing])
    subprocess.run(["bash", "-euo", "pipefail", "-c", script], check=True, capture_output=True)
    environment = dict(re.findall(r"(PENSTOCK_\w+)=(\S+)", served))
    # Any port will do; beyond the loopback it is all the same.
    options = {**environment, "PENSTOCK_HTTP_LISTEN": "0.0.0.0:0"}
    words = shlex.split(asking)[1:]
    if shows_certificate:
        options["PENSTOCK_HTTP_TLS_CLIENT_CA_FILE"] = "ca.pem"
        words += ["--certificate-file", "chain.pem", "--key-file", "key.pem"]
    config = dataclasses.replace(Config.build({}, options), state_dir=folder / "elsewhere")
    here = ["query", "pulse-counts", "ann", "--application", APPLICATION]
    with answering(config):
        driver = read_driver_file(config.state_dir, APPLICATION)
        assert driver.url.startswith("https://queries.example.org:")
        words = [each.replace("8443", driver.url.rpartition(":")[2]) for each in words]
        assert asked(words, capsys) == (0, "ann = 72", "")
        # The name that others know it by need not be known here, nor stand in the certificate.
        others = words[len(shlex.split(asking)) - 1 :]
        place = ["--state-dir", str(config.state_dir), *others]
        assert asked([*here, *place], capsys) == (0, "ann = 72", "")
        without = [each for each in words if each not in ("--ca-file", "ca.pem")]
        status, _, told = asked(without, capsys)
    assert status == 3
    assert re.search("Its certificate is not trusted.* --ca-file", told)


def asked(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """The status of a question, the first line of its answer, and what it says besides."""
    with pytest.raises(SystemExit) as ended:
        main(words)
    told = capsys.readouterr()
    return int(ended.value.code or 0), next(iter(told.out.splitlines()), ""), told.err
