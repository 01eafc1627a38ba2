"""Where the time of a batch went, as the console shows it."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from penstock.console.history import History
from penstock.driver.batch_steps import latencies_of, steps_of
from penstock.driver.watching import StepRates, StoreSizes
from penstock.errors import CustomStoreError, StoreUnavailableError
from penstock.observability import groups
from penstock.observability.readings import Reading
from penstock.observability.tallies import Entry, Tally
from penstock.pipeline.orders import Outcome
from penstock.processors.meter import E2E_LATENCY
from penstock.queries.contract import Bound, StoreSize
from tests.harness import wait_until
from tests.unit.queries_in_memory import ENTRY_BYTES, InMemoryQueries


def outcome(worked: tuple[float, float], **steps: float) -> Outcome:
    metrics = [Entry(groups.JOB, "step", (step,), Tally.of(took)) for step, took in steps.items()]
    other = Entry(groups.THREAD, "process", (), Tally.of(99.0))
    metrics = [*metrics, other]
    return Outcome(task="0_0", status="committed", worked=worked, metrics=metrics)


def test_what_workers_did_not_use_is_sparks() -> None:
    done = [outcome((10.0, 10.5), read=0.1, commit=0.2)]
    steps = steps_of(done, planning=0.01, seconds=1.0)
    assert steps == {"plan": 0.01, "spark": pytest.approx(0.7), "read": 0.1, "commit": 0.2}


def test_slices_side_by_side_share_the_time_of_their_workers() -> None:
    # Two workers at once, half a second each, and in one of them two commits that overlap.
    done = [
        outcome((10.0, 10.5), process=0.1, commit=0.4),
        outcome((10.0, 10.5), process=0.1, commit=0.4),
        outcome((10.1, 10.5), process=0.1, commit=0.4),
    ]
    steps = steps_of(done, planning=0.0, seconds=0.8)
    assert steps["spark"] == pytest.approx(0.3)
    assert steps["commit"] == pytest.approx(4 * steps["process"])
    assert sum(steps.values()) == pytest.approx(0.8)


def test_clocks_that_differ_between_machines_make_no_step_longer_than_the_job() -> None:
    done = [outcome((0.0, 9.0), commit=5.0), outcome((100.0, 109.0), commit=5.0)]
    assert steps_of(done, planning=0.0, seconds=2.0) == {"plan": 0.0, "spark": 0.0, "commit": 2.0}


def test_without_metrics_the_job_is_one_piece() -> None:
    done = [Outcome(task="0_0", status="committed", worked=(1.0, 2.0))]
    assert steps_of(done, planning=0.2, seconds=1.5) == {"plan": 0.2, "job": 1.5}
    assert steps_of([], planning=0.2, seconds=1.5) == {"plan": 0.2, "job": 1.5}


def test_latencies_are_those_of_records_from_sources() -> None:
    def entry(step: str, *latencies: float) -> Entry:
        return Entry(groups.NODE, E2E_LATENCY, (step,), Tally.over(np.array(latencies)))

    done = [
        Outcome(
            task="0_0", status="committed", metrics=[entry("in", 10.0, 30.0), entry("out", 9.0)]
        ),
        Outcome(task="0_1", status="committed", metrics=[entry("in", 5.0)]),
        outcome((1.0, 2.0), read=0.1),
    ]
    assert latencies_of(done, {"in"}) == Tally(3.0, 45.0, 5.0, 30.0)
    assert latencies_of(done[2:], {"in"}) is None
    history = History(now_ms=lambda: 5_000)
    for latencies in (latencies_of(done, {"in"}), None):
        history.batch_ended("s", records=3, outputs=0, seconds=0.1, latencies=latencies)
    [second] = history.since(0).seconds
    assert (second.timed, second.latency_ms) == (3.0, 45.0)


def totals(consumed: float, went: float) -> list[Reading]:
    return [
        Reading(groups.TOPIC, "records-consumed-total", ("i", "0_0", "source", "t"), consumed),
        Reading(groups.TOPIC, "bytes-consumed-total", ("i", "0_0", "source", "t"), 10 * consumed),
        Reading(groups.EDGE, "records-total", ("counts", "source", "filter"), went),
    ]


def test_rates_are_of_sources_sinks_and_edges_since_the_last_time() -> None:
    now = [100.0]
    rates = StepRates(clock=lambda: now[0])
    rates.now(totals(50, 50))
    now[0] += 2.0
    found = rates.now(totals(250, 150))
    assert found == {("source", ""): 100.0, ("source", "filter"): 50.0}
    # Asked again at once, it has the same answer: a rate of a moment says nothing.
    assert rates.now(totals(999, 999)) == found
    now[0] += 2.0
    assert rates.now(totals(5, 150)) == {("source", ""): 0.0, ("source", "filter"): 0.0}


def test_sizes_of_stores_are_asked_for_now_and_then_and_kept_meanwhile() -> None:
    now, queries = [100.0], InMemoryQueries()
    sizes = StoreSizes(queries, clock=lambda: now[0], aside=lambda ask: ask())
    assert sizes.known() == {}
    entries = len(queries.shelves["counts"].entries)
    told = {"entries": entries, "bytes": entries * ENTRY_BYTES}
    assert sizes.now()["counts"] == told
    queries.shelves["counts"].entries.clear()
    assert sizes.now()["counts"] == told
    now[0] += 10
    queries.raises = StoreUnavailableError("moving")
    assert sizes.now()["counts"] == told
    now[0] += 10
    queries.raises = None
    assert sizes.now()["counts"] == sizes.known()["counts"] == {"entries": 0, "bytes": 0}


def test_a_store_whose_size_nobody_tells_hides_no_other() -> None:
    queries = InMemoryQueries()
    first = min(queries.shelves)

    def size(store: str, *, bound: Bound) -> StoreSize:
        if store == first:
            raise CustomStoreError("it raised")
        return InMemoryQueries.size(queries, store, bound=bound)

    queries.size = size  # type: ignore[method-assign,assignment]
    sizes = StoreSizes(queries, aside=lambda ask: ask())
    assert sizes.now().keys() == queries.shelves.keys() - {first}


def test_who_looks_does_not_wait_for_an_instance_that_stands_still() -> None:
    queries, waiting, goes_on = InMemoryQueries(), threading.Event(), threading.Event()
    asked: list[str] = []

    def size(store: str, *, bound: Bound) -> StoreSize:
        asked.append(store)
        waiting.set()
        assert goes_on.wait(60)
        return InMemoryQueries.size(queries, store, bound=bound)

    queries.size = size  # type: ignore[method-assign,assignment]
    now = [100.0]
    sizes = StoreSizes(queries, clock=lambda: now[0])
    assert sizes.now() == {}
    assert waiting.wait(60)
    now[0] += 100
    # Who looks meanwhile asks nobody else.
    assert sizes.now() == {}
    assert len(asked) == 1
    goes_on.set()
    wait_until(lambda: set(sizes.known()) == set(queries.shelves), what="all sizes were told")
