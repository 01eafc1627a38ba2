"""Counting, adding up, reading off, and what Prometheus gets."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from penstock.observability import groups
from penstock.observability.catalogue import METRICS
from penstock.observability.prometheus import INFO, render
from penstock.observability.readings import Reading, by_name
from penstock.observability.recorder import WINDOW_SECONDS, Recorder
from penstock.observability.tallies import Entry, Tallies, Tally


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def read(recorder: Recorder, name: str) -> float | str | None:
    [value] = [each.value for each in recorder.snapshot() if each.name == name]
    return value


tallies = st.builds(
    lambda values: Tally(float(len(values)), float(sum(values)), min(values), max(values)),
    st.lists(st.integers(-1000, 1000), min_size=1, max_size=5),
)


@settings(deadline=None)
@given(tallies, tallies, tallies)
def test_the_order_in_which_tallies_are_added_does_not_matter(a: Tally, b: Tally, c: Tally) -> None:
    assert (a + b) + c == a + (b + c) == (c + a) + b


def test_a_rate_is_over_the_windows_as_kafkas_is() -> None:
    clock = Clock()
    recorder = Recorder(clock=clock)
    for _ in range(3):
        recorder.add(groups.THREAD, "commit", ("i",), Tally.of(0.1))
        clock.now += 20
    # The first window, of 30 seconds, is over, and still counts.
    clock.now = 1050.0
    assert read(recorder, "commit-rate") == pytest.approx(3 / 50)
    clock.now = 1061.0
    # Now it does not; the second began 21 seconds ago, and a window before it is as if empty.
    assert read(recorder, "commit-rate") == pytest.approx(1 / 51)
    assert read(recorder, "commit-total") == 3
    assert read(recorder, "commit-latency-avg") == pytest.approx(100)
    clock.now += 10 * WINDOW_SECONDS
    assert read(recorder, "commit-rate") == 0
    assert read(recorder, "commit-total") == 3
    assert read(recorder, "commit-latency-avg") is None


def test_a_rate_in_the_first_moment_is_as_if_a_window_were_full() -> None:
    recorder = Recorder(clock=Clock())
    recorder.add(groups.THREAD, "process", ("i",), Tally.many(300, 3.0))
    assert read(recorder, "process-rate") == pytest.approx(10)
    assert read(recorder, "process-ratio") == pytest.approx(0.1)
    assert read(recorder, "process-latency-avg") == pytest.approx(10)


def test_a_counter_that_is_watched_is_there_before_it_counts() -> None:
    recorder = Recorder("INFO", clock=Clock())
    for _ in range(2):
        recorder.begin(groups.THREAD, "punctuate", ("i",))
        assert (read(recorder, "punctuate-total"), read(recorder, "punctuate-rate")) == (0, 0)
        assert read(recorder, "punctuate-latency-max") is None
    recorder.begin(groups.TASK, "restore", ("i", "0_0"))
    assert not {each.name for each in recorder.snapshot() if each.group == groups.TASK}
    recorder.add(groups.THREAD, "punctuate", ("i",), Tally.of(0.1))
    recorder.begin(groups.THREAD, "punctuate", ("i",))
    assert (read(recorder, "punctuate-total"), read(recorder, "punctuate-latency-max")) == (1, 100)


@pytest.mark.parametrize(
    ("level", "names"),
    [
        ("OFF", set()),
        ("INFO", {"dropped-records-rate", "dropped-records-total"}),
        (
            "DEBUG",
            {"dropped-records-rate", "dropped-records-total", "restore-rate", "restore-total"},
        ),
    ],
)
def test_a_level_has_its_metrics_and_no_others(level: groups.Level, names: set[str]) -> None:
    recorder = Recorder(level)
    recorder.add(groups.TASK, "dropped-records", ("i", "0_0"), Tally.many(2, 0.0))
    recorder.add(groups.TASK, "restore", ("i", "0_0"), Tally.many(2, 0.0))
    assert {each.name for each in recorder.snapshot()} == names


def test_what_a_worker_counted_gets_the_tags_that_it_does_not_know() -> None:
    counted = Tallies()
    counted.add(groups.TASK, "process", (), Tally.many(4, 1.0))
    recorder = Recorder("DEBUG")
    recorder.add_all(counted.entries(), first=("instance.1", "0_2"))
    assert {each.tags for each in recorder.snapshot()} == {("instance.1", "0_2")}


def test_a_task_that_is_elsewhere_is_not_shown_any_more() -> None:
    recorder = Recorder("DEBUG", first=("instance.1",))
    for task in ("0_1", "0_10"):
        recorder.add(groups.TASK, "process", (task,), Tally.many(4, 1.0))
        recorder.set(groups.TASK, "active-process-ratio", (task,), 0.5)
    recorder.forget("0_1")
    assert {each.tags[1] for each in recorder.snapshot()} == {"0_10"}


def test_a_gauge_that_is_replaced_has_no_other_tags() -> None:
    recorder = Recorder()
    recorder.replace(groups.COPY, "lag", [(("a", "0_0"), 1.0), (("b", "0_0"), 2.0)])
    recorder.replace(groups.COPY, "lag", [(("b", "0_0"), 3.0)])
    assert recorder.snapshot() == [Reading(groups.COPY, "lag", ("b", "0_0"), 3.0)]


def test_values_that_are_not_known_are_not_a_number_by_name() -> None:
    [value] = by_name([Reading(groups.THREAD, "commit-latency-avg", ("i",), None)]).values()
    assert math.isnan(float(value))


def test_prometheus_reads_every_metric() -> None:
    snapshot = [
        Reading(each.group, each.name, tuple(groups.GROUPS[each.group].tags), 1.5)
        for each in METRICS
        if not each.is_text
    ]
    snapshot += [
        Reading(groups.CLIENT, "version", ("app",), "0.1"),
        Reading(groups.CLIENT, "topology-description", ("app",), "Topologies:\n"),
    ]
    families = list(text_string_to_metric_families(render(snapshot).decode()))
    found = {sample.name: sample.labels for family in families for sample in family.samples}
    assert set(found) == {each.prometheus for each in METRICS if not each.is_text} | {INFO}
    assert found[INFO] == {"client_id": "app", "version": "0.1"}
    put = found["kafka_streams_stream_state_metrics_put_rate"]
    assert set(put) == {"thread_id", "task_id", "scope", "store"}


def test_hostile_tags_cannot_write_lines_of_their_own() -> None:
    hostile = 'a"} 1\nevil{x="'
    text = render([Reading(groups.DROP, "records-total", ("i", "0_0", hostile), 1.0)]).decode()
    [family] = text_string_to_metric_families(text)
    assert family.samples[0].labels["reason"] == hostile


def test_an_unknown_reading_of_a_newer_instance_is_left_out() -> None:
    assert render([Reading(groups.THREAD, "from-the-future", ("i",), 1.0)]) == b""


def test_entries_travel_as_small_lists() -> None:
    import msgspec

    entry = Entry(groups.TASK, "process", ("0_1",), Tally.many(2, 1.0))
    data = msgspec.json.encode([entry])
    assert data == b'[["stream-task-metrics","process",["0_1"],[2.0,1.0,0.5,0.5]]]'
    assert msgspec.json.decode(data, type=list[Entry]) == [entry]


def test_an_instance_of_the_applications_name_takes_nothing_of_it_along() -> None:
    recorder = Recorder()
    recorder.set(groups.CLIENT, "state", ("same",), "running")
    recorder.add(groups.THREAD, "process", ("same",), Tally.of(1.0))
    recorder.forget("same")
    assert [each.group for each in recorder.snapshot()] == [groups.CLIENT]
