"""What the console shows, and from whom it has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

RECORDS_MAX = 100
"""How many of a topic's records are shown at most."""


class Watched(Protocol):
    """A running application, as the console sees it. Every answer can be written as JSON."""

    def overview(self) -> Mapping[str, Any]:
        """What it is, who is there, where every task stands."""
        ...

    def topology_svg(self) -> str:
        """Its topology as a picture; shapes and edges bear their names."""
        ...

    def rates(self) -> Mapping[str, Any]:
        """Records a second: `steps` by name, and `edges` with `from`, `to` and `rate`."""
        ...

    def options(self) -> list[Mapping[str, str]]:
        """Its options with `name`, `value` and `doc`; secrets are hidden."""
        ...

    def topics(self) -> list[Mapping[str, Any]]:
        """Its topics: partitions, configs, how many records each holds, and in how many bytes."""
        ...

    def records(self, topic: str, partition: int, limit: int) -> list[Mapping[str, Any]]:
        """The latest records of a partition of one of its topics."""
        ...

    def groups(self) -> list[Mapping[str, Any]]:
        """Its consumer group: each partition with position, end and lag."""
        ...
