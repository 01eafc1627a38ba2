"""Stores of versions against a plain model: every put remembered, reads by the rules alone."""

from __future__ import annotations

import contextlib
import shutil
import struct
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from penstock.stores.contract import (
    GAP,
    NOTHING,
    ByteStore,
    Change,
    VersionedStore,
    split_version_key,
    stored_value,
    version_key,
)
from penstock.stores.layered import LayeredStore
from penstock.stores.memory import MemoryStore
from penstock.stores.rocksdb import RocksDBStore
from penstock.stores.versioned import VersionsStore
from tests.contract.together import Together

RETENTION, SEGMENT = 100, 30
FAST = "/dev/shm" if Path("/dev/shm").is_dir() else None
"""In memory, if it can be: thousands of stores are opened, and each waits for the disk."""
LONG = struct.Struct(">q")
LONG_MAX = 2**63 - 1

# Few bytes, so that keys are often prefixes of each other and look like another key's time.
KEYS = st.sampled_from([b"", b"\x00", b"a", b"a\x00", b"\xff", b"a" + LONG.pack(30)])
TIMES = st.integers(0, 120) | st.integers(0, 400)
VALUES = st.none() | st.binary(max_size=3)
PUTS = st.lists(st.tuples(KEYS, TIMES, VALUES), max_size=20)
Put = tuple[bytes, int, bytes | None]


def change(put: Put) -> Change:
    key, time, value = put
    return version_key(key, time), None if value is None else stored_value(time, value)


class Model:
    """All that was accepted, and the latest time; `ends` has when each key's versions end."""

    def __init__(self) -> None:
        self.versions: dict[bytes, dict[int, bytes | None]] = {}
        self.ends: dict[bytes, set[int]] = {}
        self.latest = -1

    def put(self, key: bytes, time: int, value: bytes | None) -> None:
        if time < self.latest - RETENTION:
            return
        self.latest = max(self.latest, time)
        own, ends = self.versions.setdefault(key, {}), self.ends.setdefault(key, set())
        last = max(own, default=-1)
        if time == last and value is None and own[time] is not None and time not in ends:
            # Kafka Streams keeps no record of this one.
            del own[time]
            return
        if time < last:
            ends.add(min(each for each in own if each > time))
        elif value is None or (time > last >= 0 and own[last] is not None):
            ends.add(time)
        own[time] = value

    def as_of(self, key: bytes, time: int) -> tuple[int, bytes] | None:
        """What a key was at a time that can still be asked for."""
        since = max((each for each in self.versions.get(key, {}) if each <= time), default=-1)
        value = self.versions[key][since] if since >= 0 else None
        return None if value is None else (since, value)

    def now(self) -> dict[bytes, bytes]:
        found = {key: self.as_of(key, LONG_MAX) for key in sorted(self.versions)}
        return {key: stored_value(*each) for key, each in found.items() if each is not None}

    @property
    def oldest(self) -> int:
        return max(self.latest - RETENTION, 0)


def as_of(store: VersionedStore, key: bytes, time: int) -> tuple[int, bytes] | None:
    """What a reader makes of a store's versions."""
    found = list(store.versions(key, time, time))
    assert len(found) <= 1
    if not found or found[0][1] in (NOTHING, GAP):
        return None
    (since,) = LONG.unpack(found[0][1][:8])
    assert split_version_key(found[0][0]) == (key, since)
    return since, found[0][1][8:]


class CrashError(Exception):
    """The process ends here."""


class Crashing(LayeredStore):
    """Writes some rows of the first batch in any case, and no more."""

    def __init__(self, inner: ByteStore, written: int) -> None:
        super().__init__(inner)
        self._written = written

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def apply(self, changes: Iterable[Change], *, offset: int | None) -> None:
        self._inner.apply(list(changes)[: self._written], offset=None)
        raise CrashError


class VersionsAgainstModel(RuleBasedStateMachine):
    """Puts in any order; every answer equals the model's."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="penstock-store-", dir=FAST))
        self.memory = MemoryStore("versions")
        self.model = Model()
        self.offset: int | None = None

    @initialize()
    def open(self) -> None:
        on_disk = RocksDBStore("versions", self.directory / "versions")
        self.inners: list[ByteStore] = [self.memory, on_disk]
        self.store = self.shaped(self.inners)

    @staticmethod
    def shaped(inners: list[ByteStore]) -> Any:
        stores = [
            VersionsStore(inner, retention_ms=RETENTION, segment_ms=SEGMENT) for inner in inners
        ]
        return Together(stores)

    @rule(puts=PUTS, moves=st.booleans())
    def apply(self, puts: list[Put], moves: bool) -> None:
        offset = (self.offset or 0) + 1 if moves else None
        self.store.apply(map(change, puts), offset=offset)
        self.offset = self.offset if offset is None else offset
        for put in puts:
            self.model.put(*put)

    @rule(puts=PUTS, written=st.integers(0, 60))
    def apply_after_a_crash(self, puts: list[Put], written: int) -> None:
        """What a batch wrote before its offset, and then all of it again."""
        for inner in self.inners:
            with contextlib.suppress(CrashError):
                self.shaped([Crashing(inner, written)]).apply(map(change, puts), offset=1)
        self.store = self.shaped(self.inners)
        self.apply(puts, moves=False)

    @rule(key=KEYS, ago=st.integers(0, RETENTION))
    def read_as_of(self, key: bytes, ago: int) -> None:
        time = max(self.model.latest - ago, self.model.oldest)
        assert as_of(self.store, key, time) == self.model.as_of(key, time)

    @rule(key=KEYS, last=st.integers(0, 420) | st.just(LONG_MAX))
    def read_versions(self, key: bytes, last: int) -> None:
        first = self.model.oldest
        times = [split_version_key(name)[1] for name, _ in self.store.versions(key, first, last)]
        assert times == sorted(times)
        known = self.model.versions.get(key, {})
        assert sorted({t for t in times if t > first}) == sorted(
            t for t in known if first < t <= last
        )

    @rule(key=KEYS)
    def read_from_the_start(self, key: bytes) -> None:
        times = [split_version_key(n)[1] for n, _ in self.store.versions(key, -(2**63), LONG_MAX)]
        assert set(times) <= set(self.model.versions.get(key, {}))

    @rule(lower=st.none() | KEYS, upper=st.none() | KEYS, limit=st.integers(0, 4))
    def scan(self, lower: bytes | None, upper: bytes | None, limit: int) -> None:
        inside = [
            (key, value)
            for key, value in self.model.now().items()
            if (lower is None or key >= lower) and (upper is None or key < upper)
        ]
        assert self.store.range(lower, upper, limit=limit) == inside[:limit]

    @rule()
    def reopen(self) -> None:
        # What is in memory is whole for as long as its process is.
        self.inners[1].close()
        self.open()

    @invariant()
    def the_latest_are_right_and_nothing_expired_is_kept(self) -> None:
        if not hasattr(self, "store"):
            return
        now = self.model.now()
        assert dict(self.store.all()) == now
        assert self.store.get_many([*now, b"none"]) == [*now.values(), None]
        assert self.store.offset() == self.offset
        assert self.store.latest_time == self.model.latest
        assert self.store.approximate_num_entries() >= 0
        first = self.model.oldest // SEGMENT
        [rows, others] = [[key for key, _ in inner.range(limit=10_000)] for inner in self.inners]
        assert rows == others
        segments = [LONG.unpack(row[1:9])[0] for row in rows if row[:1] == b"s"]
        assert all(segment >= first for segment in segments)
        # A deletion may stay a while longer, but is always found when its segment goes.
        deleted = {row[1:] for row in rows if row[:1] == b"n"}
        assert deleted <= {row[9:] for row in rows if row[:1] == b"x"}

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
        shutil.rmtree(self.directory)
