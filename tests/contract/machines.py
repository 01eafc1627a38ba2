"""Stores against plain models: a dictionary, the latest time, and the log of all changes.

Every machine keeps the whole log, as a changelog does. A crash takes what was not flushed: then the
store goes on from its own offset, and must hold what the model holds. A machine tries the same kind
of store in every engine at once: what it thinks of takes longer than what they do.
"""

from __future__ import annotations

import shutil
import struct
import tempfile
from pathlib import Path
from typing import Any, Literal

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from penstock.instance.open_stores import shaped
from penstock.instance.protocol import StoreOrder
from penstock.serdes.windowed import (
    session_key,
    split_session_key,
    split_window_key,
    window_key,
)
from penstock.stores.contract import ByteStore, Change, StoreIdentity
from penstock.stores.memory import MemoryStore
from penstock.stores.rocksdb import RocksDBStore
from penstock.testing.contract.case import still_copy
from tests.contract.in_postgres import PostgresMachine
from tests.contract.together import ENGINES, Engine, Together
from tests.contract.versions import FAST, VersionsAgainstModel

RETENTION, SEGMENT = 100, 60
LONG = struct.Struct(">q")
LONG_MAX = 2**63 - 1
NAME = "checked"
IDENTITY = StoreIdentity(
    application_id="clinic",
    task="0_3",
    store=NAME,
    changelog_topic="clinic-checked-changelog",
    changelog_topic_id="id",
)

# Few bytes, so that keys are often prefixes of each other and look like another key's time.
KEYS = st.lists(st.sampled_from([0x00, 0x01, 0x61, 0xFF]), max_size=4).map(bytes) | st.sampled_from(
    [b"a" + LONG.pack(30), b"a" + LONG.pack(30) + b"\x00" * 4, b"\xff" * 9]
)
TIMES = st.integers(0, 400)
BOUNDS = st.integers(-5, 420) | st.sampled_from([-(2**63), LONG_MAX])
VALUES = st.none() | st.binary(max_size=3)


class Machine(RuleBasedStateMachine):
    """What all kinds of stores have in common; a kind says what its changes and entries are."""

    order = StoreOrder(name=NAME)

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="penstock-store-", dir=FAST))
        self.place = 0
        self.log: list[list[Change]] = []
        self.model: dict[bytes, bytes] = {}
        self.offset: int | None = None
        self.flushed: int | None = None
        self.identity: StoreIdentity | None = None
        self.caught_up_at: int | None = None
        self.open()

    @property
    def visible(self) -> dict[bytes, bytes]:
        """What the store is to show, by key."""
        return dict(sorted(self.model.items()))

    def remember(self, changes: list[Change]) -> None:
        """What a change does to the model."""
        for key, value in changes:
            if value is None:
                self.model.pop(key, None)
            else:
                self.model[key] = value

    def open(self) -> None:
        self.inners: dict[Engine, ByteStore] = {
            "memory": MemoryStore(NAME),
            "rocksdb": RocksDBStore(NAME, self.directory / str(self.place)),
        }
        assert tuple(self.inners) == ENGINES
        self.stores: dict[Engine, Any] = {
            engine: shaped(inner, self.order) for engine, inner in self.inners.items()
        }
        self.store: Any = Together(list(self.stores.values()))

    def write(self, changes: list[Change], *, moves: bool) -> None:
        self.log.append(changes)
        self.offset = len(self.log) - 1 if moves else self.offset
        self.store.apply(iter(changes), offset=self.offset if moves else None)
        self.remember(changes)

    def scan(self, lower: bytes | None, upper: bytes | None, limit: int) -> None:
        inside = [
            (key, value)
            for key, value in self.visible.items()
            if (lower is None or key >= lower) and (upper is None or key < upper)
        ]
        assert self.store.range(lower, upper, limit=limit) == inside[:limit]

    @rule(lower=st.none() | KEYS, upper=st.none() | KEYS, limit=st.integers(0, 10))
    def scan_some(self, lower: bytes | None, upper: bytes | None, limit: int) -> None:
        self.scan(lower, upper, limit)

    @rule(page_size=st.integers(1, 5))
    def scan_all(self, page_size: int) -> None:
        assert list(self.store.all(page_size=page_size)) == list(self.visible.items())

    @rule()
    def identify(self) -> None:
        self.store.set_identity(IDENTITY)
        self.identity = IDENTITY

    @rule(now=st.integers(0, 2**60))
    def catch_up(self, now: int) -> None:
        self.store.set_caught_up_at(now)
        self.caught_up_at = now

    @rule()
    def flush(self) -> None:
        self.store.flush()
        self.flushed = self.offset

    @rule(kills=st.booleans())
    def open_again(self, kills: bool) -> None:
        """After a close, or a kill: then what the disk has is all that is left."""
        if kills:
            source, self.place = self.directory / str(self.place), self.place + 1
            still_copy(source, self.directory / str(self.place))
        self.store.close()
        if not kills:
            self.store.close()
            self.flushed = self.offset
        self.open()
        on_disk = self.stores["rocksdb"]
        if not kills:
            found = (on_disk.offset(), on_disk.identity(), on_disk.caught_up_at())
            assert found == (self.offset, self.identity, self.caught_up_at)
            assert list(on_disk.all()) == list(self.visible.items())
        # Memory is empty, and the disk may have what nobody waited for.
        held = on_disk.offset()
        assert held is None or (self.offset is not None and held <= self.offset)
        assert self.flushed is None or (held is not None and held >= self.flushed)
        assert on_disk.identity() in (None, self.identity)
        for each in self.stores.values():
            self._restore(each)
        self.offset = on_disk.offset()
        self.identity, self.caught_up_at = on_disk.identity(), on_disk.caught_up_at()
        if self.identity is not None:
            self.stores["memory"].set_identity(self.identity)
        if self.caught_up_at is not None:
            self.stores["memory"].set_caught_up_at(self.caught_up_at)

    def _restore(self, store: Any) -> None:
        """Apply the log again from the store's own offset, as a restore does."""
        held = store.offset()
        for number in range(0 if held is None else held + 1, len(self.log)):
            store.apply(self.log[number], offset=number)
        assert list(store.all()) == list(self.visible.items())

    @invariant()
    def own_records_agree(self) -> None:
        assert self.store.offset() == self.offset
        assert self.store.identity() == self.identity
        assert self.store.caught_up_at() == self.caught_up_at
        assert self.store.approximate_num_entries() >= 0

    def teardown(self) -> None:
        self.store.close()
        shutil.rmtree(self.directory)


class KeyValueMachine(Machine):
    """A plain store of keys and values."""

    @rule(changes=st.lists(st.tuples(KEYS, VALUES), max_size=30), moves=st.booleans())
    def apply(self, changes: list[Change], moves: bool) -> None:
        self.write(changes, moves=moves)

    @rule(keys=st.lists(KEYS, max_size=30))
    def get_many(self, keys: list[bytes]) -> None:
        assert self.store.get_many(keys) == [self.model.get(key) for key in keys]


class IndexedMachine(Machine):
    """A key-value store with an index of times, which stand at the end of its values."""

    order = StoreOrder(name=NAME, time_index="value_tail")

    @rule(
        changes=st.lists(st.tuples(KEYS, VALUES, BOUNDS), max_size=30),
        moves=st.booleans(),
    )
    def apply(self, changes: list[tuple[bytes, bytes | None, int]], moves: bool) -> None:
        timed = [(k, None if v is None else v + LONG.pack(time)) for k, v, time in changes]
        self.write(timed, moves=moves)

    @rule(keys=st.lists(KEYS, max_size=20))
    def get_many(self, keys: list[bytes]) -> None:
        assert self.store.get_many(keys) == [self.model.get(key) for key in keys]

    @rule(first=BOUNDS, last=BOUNDS)
    def fetch_times(self, first: int, last: int) -> None:
        timed = ((LONG.unpack(value[-8:])[0], key) for key, value in self.model.items())
        expected = [(k, self.model[k]) for time, k in sorted(timed) if first <= time <= last]
        assert list(self.store.fetch_times(first, last)) == expected

    @invariant()
    def one_index_row_for_each_entry(self) -> None:
        for inner in self.inners.values():
            assert len(inner.range(limit=10_000)) == 2 * len(self.model)


class SegmentedMachine(Machine):
    """Windows or sessions, which expire by the latest time that was written."""

    kind: Literal["window", "session"] = "window"
    indexed = False

    def __init__(self) -> None:
        self.latest = -1
        super().__init__()

    def key(self, key: bytes, time: int, other: int) -> bytes:
        """A changelog key; `other` is the sequence number or the session's start."""
        if self.kind == "window":
            return window_key(key, time, other)
        return session_key(key, time - min(other, time), time)

    def time(self, key: bytes) -> int:
        return split_window_key(key)[1] if self.kind == "window" else split_session_key(key)[2]

    def rank(self, key: bytes) -> tuple[object, ...]:
        """Where an entry stands among all, by time, as Kafka Streams orders them."""
        if self.kind == "window":
            inner, start, sequence = split_window_key(key)
            return start, inner + struct.pack(">i", sequence)
        inner, start, end = split_session_key(key)
        return end, start, inner

    @property
    def visible(self) -> dict[bytes, bytes]:
        longer = self.indexed and self.kind == "window"
        return self.since(self.latest - RETENTION + (0 if longer else 1))

    def since(self, oldest: int) -> dict[bytes, bytes]:
        return {k: v for k, v in sorted(self.model.items()) if self.time(k) >= oldest}

    def remember(self, changes: list[Change]) -> None:
        super().remember(changes)
        self.latest = max([self.latest, *(self.time(key) for key, _ in changes)])

    @rule(
        changes=st.lists(st.tuples(KEYS, TIMES, st.integers(0, 3), VALUES), max_size=30),
        moves=st.booleans(),
    )
    def apply(self, changes: list[tuple[bytes, int, int, bytes | None]], moves: bool) -> None:
        self.write([(self.key(*where), value) for *where, value in changes], moves=moves)

    @rule(keys=st.lists(st.tuples(KEYS, TIMES, st.integers(0, 3)), max_size=20))
    def get_many(self, keys: list[tuple[bytes, int, int]]) -> None:
        wanted = [self.key(*each) for each in keys] + list(self.model)
        visible = self.visible
        assert self.store.get_many(wanted) == [visible.get(key) for key in wanted]

    @rule(key=KEYS, first=BOUNDS, last=BOUNDS)
    def fetch(self, key: bytes, first: int, last: int) -> None:
        tail = 12 if self.kind == "window" else 16
        expected = sorted(
            (
                (found, value)
                for found, value in self.visible.items()
                if found[:-tail] == key and first <= self.time(found) <= last
            ),
            key=lambda entry: self.rank(entry[0]),
        )
        assert list(self.store.fetch(key, first, last)) == expected

    @rule(first=BOUNDS, last=BOUNDS)
    def fetch_times(self, first: int, last: int) -> None:
        if self.indexed:
            found = self.visible
            if self.kind == "session":
                # Sessions are found by time as long as their segment is there.
                found = self.since((self.latest - RETENTION) // SEGMENT * SEGMENT)
            inside = (e for e in found.items() if first <= self.time(e[0]) <= last)
            expected = sorted(inside, key=lambda entry: self.rank(entry[0]))
            assert list(self.store.fetch_times(first, last)) == expected

    @invariant()
    def nothing_expired_is_kept(self) -> None:
        assert self.store.latest_time == self.latest
        first = max(self.latest - RETENTION, 0) // SEGMENT
        [rows, others] = [
            [key for key, _ in inner.range(limit=10_000)] for inner in self.inners.values()
        ]
        assert rows == others
        assert all(LONG.unpack(row[1:9])[0] >= first for row in rows if row[:1] == b"d")
        index = [row for row in rows if row[:1] == b"i"]
        assert len(index) == (sum(row[:1] == b"d" for row in rows) if self.indexed else 0)


def _windows(kind: Literal["window", "session"], *, indexed: bool) -> dict[str, Any]:
    index: Any = {"window": "window_start", "session": "session_end"}[kind] if indexed else None
    order = StoreOrder(
        name=NAME, kind=kind, retention_ms=RETENTION, segment_ms=SEGMENT, time_index=index
    )
    return {"kind": kind, "indexed": indexed, "order": order}


_KINDS: dict[str, tuple[type[RuleBasedStateMachine], dict[str, Any]]] = {
    "key-value": (KeyValueMachine, {}),
    "time-indexed": (IndexedMachine, {}),
    "window": (SegmentedMachine, _windows("window", indexed=False)),
    "window, by time": (SegmentedMachine, _windows("window", indexed=True)),
    "session": (SegmentedMachine, _windows("session", indexed=False)),
    "session, by time": (SegmentedMachine, _windows("session", indexed=True)),
    "versioned": (VersionsAgainstModel, {}),
}
IN_POSTGRES = "key-value in PostgreSQL"
MACHINES: dict[str, type[RuleBasedStateMachine]] = {
    f"{kind} in {' and '.join(ENGINES)}": type("Machine", (base,), facts)
    for kind, (base, facts) in _KINDS.items()
} | {IN_POSTGRES: PostgresMachine}
"""Every kind of store, in every engine of ours."""


def run(name: str, *, examples: int, steps: int = 12) -> None:
    """Run a machine; raises what hypothesis finds, shrunk."""
    case = MACHINES[name].TestCase
    case.settings = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    case().runTest()
