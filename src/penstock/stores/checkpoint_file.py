"""The `.checkpoint` file of a task directory, in Kafka's text format.

People and tools read it; Penstock itself trusts the offset inside each store.

    0                                      the format's version
    1                                      how many lines follow
    app-counts-changelog 3 4711            topic, partition, offset of the last record applied
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

from penstock.errors import StateDirectoryError
from penstock.stores.failures import directory_error

VERSION = 0
OFFSET_UNKNOWN = -4
"""Kafka's mark for a store whose offset is not known; the one negative offset that is valid."""

Offsets = Mapping[tuple[str, int], int]


def format_checkpoint(offsets: Offsets) -> str:
    """The file's text for these offsets.

    >>> format_checkpoint({("app-counts-changelog", 3): 4711})
    '0\\n1\\napp-counts-changelog 3 4711\\n'
    """
    lines = [str(VERSION), str(len(offsets))]
    for (topic, partition), offset in offsets.items():
        if offset < 0 and offset != OFFSET_UNKNOWN:
            raise ValueError(f"{topic} {partition} cannot have the offset {offset}")
        lines.append(f"{topic} {partition} {offset}")
    return "\n".join(lines) + "\n"


def parse_checkpoint(text: str) -> dict[tuple[str, int], int]:
    """The offsets in the file's text; raises `ValueError` for anything that is not this format.

    >>> parse_checkpoint("0\\n1\\napp-counts-changelog 3 4711\\n")
    {('app-counts-changelog', 3): 4711}
    """
    version, count, *lines = text.split("\n") if text.count("\n") else [text, ""]
    if _number(version) != VERSION:
        raise ValueError(f"version {version!r} is not {VERSION}")
    lines = [line for line in lines if line]
    if _number(count) != len(lines):
        raise ValueError(f"{len(lines)} lines where {count!r} were announced")
    offsets: dict[tuple[str, int], int] = {}
    for line in lines:
        fields = line.split()
        if len(fields) != 3:
            raise ValueError(f"line {line!r} has {len(fields)} fields, not 3")
        offset = _number(fields[2])
        # As Kafka does: other negative offsets were never valid, so they say nothing.
        if offset >= 0 or offset == OFFSET_UNKNOWN:
            offsets[fields[0], _number(fields[1])] = offset
    return offsets


def read_checkpoint(path: Path) -> dict[tuple[str, int], int]:
    """The offsets in a file; none if there is no file."""
    try:
        return parse_checkpoint(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise directory_error(error, path) from error
    except ValueError as error:
        raise StateDirectoryError(
            f"The checkpoint file is malformed: {error}",
            where={"path": path},
            hint="Delete it; each store holds its own offset",
        ) from error


def write_checkpoint(path: Path, offsets: Offsets) -> None:
    """Replace the file, whole or not at all; no offsets, no file."""
    try:
        if not offsets:
            path.unlink(missing_ok=True)
            return
        write_atomically(path, format_checkpoint(offsets))
    except OSError as error:
        raise directory_error(error, path) from error


def write_atomically(path: Path, text: str) -> None:
    """Replace a small file so that a crash leaves the old text or the new, never a part."""
    temporary = path.with_name(path.name + ".tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    _sync_directory(path.parent)


def _sync_directory(directory: Path) -> None:
    # Without this the rename itself may be lost with the power. Some file systems cannot do it.
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with contextlib.suppress(OSError):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _number(text: str) -> int:
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()):
        raise ValueError(f"{text!r} is not a number")
    return int(text)
