"""Run seeds, and say what they did: python -m tests.simulation SEEDS [FROM]."""

from __future__ import annotations

import sys
import time

from tests.simulation.run import SeedError, run_seeds

ENOUGH = 500
"""So many seeds must have reached everything; fewer may not."""


def main(arguments: list[str]) -> int:
    """With one seed, also what happened in it."""
    count = int(arguments[0]) if arguments else ENOUGH
    first = int(arguments[1]) if len(arguments) > 1 else 0
    began = time.monotonic()
    try:
        report = run_seeds(first, count, trace=count == 1)
    except SeedError as error:
        print(error)
        seed = str(error).split(":")[0].removeprefix("seed ")
        print(f"What happened: python -m tests.simulation 1 {seed}")
        return 1
    print(report)
    print(f"No violation, in {time.monotonic() - began:.0f} s")
    if count >= ENOUGH and report.never:
        print(f"Never reached: {', '.join(report.never)}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
