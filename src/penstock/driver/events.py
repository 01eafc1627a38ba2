"""What the driver tells those who watch it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

DriverState = Literal[
    "created", "starting", "restoring", "running", "stopping", "stopped", "failed"
]


@dataclass(frozen=True, kw_only=True)
class StateChanged:
    """The application went from one state to another."""

    old: DriverState
    new: DriverState


@dataclass(frozen=True, kw_only=True)
class Notice:
    """Something that an operator should know, though the application goes on."""

    text: str


@dataclass(frozen=True, kw_only=True)
class BatchEnded:
    """A job ended, with what its tasks did."""

    sub_topology: str
    records: int
    changes: int
    outputs: int
    seconds: float
    skipped: int


Event = StateChanged | Notice | BatchEnded
Listener = Callable[[Event], None]


@dataclass
class Totals:
    """What was done since the start."""

    records: int = 0
    changes: int = 0
    outputs: int = 0
    batches: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
