"""The test driver notices values that a processor changes in place and does not put back."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import msgspec
import pytest

import penstock as ps
from penstock.errors import ValueNotPutError
from penstock.testing import TopologyTestDriver

MINUTE = timedelta(minutes=1)


@dataclass
class Account:
    n: int = 0
    notes: list[str] = field(default_factory=list)


class Shelf(msgspec.Struct):
    n: int = 0


Work = Callable[[Any, str], object]


def driver(work: Work, *, value: Any = dict[str, int], kind: str = "key_value") -> Any:
    """A processor that does its work with the store, for each record and in a punctuator."""

    class Worker(ps.Processor[str, str, str, str]):
        def init(self, context: ps.ProcessorContext) -> None:
            super().init(context)
            context.schedule(MINUTE, "wall_clock_time", lambda now: self._work("tick"))

        def process(self, record: ps.Record[str, str]) -> None:
            self._work(record.value)

        def _work(self, said: str) -> None:
            work(self.context.store("held"), said)

    app = ps.Application("mutating")
    store = ps.key_value_store("held", key=str, value=value)
    if kind == "versioned":
        store = ps.versioned_store("held", key=str, value=value, history_retention=10 * MINUTE)
    if kind == "window":
        store = ps.window_store("held", key=str, value=value, retention=10 * MINUTE, window=MINUTE)
    app.add_state_store(store)
    stream = app.stream("in", key=str, value=str)
    stream.process(Worker, stores=["held"], key=str, value=str, name="worker").to("out")
    return TopologyTestDriver(app)


def send(made: TopologyTestDriver, *said: str) -> None:
    for each in said:
        made.input_topic("in", key=str, value=str).pipe("k", each)


def changing(start: Any, change: Callable[[Any], object]) -> Work:
    def work(store: Any, said: str) -> None:
        if said == "put":
            store.put("key", start)
            return
        value = store.get("key")
        change(value)
        if said == "put back":
            store.put("key", value)
        elif said == "delete":
            store.delete("key")

    return work


def add_one(value: Any) -> None:
    value["n"] += 1


def count_up(value: Any) -> None:
    value.n += 1


CHANGES = [
    (dict[str, int], {"n": 1}, add_one),
    (list[int], [1], lambda value: value.append(2)),
    (Account, Account(), count_up),
    (Account, Account(), lambda value: value.notes.append("deep inside")),
    (Shelf, Shelf(), count_up),
]


@pytest.mark.parametrize(("value", "start", "change"), CHANGES)
def test_a_change_that_is_not_put_back_is_named(value: Any, start: Any, change: Any) -> None:
    made = driver(changing(start, change), value=value)
    send(made, "put", "put back", "delete", "put")
    with pytest.raises(ValueNotPutError) as error:
        send(made, "forget")
    assert error.value.where == {"store": "held", "key": "key", "step": "worker"}
    assert "store.put(key, value)" in str(error.value)
    with pytest.raises(ValueNotPutError):
        made.advance_wall_clock_time(MINUTE)


@pytest.mark.parametrize(("value", "start", "change"), CHANGES)
def test_reading_is_no_change(value: Any, start: Any, change: Any) -> None:
    made = driver(changing(start, lambda held: None), value=value)
    send(made, "put", "read", "put back", "read", "read")
    made.advance_wall_clock_time(MINUTE)


def test_values_that_a_scan_gave_are_watched_too() -> None:
    def work(store: Any, said: str) -> None:
        store.put_if_absent("key", {"n": 1})
        for key, value in store.all():
            value["n"] += 1
            if said == "put back":
                store.put(key, value)

    made = driver(work)
    send(made, "put back")
    with pytest.raises(ValueNotPutError):
        send(made, "forget")


def test_a_call_that_failed_is_not_held_against_the_next() -> None:
    class Failing(ps.Processor[str, str, str, str]):
        def process(self, record: ps.Record[str, str]) -> None:
            store = self.context.store("held")
            value = store.put_if_absent(record.value, {"n": 0})
            if value is not None:
                value["n"] += 1
                raise ValueError(record.value)

    app = ps.Application("failing", processing_exception_handler="continue")
    app.add_state_store(ps.key_value_store("held", key=str, value=dict[str, int]))
    stream = app.stream("in", key=str, value=str)
    stream.process(Failing, stores=["held"], key=str, value=str).to("out")
    made = TopologyTestDriver(app)
    send(made, "a", "a", "b")
    assert made.dropped == {"failed": 1}


def test_windows_are_watched_too() -> None:
    def work(store: Any, said: str) -> None:
        if store.fetch("key", 0) is None:
            store.put("key", {"n": 1}, 0)
        value = store.fetch("key", 0)
        value["n"] += 1
        if said == "put back":
            store.put("key", value, 0)

    made = driver(work, kind="window")
    send(made, "put back", "put back")
    with pytest.raises(ValueNotPutError):
        send(made, "forget")


def test_a_value_is_put_back_after_a_forward_into_another_processor() -> None:
    class First(ps.Processor[str, str, str, str]):
        def process(self, record: ps.Record[str, str]) -> None:
            store = self.context.store("held")
            value = store.get("key") or {"n": 0}
            value["n"] += 1
            self.context.forward(record)
            store.put("key", value)

    class Second(ps.Processor[str, str, str, int]):
        def process(self, record: ps.Record[str, str]) -> None:
            value = self.context.store("held").get("key")
            self.context.forward(ps.Record(record.key, value["n"] if value else 0, 0))

    app = ps.Application("two")
    app.add_state_store(ps.key_value_store("held", key=str, value=dict[str, int]))
    stream = app.stream("in", key=str, value=str)
    first = stream.process(First, stores=["held"], key=str, value=str)
    first.process(Second, stores=["held"], key=str, value=int).to("out")
    made = TopologyTestDriver(app)
    send(made, "a", "b", "c")
    out = made.output_topic("out", key=str, value=int).read_pairs()
    assert [value for _, value in out] == [0, 1, 2]


def test_a_transformer_is_watched_too() -> None:
    class Forgetful(ps.ValueTransformer[str, str, str]):
        def transform(self, key: str, value: str | None) -> str | None:
            held = self.context.store("held")
            found = held.get(key)
            if found is None:
                held.put(key, {"n": 0})
            else:
                found["n"] += 1
            return value

    app = ps.Application("transformed")
    app.add_state_store(ps.key_value_store("held", key=str, value=dict[str, int]))
    table = app.table("in", "rows", key=str, value=str)
    table.transform_values(Forgetful, stores=["held"], value=str).to_stream().to("out")
    made = TopologyTestDriver(app)
    send(made, "first")
    with pytest.raises(ValueNotPutError):
        send(made, "second")


@pytest.mark.parametrize("time", [None, 5])
def test_versions_are_watched_too(time: int | None) -> None:
    def work(store: Any, said: str) -> None:
        held = store.get("key", time)
        if held is None:
            store.put("key", {"n": 1}, 1)
        elif said != "read":
            held.value["n"] += 1
            if said != "forget":
                store.put("key", held.value, 1 if said == "put back" else 3)

    made = driver(work, kind="versioned")
    send(made, "first", "read", "put back", "put later", "read", "put back")
    with pytest.raises(ValueNotPutError, match="store 'held'"):
        send(made, "forget")


class Keeping(ps.Processor[str, str, str, str]):
    """Changes what it was given when this says so: as it is made, in a later call, or at the end.

    `moment` is that, `puts` whether the value goes back into the store.
    """

    def __init__(self, moment: str, *, puts: bool) -> None:
        self.moment = moment
        self.puts = puts
        self.kept: Any = None

    def init(self, context: ps.ProcessorContext) -> None:
        super().init(context)
        self._at("init")
        context.schedule(MINUTE, "stream_time", lambda now: self._at("punctuator"))

    def process(self, record: ps.Record[str, str]) -> None:
        store = self.context.store("held")
        self.kept = store.get("key")
        if self.kept is None:
            store.put("key", {"n": 1})
        self._at("process")

    def close(self) -> None:
        self._at("close")

    def _at(self, moment: str) -> None:
        if moment != self.moment:
            return
        store = self.context.store("held")
        # One that an earlier call was given, or one of this call.
        value = store.get("key") if self.kept is None else self.kept
        if value is not None:
            value["n"] += 1
            if self.puts:
                store.put("key", value)


@pytest.mark.parametrize("moment", ["init", "process", "punctuator", "close"])
def test_a_value_may_be_changed_at_any_moment_and_is_missed(moment: str) -> None:
    for puts in (True, False):
        app = ps.Application("keeping")
        app.add_state_store(ps.key_value_store("held", key=str, value=dict[str, int]))
        stream = app.stream("in", key=str, value=str)
        made = functools.partial(Keeping, moment, puts=puts)
        stream.process(made, stores=["held"], key=str, value=str, name="keeping").to("out")
        started = TopologyTestDriver(app)
        topic = started.input_topic("in", key=str, value=str)
        if puts:
            _pipe_two(topic)
            assert dict(started.store("held"))["key"]["n"] > 1
        else:
            with pytest.raises(ValueNotPutError, match="processor keeping"):
                _pipe_two(topic)


def _pipe_two(topic: Any) -> None:
    topic.pipe("k", "first", timestamp=0)
    topic.pipe("k", "second", timestamp=10 * 60_000)


def test_what_a_failed_call_changed_is_not_missed_at_the_end() -> None:
    class Failing(ps.Processor[str, str, str, str]):
        def process(self, record: ps.Record[str, str]) -> None:
            value = self.context.store("held").put_if_absent("key", {"n": 0})
            if value is not None:
                value["n"] += 1
                raise ValueError

    app = ps.Application("failing", processing_exception_handler="continue")
    app.add_state_store(ps.key_value_store("held", key=str, value=dict[str, int]))
    app.stream("in", key=str, value=str).process(Failing, stores=["held"], key=str, value=str)
    made = TopologyTestDriver(app)
    send(made, "a", "b")
    assert made.dropped == {"failed": 1}


@pytest.mark.parametrize("kind", ["key_value", "window", "versioned"])
@pytest.mark.parametrize("said", ["change", "put again", "elsewhere"])
def test_a_value_that_was_put_and_then_changed_is_missed(kind: str, said: str) -> None:
    def put(store: Any, key: str, value: Any) -> None:
        if kind == "key_value":
            store.put(key, value)
        else:
            store.put(key, value, 0)

    def work(store: Any, what: str) -> None:
        value = {"n": 1}
        put(store, "key", value)
        value["n"] += 1
        if what == "put again":
            put(store, "key", value)
        elif what == "elsewhere":
            # One object may serve several entries, each as it was when it was put.
            put(store, "other", value)

    made = driver(work, kind=kind)
    if said == "change":
        with pytest.raises(ValueNotPutError, match="store 'held'"):
            send(made, said)
    else:
        send(made, said)


def test_sessions_and_values_with_times_that_were_put_are_watched_too() -> None:
    class Changing(ps.Processor[str, str, str, str]):
        def process(self, record: ps.Record[str, str]) -> None:
            value = {"n": 1}
            if record.value == "session":
                self.context.store("sessions").put("key", 0, 5, value)
            elif record.value == "timed":
                self.context.store("timed").put("key", ps.ValueAndTimestamp(value, 7))
            value["n"] += 1

    app = ps.Application("put")
    app.add_state_store(
        ps.session_store("sessions", key=str, value=dict[str, int], retention=MINUTE)
    )
    app.add_state_store(ps.timestamped_key_value_store("timed", key=str, value=dict[str, int]))
    stream = app.stream("in", key=str, value=str)
    stream.process(Changing, stores=["sessions", "timed"], key=str, value=str).to("out")
    for said, store in (("session", "sessions"), ("timed", "timed")):
        with pytest.raises(ValueNotPutError, match=f"store '{store}'"):
            send(TopologyTestDriver(app), said)
    send(TopologyTestDriver(app), "neither")


def test_what_was_put_may_be_changed_by_whoever_puts_it_elsewhere() -> None:
    class First(ps.Processor[str, str, str, Any]):
        def process(self, record: ps.Record[str, str]) -> None:
            value = {"n": 1}
            self.context.store("held").put("key", value)
            self.context.forward(ps.Record(record.key, value, 0))

    class Second(ps.Processor[str, Any, str, Any]):
        def process(self, record: ps.Record[str, Any]) -> None:
            record.value["n"] += 1
            self.context.store("more").put("key", record.value)

    app = ps.Application("two")
    for name in ("held", "more"):
        app.add_state_store(ps.key_value_store(name, key=str, value=dict[str, int]))
    stream = app.stream("in", key=str, value=str)
    first = stream.process(First, stores=["held"], key=str, value=dict[str, int])
    first.process(Second, stores=["more"], key=str, value=dict[str, int])
    made = TopologyTestDriver(app)
    send(made, "a", "b")
    assert dict(made.store("held")) == {"key": {"n": 1}}
    assert dict(made.store("more")) == {"key": {"n": 2}}


def test_a_serde_that_never_gives_the_same_bytes_accuses_nobody() -> None:
    numbers = iter(range(1_000))
    salted = ps.serde(
        lambda value: bytes([next(numbers) % 256]) + msgspec.json.encode(value),
        lambda data: msgspec.json.decode(data[1:]),
    )

    def work(store: Any, said: str) -> None:
        value = store.get("key") or {"n": 0}
        store.put("key", {"n": value["n"] + 1})
        store.get("key")

    send(driver(work, value=salted), "a", "b")
