"""The store of a windowed aggregation, with its record cache."""

from __future__ import annotations

from typing import Any, NamedTuple

from penstock.processors.depth_first.cache import Held, RecordCache
from penstock.processors.depth_first.guarding import guarded
from penstock.processors.depth_first.record import Record
from penstock.processors.depth_first.state import Stored, TimedState
from penstock.processors.depth_first.steps import Step, Value
from penstock.processors.record_cache import SEGMENT_BYTES, TIMESTAMP_BYTES
from penstock.processors.settling import copying, settling
from penstock.serdes import Change, Serde, Windowed
from penstock.serdes.windowed import window_end
from penstock.topology import StoreSpec


class Window(NamedTuple):
    """Where a window starts and ends."""

    start: int
    end: int


class WindowStore:
    """Keeps a value per key and window; changes go on as `TableStore`'s do.

    `session` says whether windows are sessions: those are ordered by their ends, and a result has
    the time of its session's end.
    """

    def __init__(
        self,
        step: Step,
        spec: StoreSpec,
        state: TimedState,
        *,
        cache_bytes: int,
        sends_old: bool,
        forwards: bool,
        worked_as: Serde[Any] | None = None,
    ) -> None:
        """`worked_as` is what its own steps are given and give, where that is not the values."""
        self._step = step
        self._shared = step.shared
        self._spec = spec
        self._key_serde: Serde[Any] = spec.key_serde
        self._value_serde: Serde[Any] = spec.value_serde
        self._work: Serde[Any] = spec.value_serde if worked_as is None else worked_as
        self._is_shown = self._work is spec.value_serde
        self._settle = settling(spec.value_serde)
        self._session = spec.kind == "session"
        self.state = state
        state.stream_time = self._shared.recall(f"{spec.name}:time", -1)
        self._sends_old = sends_old
        self._forwards = forwards
        handler = step.shared.on_processing_error
        self._pass_on = guarded(step.shared, step.name, self._tell, handler)
        caches = spec.caching and cache_bytes > 0
        self.copied = copying(self._work, needed=self._is_shown)
        # What a window's value was, to be asked for before a function may change it in place.
        self.before = copying(self._work, needed=sends_old and self._is_shown and not caches)
        self._cache = None
        if caches:
            self._cache = RecordCache(
                cache_bytes,
                self._let_through,
                more_key_bytes=SEGMENT_BYTES,
                # A session's time is in its key.
                time_bytes=0 if self._session else TIMESTAMP_BYTES,
            )

    def key(self, key: Any) -> bytes:
        """A key's bytes."""
        return self._shared.written(self._step.name, self._key_serde, key, "key")

    def get(self, key: bytes, window: Window) -> Value | None:
        """A window's present value."""
        return self._worked(key, self._read(key, window))

    def row(self, key: Windowed[Any], *, sent: bool = False) -> Value | None:
        """The row of a windowed key, as the table's view shows it, or as it was passed on."""
        data, window = self.key(key.key), Window(key.start, key.end)
        stored, held = self._read(data, window), None
        if sent and self._cache is not None:
            held = self._cache.held(self.state.store_key(data, *self._numbers(window)))
        return self._value(data, stored if held is None else held.below)

    def _read(self, key: bytes, window: Window) -> Stored | None:
        stored = self.state.get(key, *self._numbers(window))
        if self._cache is not None:
            self._cache.touch(self.state.store_key(key, *self._numbers(window)))
        return stored

    def windows(self, key: bytes, first: int, last: int) -> list[tuple[Window, Value]]:
        """A key's windows that start in first..last, or sessions that end there, in order."""
        found = []
        for numbers, stored in self.state.entries(key, first, last):
            if self._cache is not None:
                self._cache.touch(self.state.store_key(key, *numbers))
            value = self._worked(key, stored)
            assert value is not None
            found.append((self._window(*numbers), value))
        return found

    def closed(self, first: int, last: int, until: int) -> list[tuple[Windowed[Any], Value]]:
        """All keys' windows that start (sessions: end) in first..last, by time and key.

        A record may close windows that it also brings past the store's retention: the last result
        of a quiet key. As in Kafka Streams a store with a cache still finds them.
        """
        result = []
        kept = self._cache is None
        for key, one, two, stored in self.state.times(first, last, until, kept=kept):
            window, value = self._window(one, two), self._value(key, stored)
            assert value is not None
            result.append((Windowed(self._decode(self._key_serde, key, key), *window), value))
        return result

    def put(
        self, record: Record, key: bytes, window: Window, new: Any, timestamp: int, *, old: Any
    ) -> None:
        """Write a window's value and tell of it."""
        shared, state = self._shared, self.state
        numbers = self._numbers(window)
        value = shared.encode(self._step.name, self._work, new, "value")
        before = state.get(key, *numbers) if self._cache is not None else None
        kept = state.put(key, *numbers, value, timestamp)
        if not kept:
            shared.drop("expired")
        name = state.store_key(key, *numbers)
        # A session's own time is that of its record; a window's value has a time of its own.
        logged = record.timestamp if self._session or value is None else timestamp
        if self._cache is not None:
            at = shared.context.at(record)
            self._cache.write(name, value, logged, before=before, context=at)
            return
        if kept:
            state.log(name, value, logged)
        if self._forwards:
            windowed = Windowed(record.key, *window)
            if not self._is_shown:
                new = self._shown(key, new)
                old = self._shown(key, old) if self._sends_old else None
            elif self._settle is not None:
                new, old = self._settle(new), self._settle(old)
            change = Change(new, old if self._sends_old else None)
            # As in Kafka Streams: a session comes from several records, and has no one's headers.
            headers = () if self._session else record.headers
            self._step.forward(Record(windowed, change, timestamp, headers))

    def finish(self) -> None:
        """Leave what the next slice needs."""
        self._shared.keep(f"{self._spec.name}:time", self.state.stream_time)

    def flush(self) -> None:
        """Let through what the cache holds back."""
        if self._cache is not None:
            self._cache.flush()

    def _let_through(self, held: Held) -> None:
        self.state.log(held.key, held.value, held.timestamp)
        if not self._forwards:
            return
        self._shared.within(held.context, self._pass_on, held)

    def _tell(self, held: Held) -> None:
        key, one, two = self.state.split(held.key)
        window, new = self._window(one, two), None
        if held.value is not None:
            new = self._decode(self._value_serde, held.value, key)
        below = self._value(key, held.below) if self._sends_old else None
        change = Change(new, None if below is None else below.value)
        windowed = Windowed(self._decode(self._key_serde, key, key), *window)
        timestamp = window.end if self._session else held.timestamp
        self._step.forward(Record(windowed, change, timestamp, held.context.headers))

    def _numbers(self, window: Window) -> tuple[int, int]:
        return (window.end, window.start) if self._session else (window.start, 0)

    def _window(self, one: int, two: int) -> Window:
        if self._session:
            return Window(two, one)
        assert self._spec.window_ms is not None
        return Window(one, window_end(one, self._spec.window_ms))

    def _shown(self, key: bytes, worked: Any) -> Any:
        """A value that steps work on, as others know it."""
        if worked is None:
            return None
        return self._decode(self._value_serde, self._work.serialize(worked), key)

    def _worked(self, key: bytes, stored: Stored | None) -> Value | None:
        if stored is None:
            return None
        return Value(self._decode(self._work, stored.value, key), stored.timestamp)

    def _value(self, key: bytes, stored: Stored | None) -> Value | None:
        if stored is None:
            return None
        return Value(self._decode(self._value_serde, stored.value, key), stored.timestamp)

    def _decode(self, serde: Serde[Any], data: bytes, key: bytes) -> Any:
        return self._shared.decode(self._step.name, self._spec.name, serde, data, key)
