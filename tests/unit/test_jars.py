"""Jars are used when their bytes are the pinned ones, fetched when not, and never half written."""

from __future__ import annotations

import hashlib
import os
import stat
import threading
from pathlib import Path

import pytest

from penstock.errors import JavaMissingError, JvmPartsUnavailableError
from penstock.local import jars
from penstock.local.jars import Jar, JarSet, ensure
from penstock.local.java import find_java, parse_version
from penstock.local.pinned import BROKER, SPARK_KAFKA, STREAMS

CONTENT = {"one": b"first jar", "two": b"second jar"}
SET = JarSet(
    "a test",
    tuple(
        Jar("g", name, "1.0", hashlib.sha256(data).hexdigest()) for name, data in CONTENT.items()
    ),
)


class FakeIvy:
    """Stands for the download: writes what it is told to, and counts how often it was asked."""

    def __init__(self, content: dict[str, bytes], failure: str = "") -> None:
        self.content = content
        self.failure = failure
        self.asked: list[tuple[str, ...]] = []

    def __call__(self, java: Path, wanted: tuple[Jar, ...], stage: Path) -> str:
        self.asked.append(tuple(jar.name for jar in wanted))
        for jar in wanted:
            if jar.name in self.content:
                (stage / jar.file_name).write_bytes(self.content[jar.name])
        return self.failure


@pytest.fixture
def ivy(monkeypatch: pytest.MonkeyPatch) -> FakeIvy:
    fake = FakeIvy(dict(CONTENT))
    monkeypatch.setattr(jars, "_run_ivy", fake)
    return fake


def test_missing_jars_are_fetched_once(tmp_path: Path, ivy: FakeIvy) -> None:
    said: list[str] = []
    paths = ensure(SET, directory=tmp_path / "jars", report=said.append)
    assert [path.read_bytes() for path in paths] == list(CONTENT.values())
    assert len(said) == 1
    assert ensure(SET, directory=tmp_path / "jars", report=said.append) == paths
    assert ivy.asked == [("one", "two")]
    assert len(said) == 1


def test_only_what_is_missing_is_fetched(tmp_path: Path, ivy: FakeIvy) -> None:
    (tmp_path / "one-1.0.jar").write_bytes(CONTENT["one"])
    ensure(SET, directory=tmp_path)
    assert ivy.asked == [("two",)]


def test_a_jar_with_other_bytes_is_replaced(tmp_path: Path, ivy: FakeIvy) -> None:
    ensure(SET, directory=tmp_path)
    (tmp_path / "one-1.0.jar").write_bytes(b"tampered!")
    ensure(SET, directory=tmp_path)
    assert ivy.asked == [("one", "two"), ("one",)]
    assert (tmp_path / "one-1.0.jar").read_bytes() == CONTENT["one"]


def test_downloaded_bytes_that_differ_are_never_used(tmp_path: Path, ivy: FakeIvy) -> None:
    ivy.content["two"] = b"something else"
    with pytest.raises(JvmPartsUnavailableError, match=r"g:two:1\.0"):
        ensure(SET, directory=tmp_path)
    assert not (tmp_path / "two-1.0.jar").exists()
    # What was right is kept: the next run fetches the rest alone.
    assert (tmp_path / "one-1.0.jar").exists()


def test_no_network_names_the_jars_and_the_way_out(tmp_path: Path, ivy: FakeIvy) -> None:
    ivy.content.clear()
    ivy.failure = "host unreachable"
    with pytest.raises(JvmPartsUnavailableError) as caught:
        ensure(SET, directory=tmp_path)
    text = str(caught.value)
    assert "g:one:1.0" in text
    assert "host unreachable" in text
    assert "PENSTOCK_JARS" in text
    assert [path.name for path in tmp_path.glob(".fetch-*")] == []


def test_two_at_once_fetch_once(tmp_path: Path, ivy: FakeIvy) -> None:
    threads = [
        threading.Thread(target=ensure, args=(SET,), kwargs={"directory": tmp_path})
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ivy.asked == [("one", "two")]


def test_the_directory_comes_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_JARS", str(tmp_path / "given"))
    assert jars.jar_directory() == tmp_path / "given"
    monkeypatch.delenv("PENSTOCK_JARS")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert jars.jar_directory() == tmp_path / "penstock" / "jars"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_directory_says_so(tmp_path: Path, ivy: FakeIvy) -> None:
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    with pytest.raises(JvmPartsUnavailableError, match="PENSTOCK_JARS"):
        ensure(SET, directory=tmp_path)


@pytest.mark.parametrize("jar_set", [BROKER, SPARK_KAFKA, STREAMS], ids=lambda s: s.name)
def test_pinned_sets_are_whole(jar_set: JarSet) -> None:
    names = [jar.file_name for jar in jar_set.jars]
    assert len(set(names)) == len(names)
    assert all(len(jar.sha256) == 64 and int(jar.sha256, 16) for jar in jar_set.jars)


def test_sets_agree_on_shared_jars() -> None:
    # They live in one directory: two hashes for one file name would replace each other for ever.
    seen: dict[str, Jar] = {}
    for jar in (*BROKER.jars, *SPARK_KAFKA.jars, *STREAMS.jars):
        assert seen.setdefault(jar.file_name, jar) == jar


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('java version "1.8.0_392"', 8),
        ('Picked up JAVA_TOOL_OPTIONS: -Dx\nopenjdk version "25.0.1"', 25),
        ("bash: java: not found", None),
    ],
)
def test_java_versions(text: str, version: int | None) -> None:
    assert parse_version(text) == version


def test_no_java_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(JavaMissingError, match="openjdk-17-jre-headless"):
        find_java({"PATH": str(tmp_path)})


def test_an_old_java_is_named(tmp_path: Path) -> None:
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 'java version \"1.8.0_392\"' >&2\n")
    program.chmod(0o755)
    with pytest.raises(JavaMissingError, match="version 8") as caught:
        find_java({"JAVA_HOME": str(tmp_path), "PATH": os.environ["PATH"]})
    assert str(program) in str(caught.value)
