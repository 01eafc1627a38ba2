"""How many records go from step to step, where each goes alone."""

from __future__ import annotations

from collections.abc import Callable

from penstock.processors.depth_first.record import Record
from penstock.processors.meter import SliceMeter

Entry = Callable[[Record], None]


class EdgeCounter:
    """Counts records on their way, if that is asked for: it costs something for each of them."""

    def __init__(self, meter: SliceMeter) -> None:
        self._meter = meter
        self._counts: dict[tuple[str, str], int] = {}

    def watched(self, parent: str, child: str, entry: Entry) -> Entry:
        """The entry of a step, for what one other step sends there."""
        if not self._meter.debug:
            return entry
        counts, edge = self._counts, (parent, child)
        counts[edge] = 0

        def process(record: Record) -> None:
            counts[edge] += 1
            entry(record)

        return process

    def finish(self) -> None:
        """Tell the meter."""
        for (parent, child), count in self._counts.items():
            self._meter.went(parent, child, count)
