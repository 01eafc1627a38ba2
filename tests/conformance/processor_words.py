"""The processors that a case may name; oracle/Processors.java has the same in Java.

They keep nothing but what is in their stores, and show in their results what they found there.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, ClassVar

import penstock as ps
from tests.conformance import functions as words
from tests.conformance.cases import Step

Record = ps.Record[Any, Any]
_POISON = "¡"


def _read(data: bytes) -> str:
    text = data.decode()
    if text.startswith(_POISON):
        raise ValueError("poison")
    return text


PICKY = ps.serde(str.encode, _read, name="picky")
"""Texts, of which some cannot be read."""


def make_worker(step: Step) -> ps.Processor[Any, Any, Any, Any]:
    """The processor of a step."""
    return _WORKERS[step["f"]](step)


def check(step: Step, value: Any) -> None:
    """Fail on some values, if the step does so."""
    if "fails" in step and words.has(value, "1"):
        raise ValueError("fails")


def failing(step: Step, function: Callable[..., Any], at: int) -> Callable[..., Any]:
    """The function, which fails on some values if the step does so; the value is argument `at`."""
    if "fails" not in step:
        return function

    def call(*arguments: Any) -> Any:
        check(step, arguments[at])
        return function(*arguments)

    return call


def _name(key: Any) -> str:
    """Under which name a processor keeps a key."""
    inner = words.inner(key)
    return "-" if inner is None else inner


def _text(value: Any) -> str | None:
    return None if value is None else words.text(value)


class _Worker(ps.Processor[Any, Any, Any, Any]):
    """What all of them have in common."""

    def __init__(self, step: Step) -> None:
        self.step = step

    def init(self, context: ps.ProcessorContext) -> None:
        super().init(context)
        self.store = context.store(self.step["store"]) if "store" in self.step else None

    def keys_to_read(self, key: Any, value: Any) -> Mapping[str, Sequence[Any]]:
        del value
        return {self.step["store"]: self.read_ahead(_name(key))} if "foreseen" in self.step else {}

    def read_ahead(self, name: str) -> Sequence[Any]:
        """What of the own store is read for a key."""
        return [name]

    def give(self, record: Record, value: Any, *, to: str | None = None, **changes: Any) -> None:
        """Forward the record with another value; where keys may change, they become texts."""
        key = record.key if self.step["op"] == "process_values" else words.inner(record.key)
        if self.step["op"] == "process" and "key" in changes:
            key = changes["key"]
        time = changes.get("time", record.timestamp)
        headers = changes.get("headers", record.headers)
        value = None if value is None else words.shorten(value)
        self.context.forward(ps.Record(key, value, time, headers), to)

    def every(self, kind: Any, action: Callable[[int], object]) -> None:
        """Have a call every interval of the step."""
        self.context.schedule(timedelta(milliseconds=self.step["interval"]), kind, action)


class _Counter(_Worker):
    """Numbers the records of a key, and looks at another; an x ends it."""

    def process(self, record: Record) -> None:
        name = _name(record.key)
        if words.has(record.value, "x"):
            gone = self.store.delete(name)
            self.give(record, None if gone is None else f"gone{gone}")
            return
        number = int(self.store.get(name) or "0") + 1
        self.store.put(name, str(number))
        other = self.store.get(words.first_of(None, record.value) or "-")
        self.give(record, f"{words.text(record.value)}#{number}/{words.text(other)}")


class _Absent(_Worker):
    """Puts what is not there yet, and some more."""

    def process(self, record: Record) -> None:
        name, value = _name(record.key), words.text(record.value)
        before = self.store.put_if_absent(name, value)
        self.store.put_all([(f"{name}1", value), (f"{name}2", None), (f"{value[:1]}3", name)])
        self.give(record, f"{words.text(before)}?{value}")


class _Last(_Worker):
    """Keeps values by their times, and looks around them."""

    def process(self, record: Record) -> None:
        name, span, time = _name(record.key), self.step["span"], record.timestamp
        self.store.put(name, _text(record.value), time)
        if words.has(record.value, "a"):
            found = self.store.fetch_all(max(0, time - span), time)
            self.give(record, ",".join(f"{key}@{start}={value}" for key, start, value in found))
            return
        around = _windows(self.store.fetch_range(name, max(0, time - span), time + span))
        before = itertools.islice(_windows(self.store.backward_fetch(name, 0, time)), 2)
        now = words.text(self.store.fetch(name, time))
        self.give(record, f"{','.join(around)}/{','.join(before)}/{now}")

    def read_ahead(self, name: str) -> Sequence[Any]:
        return [(name, 0, 30_000)]


class _History(_Worker):
    """Keeps versions, and asks what was."""

    def process(self, record: Record) -> None:
        name, span, time = _name(record.key), self.step["span"], record.timestamp
        if words.has(record.value, "x"):
            self.give(record, f"gone{_version(self.store.delete(name, time))}")
            return
        until = self.store.put(name, _text(record.value), time)
        then = _version(self.store.get(name, max(0, time - span)))
        self.give(record, f"{_until(until)}:{then}:{_version(self.store.get(name))}")


class _Sessions(_Worker):
    """Makes its own sessions."""

    def process(self, record: Record) -> None:
        name, span, time = _name(record.key), self.step["span"], record.timestamp
        first, last, whole = time, time, words.text(record.value)
        for start, end, value in list(
            self.store.find_sessions(name, max(0, time - span), time + span)
        ):
            first, last = min(first, start), max(last, end)
            whole = words.shorten(f"{value}+{whole}")
            self.store.remove(name, start, end)
        self.store.put(name, first, last, whole)
        if words.has(record.value, "c"):
            self.store.remove(name, 0, 0)
        others = sum(1 for _ in self.store.fetch(name))
        self.give(record, f"{first}-{last}:{others}:{whole}")

    def read_ahead(self, name: str) -> Sequence[Any]:
        return [(name, 20)]


class _Stamps(_Worker):
    """Keeps the latest value of each key, by its own time."""

    def process(self, record: Record) -> None:
        name = _name(record.key)
        before = self.store.get(name)
        if record.value is None:
            self.store.delete(name)
        elif before is None or before.timestamp <= record.timestamp:
            kept = ps.ValueAndTimestamp(words.text(record.value), record.timestamp)
            self.store.put(name, kept)
        shown = "null" if before is None else f"{before.value}@{before.timestamp}"
        self.give(record, f"{words.text(record.value)}~{shown}")


class _Walker(_Worker):
    """Collects values, and gives them all when its time has come."""

    kind: ClassVar[Any] = "stream_time"

    def init(self, context: ps.ProcessorContext) -> None:
        super().init(context)
        self.every(self.kind, self.on_time)

    def process(self, record: Record) -> None:
        name = _name(record.key)
        before, value = self.store.get(name), record.value
        kept = None if value is None else words.shorten(f"{words.text(before)}{words.text(value)}")
        self.store.put(name, kept)
        if words.has(value, "b"):
            self.give(record, words.text(value))

    def on_time(self, now: int) -> None:
        for key, value in list(self.walked()):
            check(self.step, value)
            self.context.forward(ps.Record(key, words.shorten(f"{value}@{now}"), now))
            if words.even(value):
                self.store.delete(key)

    def walked(self) -> Iterator[tuple[Any, Any]]:
        match self.step["walk"]:
            case "all":
                found = self.store.all()
            case "reverse_all":
                found = self.store.reverse_all()
            case "range":
                found = self.store.range("a", "c")
            case "reverse_range":
                found = self.store.reverse_range("b", None)
            case _:
                found = self.store.prefix_scan("a", str)
        return iter(found)


class _Waker(_Walker):
    """The same by the wall clock."""

    kind: ClassVar[Any] = "wall_clock_time"


class _Later(_Worker):
    """Schedules calls while it processes; every third call is its last."""

    def process(self, record: Record) -> None:
        if words.has(record.value, "a"):
            self.every("stream_time", self.on_time)
        self.give(record, f"{words.text(record.value)}#{self.store.get('calls') or 0}")

    def on_time(self, now: int) -> None:
        calls = int(self.store.get("calls") or "0") + 1
        self.store.put("calls", str(calls))
        self.context.forward(ps.Record("call", str(calls), now))
        if calls % 3 == 0:
            self.context.current_call.cancel()


class _Marker(_Worker):
    """Changes times and headers."""

    def process(self, record: Record) -> None:
        times = 1 + len(words.text(record.value)) % 3
        time = max(0, record.timestamp + times * self.step["shift"])
        own = ("by", _name(record.key).encode())
        headers = {
            "add": (*record.headers, own),
            "replace": (own,),
            "clear": (),
            "twice": (own, *record.headers, own),
            "keep": record.headers,
        }[self.step["headers"]]
        self.give(record, _text(record.value), time=time, headers=headers)


class _Spread(_Worker):
    """Gives none to three records for one."""

    def process(self, record: Record) -> None:
        value = words.text(record.value)
        inner = words.inner(record.key)
        keys = [inner, words.first_of(None, record.value), None if inner is None else f"{inner}2"]
        for number in range(len(value) % 4):
            time = record.timestamp + number
            self.give(record, f"{value}.{number}", key=keys[number], time=time)


class _Router(_Worker):
    """Gives some records to one step behind it, and some to all."""

    def process(self, record: Record) -> None:
        first, second = self.step["children"]
        value = _text(record.value)
        if words.has(value, "a"):
            self.give(record, value, to=first)
        elif words.has(value, "b"):
            self.give(record, value, to=second)
        elif words.has(value, "x") and "fails" in self.step:
            self.give(record, value, to="nobody")
        elif value is not None:
            self.give(record, value)


class _Teller(_Worker):
    """Tells where records are from, and what time it is."""

    def process(self, record: Record) -> None:
        place = self.context.record_metadata
        topic, offset = ("none", -1) if place is None else (place.topic, place.offset)
        topic = "again" if topic.endswith(("-repartition", "-topic")) else topic
        clock = f"^{self.context.current_stream_time_ms}" if "clock" in self.step else ""
        self.give(record, f"{words.text(record.value)}^{topic}^{offset}{clock}")


class _Reader(_Worker):
    """Looks into a store that others fill."""

    def process(self, record: Record) -> None:
        name, span, time = _name(record.key), self.step["span"], record.timestamp
        store = self.context.store(self.step["reads"])
        match self.step["kind"]:
            case "window":
                found = ",".join(
                    _windows(store.fetch_range(name, max(0, time - span), time + span))
                )
            case "session":
                found = ",".join(f"{s}-{e}={words.text(v)}" for s, e, v in store.fetch(name))
            case "versioned":
                found = _version(store.get(name, max(0, time - span)))
            case _:
                found = self._entries(store, name, back=words.has(record.value, "a"))
        self.give(record, f"{words.text(record.value)}~{found}")

    def _entries(self, store: Any, name: str, *, back: bool) -> str:
        value = store.get(name)
        found = words.text(_bare(value))
        if isinstance(value, ps.ValueAndTimestamp):
            found += f"@{value.timestamp}"
        elif value is not None and "timed" in self.step:
            found += f"@{store.timestamp(name)}"
        rows = store.reverse_range(None, name) if back else store.range(name, None)
        some = itertools.islice(rows, 3)
        return found + "".join(f"|{key}={words.text(_bare(each))}" for key, each in some)


class _Fragile(_Worker):
    """Fails in the midst of its work."""

    def process(self, record: Record) -> None:
        name = _name(record.key)
        number = int(self.store.get(name) or "0") + 1
        self.store.put(name, str(number))
        self.give(record, f"{words.text(record.value)}#{number}")
        check(self.step, record.value)
        self.store.put(f"{name}!", str(number))
        self.give(record, f"{words.text(record.value)}!{number}")


class Keeper(ps.Processor[Any, Any, Any, Any]):
    """Fills a global store."""

    def __init__(self, store: str) -> None:
        self._store = store

    def process(self, record: Record) -> None:
        store, name = self.context.store(self._store), _name(record.key)
        if words.has(record.value, "x"):
            store.delete(name)
        else:
            store.put(
                name, words.shorten(f"{words.text(store.get(name))}{words.text(record.value)}")
            )


def _bare(value: Any) -> Any:
    return value.value if isinstance(value, ps.ValueAndTimestamp) else value


def _windows(found: Iterable[tuple[int, Any]]) -> Iterator[str]:
    return (f"{start}={words.text(value)}" for start, value in found)


def _version(found: ps.VersionedRecord | None) -> str:
    # Kafka Streams does not say until when it was valid.
    return "null" if found is None else f"{words.text(found.value)}@{found.timestamp}"


def _until(until: int | None) -> str:
    return "late" if until is None else str(until)


_WORKERS: dict[str, type[_Worker]] = {
    "counter": _Counter,
    "absent": _Absent,
    "last": _Last,
    "history": _History,
    "sessions": _Sessions,
    "stamps": _Stamps,
    "walker": _Walker,
    "waker": _Waker,
    "later": _Later,
    "marker": _Marker,
    "spread": _Spread,
    "router": _Router,
    "teller": _Teller,
    "reader": _Reader,
    "fragile": _Fragile,
}


# Functions beside processors


def chosen(word: str, key: Any, value: Any, count: int) -> int:
    """Which of some topics a record goes to."""
    text = words.text(value) if word == "by_value" else _name(key)
    return len(text) % count


def partitioned(word: str, value: Any) -> int | set[int] | None:
    """Which partition, of the only one, a record goes to."""
    if word == "first":
        return 0
    if word == "unsaid":
        return None
    if words.has(value, "x"):
        return set()
    return None if words.has(value, "a") else {0}


def _half(key: Any, value: Any, time: int) -> int:
    del key, value
    return time // 2


def _not_x(key: Any, value: Any, time: int) -> int:
    del key
    return -1 if words.has(value, "x") else time


def _by_length(key: Any, value: Any, time: int) -> int:
    del key
    return time + len(words.text(value))


TIMES: dict[str, Callable[[Any, Any, int], int]] = {
    "half": _half,
    "not_x": _not_x,
    "by_length": _by_length,
}
"""Where sources take times from; below 0, a record is left out."""
