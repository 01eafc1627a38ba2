"""Which options a JVM gets for its archive of classes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

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
