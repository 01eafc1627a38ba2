"""What users' processors can ask of their stores and of their context, in the test driver."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import penstock as ps
from penstock.errors import TopologyError, UserFunctionError
from penstock.processors import Limits, RecordRun
from penstock.testing import TopologyTestDriver
from penstock.testing.stores import DriverState
from tests.unit.slices import Row, records

MINUTE = timedelta(minutes=1)
Work = Callable[[ps.ProcessorContext, ps.Record[str, str]], object]


class Doing(ps.Processor[str, str, str, str]):
    """Does what it was told for each record."""

    def __init__(self, work: Work) -> None:
        self._work = work

    def process(self, record: ps.Record[str, str]) -> None:
        self._work(self.context, record)


def run(store: Any, *steps: Work) -> list[Any]:
    """What each step returns: each is done for a record of its own, so in a slice of its own."""
    answers: list[Any] = []
    left = iter(steps)

    def work(context: ps.ProcessorContext, record: ps.Record[str, str]) -> None:
        answers.append(next(left)(context, record))

    app = ps.Application("stores")
    app.add_state_store(store)
    stream = app.stream("in", key=str, value=str)
    stream.process(lambda: Doing(work), stores=[store.name], key=str, value=str).to("out")
    driver = TopologyTestDriver(app)
    for _ in steps:
        driver.input_topic("in", key=str, value=str).pipe("k", "v")
    return answers


def of_store(name: str, ask: Callable[[Any], object]) -> Work:
    return lambda context, record: ask(context.store(name))


def test_key_value_stores() -> None:
    store = ps.key_value_store("s", key=str, value=int)

    def fill(s: Any) -> None:
        for number, key in enumerate(["b", "a", "ab", "c"]):
            s.put(key, number)

    questions: list[Callable[[Any], object]] = [
        fill,
        lambda s: (s.put_if_absent("a", 9), s.put_if_absent("new", 9), s.get("a"), s.get("new")),
        lambda s: list(s.range("ab", "b")),
        lambda s: [key for key, _ in s.range(None, "ab")],
        lambda s: [key for key, _ in s.range("b", None)],
        lambda s: [key for key, _ in s.range(None, None)] == [key for key, _ in s.all()],
        lambda s: [key for key, _ in s.prefix_scan(b"a")],
        lambda s: (s.delete("a"), s.delete("nothing"), s.get("a")),
        lambda s: s.approximate_num_entries(),
        # A slice sees its own writes too.
        lambda s: (s.put("z", 1), s.approximate_num_entries(), [k for k, _ in s.range("c", None)]),
    ]
    assert run(store, *(of_store("s", each) for each in questions))[1:] == [
        (1, None, 1, 9),
        [("ab", 2), ("b", 0)],
        ["a", "ab"],
        ["b", "c", "new"],
        True,
        ["a", "ab"],
        (1, None, None),
        4,
        (None, 5, ["c", "new", "z"]),
    ]


def test_window_stores() -> None:
    store = ps.window_store("w", key=str, value=int, retention=60 * MINUTE, window=MINUTE)

    def fill(w: Any) -> None:
        for key, start in [("b", 60_000), ("a", 0), ("a", 60_000), ("a", 120_000)]:
            w.put(key, start, start)

    def forget(w: Any) -> list[Any]:
        w.put("a", None, 0)
        return [w.fetch("a", 0), list(w.fetch_range("a", 0, 10**9))]

    questions: list[Callable[[Any], object]] = [
        fill,
        lambda w: (w.fetch("a", 60_000), w.fetch("a", 60_001), w.fetch("c", 0)),
        lambda w: list(w.fetch_range("a", 0, 60_000)),
        lambda w: list(w.fetch_all(0, 60_000)),
        forget,
        lambda w: list(w.fetch_all(0, 10**9)),
        # Its time goes on, and what is older than the retention is gone.
        lambda w: (w.put("late", 1, 70 * 60_000), list(w.fetch_all(0, 10**9))),
    ]
    assert run(store, *(of_store("w", each) for each in questions))[1:] == [
        (60_000, None, None),
        [(0, 0), (60_000, 60_000)],
        [("a", 0, 0), ("a", 60_000, 60_000), ("b", 60_000, 60_000)],
        [None, [(60_000, 60_000), (120_000, 120_000)]],
        [("a", 60_000, 60_000), ("a", 120_000, 120_000), ("b", 60_000, 60_000)],
        (None, [("late", 70 * 60_000, 1)]),
    ]


def test_session_stores() -> None:
    store = ps.session_store("s", key=str, value=str, retention=60 * MINUTE)

    def fill(s: Any) -> None:
        for key, start, end in [("a", 0, 10), ("a", 50, 70), ("b", 5, 6)]:
            s.put(key, start, end, f"{start}-{end}")

    questions: list[Callable[[Any], object]] = [
        fill,
        lambda s: list(s.find_sessions("a", 10, 49)),
        lambda s: list(s.find_sessions("a", 11, 50)),
        lambda s: [start for start, _, _ in s.fetch("a")],
        lambda s: (s.fetch_session("b", 5, 6), s.fetch_session("b", 5, 7)),
        lambda s: (s.put("a", 0, 10, None), list(s.fetch("a"))),
    ]
    assert run(store, *(of_store("s", each) for each in questions))[1:] == [
        [(0, 10, "0-10")],
        [(50, 70, "50-70")],
        [0, 50],
        ("5-6", None),
        (None, [(50, 70, "50-70")]),
    ]


def test_the_wall_clock_goes_on_when_it_is_told_to() -> None:
    called: list[tuple[int, int]] = []

    class Timed(ps.Processor[str, str, str, str]):
        def init(self, context: ps.ProcessorContext) -> None:
            context.schedule(
                MINUTE,
                "wall_clock_time",
                lambda now: called.append((now, context.current_system_time_ms)),
            )

        def process(self, record: ps.Record[str, str]) -> None:
            """Take a record: no time passes."""

    app = ps.Application("timed")
    app.stream("in", key=str, value=str).process(Timed, key=str, value=str).to("out")
    driver = TopologyTestDriver(app)
    driver.input_topic("in", key=str, value=str).pipe("k", "v", timestamp=10**12)
    driver.advance_wall_clock_time(MINUTE - timedelta(milliseconds=1))
    assert called == []
    driver.advance_wall_clock_time(timedelta(milliseconds=1))
    driver.advance_wall_clock_time(3 * MINUTE)
    assert called == [(60_000, 60_000), (240_000, 240_000)]


def test_a_record_is_forwarded_to_one_child_or_to_all() -> None:
    def work(context: ps.ProcessorContext, record: ps.Record[str, str]) -> None:
        context.forward(record, to=None if record.value == "all" else record.value)

    app = ps.Application("children")
    parent = app.stream("in", key=str, value=str).process(lambda: Doing(work), key=str, value=str)
    for name in ("left", "right"):
        parent.map_values(lambda value: value, value=str, name=name).to(f"to-{name}")
    driver = TopologyTestDriver(app)
    topic = driver.input_topic("in", key=str, value=str)
    topic.pipe_all([("k", "left"), ("k", "all"), ("k", "right")])
    for name in ("left", "right"):
        out = driver.output_topic(f"to-{name}", key=str, value=str).read_pairs()
        assert [value for _, value in out] == (["left", "all"] if name == "left" else ["all", name])
    with pytest.raises(TopologyError, match="has no child 'middle'"):
        topic.pipe("k", "middle")


def test_process_values_cannot_change_a_key() -> None:
    def work(context: ps.ProcessorContext, record: ps.Record[str, str]) -> None:
        context.forward(record.with_value(record.value.upper()))
        if record.value == "move":
            context.forward(record.with_key("other"))

    app = ps.Application("fixed")
    stream = app.stream("in", key=str, value=str)
    stream.process_values(lambda: Doing(work), value=str).to("out")
    driver = TopologyTestDriver(app)
    topic = driver.input_topic("in", key=str, value=str)
    topic.pipe("k", "stay")
    with pytest.raises(TopologyError, match="changed a record's key"):
        topic.pipe("k", "move")
    assert driver.output_topic("out", key=str, value=str).read_pairs() == [("k", "STAY")]


def test_process_values_forwards_nothing_where_no_record_says_the_key() -> None:
    class Timed(ps.Processor[Any, str, Any, str]):
        def init(self, context: ps.ProcessorContext) -> None:
            super().init(context)
            context.schedule(MINUTE, "wall_clock_time", self.on_time)

        def process(self, record: ps.Record[Any, str]) -> None:
            self.context.forward(record)

        def on_time(self, now: int) -> None:
            self.context.forward(ps.Record("k", "late", now))

    app = ps.Application("fixed")
    app.stream("in", key=str, value=str).process_values(Timed, value=str, name="values").to("out")
    driver = TopologyTestDriver(app)
    driver.input_topic("in", key=str, value=str).pipe("k", "v")
    with pytest.raises(TopologyError, match=r"step values forwards .* Use process\(\.\.\.\)"):
        driver.advance_wall_clock_time(MINUTE)
    assert driver.output_topic("out", key=str, value=str).read_pairs() == [("k", "v")]


def test_process_values_knows_a_key_that_does_not_equal_itself() -> None:
    def work(context: ps.ProcessorContext, record: ps.Record[Any, str]) -> None:
        context.forward(record)

    app = ps.Application("nan")
    stream = app.stream("in", key=float, value=str)
    stream.process_values(lambda: Doing(work), value=str).to("out")
    driver = TopologyTestDriver(app)
    driver.input_topic("in", key=float, value=str).pipe(float("nan"), "v")
    assert len(driver.output_topic("out", key=float, value=str)) == 1


def test_a_tables_transformer_forwards_nothing() -> None:
    class Forwarding(ps.ValueTransformer[str, str, str]):
        def transform(self, key: str, value: str | None) -> str | None:
            self.context.forward(ps.Record(key, value, 0))
            return value

    app = ps.Application("transformer")
    table = app.table("in", key=str, value=str)
    table.transform_values(Forwarding, value=str, name="shown").to_stream().to("out")
    driver = TopologyTestDriver(app)
    with pytest.raises(TopologyError, match=r"transformer of step shown .*transform return"):
        driver.input_topic("in", key=str, value=str).pipe("k", "v")


class Counting(DriverState):
    """Knows how often it was asked."""

    def __init__(self) -> None:
        super().__init__({})
        self.asked: list[list[bytes]] = []

    def get_many(self, store: str, keys: Any) -> Any:
        self.asked.append(keys.to_pylist())
        return super().get_many(store, keys)


def test_keys_that_are_named_are_read_in_bulk_and_others_when_they_are_asked_for() -> None:
    class Foreseeing(ps.Processor[str, str, str, str]):
        def keys_to_read(self, key: str, value: str) -> dict[str, list[str]]:
            return {"s": [key, f"{key}-{value}"]}

        def process(self, record: ps.Record[str, str]) -> None:
            store = self.context.store("s")
            asked = [record.key, f"{record.key}-{record.value}"]
            asked += ["unforeseen"] if record.value == "v2" else []
            for key in asked:
                store.put(key, (store.get(key) or 0) + 1)

    builder = ps.StreamsBuilder()
    builder.add_state_store(ps.key_value_store("s", key=str, value=int))
    stream = builder.stream("in", key=str, value=str)
    stream.process(Foreseeing, stores=["s"], key=str, value=str).to("out")
    state = Counting()
    slice_run = RecordRun(
        builder.build().sub_topologies[0],
        application_id="app",
        state=state,
        limits=Limits(cache_max_bytes=0, partition_counts={"out": 1}),
    )
    slice_run.process(records([Row(n, n, b"k%d" % (n % 2), b"v%d" % n) for n in range(4)]))
    result = slice_run.finish()
    # The records' own keys, and those that were named: a call each, however many records.
    own, named, single = state.asked
    assert sorted(own + named) == [b"k0", b"k0-v0", b"k0-v2", b"k1", b"k1-v1", b"k1-v3"]
    assert single == [b"unforeseen"]
    written = {row["key"]: row["value"][-1] for row in result.changes.to_pylist()}
    assert (written[b"k0"], written[b"k1"], written[b"unforeseen"]) == (2, 2, 1)


def test_values_with_times_of_their_own() -> None:
    store = ps.timestamped_key_value_store("s", key=str, value=str)
    held = ps.ValueAndTimestamp
    questions: list[Callable[[Any], object]] = [
        lambda s: (s.put("a", held("x", 70)), s.get("a"), s.timestamp("a")),
        lambda s: (s.put_if_absent("a", held("y", 1)), s.put_if_absent("b", held("y", 1))),
        lambda s: list(s.reverse_all()),
        lambda s: (s.put("a", held(None, 9)), s.get("a"), s.delete("b")),
        lambda s: s.approximate_num_entries(),
    ]
    assert run(store, *(of_store("s", each) for each in questions)) == [
        (None, ("x", 70), 70),
        (("x", 70), None),
        [("b", ("y", 1)), ("a", ("x", 70))],
        (None, None, ("y", 1)),
        0,
    ]
    with pytest.raises(UserFunctionError, match="keeps ValueAndTimestamp"):
        run(store, of_store("s", lambda s: s.put("a", "bare")))


def test_the_time_of_a_value_goes_to_the_changelog_and_to_the_store() -> None:
    def work(context: ps.ProcessorContext, record: ps.Record[str, str]) -> None:
        context.store("timed").put(record.key, ps.ValueAndTimestamp(record.value, 77))
        context.store("windows").put(record.key, ps.ValueAndTimestamp(record.value, 88), 60_000)
        context.store("plain").put(record.key, record.value)
        assert context.store("plain").timestamp(record.key) == record.timestamp
        assert context.store("windows").timestamp(record.key, 60_000) == 88

    app = ps.Application("times")
    app.add_state_store(ps.timestamped_key_value_store("timed", key=str, value=str))
    app.add_state_store(ps.key_value_store("plain", key=str, value=str))
    app.add_state_store(
        ps.timestamped_window_store("windows", key=str, value=str, retention=MINUTE, window=MINUTE)
    )
    stream = app.stream("in", key=str, value=str)
    stores = ["timed", "plain", "windows"]
    stream.process(lambda: Doing(work), stores=stores, key=str, value=str).to("out")
    driver = TopologyTestDriver(app)
    driver.input_topic("in", key=str, value=str).pipe("k", "v", timestamp=5)
    assert (driver.store("timed")["k"], driver.store("timed").timestamp("k")) == ("v", 77)
    assert driver.store("plain").timestamp("k") == 5
    assert driver.store("windows").timestamp(ps.Windowed("k", 60_000, 120_000)) == 88


def test_what_is_walked_through_is_what_was_there_at_the_call() -> None:
    store = ps.key_value_store("s", key=str, value=int)

    def change(s: Any) -> list[Any]:
        s.put_all([("a", 1), ("b", 2), ("c", 3)])
        found = s.reverse_range("a", "b")
        s.delete("b")
        s.put("aa", 9)
        return [list(found), list(s.all()), list(s.range("b", "a"))]

    assert run(store, of_store("s", change)) == [
        [[("b", 2), ("a", 1)], [("a", 1), ("aa", 9), ("c", 3)], []]
    ]


def test_a_global_store_is_read_backwards_too_and_written_by_nobody() -> None:
    found: list[Any] = []

    def work(context: ps.ProcessorContext, record: ps.Record[str, str]) -> None:
        store = context.store("world")
        found.append([list(store.reverse_all()), store.timestamp("a")])
        store.put_all([("a", "no")])

    app = ps.Application("world")
    app.global_table("g", "world", key=str, value=str)
    stream = app.stream("in", key=str, value=str)
    stream.process(lambda: Doing(work), stores=["world"], key=str, value=str).to("out")
    driver = TopologyTestDriver(app)
    for key in "ab":
        driver.input_topic("g", key=str, value=str).pipe(key, key.upper(), timestamp=3)
    with pytest.raises(TopologyError, match="writes to the global store 'world'"):
        driver.input_topic("in", key=str, value=str).pipe("k", "v")
    assert found == [[[("b", "B"), ("a", "A")], 3]]


def test_a_context_knows_the_task_and_the_application() -> None:
    seen: list[object] = []

    def work(context: ps.ProcessorContext, record: ps.Record[str, str]) -> None:
        seen.append((context.application_id, context.task_id, context.partition, record.headers))

    app = ps.Application("who")
    moved = app.stream("in", key=str, value=str).repartition(name="again")
    moved.process(lambda: Doing(work), key=str, value=str).to("out")
    TopologyTestDriver(app).input_topic("in", key=str, value=str).pipe(
        "k", "v", headers=(("h", b"1"),)
    )
    assert seen == [("who", "1_0", 0, (("h", b"1"),))]


def test_what_a_processor_puts_has_the_time_of_its_own_record() -> None:
    """A step before it may have made another time than the input's; as in Kafka Streams."""
    app = ps.Application("stores")
    app.add_state_store(ps.key_value_store("s", key=str, value=str))
    asked: list[int | None] = []

    def later(context: ps.ProcessorContext, record: ps.Record[str, str]) -> None:
        context.forward(record.with_timestamp(record.timestamp + 5))
        asked.append(context.store("s").timestamp("k"))
        context.store("s").put("own", "v")

    def put(context: ps.ProcessorContext, record: ps.Record[str, str]) -> None:
        context.store("s").put("k", record.value)
        metadata = context.record_metadata
        assert metadata is not None
        assert (metadata.topic, metadata.offset) == ("in", len(asked))

    stream = app.stream("in", key=str, value=str)
    stream = stream.process(lambda: Doing(later), stores=["s"], key=str, value=str)
    stream.process(lambda: Doing(put), stores=["s"], key=str, value=str).to("out")
    driver = TopologyTestDriver(app)
    for time in (10, 8):
        driver.input_topic("in", key=str, value=str).pipe("k", "v", timestamp=time)
    assert asked == [15, 13]
    assert driver.store("s").timestamp("own") == 8


@pytest.mark.parametrize(("persistent", "dropped"), [(False, 1), (True, 0)])
def test_in_memory_windows_expire_one_by_one(persistent: bool, dropped: int) -> None:
    """On disk a segment goes as a whole: what is put into a living one is kept, but not found."""
    app = ps.Application("stores")
    spans = {"retention": timedelta(seconds=20), "window": timedelta(seconds=1)}
    app.add_state_store(ps.window_store("s", key=str, value=str, persistent=persistent, **spans))
    found: list[list[int]] = []

    def put(context: ps.ProcessorContext, record: ps.Record[str, str]) -> None:
        store = context.store("s")
        store.put("k", "v", record.timestamp)
        found.append([start for start, _ in store.fetch_range("k", 0, 100_000)])

    stream = app.stream("in", key=str, value=str)
    stream.process(lambda: Doing(put), stores=["s"], key=str, value=str).to("out")
    driver = TopologyTestDriver(app)
    for time in (50_000, 30_001, 30_000):
        driver.input_topic("in", key=str, value=str).pipe("k", "v", timestamp=time)
    assert found == [[50_000], [30_001, 50_000], [30_001, 50_000]]
    assert driver.dropped["expired"] == dropped


@pytest.mark.parametrize("persistent", [False, True])
def test_to_remove_a_session_that_has_expired_drops_nothing(persistent: bool) -> None:
    app = ps.Application("stores")
    retention = timedelta(seconds=20)
    app.add_state_store(
        ps.session_store("s", key=str, value=str, persistent=persistent, retention=retention)
    )
    dropped: list[int] = []

    def put(context: ps.ProcessorContext, record: ps.Record[str, str]) -> None:
        store = context.store("s")
        store.put("k", record.timestamp, record.timestamp, "v")
        store.remove("k", 0, 1)
        store.put("k", 0, 1, None)

    stream = app.stream("in", key=str, value=str)
    stream.process(lambda: Doing(put), stores=["s"], key=str, value=str).to("out")
    driver = TopologyTestDriver(app)
    for time in (1, 200_000):
        driver.input_topic("in", key=str, value=str).pipe("k", "v", timestamp=time)
        dropped.append(driver.dropped["expired"])
    assert dropped == [0, 1]
