"""A run of the generator covers what a run must, whatever its first seed."""

from __future__ import annotations

import pytest

from tests.conformance.cases import Case, Step, matrix
from tests.conformance.coverage import (
    PAIR_SEEDS_MIN,
    cases_of,
    pair_seeds_needed,
    shortfalls,
    shortfalls_of_kinds,
)
from tests.conformance.processor_cases import KINDS, make_processor_case
from tests.conformance.record import recorded_for_pipeline


@pytest.mark.parametrize(("first", "seeds"), [(0, 500), (90_123, 1000)])
def test_every_pair_of_operators_has_its_share_of_the_seeds(first: int, seeds: int) -> None:
    cases = list(cases_of(first, seeds))
    assert [case.seed for case in cases[:seeds]] == list(range(first, first + seeds))
    assert len({case.seed for case in cases}) == len(cases)
    assert min(matrix(cases).values()) >= pair_seeds_needed(seeds) > 0


def test_a_run_that_covers_too_little_does_not_pass() -> None:
    assert shortfalls(5000, 5000, 0.9, PAIR_SEEDS_MIN) == []
    assert len(shortfalls(5000, 5000, 0.899, PAIR_SEEDS_MIN)) == 1
    assert len(shortfalls(5000, 5000, 0.9, PAIR_SEEDS_MIN - 1)) == 1
    # A handful of seeds, to look at one of them, is no run.
    assert shortfalls(3, 3, 0.0, 0) == []


def test_every_kind_of_processor_has_its_share_of_the_seeds() -> None:
    cases = [make_processor_case(seed) for seed in range(7, 7 + len(KINDS))]
    assert KINDS.keys() <= {each for case in cases for each in case.operators}
    assert make_processor_case(7) == cases[0]
    assert shortfalls_of_kinds(500, 0.95, dict.fromkeys(KINDS, 20)) == []
    assert len(shortfalls_of_kinds(500, 0.85, {**dict.fromkeys(KINDS, 20), "walker": 19})) == 2


def test_the_whole_pipeline_runs_every_kind_of_window_wait_and_join() -> None:
    """With records out of order, and some too late for every kind of window."""
    found: set[str] = set()
    late: set[str] = set()
    for case, answer in recorded_for_pipeline():
        times = [time for *_, time in case.records]
        kinds = {kind for step in case.steps for kind in _kinds(case, step)}
        if times != sorted(times):
            found |= kinds
            late |= kinds if answer["dropped"] else set()
    windows = {"tumbling", "hopping", "sliding", "session"}
    assert windows | {f"{each} on close" for each in windows} <= late
    assert {f"{each}, suppressed" for each in windows} <= found
    joins = {"streams", "stream and table", "tables"}
    assert {f"{each}, {kind}" for each in joins for kind in ("inner", "left")} <= found
    assert {"streams, outer", "tables, outer", "foreign key, inner", "cogroup"} <= found
    assert {"suppressed for a time", "suppressed until it is full"} <= found


def _kinds(case: Case, step: Step) -> set[str]:
    """What a step is about, in words."""
    window, op = step.get("window", {}), step["op"]
    if op == "suppress":
        if step["until"] == "window_closes":
            kinds = {
                each["window"]["kind"] for each in case.steps if "kind" in each.get("window", {})
            }
            return {f"{kind}, suppressed" for kind in kinds}
        return {"suppressed until it is full" if "buffer" in step else "suppressed for a time"}
    if op == "join":
        [right] = [each for each in case.steps if each["id"] == step["with"]]
        tables = {each["id"] for each in case.steps if each["op"] == "table"}
        kind = "foreign key" if "foreign_key" in step else "tables"
        if "window" in step:
            kind = "streams"
        elif right["id"] in tables and step["from"] not in tables:
            kind = "stream and table"
        return {f"{kind}, {step['kind']}"}
    close = {f"{window['kind']} on close"} if window.get("emit") == "close" else set()
    return ({window["kind"]} if "kind" in window and not close else close) | {op}
