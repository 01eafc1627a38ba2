"""The trial of docs/kafka-security.md, typed as it is written, and its commands for rights.

Its Kafka is the page's own program, in a process of its own.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from penstock.local.jars import BROKER, SPARK_KAFKA, ensure
from penstock.local.java import find_java
from tests.guarded_kafka import PAGE, Guarded, allow, block
from tests.harness import wait_until
from tests.terminals import PATIENCE_SECONDS, Terminal

ADDRESSES = {"trial: password": "with a password: ", "trial: certificate": "with a certificate:"}
SH = re.compile(r"^```sh\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def after(heading: str) -> list[str]:
    """The shell blocks of a section of the page."""
    return SH.findall(PAGE.read_text().split(f"## {heading}\n")[1].split("\n## ")[0])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the reader is, with the files of the first step and the page's program."""
    ensure(SPARK_KAFKA)
    [certificates] = after("1. An authority, and certificates")
    subprocess.run(
        ["bash", "-euo", "pipefail", "-c", certificates],
        cwd=tmp_path,
        check=True,
        capture_output=True,
    )
    (tmp_path / "secure_kafka.py").write_text(block("trial: kafka"))
    return tmp_path


@pytest.fixture
def terminals(folder: Path) -> Iterator[list[Terminal]]:
    """The page's three."""
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "XDG_DATA_HOME": str(folder / "data"),
        "TERM": "xterm",
    }
    found = [Terminal(folder, environment) for _ in range(3)]
    yield found
    for each in found:
        each.interrupt()
        each.close()


@pytest.mark.timeout(600)
def test_the_trial_goes_as_it_is_written(terminals: list[Terminal]) -> None:
    kafka, first, second = terminals
    [start] = after("2. A Kafka that asks who calls")
    kafka.type(start.strip())
    kafka.wait_for(ADDRESSES["trial: certificate"])
    begin, look, rehearse = after("4. Run, look, ask")
    prepare, run = begin.rstrip().rsplit("\n", 1)
    for mark, words in ADDRESSES.items():
        port = re.search(rf"{words} *localhost:(\d+)", kafka.said)
        assert port is not None
        for terminal in (first, second):
            terminal.run(block(mark).replace("PORT", port[1]).rstrip())
        for line in prepare.splitlines():
            first.run(line)
        if mark == "trial: password":
            first.type(run)
            first.wait_for("\nrunning")
            told = {line: answered(second, line) for line in look.splitlines()}
            status, query, topics, console = told.values()
            assert "word-count  running" in status
            assert "the = " in query
            assert "word-count-word-counts-changelog" in topics
            assert "/console#token=" in console
            assert "trial-password" not in "".join(told.values())
            assert first.interrupt().endswith("=0")
        else:
            assert "word-count-word-counts-changelog" in second.run(look.splitlines()[2])
        assert "--execute" in first.run(rehearse.strip())
        assert_refused(second, mark)


def answered(terminal: Terminal, line: str) -> str:
    """What the command says; what was sent a moment ago may be on its way to the store."""
    said = terminal.run(line)
    if line.startswith("penstock query"):
        wait_until(
            lambda: "the = " in terminal.run(line), what="it was counted", seconds=PATIENCE_SECONDS
        )
        said = terminal.run(line)
    return said


MISTAKES = {
    "trial: password": [
        ("trial-password", "guess", "Kafka does not know this user with this password"),
        ("ca.pem", "broker.pem", "The broker's certificate is not to be trusted"),
    ],
    "trial: certificate": [
        (r",?    \"ssl.certificate*", r"\}", "Kafka wants a certificate of this client"),
    ],
}
"""What of the variable is to be what instead, as the page says to try, and what is told then."""


def assert_refused(terminal: Terminal, mark: str) -> None:
    for before, wrong, told in MISTAKES[mark]:
        line = f"PENSTOCK_KAFKA=${{PENSTOCK_KAFKA/{before}/{wrong}}} penstock topics describe"
        said = terminal.run(f"! {line} word_count.py")
        assert told in said
        assert f"| {told} |" in PAGE.read_text()


def test_the_rights_of_the_page_are_given_by_kafkas_own_program(
    guarded: Guarded, tmp_path: Path
) -> None:
    program = tmp_path / "kafka-acls"
    classes = ":".join(map(str, ensure(BROKER)))
    java = f"exec '{find_java().program}' -XX:TieredStopAtLevel=1 -cp '{classes}'"
    where = f"--bootstrap-server {guarded.plain_servers}"
    program.write_text(f'#!/bin/sh\n{java} org.apache.kafka.tools.AclCommand "$@" {where}\n')
    program.chmod(0o755)
    # Side by side: each is a program in Java.
    lines = block("trial: rights").replace("\\\n", " ").splitlines()
    path = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    started = [
        subprocess.Popen(["bash", "-c", each], env=path, stdout=-1, stderr=-2, text=True)
        for each in lines
    ]
    told = [each.communicate(timeout=PATIENCE_SECONDS)[0] for each in started]
    assert [each.returncode for each in started] == [0] * len(lines), "\n".join(told)
    names = {name: name for name in ("lines", "word-totals", "word-count")}
    allow(guarded.plain_servers, "same", names)
    assert rights_of(guarded, "word-count") == rights_of(guarded, "same") != set()


def rights_of(guarded: Guarded, user: str) -> set[tuple[object, ...]]:
    """What a user may do, whoever allowed it."""
    admin = AdminClient({"bootstrap.servers": guarded.plain_servers, "log_level": 0})
    of_user = AclBindingFilter(
        ResourceType.ANY,
        None,
        ResourcePatternType.ANY,
        f"User:{user}",
        None,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    return {
        (each.restype, each.name, each.resource_pattern_type, each.operation, each.host)
        for each in admin.describe_acls(of_user).result(30)
    }
