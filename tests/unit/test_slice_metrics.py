"""What a slice counts on its way, in both engines, and what its worker makes of it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import penstock as ps
from penstock.config import Config
from penstock.coordination.ids import TaskId
from penstock.coordination.states import ApplicationState
from penstock.coordination.tasks import TaskBook
from penstock.driver.events import CopiesChanged, StateChanged
from penstock.driver.monitor import Monitor
from penstock.observability import groups
from penstock.observability.groups import Level
from penstock.observability.prometheus import render
from penstock.observability.readings import Reading
from penstock.observability.tallies import Entry, Tally
from penstock.pipeline.clock import SliceClock
from penstock.pipeline.orders import Outcome
from penstock.processors import Limits, RecordRun, SliceResult, SliceRun
from penstock.processors.meter import SliceMeter
from penstock.testing import TopologyTestDriver
from penstock.testing.stores import DriverState
from tests.unit.slices import Row, build, records

Counted = dict[tuple[str, str, tuple[str, ...]], Tally]
Kind = type[SliceRun | RecordRun]
both = pytest.mark.parametrize("kind", [SliceRun, RecordRun])


def run(write: Any, rows: list[Row], kind: Kind, level: Level, **options: Any) -> SliceResult:
    sub = build(write, key=str, value=str).sub_topologies[0]
    limits = Limits(
        cache_max_bytes=options.pop("cache_max_bytes", 1_000_000),
        partition_counts=dict.fromkeys(sub.output_topics("app"), 4),
        metrics=level,
        **options,
    )
    state = DriverState({spec.name: spec for spec in sub.stores})
    one = kind(sub, application_id="app", state=state, limits=limits)
    one.process(records(rows))
    return one.finish()


def counted(result: SliceResult, now_ms: float = 0.0) -> Counted:
    assert result.meter is not None
    return {(e.group, e.name, e.tags): e.tally for e in result.meter.entries(now_ms)}


def count(stream: ps.KStream[str, str]) -> None:
    stream.group_by_key().count("counts").to_stream().to("out")


ROWS = [Row(0, 1_000, b"a", b"xx"), Row(1, 4_000, b"a", b"xx"), Row(2, 3_000, b"b", b"xx")]


@both
def test_nothing_is_counted_when_it_is_off(kind: Kind) -> None:
    assert counted(run(count, ROWS, kind, "OFF")) == {}


@both
def test_sources_sinks_and_their_topics_are_counted(kind: Kind) -> None:
    found = counted(run(count, ROWS, kind, "INFO"), now_ms=5_000)
    [source] = [tags[0] for group, name, tags in found if name == "consumed"]
    [sink] = [tags[0] for group, name, tags in found if name == "produced"]
    assert found[groups.TOPIC, "consumed", (source, "in")].count == 3
    # Two keys, so that the cache lets two through: a key of one byte, a count of eight.
    produced = found[groups.TOPIC, "produced", (sink, "out")]
    assert (produced.count, produced.total) == (2, 18)
    at_source = found[groups.NODE, "record-e2e-latency", (source,)]
    assert at_source == Tally(3, 7_000, 1_000, 4_000)
    assert found[groups.NODE, "record-e2e-latency", (sink,)].count == 2
    assert not any(name in ("process", "record-lateness", "hit-ratio") for _, name, _ in found)


@both
@pytest.mark.parametrize("rows", [1, 100])
def test_bytes_of_many_records_are_added_as_those_of_a_few(kind: Kind, rows: int) -> None:
    def passed_on(stream: ps.KStream[str, str]) -> None:
        stream.to("out")

    sent = [Row(n, n, b"key", None if n % 2 else b"text") for n in range(rows)]
    found = counted(run(passed_on, sent, kind, "INFO"))
    [produced] = [tally for (_, name, _), tally in found.items() if name == "produced"]
    assert (produced.count, produced.total) == (rows, 3 * rows + 4 * ((rows + 1) // 2))


def edges(found: Counted) -> list[float]:
    return [tally.count for (group, _, _), tally in found.items() if group == groups.EDGE]


def branched(stream: ps.KStream[str, str]) -> None:
    is_a = stream.split(name="by-").branch(lambda key, value: key == "a", name="a")
    for branch in is_a.default_branch(name="rest").values():
        branch.to("out")


def test_records_between_steps_are_counted_by_the_batch() -> None:
    found = counted(run(count, ROWS, SliceRun, "INFO"))
    # Source, count, to_stream, sink: the cache lets two of three through.
    assert edges(found) == [3, 2, 2]
    assert edges(counted(run(count, ROWS, SliceRun, "OFF"))) == []


@both
def test_a_branch_has_an_edge_of_its_own(kind: Kind) -> None:
    found = counted(run(branched, ROWS, kind, "DEBUG"))
    went = {tags: tally.count for (group, _, tags), tally in found.items() if group == groups.EDGE}
    assert (went["by-", "by-a"], went["by-", "by-rest"]) == (2, 1)


def test_records_that_go_alone_are_counted_between_steps_only_if_that_is_asked_for() -> None:
    assert edges(counted(run(count, ROWS, RecordRun, "INFO"))) == []
    assert edges(counted(run(count, ROWS, RecordRun, "DEBUG"))) == [3, 2, 2]


@both
def test_lateness_is_behind_the_latest_of_the_slice(kind: Kind) -> None:
    found = counted(run(count, ROWS, kind, "DEBUG"))
    assert found[groups.TASK, "record-lateness", ()] == Tally(3, 1_000, 0, 1_000)
    [processed] = [tally for (_, name, _), tally in found.items() if name == "process"]
    assert processed.count == 3


def test_a_key_that_the_slice_met_before_is_a_hit() -> None:
    found = counted(run(count, ROWS, SliceRun, "DEBUG"))
    assert found[groups.CACHE, "hit-ratio", ("counts",)].total == pytest.approx(1 / 3)
    assert found[groups.TASK, "cache-size-bytes-total", ()].most > 0


@both
def test_what_is_stored_has_its_age_at_the_finest_level(kind: Kind) -> None:
    found = counted(run(count, ROWS, kind, "TRACE"), now_ms=5_000)
    stored = found[groups.STORE, "record-e2e-latency", ("rocksdb-state", "counts")]
    assert stored == Tally(2, 3_000, 1_000, 2_000)


@both
def test_dropped_records_are_counted_by_reason(kind: Kind) -> None:
    rows = [*ROWS, Row(3, 1, None, b"x"), Row(4, 1, b"a", None)]
    found = counted(run(count, rows, kind, "INFO"))
    assert found[groups.TASK, "dropped-records", ()].count == 2
    reasons = {tags[0]: t.count for (group, _, tags), t in found.items() if group == groups.DROP}
    assert reasons == {"null_key": 1, "null_value": 1}


def suppressed(stream: ps.KStream[str, str]) -> None:
    windows = ps.tumbling(timedelta(seconds=1), grace=timedelta(0))
    counts = stream.group_by_key().windowed_by(windows).count("counts")
    counts.suppress(ps.until_window_closes(), name="final").to_stream().to("out")


@both
def test_what_a_suppress_lets_go_is_counted(kind: Kind) -> None:
    rows = [Row(0, 0, b"a", b"x"), Row(1, 10, b"a", b"x"), Row(2, 9_000, b"b", b"x")]
    found = counted(run(suppressed, rows, kind, "DEBUG", cache_max_bytes=0))
    [emitted] = [tally for (_, name, _), tally in found.items() if name == "suppression-emit"]
    assert emitted.count == 1


class Priced(ps.Processor[str, str, str, str]):
    """Counts and measures under names of its own."""

    def init(self, context: ps.ProcessorContext) -> None:
        super().init(context)
        self.free = context.metrics.counter("free")
        self.price = context.metrics.measure("price")
        self.lookup = context.metrics.timer("lookup")

    def process(self, record: ps.Record[str, str]) -> None:
        with self.lookup:
            self.price.record(len(record.value))
        if record.value == "free":
            self.free.add()
        # The same name is the same metric.
        self.context.metrics.counter("free").add(10)
        self.context.forward(record)


def priced(stream: ps.KStream[str, str]) -> None:
    stream.process(Priced, name="priced", key=str, value=str).to("out")


def test_a_processor_counts_and_measures_under_names_of_its_own() -> None:
    rows = [Row(0, 1, b"a", b"free"), Row(1, 2, b"a", b"dearest"), Row(2, 3, b"a", b"x")]
    found = counted(run(priced, rows, RecordRun, "INFO"))
    own = {
        (name, *tags): t for (group, name, tags), t in found.items() if group == groups.PROCESSOR
    }
    assert own["count", "priced", "free"].count == 31
    assert own["value", "priced", "price"] == Tally(3, 12, 1, 7)
    assert own["count", "priced", "price"].count == 3
    assert own["latency", "priced", "lookup"].count == 3
    assert ("value", "priced", "lookup") not in own
    assert counted(run(priced, rows, RecordRun, "OFF")) == {}


def test_a_processors_own_metrics_are_read_like_all_others() -> None:
    app = ps.Application("shop")
    priced(app.stream("in", key=str, value=str))
    driver = TopologyTestDriver(app)
    driver.input_topic("in", key=str, value=str).pipe_all([("a", "free"), ("b", "four")])
    found = {
        (name, dict(tags)["metric"]): value
        for (group, name, tags), value in driver.metrics().items()
        if group == groups.PROCESSOR
    }
    assert found["count-total", "free"] == 21
    assert (found["value-avg", "price"], found["value-total", "price"]) == (4, 8)

    meter = SliceMeter("INFO")
    meter.told("priced", "free", "count", Tally.many(3, 0.0))
    monitor = Monitor("app", Config())
    done = Outcome(task="0_1", status="committed", records=3, metrics=meter.entries(0))
    monitor.committed("one", "shop", done)
    line = 'penstock_processor_count_total{metric="free",processor_node_id="priced",'
    assert line + 'task_id="0_1",thread_id="one"} 3.0' in render(monitor.snapshot()).decode()


class Confused(Priced):
    def process(self, record: ps.Record[str, str]) -> None:
        self.context.metrics.timer("free")


class Endless(Priced):
    def process(self, record: ps.Record[str, str]) -> None:
        for number in range(1000):
            self.context.metrics.counter(f"{record.key}-{number}").add()


class Shrinking(Priced):
    def process(self, record: ps.Record[str, str]) -> None:
        self.free.add(-1)


@pytest.mark.parametrize(
    ("processor", "error", "says"),
    [
        (Confused, ps.errors.TopologyError, "'free' of step .* is a counter already"),
        (Endless, ps.errors.TopologyError, "has more than 100 metrics; the last one is 'a-97'"),
        (Shrinking, ps.errors.UserFunctionError, "a counter only grows"),
    ],
)
def test_what_a_metric_cannot_be_is_told(processor: Any, error: Any, says: str) -> None:
    with pytest.raises(error, match=says):
        run(lambda stream: stream.process(processor), ROWS, RecordRun, "INFO")


def at_close(stream: ps.KStream[str, str]) -> None:
    windows = ps.tumbling(timedelta(seconds=1), grace=timedelta(0))
    grouped = stream.group_by_key().windowed_by(windows).emit_on_window_close()
    grouped.count("counts").to_stream().to("out")


def test_windows_that_close_are_counted_with_the_time_that_it_took() -> None:
    rows = [Row(0, 0, b"a", b"x"), Row(1, 10, b"b", b"x"), Row(2, 1_000, b"c", b"x")]
    found = counted(run(at_close, rows, RecordRun, "DEBUG"))
    [emitted] = [t for (_, name, _), t in found.items() if name == "window-aggregate-final-emit"]
    assert emitted.count == 2
    assert emitted.total > 0


def test_a_clock_adds_up_what_a_slice_did() -> None:
    clock = SliceClock("INFO")
    clock.polled(7, 0.25)
    with clock.processing(), clock.asking():
        pass
    with clock.committing():
        pass
    found = {(e.group, e.name, e.tags): e.tally for e in clock.entries(SliceMeter(), records=7)}
    assert found[groups.THREAD, "process", ()].count == 7
    assert found[groups.TASK, "process", ()] == found[groups.THREAD, "process", ()]
    assert found[groups.JOB, "step", ("read",)].total == 0.25
    steps = {tags[0] for group, _, tags in found if group == groups.JOB}
    assert steps == {"read", "process", "state", "commit"}
    # What is asked of instances is not processing, though it happens meanwhile.
    asked, busy = found[groups.JOB, "step", ("state",)], found[groups.JOB, "step", ("process",)]
    assert asked.total > 0
    assert busy.total >= 0
    assert SliceClock("OFF").entries(None, records=7) == []


def outcome(task: str, records: int, seconds: float) -> Outcome:
    clock = SliceClock("DEBUG")
    meter = SliceMeter("DEBUG")
    meter.dropped({"late": 2})
    entries = clock.entries(meter, records=records)
    done = [e for e in entries if e.name != "process"]
    processed = Tally.many(records, seconds)
    done += [Entry(group, "process", (), processed) for group in (groups.THREAD, groups.TASK)]
    return Outcome(task=task, status="committed", records=records, metrics=done)


def shown(snapshot: list[Reading], group: str, name: str) -> dict[tuple[str, ...], Any]:
    return {each.tags: each.value for each in snapshot if (each.group, each.name) == (group, name)}


def test_the_driver_puts_workers_counts_under_instance_and_task() -> None:
    monitor = Monitor("app", Config(metrics_recording_level="DEBUG"))
    monitor.committed("one", "counts", outcome("0_0", 30, 3.0))
    monitor.committed("one", "counts", outcome("0_1", 10, 1.0))
    found = monitor.snapshot()
    assert shown(found, groups.THREAD, "process-total") == {("one",): 40}
    assert shown(found, groups.TASK, "process-total") == {("one", "0_0"): 30, ("one", "0_1"): 10}
    assert shown(found, groups.TASK, "active-process-ratio") == {
        ("one", "0_0"): 0.75,
        ("one", "0_1"): 0.25,
    }
    assert shown(found, groups.DROP, "records-total")["one", "0_0", "late"] == 2
    assert ("counts", "commit") in shown(found, groups.JOB, "runs-total")


def test_what_alerts_watch_is_told_before_it_happens() -> None:
    monitor = Monitor("app", Config())
    found = monitor.snapshot()
    for name in ("failed-jobs-total", "skipped-slices-total"):
        assert shown(found, groups.DRIVER, name) == {("app",): 0}
    assert shown(found, groups.COORDINATOR, "rebalance-total") == {("app",): 0}
    monitor.committed("one", "counts", Outcome(task="0_0", status="committed", records=1))
    found = monitor.snapshot()
    assert shown(found, groups.TASK, "dropped-records-total") == {("one", "0_0"): 0}
    assert shown(found, groups.THREAD, "punctuate-total") == {("one",): 0}
    monitor.job_failed()
    assert shown(monitor.snapshot(), groups.DRIVER, "failed-jobs-total") == {("app",): 1}


def test_edges_are_told_by_sub_topology_whoever_ran_them() -> None:
    monitor = Monitor("app", Config())
    for task, count in (("0_0", 30), ("0_1", 12)):
        meter = SliceMeter("INFO")
        meter.went("source", "filter", count)
        metrics = meter.entries(0)
        done = Outcome(task=task, status="committed", records=count, metrics=metrics)
        monitor.committed(f"owner of {task}", "counts", done)
    assert shown(monitor.snapshot(), groups.EDGE, "records-total") == {
        ("counts", "source", "filter"): 42
    }


def test_a_task_that_moved_is_shown_at_its_new_owner_alone() -> None:
    monitor = Monitor("app", Config(metrics_recording_level="DEBUG"))
    monitor.committed("one", "counts", outcome("0_0", 30, 3.0))
    monitor.committed("two", "counts", outcome("0_0", 5, 1.0))
    assert shown(monitor.snapshot(), groups.TASK, "process-total") == {("two", "0_0"): 5}


def test_a_lost_instance_is_counted_and_no_longer_shown() -> None:
    monitor = Monitor("app", Config())
    monitor.committed("one", "counts", outcome("0_0", 30, 3.0))
    monitor.instances(1, lost=["one"])
    found = monitor.snapshot()
    assert shown(found, groups.THREAD, "process-total") == {}
    assert shown(found, groups.CLIENT, "failed-stream-threads") == {("app",): 1}
    assert shown(found, groups.CLIENT, "alive-stream-threads") == {("app",): 1}


def test_the_lag_of_an_input_is_what_lies_behind_its_tasks_position() -> None:
    monitor = Monitor("app", Config())
    task = TaskId(0, 3)
    book = TaskBook([(task, "counts-3")], generation=1, ticking=[])
    book.entries[task].position = {"in": {3: 40}}
    monitor.lags(book, {("in", 3): 100, ("in", 4): 7})
    assert shown(monitor.snapshot(), groups.FETCH, "records-lag") == {("app", "in", "3"): 60}


def test_states_copies_and_rebalances_are_heard() -> None:
    monitor = Monitor("app", Config())
    monitor.hear(StateChanged(old=ApplicationState.REBALANCING, new=ApplicationState.RUNNING))
    monitor.hear(CopiesChanged(lags={"two": {TaskId(0, 0): 12}}, positions={}))
    monitor.settled(False)
    monitor.settled(True)
    found = monitor.snapshot()
    assert shown(found, groups.CLIENT, "state") == {("app",): "running"}
    assert shown(found, groups.CLIENT, "client-state") == {("app",): 2}
    assert shown(found, groups.COPY, "lag") == {("two", "0_0"): 12}
    assert shown(found, groups.COORDINATOR, "rebalance-latency-max")["app",] >= 0
    assert monitor.health().ready


def test_instances_are_asked_when_someone_reads() -> None:
    monitor = Monitor("app", Config())
    reading = Reading(groups.THREAD, "commit-total", ("one",), 3.0)
    monitor.asks(lambda: [reading])
    assert reading in monitor.snapshot()
    monitor.asks(None)
    assert reading not in monitor.snapshot()
