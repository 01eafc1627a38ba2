"""Errors in the stream: fail, go on, or send the record to the dead letters."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.errors import (
    ConfigError,
    DeserializationError,
    TimestampError,
    TopologyError,
    UserFunctionError,
)
from penstock.testing import TopologyTestDriver

DEAD = "dead-letters"


def application(**options: Any) -> ps.Application:
    app = ps.Application("handlers", **options)
    numbers = app.stream("in", key=str, value=int)
    numbers.map_values(lambda value: 10 // value, value=int).to("out")
    numbers.to("copy")
    return app


def pipe(app: ps.Application, *values: int, headers: Any = ()) -> TopologyTestDriver:
    driver = TopologyTestDriver(app)
    topic = driver.input_topic("in", key=str, value=int)
    for time, value in enumerate(values):
        topic.pipe("k", value, timestamp=time, headers=headers)
    return driver


def pairs(driver: TopologyTestDriver, topic: str) -> list[Any]:
    return driver.output_topic(topic, key=str, value=int).read_pairs()


def test_by_default_a_raising_function_stops() -> None:
    with pytest.raises(UserFunctionError, match="ZeroDivisionError"):
        pipe(application(), 5, 0)


def test_continue_drops_the_record_where_it_failed_and_nowhere_else() -> None:
    driver = pipe(application(processing_exception_handler="continue"), 5, 0, 2)
    assert pairs(driver, "out") == [("k", 2), ("k", 5)]
    assert pairs(driver, "copy") == [("k", 5), ("k", 0), ("k", 2)]
    assert driver.dropped == {"failed": 1}


def test_dead_letters_have_the_input_record_and_the_reason() -> None:
    app = application(
        processing_exception_handler="dead_letter", errors_dead_letter_queue_topic_name=DEAD
    )
    driver = pipe(app, 5, 0, headers=(("trace", b"7"),))
    [letter] = driver.output_topic(DEAD, key=str, value=int).read_all()
    headers = dict(letter.headers)
    assert (letter.key, letter.value, letter.timestamp) == ("k", 0, 1)
    assert headers["trace"] == b"7"
    assert headers["__streams.errors.exception"] == b"ZeroDivisionError"
    assert headers["__streams.errors.topic"] == b"in"
    assert headers["__streams.errors.partition"] == b"0"
    assert headers["__streams.errors.offset"] == b"1"
    assert b"10 // value" in headers["__streams.errors.stacktrace"]
    assert pairs(driver, "out") == [("k", 2)]


def test_a_function_looks_at_the_failure_and_says_what_becomes_of_the_record() -> None:
    seen: list[ps.RecordFailure] = []

    def decide(failure: ps.RecordFailure) -> Any:
        seen.append(failure)
        return {0: "dead_letter", 1: "continue"}.get(failure.offset, "fail")

    app = application(processing_exception_handler=decide, errors_dead_letter_queue_topic_name=DEAD)
    driver = pipe(app, 0, 0, 5)
    assert pairs(driver, DEAD) == [("k", 0)]
    assert pairs(driver, "out") == [("k", 2)]
    assert pairs(driver, "copy") == [("k", 0), ("k", 0), ("k", 5)]
    assert driver.dropped == {"failed": 2}
    first = seen[0]
    assert isinstance(first.error, ZeroDivisionError)
    assert (first.topic, first.partition, first.offset) == ("in", 0, 0)
    assert first.record == ps.Record("k", 0, 0)
    assert first.step in app.describe()
    with pytest.raises(UserFunctionError, match="ZeroDivisionError"):
        pipe(app, 0, 0, 5, 0)


def test_what_is_to_stop_is_not_asked_about_again_on_its_way_out() -> None:
    seen: list[str] = []

    def decide(failure: ps.RecordFailure) -> str:
        seen.append(failure.step)
        return "fail" if failure.step == "last" else "continue"

    def nonsense(failure: ps.RecordFailure) -> str:
        seen.append(failure.step)
        return "continue" if failure.step != "last" else "perhaps"

    for handler, match in ((decide, "ZeroDivisionError"), (nonsense, "said 'perhaps'")):
        app = ps.Application("chain", processing_exception_handler=handler)
        numbers = app.stream("in", key=str, value=int).filter(lambda _k, _v: True, name="first")
        numbers.map_values(lambda value: 10 // value, value=int, name="last").to("out")
        with pytest.raises(UserFunctionError, match=match):
            pipe(app, 0)
    assert seen == ["last", "last"]


def test_a_function_is_shown_rows_of_tables_and_what_cannot_be_written() -> None:
    seen: list[ps.RecordFailure] = []

    def decide(failure: ps.RecordFailure) -> str:
        seen.append(failure)
        return "continue"

    app = ps.Application(
        "shown", processing_exception_handler=decide, production_exception_handler=decide
    )
    table = app.table("in", key=str, value=int, name="rows")
    table.filter(lambda _key, value: 1 // value > 0).to_stream().to("out")
    table.to_stream().map_values(str, value=int).to("unwritable")
    driver = pipe(app, 0)
    assert [failure.record and failure.record.value for failure in seen] == [0, "0"]
    assert driver.dropped == {"failed": 2}


@pytest.mark.parametrize(
    ("says", "match"),
    [("skip", "said 'skip'"), (None, "said None"), ("dead_letter", "no topic for them is named")],
)
def test_a_function_that_says_what_cannot_be_stops(says: Any, match: str) -> None:
    with pytest.raises(UserFunctionError, match=match):
        pipe(application(processing_exception_handler=lambda _: says), 0)


def test_a_handler_that_raises_stops_with_its_own_error() -> None:
    def decide(_failure: ps.RecordFailure) -> str:
        raise KeyError("lost")

    with pytest.raises(UserFunctionError, match="KeyError: 'lost'"):
        pipe(application(processing_exception_handler=decide), 0)


def test_what_is_no_handler_is_refused() -> None:
    async def decide(_failure: ps.RecordFailure) -> str:
        return "continue"

    with pytest.raises(TopologyError, match="processing_exception_handler"):
        application(processing_exception_handler=decide).build()
    for option in ("processing", "production", "deserialization"):
        with pytest.raises(ConfigError, match="'skip'"):
            application(**{f"{option}_exception_handler": "skip"})


class Failing(ps.Processor[str, int, str, int]):
    def init(self, context: ps.ProcessorContext) -> None:
        super().init(context)
        context.schedule(timedelta(milliseconds=1), "stream_time", lambda _time: 1 // 0)

    def process(self, record: ps.Record[str, int]) -> None:
        self.context.forward(record)


def test_of_a_punctuator_that_fails_there_is_no_record() -> None:
    seen: list[ps.RecordFailure] = []

    def decide(failure: ps.RecordFailure) -> str:
        seen.append(failure)
        return "continue"

    app = ps.Application("punctual", processing_exception_handler=decide)
    app.stream("in", key=str, value=int).process(Failing, name="failing", key=str, value=int)
    pipe(app, 3)
    assert [(each.step, each.record, each.topic) for each in seen] == [("failing", None, "")]


def test_undecodable_records_go_to_the_dead_letters_byte_for_byte() -> None:
    app = application(
        deserialization_exception_handler="dead_letter", errors_dead_letter_queue_topic_name=DEAD
    )
    driver = TopologyTestDriver(app)
    driver.input_topic("in", key=bytes, value=bytes).pipe(b"k", b"short", timestamp=3)
    [letter] = driver.output_topic(DEAD, key=bytes, value=bytes).read_all()
    assert (letter.key, letter.value, letter.timestamp) == (b"k", b"short", 3)
    headers = dict(letter.headers)
    assert headers["__streams.errors.exception"] == b"ValueError"
    assert headers["__streams.errors.stacktrace"].startswith(b"Traceback")
    assert driver.dropped == {"undecodable": 1}
    strict = TopologyTestDriver(application()).input_topic("in", key=bytes, value=bytes)
    with pytest.raises(DeserializationError):
        strict.pipe(b"k", b"short")


def test_what_a_serde_refuses_is_a_production_error() -> None:
    def build(**options: Any) -> ps.Application:
        app = ps.Application("production", **options)
        app.stream("in", key=str, value=int).map_values(str, value=int).to("out")
        return app

    with pytest.raises(UserFunctionError, match="cannot write"):
        pipe(build(), 1)
    driver = pipe(build(production_exception_handler="continue"), 1)
    assert pairs(driver, "out") == []
    assert driver.dropped == {"failed": 1}


def test_dropped_records_go_to_the_dead_letters_if_asked() -> None:
    app = ps.Application(
        "late", errors_dead_letter_queue_topic_name=DEAD, dead_letter_dropped_records=True
    )
    app.stream("in", key=str, value=int).group_by_key().count("counts")
    driver = TopologyTestDriver(app)
    driver.input_topic("in", key=str, value=int).pipe(None, 4)
    [letter] = driver.output_topic(DEAD, key=str, value=int).read_all()
    assert letter.value == 4
    assert dict(letter.headers)["__streams.errors.message"] == b"null_key"


@pytest.mark.parametrize("asked", [True, False])
def test_what_a_source_drops_goes_to_the_dead_letters_if_asked(asked: bool) -> None:
    app = application(
        errors_dead_letter_queue_topic_name=DEAD,
        dead_letter_dropped_records=asked,
        deserialization_exception_handler="continue",
        default_timestamp_extractor="skip",
    )
    driver = TopologyTestDriver(app)
    topic = driver.input_topic("in", key=bytes, value=bytes)
    topic.pipe(b"k", b"short", timestamp=3, headers=(("trace", b"7"),))
    topic.pipe(b"k", bytes(8), timestamp=-1)
    assert driver.dropped == {"undecodable": 1, "negative_timestamp": 1}
    letters = driver.output_topic(DEAD, key=bytes, value=bytes).read_all()
    told = [
        (each.value, each.timestamp, dict(each.headers)["__streams.errors.message"])
        for each in letters
    ]
    both = [
        (b"short", 3, b"a long has 8 bytes, not 5"),
        (bytes(8), -1, b"negative_timestamp"),
    ]
    assert told == (both if asked else [])
    assert not asked or dict(letters[0].headers)["trace"] == b"7"


def test_a_handler_without_a_topic_to_send_to_is_refused() -> None:
    with pytest.raises(ConfigError, match="none is named"):
        application(processing_exception_handler="dead_letter")


def test_timestamps_topics_and_partitions_by_functions() -> None:
    app = ps.Application("functions")
    events = app.stream("in", key=str, value=int, timestamp=lambda key, value, time: value * 100)
    events.to(lambda key, value: "even" if value % 2 == 0 else "odd")
    events.print("seen")
    driver = pipe(app, 3, 4, -1)
    [odd] = driver.output_topic("odd", key=str, value=int).read_all()
    [even] = driver.output_topic("even", key=str, value=int).read_all()
    assert (odd.value, odd.timestamp, even.value, even.timestamp) == (3, 300, 4, 400)
    assert driver.dropped == {"negative_timestamp": 1}


@pytest.mark.parametrize(
    "time", [None, "x", "5", 1.7, 5.0, True, datetime(2024, 1, 1, tzinfo=UTC), 2**70, -(2**70)]
)
def test_what_is_no_time_is_told_with_the_step_and_the_record(time: Any) -> None:
    app = ps.Application("times")
    stream = app.stream(
        "in", key=str, value=int, timestamp=lambda _k, v, t: time if v == 4 else t, name="events"
    )
    stream.to("copy")
    with pytest.raises(UserFunctionError, match="which is no time") as caught:
        pipe(app, 3, 4)
    where = {"topic": "in", "partition": 0, "offset": 1, "step": "events"}
    assert caught.value.where == where


def test_a_time_may_be_any_whole_number() -> None:
    app = ps.Application("times")
    app.stream("in", key=str, value=int, timestamp=lambda _k, v, _t: np.int64(v)).to("copy")
    assert times(pipe(app, 3, 4)) == [3, 4]


WRITES_OTHER = ps.serde(lambda _: b"123", lambda data: int(data.decode() + "?"), name="other")
"""Reads nothing that it writes."""


def counted(app: ps.Application) -> None:
    stream = app.stream("in", key=str, value=int).group_by_key()
    stream.aggregate(int, lambda _k, _v, _s: 1, "s", value=WRITES_OTHER)


def windowed(app: ps.Application) -> None:
    windows = ps.tumbling(timedelta(seconds=1), grace=timedelta(0))
    stream = app.stream("in", key=str, value=int).group_by_key().windowed_by(windows)
    stream.aggregate(int, lambda _k, _v, _s: 1, "s", value=WRITES_OTHER)


def looked_up(app: ps.Application) -> None:
    stream = app.stream("in", key=str, value=int)
    table = stream.map_values(lambda v: v, value=WRITES_OTHER).to_table("s", caching=False)
    stream.join(table, lambda left, _right: left, value=int).to("out")


def joined_tables(app: ps.Application) -> None:
    stream = app.stream("in", key=str, value=int)
    table = stream.map_values(lambda v: v, value=WRITES_OTHER).to_table("s", caching=False)
    table.join(app.table("in2", "t", key=str, value=int), lambda left, _: left, value=int)


def joined_streams(app: ps.Application) -> None:
    stream = app.stream("in", key=str, value=int)
    other = stream.map_values(lambda v: v, value=WRITES_OTHER)
    windows = ps.join_window(timedelta(seconds=1), grace=timedelta(0))
    stream.join(other, lambda left, _right: left, windows, name="s", value=int).to("out")


def held_back(app: ps.Application) -> None:
    table = app.table("in", key=str, value=int).map_values(lambda v: v, value=WRITES_OTHER)
    table.suppress(ps.until_time_limit(timedelta(0), ps.unbounded()), name="s").to_stream()


READERS = (counted, windowed, looked_up, joined_tables, joined_streams, held_back)


@pytest.mark.parametrize("cache", [0, 1_000_000])
@pytest.mark.parametrize("build", READERS)
def test_what_a_store_has_and_its_serde_cannot_read_is_for_the_handler_of_processing(
    build: Callable[[ps.Application], None], cache: int
) -> None:
    seen: list[ps.RecordFailure] = []

    def decide(failure: ps.RecordFailure) -> str:
        seen.append(failure)
        return "continue" if failure.offset < 2 else "fail"

    app = ps.Application(
        "stores", processing_exception_handler=decide, statestore_cache_max_bytes=cache
    )
    build(app)
    driver = pipe(app, 1, 2)
    assert driver.dropped["failed"] == len(seen) > 0
    assert all(isinstance(each.error, ValueError) for each in seen)
    with pytest.raises(UserFunctionError, match="cannot read what the store") as caught:
        driver.input_topic("in", key=str, value=int).pipe("k", 3)
    assert {"step", "store", "key", "topic", "offset"} <= caught.value.where.keys()


def test_a_column_that_cannot_be_read_is_told_with_the_step_and_the_record() -> None:
    app = ps.Application("columns")
    counts = app.stream("in", key=str, value=int).group_by_key()
    table = counts.aggregate(int, lambda _k, _v, _s: 1, "s", value=WRITES_OTHER)
    table.to_stream().map_values(lambda value: value, value=int, name="next").to("out")
    with pytest.raises(UserFunctionError, match="cannot read what it is given as other") as caught:
        pipe(app, 1)
    where = {"topic": "in", "partition": 0, "offset": 0, "step": "next"}
    assert caught.value.where == where


def raising(*_: Any) -> Any:
    raise KeyError("boom")


@pytest.mark.parametrize("behind", [True, False])
@pytest.mark.parametrize("sink", ["topic", "partitioner"])
def test_functions_of_a_sink_that_raise_are_for_the_handler_of_processing(
    sink: str, behind: bool
) -> None:
    def run(**options: Any) -> TopologyTestDriver:
        app = ps.Application("sinks", **options)
        stream = app.stream("in", key=str, value=int)
        stream = stream.map_values(lambda v: v, value=int) if behind else stream
        stream.to(raising) if sink == "topic" else stream.to("out", partitioner=raising)
        stream.to("copy")
        return pipe(app, 1)

    with pytest.raises(UserFunctionError, match="boom"):
        run(production_exception_handler="continue")
    driver = run(processing_exception_handler="continue")
    assert (driver.dropped, pairs(driver, "copy")) == ({"failed": 1}, [("k", 1)])


def test_a_failing_punctuator_is_handled_as_a_failing_record_is() -> None:
    class Failing(ps.Processor[str, int, str, int]):
        def init(self, context: ps.ProcessorContext) -> None:
            super().init(context)
            context.schedule(timedelta(seconds=1), "wall_clock_time", self._tick)

        def process(self, record: ps.Record[str, int]) -> None:
            self.context.forward(record)

        def _tick(self, now_ms: int) -> None:
            raise KeyError(now_ms)

    def driver(**options: Any) -> TopologyTestDriver:
        app = ps.Application("timers", **options)
        app.stream("in", key=str, value=int).process(Failing, key=str, value=int).to("out")
        return TopologyTestDriver(app)

    with pytest.raises(UserFunctionError, match="KeyError"):
        driver().advance_wall_clock_time(timedelta(seconds=1))
    sending = driver(
        processing_exception_handler="dead_letter", errors_dead_letter_queue_topic_name=DEAD
    )
    sending.advance_wall_clock_time(timedelta(seconds=1))
    [letter] = sending.output_topic(DEAD, key=str, value=int).read_all()
    assert (letter.key, letter.value, letter.timestamp) == (None, None, 1_000)
    assert dict(letter.headers)["__streams.errors.exception"] == b"KeyError"
    assert sending.dropped == {"failed": 1}


def test_what_a_context_refuses_is_for_the_handler_of_processing() -> None:
    class Wrong(ps.Processor[str, int, str, int]):
        def process(self, record: ps.Record[str, int]) -> None:
            self.context.forward(record)
            if record.value == 1:
                self.context.forward(record, to="nobody")
            if record.value == 2:
                self.context.store("unconnected")
            self.context.forward(record.with_value(-record.value))

    def driver(**options: Any) -> TopologyTestDriver:
        app = ps.Application("contexts", **options)
        app.stream("in", key=str, value=int).process(Wrong, key=str, value=int).to("out")
        return pipe(app, 0, 1, 2)

    with pytest.raises(TopologyError, match="nobody"):
        driver()
    going_on = driver(processing_exception_handler="continue")
    assert [value for _, value in pairs(going_on, "out")] == [0, 0, 1, 2]
    assert going_on.dropped == {"failed": 2}


def test_a_record_without_a_partner_that_fails_lets_the_others_pass() -> None:
    def joined(left: int | None, right: int | None) -> int:
        return 10 // (left or 0) if right is None else right

    app = ps.Application("alone", processing_exception_handler="continue")
    left = app.stream("in", key=str, value=int)
    window = ps.join_window(before=timedelta(0), after=timedelta(0), grace=timedelta(0))
    left.outer_join(app.stream("other", key=str, value=int), joined, window, value=int).to("out")
    driver = pipe(app, 5, 0, 2, 1, 10)
    assert [value for _, value in pairs(driver, "out")] == [2, 5, 10]
    assert driver.dropped == {"failed": 1}


def test_a_transformer_that_cannot_be_made_is_told_as_the_users_error() -> None:
    def broken() -> ps.ValueTransformer[str, int, int]:
        raise RuntimeError("no such file")

    app = ps.Application("transformers")
    table = app.table("in", "rows", key=str, value=int)
    table.transform_values(broken, value=int).to_stream().to("out")
    with pytest.raises(UserFunctionError, match="no such file"):
        TopologyTestDriver(app).input_topic("in", key=str, value=int).pipe("k", 1)


def times(driver: TopologyTestDriver) -> list[int]:
    return [row.timestamp for row in driver.output_topic("copy", key=str, value=int).read_all()]


def pipe_times(app: ps.Application, *timestamps: int) -> TopologyTestDriver:
    driver = TopologyTestDriver(app)
    driver.advance_wall_clock_time(timedelta(milliseconds=77))
    for time in timestamps:
        driver.input_topic("in", key=str, value=int).pipe("k", 1, timestamp=time)
    return driver


def test_the_default_extractor_decides_what_a_negative_time_becomes() -> None:
    with pytest.raises(TimestampError, match="time is -1"):
        pipe_times(application(), 5, -1)
    skipping = pipe_times(application(default_timestamp_extractor="skip"), 5, -1, 7)
    assert (times(skipping), skipping.dropped) == ([5, 7], {"negative_timestamp": 1})
    # The latest of the partition, also if that was in an earlier slice.
    latest = application(default_timestamp_extractor="partition_time")
    assert times(pipe_times(latest, 5, -1, 3, -1, 9, -1)) == [5, 5, 3, 5, 9, 9]
    with pytest.raises(TimestampError):
        pipe_times(latest, -1)
    assert times(pipe_times(application(default_timestamp_extractor="wall_clock"), 5)) == [77]
    doubled = application(default_timestamp_extractor=lambda key, value, time: 2 * time)
    assert times(pipe_times(doubled, 4)) == [8]


def test_a_sources_own_extractor_comes_before_the_default() -> None:
    app = ps.Application("own", default_timestamp_extractor="wall_clock")
    app.stream("in", key=str, value=int, timestamp="skip").to("copy")
    assert times(pipe_times(app, 5, -1)) == [5]
    app = ps.Application("own", default_timestamp_extractor="wall_clock")
    app.stream("in", key=str, value=int, timestamp=lambda key, value, time: 3).to("copy")
    assert times(pipe_times(app, 5)) == [3]
