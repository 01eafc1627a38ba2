"""Run seeds, and say what they did: python -m tests.simulation SEEDS [FROM].

The last line is one JSON object; the exit status is 1 if a seed showed a violation, if many seeds
did not reach everything, or if an assignment of 10,000 tasks takes too long or moves too much.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from tests.simulation import assignment_size
from tests.simulation.run import Part, run_part

ENOUGH = 500
"""So many seeds must have reached everything; fewer may not."""
PART = 50
SHOWN = 3
TASKS, INSTANCES = 10_000, 1_000
SECONDS_MAX = 2.0


def main(arguments: list[str] | None = None) -> int:
    """With one seed, also what happened in it."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("seeds", type=int, nargs="?", default=ENOUGH, help="how many seeds")
    parser.add_argument("first", type=int, nargs="?", default=0, help="the first seed")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(arguments)
    began = time.monotonic()
    found = Part()
    for part in _parts(options.first, options.seeds, options.processes):
        found.report.add(part.report)
        found.failing |= part.failing
    for seed, error in list(found.failing.items())[:SHOWN]:
        print(error)
        print(f"What happened: python -m tests.simulation 1 {seed}")
    print(found.report)
    never = found.report.never if options.seeds >= ENOUGH else []
    size = _assignment() if options.seeds >= ENOUGH else {}
    summary = {
        "seeds": options.seeds,
        "failures": len(found.failing),
        "first_failing_seed": min(found.failing, default=None),
        "faults": found.report.faults.total(),
        "fewest_faults_of_a_seed": found.report.fewest_faults,
        "branches": len(found.report.branches),
        "never_reached": never,
        **size,
        "seconds": round(time.monotonic() - began, 1),
    }
    print(json.dumps(summary))
    return 1 if found.failing or never or (size and not _is_good(size)) else 0


def _parts(first: int, count: int, processes: int) -> Iterator[Part]:
    """All seeds, a part after the other."""
    starts = range(first, first + count, PART)
    sizes = [min(PART, first + count - start) for start in starts]
    if len(sizes) == 1:
        yield run_part(first, count)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        yield from pool.map(run_part, starts, sizes)


def _is_good(size: dict[str, Any]) -> bool:
    """Whether a large assignment is made in time, and moves no more than it must."""
    is_quick = bool(size["assignment_seconds"] < SECONDS_MAX)
    return is_quick and bool(size["assignment_moved"] <= size["assignment_must_move"])


def _assignment() -> dict[str, Any]:
    """How long a large assignment takes at most, how many tasks move, and how many must."""
    lines = list(assignment_size.run(TASKS, INSTANCES, standbys=0))
    for line in lines:
        print(line)
    return {
        "assignment_seconds": round(max(line.seconds for line in lines), 2),
        "assignment_moved": sum(line.moved for line in lines),
        "assignment_must_move": sum(line.must for line in lines),
    }


if __name__ == "__main__":
    sys.exit(main())
