"""File systems of a test's own, which can be full or read-only, and what is on the disk at all."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

_FILES_MAX = 256


@contextlib.contextmanager
def small_disk(path: Path) -> Iterator[None]:
    """A disk of 64 MiB and a few hundred files, for as long as the block lasts."""
    path.mkdir()
    options = f"size=64m,nr_inodes={_FILES_MAX}"
    if subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", path]).returncode:
        pytest.skip("this user may not mount a file system")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", path], check=True)


def fill(path: Path) -> None:
    """Leave no room on a disk, neither for a byte nor for a name."""
    filler = path / "filler"
    filler.mkdir()
    with contextlib.suppress(OSError), (filler / "data").open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 65536)
    with contextlib.suppress(OSError):
        for number in range(_FILES_MAX):
            (filler / str(number)).touch()


def empty(path: Path) -> None:
    """Make room on a disk that was filled."""
    for each in (path / "filler").iterdir():
        each.unlink()
    (path / "filler").rmdir()


@contextlib.contextmanager
def read_only(path: Path) -> Iterator[None]:
    """Let nobody make, open for writing or rename a file of a disk, be it in use or not.

    What is open stays so: a second mount lies over the first, which the kernel would not change.
    """
    subprocess.run(["mount", "--bind", path, path], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", path], check=True)
        yield
    finally:
        subprocess.run(["umount", "--lazy", path], check=True)


def on_disk(path: Path, values: Iterable[bytes]) -> int:
    """How many of the values are in a store's files.

    They are to be random: of what does not compress, every byte stands there as it was given.
    """
    held = b""
    for file in path.iterdir():
        with contextlib.suppress(FileNotFoundError):
            held += file.read_bytes()
    return sum(value in held for value in values)


def wait_until_gone(path: Path, values: Iterable[bytes]) -> None:
    """Fail if one of the values is in a store's files still when it has had time to tidy up."""
    given = list(values)
    until = time.monotonic() + 30
    while found := on_disk(path, given):
        assert time.monotonic() < until, f"{found} of {len(given)} values are on the disk"
        time.sleep(0.05)
