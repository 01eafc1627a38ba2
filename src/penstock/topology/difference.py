"""One difference between two topologies, and what such a difference is told with."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Literal

import msgspec

Severity = Literal["harmless", "orphans", "misreads"]
"""`orphans`: state or records are left behind. `misreads`: they would be taken for others."""
Kind = Literal[
    "store_added",
    "store_removed",
    "store_returned",
    "store_moved",
    "store_width_changed",
    "store_kind_changed",
    "store_serde_changed",
    "store_exchanged",
    "store_renumbered",
    "store_limit_changed",
    "store_place_changed",
    "window_size_changed",
    "window_kind_changed",
    "window_starts_changed",
    "waiting_changed",
    "retention_changed",
    "logging_changed",
    "source_added",
    "source_removed",
    "repartition_added",
    "repartition_removed",
    "repartition_serde_changed",
    "repartition_windows_changed",
    "repartition_exchanged",
    "repartition_renumbered",
    "global_table_added",
    "global_table_removed",
    "global_table_changed",
]

RESET = "use a new application id"


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One difference: what changed, what that does, and what to do."""

    kind: Kind
    severity: Severity
    name: str
    change: str
    advice: str

    def __str__(self) -> str:
        return f"{self.severity}: {self.change}. {self.advice}"


def are_exchanged(was: tuple[str, ...], now: tuple[str, ...], sources: set[str]) -> bool:
    """Whether something is made of records that the old program read, too, and took for others.

    A topic that is new may be an old one under another name.
    """
    return bool(was and now) and not set(was) & set(now) and set(now) <= sources


def listed(names: Iterable[str]) -> str:
    """Names in a sentence."""
    return ", ".join(sorted(names)) or "nothing"


def span(milliseconds: int | None) -> str:
    """A span of time in a sentence."""
    if milliseconds is None:
        return "unlimited"
    try:
        return str(timedelta(milliseconds=milliseconds))
    except OverflowError:
        return "unlimited"
