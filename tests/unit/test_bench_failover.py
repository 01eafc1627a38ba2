"""The row of failover: what it reads out of arrivals, and the plot of them."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

from bench.errors import BenchError
from bench.plot import Panel, svg
from bench.rows.failover import STORIES, Load, Observed, Told, rows
from bench.timeline import Timeline, percentile_lag


def timeline(**arrivals: list[float]) -> Timeline:
    found = Timeline()
    for name, times in arrivals.items():
        for now in times:
            found.note(int(name.removeprefix("p")), now, 10)
    return found


def test_a_wait_reaches_from_the_last_output_before_a_fault_to_the_first_after_it() -> None:
    seen = timeline(p0=[9.0, 9.9, 12.5, 12.6], p1=[9.8, 10.0, 10.2])
    assert seen.longest_wait([0], 10.0, 12.6) == pytest.approx(2.6)
    assert seen.longest_wait([0, 1], 10.0, 12.6) == pytest.approx(2.6)
    assert seen.late_partitions([0], 10.0, 12.6) == [0]


def test_one_that_says_nothing_more_is_waited_for_until_the_end() -> None:
    assert timeline(p1=[9.8, 10.0]).longest_wait([1], 10.5, 20.0) == pytest.approx(10.0)
    assert timeline().longest_wait([7], 10.0, 20.0) == 10.0


def test_a_watch_ends_when_every_partition_has_an_output_again() -> None:
    seen = timeline(p0=[1.0, 5.0], p1=[1.0])
    assert not seen.has_all_after(2.0, 2)
    seen.note(1, 6.0, 10)
    assert seen.has_all_after(2.0, 2)
    assert not seen.has_all_after(2.0, 3)


def test_partitions_that_waited_for_long_are_told_from_the_others() -> None:
    seen = timeline(p0=[9.9, 10.1, 10.3], p1=[9.9, 13.0], p2=[9.9, 12.5])
    assert seen.late_partitions([0, 1, 2], 10.0, 10.3) == [1, 2]


def test_a_rate_counts_what_came_in_each_step() -> None:
    seen = timeline(p0=[1.0, 1.1, 1.6], p1=[1.6, 9.0])
    assert seen.rate([0, 1], 1.0, 2.0, step=0.5) == [(0.0, 40.0), (0.5, 40.0)]


def test_a_percentile_of_lags_takes_all_copies_of_a_while() -> None:
    samples = {1.0: [900], 2.0: [0, 10], 3.0: [20, 30]}
    assert percentile_lag(samples, 1.5, 3.5, percent=50) == 15.0
    assert percentile_lag(samples, 5.0, 6.0, percent=99) == 0.0


def test_the_plot_is_well_formed_whatever_names_hold() -> None:
    panel = Panel(
        title="a < b & c", lines=[("hit", [(0.0, 1.0), (1.0, 0.0)])], marks=[(0.5, "kill -9")]
    )
    empty = Panel(title="nothing", lines=[("hit", [])])
    root = ET.fromstring(svg("Title", [panel, empty], unit="records/s"))
    texts = {each.text for each in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"a < b & c", "kill -9", "nothing"} <= texts


def told(system: str, *names: str, problems: tuple[str, ...] = ()) -> Told:
    return Told(
        system=system,
        faults={name: Observed(seconds=2.0, others_seconds=0.5) for name in names},
        steady_seconds=0.3,
        batch_seconds=0.25 if system == "penstock" else None,
        lag_batches=1.5 if system == "penstock" else None,
        problems=problems,
        panels=(),
    )


def story(name: str) -> tuple[str, Told]:
    [found] = [each for each in STORIES if each.name == name]
    return name, told(found.system, *(fault.name for fault in found.faults))


def test_every_story_has_its_rows_and_limits() -> None:
    made = {row.name: row for row in rows(dict(map(story, (s.name for s in STORIES))), Load.of(0))}
    assert set(made) == {
        *("failover", "failover_external", "failover_stopped", "failover_join"),
        *("failover_no_standby", "failover_eager", "failover_others", "standby_lag"),
    }
    assert made["failover"].met()
    assert made["failover_external"].ratios() == {"kafka_streams": 1.0}
    # Two seconds are eight batches: seven were missed.
    assert made["failover_join"].medians() == {"penstock": 7.0}
    assert not made["failover_join"].met()
    assert made["failover_others"].medians() == {"penstock": 1.0}


def test_a_wrong_count_is_no_figure() -> None:
    with pytest.raises(BenchError, match="child: 1 counts are wrong"):
        rows(
            {"child": told("penstock", "failover", problems=("key-1: 2 instead of 3",))}, Load.of(0)
        )


def test_no_missed_batch_is_a_figure_too() -> None:
    calm = Observed(seconds=0.2, others_seconds=0.2)
    found = {"child": replace(told("penstock"), faults={"failover": calm}, lag_batches=0.0)}
    made = {row.name: row.to_json() for row in rows(found, Load.of(0))}
    assert made["failover_others"]["penstock"] == 0.0
    assert made["standby_lag"]["met"]
