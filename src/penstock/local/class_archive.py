"""Java's classes, parsed and checked once, in a file that a JVM maps at its start.

A JVM reads thousands of classes before it does anything: half of Spark's time to start, and of
Kafka's. Java can write them to an archive as it ends (class data sharing), and a later JVM with the
same classpath starts from that. One that does not fit is ignored by Java itself.
"""

from __future__ import annotations

import hashlib
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from penstock.local.jars import cache_directory

MAKING_VARIABLE = "PENSTOCK_MAKE_CLASS_ARCHIVES"
"""Names the directory into which the JVMs of this process write their archives as they end."""


@dataclass(frozen=True)
class ClassArchive:
    """The archive of one kind of JVM: its name, and what its classes come from."""

    name: str
    sources: tuple[str, ...]

    @property
    def file_name(self) -> str:
        """A name that changes with what the classes come from."""
        key = hashlib.sha256("\n".join(self.sources).encode()).hexdigest()[:16]
        return f"{self.name}-{key}.jsa"

    def options(self) -> list[str]:
        """The options that have a JVM use the archive, or write it, or neither."""
        making = os.environ.get(MAKING_VARIABLE)
        if making:
            return [f"-XX:ArchiveClassesAtExit={making}/{self.file_name}", "-Xlog:disable"]
        path = archive_directory() / self.file_name
        # Without the second option Java prints to our standard output why an archive does not fit.
        return [f"-XX:SharedArchiveFile={path}", "-Xlog:disable"] if path.exists() else []


def are_being_made() -> bool:
    """Whether the JVMs of this process write archives as they end, which takes them a while."""
    return bool(os.environ.get(MAKING_VARIABLE))


def archive_directory() -> Path:
    """Where archives are kept: in the virtual environment whose packages they are made from.

    They go with it, being of no use to another. Without one, the user's cache has them.
    """
    if sys.prefix == sys.base_prefix:
        return cache_directory() / "classes"
    return Path(sys.prefix) / "share" / "penstock" / "classes"
