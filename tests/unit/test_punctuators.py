"""Timers of users' processors: when they are due, and what the next slice knows of them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import penstock as ps
from penstock.errors import TopologyError
from penstock.processors import WALL_CLOCK_DUE, Limits, RecordRun
from penstock.testing import TopologyTestDriver
from penstock.testing.stores import DriverState
from penstock.topology import Processor, ProcessorContext, Record, StreamsBuilder, key_value_store
from tests.unit.slices import Row, records

SECOND = timedelta(seconds=1)
Action = Callable[[ProcessorContext, list[int]], object]


class Timed(Processor[bytes, bytes, bytes, bytes]):
    """Does what it is told to in `init` and for a record."""

    def __init__(self, on_init: Action, on_record: Action, called: list[int]) -> None:
        self._on_init = on_init
        self._on_record = on_record
        self._called = called

    def init(self, context: ProcessorContext) -> None:
        self.context = context
        self._on_init(context, self._called)

    def process(self, record: Record[bytes, bytes]) -> None:
        self._on_record(self.context, self._called)


def nothing(context: ProcessorContext, called: list[int]) -> None:
    """Schedules nothing."""


def every_second(context: ProcessorContext, called: list[int]) -> None:
    context.schedule(SECOND, "wall_clock_time", called.append)


def once(context: ProcessorContext, called: list[int]) -> None:
    def call(now: int) -> None:
        called.append(now)
        timer.cancel()

    timer = context.schedule(SECOND, "wall_clock_time", call)


def started(builder: StreamsBuilder, metadata: dict[str, str] | None, now_ms: int) -> RecordRun:
    """A slice of the only sub-topology."""
    return RecordRun(
        builder.build().sub_topologies[0],
        application_id="app",
        state=DriverState({}),
        limits=Limits(cache_max_bytes=0, partition_counts={"out": 1}),
        metadata=metadata,
        now_ms=now_ms,
    )


def run(
    now_ms: int,
    metadata: dict[str, str],
    *,
    on_init: Action = nothing,
    on_record: Action = nothing,
    count: int = 0,
) -> tuple[list[int], dict[str, str]]:
    """A slice of so many records; what was called, and the metadata that it leaves."""
    called: list[int] = []
    builder = StreamsBuilder()
    stream = builder.stream("in", key=bytes, value=bytes)
    stream.process(lambda: Timed(on_init, on_record, called), key=bytes, value=bytes).to("out")
    slice_run = started(builder, metadata, now_ms)
    if count:
        slice_run.process(records([Row(n, 0, b"k", b"v") for n in range(count)]))
    return called, dict(slice_run.finish().metadata)


def test_a_timer_goes_on_from_slice_to_slice_without_records() -> None:
    called, said = run(5_000, {}, on_init=every_second)
    assert (called, said[WALL_CLOCK_DUE]) == ([], "6000")
    called, said = run(5_999, said, on_init=every_second)
    assert (called, said[WALL_CLOCK_DUE]) == ([], "6000")
    # One that is late is called once for all that it missed, and keeps its beat.
    called, said = run(8_100, said, on_init=every_second)
    assert (called, said[WALL_CLOCK_DUE]) == ([8_100], "9000")


def test_the_earliest_of_all_timers_is_told() -> None:
    def two(context: ProcessorContext, called: list[int]) -> None:
        context.schedule(3 * SECOND, "wall_clock_time", called.append)
        every_second(context, called)
        context.schedule(timedelta(milliseconds=1), "stream_time", called.append)

    assert run(5_000, {}, on_init=two)[1][WALL_CLOCK_DUE] == "6000"


def test_without_timers_of_the_clock_nothing_is_ever_due() -> None:
    _, said = run(5_000, {})
    assert int(said[WALL_CLOCK_DUE]) > 2**60


def test_a_timer_that_was_cancelled_stays_so_though_init_schedules_it_again() -> None:
    _, said = run(5_000, {}, on_init=once)
    called, said = run(6_000, said, on_init=once)
    assert called == [6_000]
    called, said = run(60_000, said, on_init=once)
    assert called == []
    assert int(said[WALL_CLOCK_DUE]) > 2**60


def test_a_record_schedules_only_what_the_next_slice_can_find() -> None:
    with pytest.raises(TopologyError, match=r"no method of its processor.*self\.on_time"):
        run(5_000, {}, on_record=every_second, count=1)


class Probe(Processor[str, str, str, str]):
    """What a punctuation is given, as the values of what it forwards and as what it puts."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        context.schedule(SECOND, "wall_clock_time", lambda now: self._say("wall", now))

    def process(self, record: Record[str, str]) -> None:
        if record.value == "schedule":
            ten = timedelta(milliseconds=10)
            self._timer = self.context.schedule(ten, "stream_time", self._ten)
            self.context.schedule(timedelta(milliseconds=7), "stream_time", self._seven)
        elif record.value == "cancel":
            self._timer.cancel()
        elif record.value == "nested":
            self.context.schedule(SECOND, "stream_time", self._outer)

    def _outer(self, now: int) -> None:
        self._say("outer", now)
        self.context.schedule(SECOND, "stream_time", self._inner)

    def _ten(self, now: int) -> None:
        self._say("ten", now)

    def _seven(self, now: int) -> None:
        self._say("seven", now)

    def _inner(self, now: int) -> None:
        self._say("inner", now)

    def _say(self, key: str, now: int) -> None:
        context = self.context
        assert context.record_metadata is None
        assert context.partition == 0
        context.store("said").put(key, f"at {now}")
        context.forward(Record(key, f"{context.current_stream_time_ms}", now))


def probe(rows: list[Row], *, now_ms: int = 0, metadata: dict[str, str] | None = None) -> Any:
    """A slice of these through a `Probe`: its result."""
    builder = StreamsBuilder()
    builder.add_state_store(key_value_store("said", key=str, value=str))
    stream = builder.stream("in", key=str, value=str)
    stream.process(Probe, stores=["said"], key=str, value=str).to("out")
    slice_run = started(builder, metadata, now_ms)
    if rows:
        slice_run.process(records(rows))
    return slice_run.finish()


def calls(result: Any) -> list[tuple[str, int]]:
    return [(row["key"].decode(), row["timestamp"]) for row in result.outputs.to_pylist()]


def test_a_punctuator_that_a_record_schedules_is_called_from_that_record_on() -> None:
    # What Kafka Streams 4.1.1 calls for the same records, in its order.
    said = ["x", "schedule", "x", "x", "cancel", "x", "nested"]
    times = [5, 12, 15, 40, 45, 70, 80]
    rows = [
        Row(n, time, b"k", word.encode())
        for n, (word, time) in enumerate(zip(said, times, strict=True))
    ]
    assert calls(probe(rows)) == [
        ("ten", 12),
        ("seven", 12),
        ("seven", 15),
        ("ten", 40),
        ("seven", 40),
        ("seven", 45),
        ("seven", 70),
        ("outer", 80),
        ("inner", 80),
        ("seven", 80),
    ]


def test_a_punctuation_has_its_own_time_in_the_changelog_and_no_input_record() -> None:
    started = probe([Row(0, 12, b"k", b"schedule")], now_ms=1_000)
    logged = [(row["key"], row["timestamp"]) for row in started.changes.to_pylist()]
    assert logged == [(b"ten", 12), (b"seven", 12)]
    ticked = probe([], now_ms=4_500, metadata=dict(started.metadata))
    assert [(row["key"], row["timestamp"]) for row in ticked.changes.to_pylist()] == [
        (b"wall", 4_500)
    ]
    assert calls(ticked) == [("wall", 4_500)]


class Reminder(Processor[str, str, str, str]):
    """Schedules a call of the kind that a record names; "once" ends itself."""

    def process(self, record: Record[str, str]) -> None:
        ten = timedelta(milliseconds=10)
        if record.value == "stream":
            self.context.schedule(ten, "stream_time", self.stream)
        elif record.value == "wall":
            self.context.schedule(ten, "wall_clock_time", self.wall)
        elif record.value == "once":
            self.context.schedule(ten, "wall_clock_time", self.once)
        elif record.value == "early":
            self.context.forward(record.with_timestamp(-5))

    def stream(self, now: int) -> None:
        self.context.forward(Record("stream", str(now), now))
        if now > 30:
            self.context.schedule(timedelta(milliseconds=20), "stream_time", self.nested)
            assert self.context.current_call is not None
            self.context.current_call.cancel()

    def nested(self, now: int) -> None:
        self.context.forward(Record("nested", str(now), now))

    def wall(self, now: int) -> None:
        self.context.forward(Record("wall", str(now), now))

    def once(self, now: int) -> None:
        self.context.forward(Record("once", str(now), now))
        assert self.context.current_call is not None
        self.context.current_call.cancel()


class Reminded:
    """A driver, each of whose records and moments is a slice of its own."""

    def __init__(self) -> None:
        app = ps.Application("reminders")
        app.stream("in", key=str, value=str).process(Reminder, key=str, value=str).to("out")
        self.driver = TopologyTestDriver(app)
        self._in = self.driver.input_topic("in", key=str, value=str)
        self._out = self.driver.output_topic("out", key=str, value=str)

    def pipe(self, word: str, time: int) -> list[tuple[str, int]]:
        self._in.pipe("k", word, timestamp=time)
        return self._told()

    def wait(self, milliseconds: int) -> list[str]:
        self.driver.advance_wall_clock_time(timedelta(milliseconds=milliseconds))
        return [key for key, _ in self._told()]

    def _told(self) -> list[tuple[str, int]]:
        return [(row.key, row.timestamp) for row in self._out.read_all()]


def test_what_a_record_or_a_call_schedules_outlives_the_slice() -> None:
    # The times are those of Kafka Streams 4.1.1 for the same records.
    reminded = Reminded()
    assert reminded.pipe("stream", 5) == [("stream", 5)]
    assert reminded.pipe("x", 9) == []
    assert reminded.pipe("x", 15) == [("stream", 15)]
    assert reminded.pipe("x", 35) == [("stream", 35), ("nested", 35)]
    assert reminded.pipe("x", 36) == []
    assert reminded.pipe("x", 60) == [("nested", 60)]
    assert reminded.pipe("x", 100) == [("nested", 100)]


def test_a_timeout_that_a_record_sets_comes_without_another_record() -> None:
    reminded = Reminded()
    assert reminded.pipe("wall", 5) == []
    assert reminded.pipe("once", 6) == []
    assert reminded.wait(9) == []
    assert reminded.wait(1) == ["wall", "once"]
    assert reminded.wait(30) == ["wall"]
    # What ended leaves nothing behind, and another may begin.
    assert reminded.pipe("once", 7) == []
    assert reminded.wait(10) == ["wall", "once"]


def test_a_method_that_the_program_lost_is_called_no_more(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    reminded = Reminded()
    reminded.pipe("wall", 5)
    monkeypatch.delattr(Reminder, "wall")
    assert reminded.wait(10) == []
    assert "has no method wall any more" in caplog.text
    caplog.clear()
    assert reminded.wait(10) == []
    assert not caplog.text


def test_a_record_before_the_epoch_is_not_forwarded() -> None:
    with pytest.raises(TopologyError, match="a record of time -5"):
        Reminded().pipe("early", 5)


class Ringing(Processor[str, str, str, str]):
    """Says its name when its timer rings, which is once if that is said."""

    def __init__(self, name: str, interval: timedelta, said: list[str], *, once: bool) -> None:
        self._name = name
        self._interval = interval
        self._said = said
        self._once = once

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        context.schedule(self._interval, "wall_clock_time", self.ring)

    def process(self, record: Record[str, str]) -> None:
        self.context.schedule(5 * SECOND, "wall_clock_time", self.ring_later)
        self.context.forward(record)

    def ring(self, now: int) -> None:
        self._said.append(self._name)
        if self._once:
            call = self.context.current_call
            assert call is not None
            call.cancel()

    def ring_later(self, now: int) -> None:
        self._said.append(f"{self._name} later")


def ringing(
    now_ms: int, metadata: dict[str, str], program: Callable[[Any, Callable[..., Any]], object]
) -> tuple[list[str], dict[str, str]]:
    """A slice without records of a program that is given a stream and a maker of processors."""
    said: list[str] = []
    builder = StreamsBuilder()
    for store in ("one", "two"):
        builder.add_state_store(key_value_store(store, key=str, value=str))

    def made(name: str, interval: timedelta = SECOND, *, once: bool = False) -> Any:
        return lambda: Ringing(name, interval, said, once=once)

    program(builder.stream("in", key=str, value=str), made)
    slice_run = started(builder, metadata, now_ms)
    return said, dict(slice_run.finish().metadata)


def test_a_step_that_is_added_does_not_move_the_timers_of_others() -> None:
    def first(stream: Any, made: Any) -> None:
        stream.process(made("once", once=True), stores=["one"], key=str, value=str)
        stream.process(made("always"), stores=["two"], key=str, value=str)
        stream.process(made("bare"), key=str, value=str)

    def second(stream: Any, made: Any) -> None:
        # Each step has the number now that another one had.
        stream = stream.filter(lambda key, value: True)
        stream.process(made("bare"), key=str, value=str)
        stream.process(made("always"), stores=["two"], key=str, value=str)
        stream.process(made("once", once=True), stores=["one"], key=str, value=str)
        stream.process(made("new", 2 * SECOND), stores=["one", "two"], key=str, value=str)

    _, left = ringing(0, {}, first)
    said, left = ringing(1_000, left, first)
    assert said == ["once", "always", "bare"]
    said, left = ringing(2_500, left, second)
    assert said == ["always", "bare"] or said == ["bare", "always"]
    assert ringing(4_500, left, second)[0].count("new") == 1


def test_a_timer_of_another_interval_begins_anew() -> None:
    def every(interval: timedelta, *, once: bool = False) -> Any:
        return lambda stream, made: stream.process(
            made("x", interval, once=once), key=str, value=str, name="ringing"
        )

    _, left = ringing(0, {}, every(timedelta(days=1)))
    said, left = ringing(5_000, left, every(SECOND, once=True))
    said, left = ringing(6_000, left, every(SECOND, once=True))
    assert said == ["x"]
    assert not [name for name in left if "86400000" in name]
    # What was cancelled was the call of that interval.
    _, left = ringing(7_000, left, every(2 * SECOND))
    assert ringing(9_000, left, every(2 * SECOND))[0] == ["x"]


def test_what_a_flush_schedules_is_called_though_the_next_record_is_dropped() -> None:
    class Later(ps.Processor[str, int, str, int]):
        def process(self, record: ps.Record[str, int]) -> None:
            self.context.schedule(SECOND, "stream_time", self.on_time)

        def on_time(self, now: int) -> None:
            self.context.forward(ps.Record("call", now, now))

    app = ps.Application("flushes", deserialization_exception_handler="continue")
    counts = app.stream("in", key=str, value=int).group_by_key().count("counts")
    counts.to_stream().process(Later, key=str, value=int).to("out")
    driver = TopologyTestDriver(app)
    driver.input_topic("in", key=str, value=int).pipe("k", 1, timestamp=500)
    out = driver.output_topic("out", key=str, value=int)
    assert out.read_pairs() == []
    driver.input_topic("in", key=str, value=str).pipe("k", "bad", timestamp=100)
    assert out.read_pairs() == [("call", 500)]
