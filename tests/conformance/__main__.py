"""`python -m tests.conformance SEEDS [FROM]`: compare Penstock with Kafka Streams, seed by seed.

The last line is one JSON object; the exit status is 1 if anything differed or was not supported,
or if the run covered too little: fewer than 90 % of the seeds with output, or a pair of stateful
operators with fewer than 20 seeds of 5,000. Pairs that chance gave too few get some seeds more.
For every ten seeds there is one of a processor's stores.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from penstock.processors import choice
from tests.conformance import programs
from tests.conformance.cases import STATEFUL, Case, matrix, printed
from tests.conformance.compare import difference, shrunk, side_by_side
from tests.conformance.coverage import cases_of, shortfalls
from tests.conformance.oracle import Answer, Oracle
from tests.conformance.programs import UnsupportedError
from tests.conformance.store_commands import StoreCase, make_store_case, run_store_case

# So many seeds make one of what processors do with their stores.
STORES_EACH = 10


@dataclass
class _Totals:
    """What a run has seen."""

    seeds: int = 0
    with_output: int = 0
    compared: int = 0
    failing: list[int] = field(default_factory=list)
    unsupported: Counter[str] = field(default_factory=Counter)
    cells: Counter[tuple[str, str]] = field(default_factory=lambda: matrix([]))
    stores: int = 0
    failing_stores: list[int] = field(default_factory=list)


def main(arguments: list[str] | None = None) -> int:
    """Run the seeds; 0 if Penstock gave Kafka Streams' answers to all of them."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument("seeds", type=int, help="how many seeds")
    parser.add_argument("first", type=int, nargs="?", default=0, help="the first seed")
    parser.add_argument("--show", type=int, default=3, help="how many differences to print")
    parser.add_argument("--no-stores", action="store_true", help="compare records alone")
    parser.add_argument("--matrix", action="store_true", help="print the matrix of pairs")
    options = parser.parse_args(arguments)
    totals, started = _Totals(), time.monotonic()
    # Few records are joined here as many are elsewhere; both ways are compared by unit tests.
    choice.FEW_RECORDS = 0
    with Oracle() as oracle:
        for case, expected in oracle.ask_all(cases_of(options.first, options.seeds)):
            _compare(oracle, case, expected, totals, options)
        for seed in range(options.first, options.first + options.seeds // STORES_EACH):
            _compare_stores(oracle, make_store_case(seed), totals)
    if options.matrix:
        _print_matrix(totals.cells)
    for operator, count in totals.unsupported.most_common():
        print(f"unsupported: {count} x {operator}")
    summary = _summary(totals, time.monotonic() - started)
    share, fewest = summary["with_output"], summary["fewest_seeds_of_a_pair"]
    lacking = shortfalls(options.seeds, totals.seeds, share, fewest)
    for each in lacking:
        print(f"covered too little: {each}")
    print(json.dumps(summary))
    failed = summary["failures"] or summary["store_failures"] or summary["unsupported"]
    return 1 if failed or lacking else 0


def _compare(
    oracle: Oracle, case: Case, expected: Answer, totals: _Totals, options: argparse.Namespace
) -> None:
    totals.seeds += 1
    totals.with_output += any(expected.get("outputs", ()))
    totals.cells.update(case.pairs)
    if expected.get("at") == -1:
        raise RuntimeError(f"Seed {case.seed} is no topology: {expected['error']}")
    try:
        actual = programs.run(case)
    except UnsupportedError as missing:
        totals.unsupported[str(missing)] += 1
        return
    totals.compared += 1
    reason = difference(case, expected, actual, stores=not options.no_stores)
    if reason is None:
        return
    totals.failing.append(case.seed)
    print(f"\nseed {case.seed} ({', '.join(case.operators)}): {reason}", flush=True)
    if len(totals.failing) <= options.show:
        _show(oracle, case, stores=not options.no_stores)


def _compare_stores(oracle: Oracle, case: StoreCase, totals: _Totals) -> None:
    """What processors find in their stores."""
    totals.stores += 1
    expected, actual = oracle.ask_stores(case), run_store_case(case)
    if expected != actual:
        totals.failing_stores.append(case.seed)
        print(f"\nstores of seed {case.seed}: {case.store}\n  {expected}\n  {actual}", flush=True)


def _show(oracle: Oracle, case: Case, *, stores: bool) -> None:
    def answers(candidate: Case) -> tuple[Answer, Answer]:
        return oracle.ask(candidate), programs.run(candidate)

    def reason(candidate: Case) -> str | None:
        return difference(candidate, *answers(candidate), stores=stores)

    small = shrunk(case, lambda candidate: reason(candidate) is not None)
    expected, actual = answers(small)
    print(printed(small))
    print(difference(small, expected, actual, stores=stores))
    print(side_by_side(small, expected, actual), flush=True)


def _print_matrix(cells: Counter[tuple[str, str]]) -> None:
    print("rows: the upper operator, columns: the lower one, in the same order")
    for upper in STATEFUL:
        row = " ".join(f"{cells[upper, lower]:4}" for lower in STATEFUL)
        print(f"{upper:>13} {row}")


def _summary(totals: _Totals, seconds: float) -> dict[str, Any]:
    return {
        "seeds": totals.seeds,
        "failures": len(totals.failing),
        "first_failing_seed": min(totals.failing, default=None),
        "store_seeds": totals.stores,
        "store_failures": len(totals.failing_stores),
        "unsupported": sum(totals.unsupported.values()),
        "compared": totals.compared,
        "with_output": round(totals.with_output / max(1, totals.seeds), 4),
        "pairs": len(totals.cells),
        "fewest_seeds_of_a_pair": min(totals.cells.values()),
        "seconds": round(seconds, 1),
    }


if __name__ == "__main__":
    sys.exit(main())
