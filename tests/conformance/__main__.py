"""`python -m tests.conformance SEEDS [FROM]`: compare Penstock with Kafka Streams, seed by seed.

The last line is one JSON object; the exit status is 1 if anything differed or was not supported,
or if the run covered too little: fewer than 90 % of the seeds with output, or a pair of stateful
operators with fewer than 20 seeds of 5,000. Pairs that chance gave too few get some seeds more.
For every ten seeds there is one of a processor's stores, one of changelogs and one of keys that
stay windowed, for every five one at the edges, and for every two one of processors.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from penstock.processors import choice
from tests.conformance import programs
from tests.conformance.cases import STATEFUL, Case, matrix, printed
from tests.conformance.changelogs import changelogs_difference, make_logged_case
from tests.conformance.compare import difference, shrunk, side_by_side
from tests.conformance.coverage import cases_of, shortfalls, shortfalls_of_kinds
from tests.conformance.edge_cases import make_edge_case
from tests.conformance.oracle import Answer, Oracle
from tests.conformance.processor_cases import KINDS, covered, make_processor_case
from tests.conformance.programs import UnsupportedError
from tests.conformance.store_commands import StoreCase, make_store_case, run_store_case
from tests.conformance.windowed_cases import make_windowed_case

# So many seeds make one of what processors do with their stores.
STORES_EACH = 10
# And so many make one of what is in changelogs.
CHANGELOGS_EACH = 10
# And so many make one of keys that stay windowed.
WINDOWED_EACH = 10
# And so many make one at the edges.
EDGES_EACH = 5
# And so many make one of processors in a topology.
PROCESSORS_EACH = 2
PARTS = ("topologies", "windowed", "edges", "stores", "changelogs", "processors")


@dataclass
class _Totals:
    """What a run has seen."""

    seeds: int = 0
    with_output: int = 0
    compared: int = 0
    failing: list[int] = field(default_factory=list)
    unsupported: Counter[str] = field(default_factory=Counter)
    cells: Counter[tuple[str, str]] = field(default_factory=lambda: matrix([]))


@dataclass
class _Processors(_Totals):
    """The same of the cases with processors."""

    kinds: Counter[str] = field(default_factory=lambda: Counter(dict.fromkeys(KINDS, 0)))
    beside: set[tuple[str, str, bool]] = field(default_factory=set)


@dataclass
class _Seen:
    """The same of all parts."""

    totals: _Totals = field(default_factory=_Totals)
    windowed: _Totals = field(default_factory=_Totals)
    edges: _Totals = field(default_factory=_Totals)
    stores: _Totals = field(default_factory=_Totals)
    changelogs: _Totals = field(default_factory=_Totals)
    processors: _Processors = field(default_factory=_Processors)


def main(arguments: list[str] | None = None) -> int:
    """Run the seeds; 0 if Penstock gave Kafka Streams' answers to all of them."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument("seeds", type=int, help="how many seeds")
    parser.add_argument("first", type=int, nargs="?", default=0, help="the first seed")
    parser.add_argument("--show", type=int, default=3, help="how many differences to print")
    parser.add_argument("--no-stores", action="store_true", help="compare records alone")
    parser.add_argument("--matrix", action="store_true", help="print the matrix of pairs")
    parser.add_argument("--only", choices=PARTS, help="compare these alone")
    options = parser.parse_args(arguments)
    parts = PARTS if options.only is None else (options.only,)
    seen = _Seen()
    started = time.monotonic()
    # Few records are joined here as many are elsewhere; both ways are compared by unit tests.
    choice.FEW_RECORDS = 0
    with Oracle() as oracle:
        _compare_parts(oracle, parts, seen, options)
    totals, processors = seen.totals, seen.processors
    if options.matrix:
        _print_matrix(totals.cells)
    for operator, count in (totals.unsupported + processors.unsupported).most_common():
        print(f"unsupported: {count} x {operator}")
    summary = _summary(seen, time.monotonic() - started)
    lacking = []
    if totals.seeds:
        share, fewest = summary["with_output"], summary["fewest_seeds_of_a_pair"]
        lacking += shortfalls(options.seeds, totals.seeds, share, fewest)
    if processors.seeds:
        lacking += shortfalls_of_kinds(processors.seeds, _share(processors), processors.kinds)
    for each in lacking:
        print(f"covered too little: {each}")
    print(json.dumps(summary))
    every = (totals, seen.windowed, seen.edges, seen.stores, seen.changelogs, processors)
    failed = [each for each in every if each.failing or each.unsupported]
    return 1 if failed or lacking else 0


def _compare_parts(
    oracle: Oracle, parts: tuple[str, ...], seen: _Seen, options: argparse.Namespace
) -> None:
    if "topologies" in parts:
        _compare_all(oracle, cases_of(options.first, options.seeds), seen.totals, options)
    if "windowed" in parts:
        cases = map(make_windowed_case, _seeds(options, WINDOWED_EACH))
        _compare_all(oracle, cases, seen.windowed, options)
    if "edges" in parts:
        cases = map(make_edge_case, _seeds(options, EDGES_EACH))
        _compare_all(oracle, cases, seen.edges, options)
    if "stores" in parts:
        for seed in _seeds(options, STORES_EACH):
            _compare_stores(oracle, make_store_case(seed), seen.stores)
    if "changelogs" in parts:
        cases = map(make_logged_case, _seeds(options, CHANGELOGS_EACH))
        for case, expected in oracle.ask_all(cases, changelogs=True):
            _compare_changelogs(case, expected, seen.changelogs)
    if "processors" in parts:
        cases = map(make_processor_case, _seeds(options, PROCESSORS_EACH))
        for case, expected in oracle.ask_all(cases):
            seen.processors.kinds.update(set(case.operators) & KINDS.keys())
            seen.processors.beside.update(covered(case))
            _compare(oracle, case, expected, seen.processors, options)


def _seeds(options: argparse.Namespace, each: int) -> range:
    """The seeds of a part that has one for every so many, if it is not alone."""
    count = options.seeds if options.only else options.seeds // each
    return range(options.first, options.first + count)


def _compare_all(
    oracle: Oracle, cases: Iterable[Case], totals: _Totals, options: argparse.Namespace
) -> None:
    for case, expected in oracle.ask_all(cases):
        totals.cells.update(case.pairs)
        _compare(oracle, case, expected, totals, options)


def _compare(
    oracle: Oracle, case: Case, expected: Answer, totals: _Totals, options: argparse.Namespace
) -> None:
    totals.seeds += 1
    totals.with_output += any(expected.get("outputs", ()))
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
    totals.seeds += 1
    expected, actual = oracle.ask_stores(case), run_store_case(case)
    if expected != actual:
        totals.failing.append(case.seed)
        print(f"\nstores of seed {case.seed}: {case.store}\n  {expected}\n  {actual}", flush=True)


def _compare_changelogs(case: Case, expected: Answer, totals: _Totals) -> None:
    """What a store would be that is restored from what was written."""
    totals.seeds += 1
    reason = changelogs_difference(case, expected)
    if reason is not None:
        totals.failing.append(case.seed)
        operators = ", ".join(case.operators)
        print(f"\nchangelogs of seed {case.seed} ({operators}): {reason}", flush=True)


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


def _share(totals: _Totals) -> float:
    return round(totals.with_output / max(1, totals.seeds), 4)


def _summary(seen: _Seen, seconds: float) -> dict[str, Any]:
    totals, windowed = seen.totals, seen.windowed
    edges, processors = seen.edges, seen.processors
    return {
        "seeds": totals.seeds,
        "failures": len(totals.failing),
        "first_failing_seed": min(totals.failing, default=None),
        "windowed_seeds": windowed.seeds,
        "windowed_failures": len(windowed.failing),
        "first_failing_windowed_seed": min(windowed.failing, default=None),
        "edge_seeds": edges.seeds,
        "edge_failures": len(edges.failing),
        "first_failing_edge_seed": min(edges.failing, default=None),
        "store_seeds": seen.stores.seeds,
        "store_failures": len(seen.stores.failing),
        "changelog_seeds": seen.changelogs.seeds,
        "changelog_failures": len(seen.changelogs.failing),
        "processor_seeds": processors.seeds,
        "processor_failures": len(processors.failing),
        "first_failing_processor_seed": min(processors.failing, default=None),
        "unsupported": (totals.unsupported + processors.unsupported).total(),
        "compared": totals.compared,
        "with_output": _share(totals),
        "processors_with_output": _share(processors),
        "pairs": len(totals.cells),
        "fewest_seeds_of_a_pair": min(totals.cells.values()),
        "processor_kinds": len(processors.kinds),
        "fewest_seeds_of_a_kind": min(processors.kinds.values()),
        "processors_beside_operators": len(processors.beside),
        "seconds": round(seconds, 1),
    }


if __name__ == "__main__":
    sys.exit(main())
