"""What each row reads, made from a seed, and what must come out of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from hashlib import shake_128
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from bench.verify import Fingerprint, fingerprint

# A count never looks at the value, so its size weighs on reading only. 64 bytes is a small
# event (an id, a time, a few numbers): large enough that reading is not free, small enough that
# the broker's bandwidth does not hide what the systems do.
VALUE_BYTES = 64
CHUNK = 50_000
BLOB_BYTES = 1024
# A fifth of the other rows' chunks: the producer holds the records that are on their way.
BLOB_CHUNK = 10_000
SEED = 20_240_613
HOUR_MS = 3_600_000

Numbers = npt.NDArray[np.int64]
# A record as a producer takes it: key, value and perhaps timestamp.
Message = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class TopicLoad:
    """What a topic must hold before a run; the chunks can be made again and again."""

    topic: str
    records: int
    chunks: Callable[[], Iterator[list[Message]]]


class Input(Protocol):
    """The topics that a row's program reads, and which of their records are measured."""

    @property
    def warmup(self) -> int:
        """How many records come before the measured ones."""

    @property
    def measured(self) -> int:
        """How many records the rate is taken over."""

    @property
    def total(self) -> int:
        """All records of all topics."""

    @property
    def loads(self) -> tuple[TopicLoad, ...]:
        """The topics, in the order in which a program is told them."""


@dataclass(frozen=True, kw_only=True)
class Parts:
    """An input as a warm-up, the measured part, and a tail.

    The tail keeps the systems busy past the last measured record. Without it a system that
    commits every second would be charged for the idle wait before its last commit.
    """

    warmup: int
    measured: int
    tail: int

    @property
    def total(self) -> int:
        return self.warmup + self.measured + self.tail


def shares(measured: int) -> dict[str, int]:
    """The usual proportions: the warm-up covers the start of JVM, Spark and stores."""
    return {"warmup": measured // 4, "measured": measured, "tail": measured // 8}


@cache
def recent_start_ms() -> int:
    """Where event time begins: the full hour before the last one, the same for a whole process.

    Not a fixed date, because brokers delete what is older than a topic's retention.
    """
    return (int(time.time() * 1000) // HOUR_MS - 1) * HOUR_MS


@dataclass(frozen=True, kw_only=True)
class CountInput(Parts):
    """Keys drawn evenly; all records of a key are the same."""

    keys: int = 100_000
    seed: int = SEED

    @property
    def topic(self) -> str:
        return f"bench-count-{self.total}-{self.keys}-{self.seed}"

    @property
    def loads(self) -> tuple[TopicLoad, ...]:
        return (TopicLoad(topic=self.topic, records=self.total, chunks=self.chunks),)

    @cached_property
    def draw(self) -> Numbers:
        """The key number of each record, in order."""
        return np.random.default_rng(self.seed).integers(0, self.keys, self.total)

    def expected(self) -> dict[bytes, int]:
        """The exact count of every key that occurs."""
        counts = np.bincount(self.draw, minlength=self.keys).tolist()
        return {key_bytes(number): count for number, count in enumerate(counts) if count}

    def chunks(self) -> Iterator[list[Message]]:
        """The records in order; records of one key share one dict."""
        messages: list[Message] = [
            {"key": key_bytes(n), "value": value_bytes(n)} for n in range(self.keys)
        ]
        for start in range(0, self.total, CHUNK):
            yield [messages[n] for n in self.draw[start : start + CHUNK].tolist()]


@dataclass(frozen=True, kw_only=True)
class CountsChangelog:
    """A count for each of so many keys, as a store of counts logs them, in no order."""

    records: int
    seed: int = SEED

    @cached_property
    def draw(self) -> Numbers:
        """The key number of each record, in order."""
        return np.random.default_rng(self.seed).permutation(self.records)

    def load(self, topic: str) -> TopicLoad:
        return TopicLoad(topic=topic, records=self.records, chunks=self.chunks)

    def count(self, key: int) -> int:
        """The count of the key with this number."""
        return key % 1000 + 1

    def chunks(self) -> Iterator[list[Message]]:
        for start in range(0, self.records, CHUNK):
            yield [
                {"key": key_bytes(n), "value": self.count(n).to_bytes(8, "big")}
                for n in self.draw[start : start + CHUNK].tolist()
            ]


@dataclass(frozen=True, kw_only=True)
class Probes(Parts):
    """One record for each of the first keys: its count tells what the store held before."""

    @property
    def loads(self) -> tuple[TopicLoad, ...]:
        topic = f"bench-probes-{self.total}"
        return (TopicLoad(topic=topic, records=self.total, chunks=self.chunks),)

    def chunks(self) -> Iterator[list[Message]]:
        yield [{"key": key_bytes(n), "value": value_bytes(n)} for n in range(self.total)]


@dataclass(frozen=True, kw_only=True)
class BlobsChangelog:
    """A value of a kibibyte, which does not compress, for each of so many keys, in no order."""

    records: int
    seed: int = SEED

    def load(self, topic: str) -> TopicLoad:
        return TopicLoad(topic=topic, records=self.records, chunks=self.chunks)

    def chunks(self) -> Iterator[list[Message]]:
        order = np.random.default_rng(self.seed).permutation(self.records)
        for start in range(0, self.records, BLOB_CHUNK):
            yield [
                {"key": key_bytes(n), "value": blob(n)}
                for n in order[start : start + BLOB_CHUNK].tolist()
            ]


def blob(number: int) -> bytes:
    """The kibibyte with this number."""
    return shake_128(key_bytes(number)).digest(BLOB_BYTES)


@dataclass(frozen=True, kw_only=True)
class ReduceInput(Parts):
    """Keys and numbers drawn evenly; a key's result is its largest number."""

    keys: int = 100_000
    seed: int = SEED

    @property
    def loads(self) -> tuple[TopicLoad, ...]:
        topic = f"bench-reduce-{self.total}-{self.keys}-{self.seed}"
        return (TopicLoad(topic=topic, records=self.total, chunks=self.chunks),)

    @cached_property
    def draw(self) -> tuple[Numbers, Numbers]:
        """The key number and the value of each record, in order."""
        random = np.random.default_rng(self.seed)
        return random.integers(0, self.keys, self.total), random.integers(0, 1 << 40, self.total)

    def expected(self) -> dict[bytes, int]:
        """The largest value of every key that occurs."""
        keys, values = self.draw
        largest = np.full(self.keys, -1)
        np.maximum.at(largest, keys, values)
        return {key_bytes(n): value for n, value in enumerate(largest.tolist()) if value >= 0}

    def chunks(self) -> Iterator[list[Message]]:
        keys, values = self.draw
        for start in range(0, self.total, CHUNK):
            part = slice(start, start + CHUNK)
            pairs = zip(keys[part].tolist(), values[part].tolist(), strict=True)
            yield [{"key": key_bytes(k), "value": v.to_bytes(8, "big")} for k, v in pairs]


@dataclass(frozen=True, kw_only=True)
class WindowedInput(Parts):
    """Event time that runs evenly through some windows, with less disorder than their grace.

    Time never leaves the last window, so that one stays open, and all the others close in
    every partition: with keys drawn evenly each partition has records from all along the time.
    """

    keys: int = 20_000
    windows: int = 20
    size_ms: int = 60_000
    disorder_ms: int = 3_000
    start_ms: int = field(default_factory=recent_start_ms)
    seed: int = SEED

    @property
    def loads(self) -> tuple[TopicLoad, ...]:
        name = f"bench-windows-{self.total}-{self.keys}-{self.windows}-{self.start_ms}-{self.seed}"
        return (TopicLoad(topic=name, records=self.total, chunks=self.chunks),)

    @cached_property
    def draw(self) -> tuple[Numbers, Numbers]:
        """The key number and the time after the start of each record, in order."""
        random = np.random.default_rng(self.seed)
        keys = random.integers(0, self.keys, self.total)
        regular = np.arange(self.total) * (self.windows * self.size_ms) // self.total
        behind = random.integers(0, self.disorder_ms + 1, self.total)
        return keys, np.maximum(regular - behind, 0)

    def counts(self) -> dict[bytes, int]:
        """The exact count of every key and window, by key bytes and start of the window."""
        keys, times = self.draw
        slots = keys * self.windows + times // self.size_ms
        occurring, counts = np.unique(slots, return_counts=True)
        return {
            self.window_key(*divmod(slot, self.windows)): count
            for slot, count in zip(occurring.tolist(), counts.tolist(), strict=True)
        }

    def closed(self) -> dict[bytes, int]:
        """The same for the windows that close: all but the last."""
        last = self.window_key(0, self.windows - 1)[-8:]
        return {key: count for key, count in self.counts().items() if key[-8:] != last}

    def window_key(self, key: int, window: int) -> bytes:
        """Kafka's bytes of a windowed key: the key, then the start of its window."""
        return key_bytes(key) + (self.start_ms + window * self.size_ms).to_bytes(8, "big")

    def chunks(self) -> Iterator[list[Message]]:
        keys, times = self.draw
        return timed_chunks(keys, keys, times + self.start_ms)


@dataclass(frozen=True, kw_only=True)
class TableJoinInput(Parts):
    """A row for every key, all older than the stream's records; these are drawn evenly.

    A tenth more keys are drawn than there are rows, so that some records meet none. The rows are
    the beginning of the warm-up.
    """

    keys: int = 100_000
    start_ms: int = field(default_factory=recent_start_ms)
    seed: int = SEED

    @property
    def loads(self) -> tuple[TopicLoad, ...]:
        name = f"bench-table-join-{self.total}-{self.keys}-{self.start_ms}-{self.seed}"
        return (
            TopicLoad(topic=f"{name}-stream", records=self.total - self.keys, chunks=self.chunks),
            TopicLoad(topic=f"{name}-table", records=self.keys, chunks=self.rows),
        )

    @cached_property
    def draw(self) -> Numbers:
        """The key number of each record of the stream, in order."""
        bound = self.keys + self.keys // 10
        return np.random.default_rng(self.seed).integers(0, bound, self.total - self.keys)

    def expected(self) -> Fingerprint:
        """Every record that has a row, with the row's value behind its own."""
        met = np.flatnonzero(self.draw < self.keys)
        return fingerprint(
            (key_bytes(key), joined(number, key))
            for number, key in zip(met.tolist(), self.draw[met].tolist(), strict=True)
        )

    def chunks(self) -> Iterator[list[Message]]:
        numbers = np.arange(len(self.draw))
        return timed_chunks(self.draw, numbers, self.start_ms + self.keys + numbers // 10)

    def rows(self) -> Iterator[list[Message]]:
        numbers = np.arange(self.keys)
        return timed_chunks(numbers, numbers, self.start_ms + numbers // 10)


@dataclass(frozen=True, kw_only=True)
class StreamJoinInput(Parts):
    """Two streams whose records lie in one order of time, ten a millisecond, keys drawn evenly.

    With 50,000 keys and a difference of 10 s a record meets two of the other stream on average.
    """

    keys: int = 50_000
    difference_ms: int = 10_000
    start_ms: int = field(default_factory=recent_start_ms)
    seed: int = SEED

    @property
    def loads(self) -> tuple[TopicLoad, ...]:
        name = f"bench-stream-join-{self.total}-{self.keys}-{self.start_ms}-{self.seed}"
        left, right = self.sides
        return (
            TopicLoad(topic=f"{name}-left", records=len(left), chunks=lambda: self.chunks_of(left)),
            TopicLoad(
                topic=f"{name}-right", records=len(right), chunks=lambda: self.chunks_of(right)
            ),
        )

    @cached_property
    def draw(self) -> tuple[Numbers, Numbers]:
        """Key number and side (0 or 1) of each record of both streams, in order of time."""
        random = np.random.default_rng(self.seed)
        return random.integers(0, self.keys, self.total), random.integers(0, 2, self.total)

    @property
    def sides(self) -> tuple[Numbers, Numbers]:
        """The numbers of the records that are in the left stream, and in the right one."""
        _, side = self.draw
        return np.flatnonzero(side == 0), np.flatnonzero(side == 1)

    def pairs(self) -> tuple[Numbers, Numbers]:
        """The numbers of the left and the right record of every pair that meets."""
        keys, _ = self.draw
        # Keys lie further apart than any two records that meet, so one range finds the partners.
        places = (
            keys * (self.total // 10 + 2 * self.difference_ms + 1) + np.arange(self.total) // 10
        )
        left, right = self.sides
        right = right[np.argsort(places[right], kind="stable")]
        low = np.searchsorted(places[right], places[left] - self.difference_ms, side="left")
        high = np.searchsorted(places[right], places[left] + self.difference_ms, side="right")
        partners = [right[a:b] for a, b in zip(low.tolist(), high.tolist(), strict=True)]
        return np.repeat(left, high - low), np.concatenate([right[:0], *partners])

    def expected(self) -> Fingerprint:
        """Every pair, the right value behind the left one."""
        keys, _ = self.draw
        left, right = self.pairs()
        return fingerprint(
            (key_bytes(key), joined(a, b))
            for key, a, b in zip(keys[left].tolist(), left.tolist(), right.tolist(), strict=True)
        )

    def chunks_of(self, numbers: Numbers) -> Iterator[list[Message]]:
        keys, _ = self.draw
        return timed_chunks(keys[numbers], numbers, self.start_ms + numbers // 10)


def key_bytes(number: int) -> bytes:
    """The key with this number, 12 bytes of text."""
    return b"key-%08d" % number


def value_bytes(number: int) -> bytes:
    """The value with this number, 64 digits."""
    return b"%0*d" % (VALUE_BYTES, number)


def joined(left: int, right: int) -> bytes:
    """What the programs' joiners make of two values."""
    return b"%b+%b" % (value_bytes(left), value_bytes(right))


def timed_chunks(keys: Numbers, values: Numbers, times: Numbers) -> Iterator[list[Message]]:
    """Records with a time, in order, from the numbers of their keys and values."""
    columns: Sequence[Numbers] = (keys, values, times)
    for start in range(0, len(keys), CHUNK):
        part = [column[start : start + CHUNK].tolist() for column in columns]
        yield [
            {"key": key_bytes(key), "value": value_bytes(value), "timestamp": timestamp}
            for key, value, timestamp in zip(*part, strict=True)
        ]
