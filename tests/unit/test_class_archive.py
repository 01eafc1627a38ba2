"""Which options a JVM gets for its archive of classes."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from penstock.cli import prepare
from penstock.local.class_archive import MAKING_VARIABLE, ClassArchive, archive_directory


@pytest.fixture
def prefix(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    return tmp_path


def test_without_an_archive_java_starts_as_ever(prefix: Path) -> None:
    assert ClassArchive("spark", ("a", "b")).options() == []


def test_an_archive_of_the_same_sources_is_used(prefix: Path) -> None:
    archive = ClassArchive("spark", ("java 17", "spark 4"))
    archive_directory().mkdir(parents=True)
    (archive_directory() / archive.file_name).touch()
    assert (
        archive.options()[0] == f"-XX:SharedArchiveFile={archive_directory()}/{archive.file_name}"
    )
    assert ClassArchive("spark", ("java 21", "spark 4")).options() == []


def test_whoever_makes_archives_writes_them_elsewhere(
    prefix: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(MAKING_VARIABLE, "/making")
    archive = ClassArchive("kafka", ("java 17",))
    assert archive.options()[0] == f"-XX:ArchiveClassesAtExit=/making/{archive.file_name}"


class Preparing:
    """`penstock prepare` where nothing is fetched, and Java writes what a test says."""

    def __init__(self, prefix: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.runs = 0
        self.writes = ["spark", "kafka"]
        self.went_well = True
        self.wanted = {name: ClassArchive(name, ("jar",)).file_name for name in self.writes}
        monkeypatch.setattr(prepare, "ensure", lambda *_, **__: ())
        monkeypatch.setattr(prepare, "find_java", lambda: SimpleNamespace(program=Path("java")))
        monkeypatch.setattr(prepare, "driver_archive", lambda *_: ClassArchive("spark", ("jar",)))
        monkeypatch.setattr(prepare, "broker_archive", lambda *_: ClassArchive("kafka", ("jar",)))
        monkeypatch.setattr(prepare, "_run_once", self.run)

    def run(self, making: Path) -> bool:
        self.runs += 1
        for name in self.writes:
            (making / self.wanted[name]).write_text("classes")
        return self.went_well


def test_prepare_says_what_java_did_not_write_and_tries_it_again(
    prefix: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = Preparing(prefix, monkeypatch)
    java.writes = ["spark"]
    first = prepare.prepared(kafka_streams=False)
    assert (first.made, first.missing) == (False, {java.wanted["kafka"]})
    assert "1 archive of Java's classes could not be kept" in first.text
    java.writes, java.went_well = ["spark", "kafka"], False  # It was killed as it wrote.
    assert not prepare.prepared(kafka_streams=False).made
    java.went_well = True
    assert prepare.prepared(kafka_streams=True).text == "Spark and Kafka start quickly now."
    assert prepare.prepared(kafka_streams=True).text == "All is prepared already."
    assert java.runs == 3


def test_prepare_removes_what_is_outdated_only_when_the_new_is_there(
    prefix: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = Preparing(prefix, monkeypatch)
    archive_directory().mkdir(parents=True)
    old = archive_directory() / "spark-of-another-java.jsa"
    old.touch()
    java.went_well = False
    prepare.prepared(kafka_streams=False)
    assert old.exists()
    java.went_well = True
    prepare.prepared(kafka_streams=False)
    assert prepare.archives_in(archive_directory()) == set(java.wanted.values())
