"""What a system's restore listener printed: when restores began and ended, and of how much."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from pathlib import Path

from bench.errors import BenchError
from bench.processes import Running

LINE = re.compile(r"^restore (start|end|suspended) (\d+) (\d+) (\d+)$", re.MULTILINE)
LOOK_SECONDS = 0.2


@dataclass(frozen=True)
class Restored:
    """All restores of a run, from the first start to the last end."""

    seconds: float
    records: int

    @property
    def per_second(self) -> float:
        return self.records / self.seconds


def restored(log: str, *, partitions: int) -> Restored | None:
    """The restores that a log tells of; None while not all partitions have come to their end.

    >>> lines = ["restore start 0 0 1000", "restore start 1 0 1200", "restore end 1 70 1500"]
    >>> restored("\\n".join(lines), partitions=2)
    >>> restored("\\n".join([*lines, "restore end 0 30 3000"]), partitions=2)
    Restored(seconds=2.0, records=100)
    """
    found = [(what, *map(int, numbers)) for what, *numbers in LINE.findall(log)]
    last = {partition: what for what, partition, _, _ in found}
    if list(last.values()).count("end") < partitions:
        return None
    times = [at for _, _, _, at in found]
    # One that was suspended goes on elsewhere: what it had done by then is not done again.
    records = sum(count for what, _, count, _ in found if what != "start")
    return Restored((max(times) - min(times)) / 1000, records)


def wait_restored(
    log: Path, *, partitions: int, processes: Running, timeout_seconds: float
) -> Restored:
    """The restores of a system that runs, once all have ended."""
    deadline = time.monotonic() + timeout_seconds
    while (found := restored(log.read_text(errors="replace"), partitions=partitions)) is None:
        processes.check()
        if time.monotonic() > deadline:
            raise BenchError(f"the stores were not restored within {timeout_seconds:.0f} s")
        time.sleep(LOOK_SECONDS)
    if not found.seconds:
        raise BenchError("the restores took no time: use more records (--records)")
    return found
