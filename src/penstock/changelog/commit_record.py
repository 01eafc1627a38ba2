"""What the commits topic holds: where each task stands, and which driver is at work.

Partition 0 holds the driver's record and, by other keys, the topology that last ran and the last
store that was filled from history; every other partition holds the records of one task, the last of
which counts. All are JSON, so that
`kafka-console-consumer` shows them, and carry a version.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, TypeVar

import msgspec

from penstock.errors import KafkaError
from penstock.serdes.decoders import decoder

VERSION = 1
DRIVER_PARTITION = 0
DRIVER_KEY = b"driver"
TOPOLOGY_KEY = b"topology"
BOOTSTRAP_KEY = b"bootstrap"

Count = Annotated[int, msgspec.Meta(ge=0)]
Position = dict[str, dict[Count, Count]]
"""The next offset of each input partition: topic, partition, offset."""
Epoch = tuple[Count, Count]
"""The driver's generation, and the number of the owner within it."""


class InputTopic(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An input topic as it was when the state was made from it."""

    id: str
    partitions: Annotated[int, msgspec.Meta(ge=1)]


class Mark(msgspec.Struct, frozen=True, array_like=True):
    """Where a changelog of windows ended when their latest time was this."""

    end: Count
    time: int


class ChangelogEnd(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """What a commit knows of a store's changelog."""

    id: str
    end: Annotated[int, msgspec.Meta(ge=-1)]
    """An offset that it reaches with this commit, at the least; -1 if nothing was ever written."""
    start: Count = 0
    """Where it ended when the store was last made from the input, or from history: it was written
    whole since, and what a disk has from before is not the store's any more."""
    marks: tuple[Mark, ...] = ()
    """Of a changelog that forgets what is old: some, of which the first lies about as far back as
    the store's retention."""
    kept_ms: int = 0
    """For how long its topic kept records when that was noted."""
    tombstones_ms: int = -1
    """For how long it kept deletions; -1 is for as long as Kafka does by itself."""
    tombstones_until: int = 0
    """If it keeps them longer now: when that no longer matters, since the epoch."""
    latest: int = -1
    """The latest time of the windows that it holds with this commit; of keys, the time of its last
    record. -1 if that is not known."""


class CommitRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a task stands after its n-th commit.

    >>> record = CommitRecord(n=1, epoch=(1, 0), position={"pulse": {3: 17}}, previous={})
    >>> CommitRecord.decode(record.encode()) == record
    True
    """

    n: Count
    epoch: Epoch
    position: Position
    previous: Position
    inputs: dict[str, InputTopic] = {}
    changelogs: dict[str, ChangelogEnd] = {}
    metadata: dict[str, str] = {}
    begun: Position = {}
    """Where the task's first commit started."""
    until: Position = {}
    """While it reads its input again, because its stores were lost: where it stood then."""
    from_history: bool = False
    """Whether a store of the task was filled with what its input does not hold."""
    version: int = VERSION

    def encode(self) -> bytes:
        """The record's value in the commits topic."""
        return msgspec.json.encode(self)

    @classmethod
    def decode(cls, data: bytes, *, where: Mapping[str, object] | None = None) -> CommitRecord:
        """The record of these bytes; `KafkaError` if they are none."""
        return _decode(data, cls, where)


class DriverRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which driver is at work, and which partition of the commits topic belongs to which task.

    >>> record = DriverRecord(generation=2, host="h", pid=7, process_start=1.5, beat=0)
    >>> DriverRecord.decode(record.encode()) == record
    True
    """

    generation: Count
    host: str
    pid: int
    process_start: float
    beat: Count
    tasks: dict[str, Annotated[int, msgspec.Meta(ge=1)]] = {}
    inputs: dict[str, InputTopic] = {}
    version: int = VERSION

    def encode(self) -> bytes:
        """The record's value in the commits topic."""
        return msgspec.json.encode(self)

    @classmethod
    def decode(cls, data: bytes, *, where: Mapping[str, object] | None = None) -> DriverRecord:
        """The record of these bytes; `KafkaError` if they are none."""
        return _decode(data, cls, where)


class BootstrapRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The store that was last filled from history, and whether that came to its end.

    >>> record = BootstrapRecord(store="counts", finished=False)
    >>> BootstrapRecord.decode(record.encode()) == record
    True
    """

    store: str
    finished: bool
    version: int = VERSION

    def encode(self) -> bytes:
        """The record's value in the commits topic."""
        return msgspec.json.encode(self)

    @classmethod
    def decode(cls, data: bytes, *, where: Mapping[str, object] | None = None) -> BootstrapRecord:
        """The record of these bytes; `KafkaError` if they are none."""
        return _decode(data, cls, where)


class _Versioned(msgspec.Struct):
    version: int


_Record = TypeVar("_Record", CommitRecord, DriverRecord, BootstrapRecord)


def _decode(data: bytes, kind: type[_Record], where: Mapping[str, object] | None) -> _Record:
    """Read the version first: a later one may hold fields that must not be guessed."""
    try:
        version = decoder(_Versioned).decode(data).version
        if version == VERSION:
            return decoder(kind).decode(data)
    except msgspec.DecodeError as error:
        raise KafkaError(
            f"A record of the commits topic is not a {kind.__name__}: {error}",
            where=where,
            hint="Another program wrote to the topic; see who may, and restore the record",
        ) from error
    raise KafkaError(
        f"A record of the commits topic has version {version}, and this Penstock reads {VERSION}",
        where=where,
        hint="Run the version of Penstock that wrote it, or a later one",
    )
