"""The messages between driver, instances and workers.

Small messages are JSON, decoded into these types and nothing else; rows travel as Arrow. Nothing is
pickled: whoever can reach a socket can at worst send a message that does not decode.
"""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Literal, TypeVar

import msgspec
import pyarrow as pa

from penstock import errors
from penstock.changelog.snapshots import Manifest
from penstock.changelog.topics import TOMBSTONES_MS
from penstock.config import Config, Guarantee, LogFormat, RecordingLevel, RecoverOutputs
from penstock.errors import InstanceError, PenstockError
from penstock.observability.readings import Reading
from penstock.serdes.decoders import converted, decoder
from penstock.stores.contract import StoreIdentity
from penstock.stores.rocksdb_engine import RocksDBSettings
from penstock.topology.nodes import StoreKind, TimeIndex

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
Question = Literal["get", "fetch", "range", "times"]
QUESTIONS: dict[Question, pa.Schema] = {
    "get": pa.schema([("key", pa.binary())]),
    "fetch": pa.schema([("key", pa.binary()), ("first", pa.int64()), ("last", pa.int64())]),
    "range": pa.schema([("lower", pa.binary()), ("upper", pa.binary())]),
    "times": pa.schema([("first", pa.int64()), ("last", pa.int64())]),
}
"""What a read asks, row by row: a key; a key's windows, sessions or versions between two times; the
keys between two (null is open); everything between two times."""
VALUES = pa.schema([("value", pa.binary())])
"""The answers to `get`: a row for each key, in order, null where there is nothing."""
ENTRIES = pa.schema([("question", pa.int32()), ("key", pa.binary()), ("value", pa.binary())])
"""The answers to other questions, in order: any number of rows for each, by its row number."""
ROWS = pa.schema(
    [
        ("kind", pa.uint8()),
        ("target", pa.int16()),
        ("partition", pa.int32()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("timestamp", pa.int64()),
        ("headers", HEADERS),
    ]
)
"""A commit's rows: `kind` 0 is a change of store `target`, 1 an output to topic `target`."""
CHANGE, OUTPUT = 0, 1

TaskState = Literal["taking", "restoring", "running", "failed", "closed"]
RestoreState = Literal["restoring", "ended", "suspended"]
CopyState = Literal["at_rest", "catching_up", "following", "failed"]
"""`at_rest` lies on the disk and nobody keeps it up to date; `failed` is tried again."""
WRONG_TOKEN = "The run's token is missing or wrong"
"""What a caller is told who is not let in."""
UNKNOWN_LAG = -1
Positions = dict[str, dict[int, int]]


class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A message; unknown fields are refused: two versions must not half understand each other."""


class Fault(Message, frozen=True):
    """An error on its way to another process."""

    kind: str
    message: str
    where: dict[str, str] = {}
    hint: str = ""
    details: str = ""


class DatabaseOrder(Message, frozen=True):
    """Where a database keeps a store; the connection string is in the instance's environment."""

    dsn_variable: str
    table: list[str]
    outbox: bool = False


class StoreOrder(Message, frozen=True):
    """A store of a task, its kind, and the changelog that can rebuild it."""

    name: str
    changelog: str = ""
    """Empty if there is none: then the store starts empty with each owner."""
    changelog_id: str = ""
    """Of a store without one, that of the commits topic, by whose numbers it counts: what a disk
    has from before a reset is not to be taken for this application's."""
    kind: StoreKind = "key_value"
    persistent: bool = True
    retention_ms: int = 0
    segment_ms: int = 0
    time_index: TimeIndex | None = None
    recovers: bool = False
    """Whether the task reads its input again when this store is lost."""
    supplier: str = ""
    """What opens a store that the user brought, as `module:name`; empty for one of ours."""
    expires: bool = False
    """Whether the changelog forgets what is old, so that it need not begin where it began."""
    kept_ms: int = 0
    """If so, how long it keeps a record: -1 for ever, 0 if that is not known."""
    tombstones_ms: int = TOMBSTONES_MS
    """How long the changelog keeps a deletion."""
    allow_truncated: bool = False
    """Whether a changelog that lost its start may be all there is."""
    database: DatabaseOrder | None = None

    @property
    def logged(self) -> bool:
        """Whether changes go to a changelog."""
        return bool(self.changelog)

    @property
    def layout(self) -> str:
        """How the store's entries lie on disk.

        >>> StoreOrder(name="a", kind="window", segment_ms=60_000, time_index=None).layout
        'window segment_ms=60000'
        """
        words: list[str] = [self.kind]
        if self.segment_ms:
            words.append(f"segment_ms={self.segment_ms}")
        if self.time_index is not None:
            words.append(f"index={self.time_index}")
        if self.supplier:
            words.append(f"supplier={self.supplier}")
        return " ".join(words)

    @classmethod
    def of_layout(cls, name: str, layout: str, *, retention_ms: int = 0) -> StoreOrder:
        """A store whose entries lie as the layout says, which does not tell how long they last.

        >>> StoreOrder.of_layout("a", "window segment_ms=60000").segment_ms
        60000
        """
        kind, *words = layout.split()
        facts = dict(word.split("=", 1) for word in words)
        fields = {
            "name": name,
            "kind": kind,
            "retention_ms": retention_ms,
            "segment_ms": int(facts.get("segment_ms", 0)),
            "time_index": facts.get("index"),
            "supplier": facts.get("supplier", ""),
        }
        return converted(fields, cls)


class GlobalOrder(Message, frozen=True):
    """A global table: the store in which every instance holds all of a topic."""

    store: str
    topic: str
    persistent: bool = True
    is_processed: bool = False
    """Whether a processor of the user's makes of the topic what the store holds."""
    skips_undecodable: bool = False
    on_processing_error: Literal["fail", "continue", "dead_letter"] | None = "fail"
    """What becomes of a record on which that fails; None is a function, which comes with it."""
    dead_letter_topic: str = ""


class InputOrder(Message, frozen=True):
    """An input partition of a task, and where to start when there is no position yet."""

    topic: str
    partition: int
    topic_id: str
    partitions: int
    reset: Literal["earliest", "latest"]


class TakeOrder(Message, frozen=True):
    """Take a task: become its owner under this epoch."""

    task: str
    name: str
    epoch: tuple[int, int]
    first_taking: bool
    inputs: list[InputOrder]
    stores: list[StoreOrder]
    commits_partition: int
    closes: dict[str, list[str]] = {}
    """For stores of windows that are given out when they close: the names in the metadata of up to
    when that was done. Kafka Streams calls it by the store's name."""
    peers: list[str] = []
    """Where other instances listen, which may have copies of the task's stores."""
    recover_outputs: RecoverOutputs = "drop"
    """What becomes of outputs that were written before, while input is read again."""
    repartitions: list[str] = []
    """Repartition topics that the task writes: what is in them is never repeated."""


class PrepareOrder(Message, frozen=True):
    """A task is to be taken in a moment: get ready what does not touch its owner."""

    task: str
    name: str


class StatusQuestion(Message, frozen=True):
    """How the tasks stand that are held."""

    seen: dict[str, str] = {}
    """In which states the asker has seen some of them; it wants to know when one is in another."""
    wait_ms: int = 0
    """The answer comes then, or after so long."""


class ReleaseOrder(Message, frozen=True):
    """Give a task up that is held under this epoch or an older one: flush and close its stores."""

    task: str
    epoch: tuple[int, int]


class FollowOrder(Message, frozen=True):
    """Follow a task: keep its stores up to date by its changelogs, and be ready to take it."""

    task: str
    name: str
    stores: list[StoreOrder]
    commits_partition: int
    peers: list[str] = []


class UnfollowOrder(Message, frozen=True):
    """Follow a task no longer; what is on the disk stays for a while."""

    task: str


class CopyStatus(Message, frozen=True):
    """What an instance has of the state of a task that it does not own."""

    task: str
    state: CopyState
    positions: dict[str, int] = {}
    """The next offset of each changelog, as far as it is known."""
    lag: int = UNKNOWN_LAG
    """How many offsets the changelogs have behind those."""
    notes: list[str] = []


class CopiesReply(Message, frozen=True):
    """The tasks that an instance follows, those it has on its disk, and those it owns."""

    copies: list[CopyStatus]
    owned: dict[str, tuple[int, int]] = {}
    """By task, the epoch under which the instance owns it, or once did."""


class CopyRequest(Message, frozen=True):
    """An instance asks a peer for its copy of a store, which is to be this one."""

    identity: StoreIdentity


class CopyReply(Message, frozen=True):
    """Whether there is such a copy; if it was to be made, what it is and where it is fetched."""

    here: bool
    manifest: Manifest | None = None
    address: str = ""
    """A port of the peer's host, or the path of a socket."""
    key: str = ""
    """To be sent first to that address; good for one time."""


class RestoreStatus(Message, frozen=True):
    """How far one restore of one store is, since it began.

    It applies the topic's offsets `start` up to, not including, `end`; `offset` is the last one
    that it applied, -1 before the first.
    """

    number: int
    """Which of the restores of its task, or of the instance's global tables: later is higher."""
    store: str
    topic: str
    partition: int
    start: int
    end: int
    offset: int = -1
    restored: int = 0
    state: RestoreState = "restoring"
    full: bool = False
    """Whether the store was empty, and gets all that the topic has."""


class TaskStatus(Message, frozen=True):
    """Where a task stands on its instance."""

    task: str
    epoch: tuple[int, int]
    state: TaskState
    position: Positions = {}
    n: int = 0
    metadata: dict[str, str] = {}
    """What the operators said in the last commit."""
    until: Positions = {}
    """While the task reads its input again: where it stood when it lost its stores."""
    group_is_stale: bool = False
    """The group's offsets are absent or behind the commit record, and are to be written again."""
    restores: list[RestoreStatus] = []
    """The latest restores of the task's stores, in the order in which they began."""
    notes: list[str] = []
    fault: Fault | None = None


class StatusReply(Message, frozen=True):
    """All the tasks of an instance, and how its global tables were read."""

    tasks: list[TaskStatus]
    tables: list[RestoreStatus] = []


class MetricsReply(Message, frozen=True):
    """What an instance's metrics show."""

    readings: list[Reading]


class Registration(Message, frozen=True):
    """An instance asks to be let in, and tells where it can be reached."""

    instance: str
    host: str
    pid: int
    member_id: str
    is_static: bool = False
    """Its name is a `group_instance_id`."""
    tags: dict[str, str] = {}
    capacity: int = 1
    by_operator: bool = False
    unix_location: str = ""
    tcp_location: str = ""
    http_url: str = ""


class RegistrationReply(Message, frozen=True):
    """Whether the instance is let in; `wait` is to ask again, `refused` comes with the reason."""

    status: Literal["joined", "wait", "refused"]
    fault: Fault | None = None


class Failure(Message, frozen=True):
    """An instance tells the coordinator why it cannot start, or go on."""

    instance: str
    fault: Fault
    member_id: str = ""
    ends_application: bool = True
    """Not if an operator started it, who sees why it ended: others go on."""


class Beat(Message, frozen=True):
    """An instance is alive."""

    instance: str
    member_id: str = ""


class BeatReply(Message, frozen=True):
    """Whether the coordinator still counts on the instance."""

    known: bool


class Hello(Message, frozen=True):
    """An instance asks the coordinator for its settings."""

    instance: str


_PLAIN_OPTIONS = (
    "bootstrap_servers",
    "processing_guarantee",
    "session_timeout",
    "heartbeat_interval",
    "transaction_timeout",
    "state_cleanup_delay",
    "snapshot_location",
    "snapshot_interval",
    "snapshot_keep",
    "metrics_recording_level",
    "log_format",
)


class Settings(Message, frozen=True):
    """What an instance needs to know of the application."""

    application_id: str
    bootstrap_servers: str
    state_dir: str
    processing_guarantee: Guarantee
    kafka: dict[str, str]
    session_timeout: timedelta
    heartbeat_interval: timedelta
    transaction_timeout: timedelta
    state_cleanup_delay: timedelta
    snapshot_location: str
    snapshot_interval: timedelta
    snapshot_keep: int
    metrics_recording_level: RecordingLevel
    log_format: LogFormat
    rocksdb: RocksDBSettings
    over_tcp: bool = False
    """Listen on TCP too, at the address from which the coordinator is reached."""
    global_tables: list[GlobalOrder] = []

    @classmethod
    def of(
        cls,
        application_id: str,
        config: Config,
        *,
        over_tcp: bool,
        global_tables: list[GlobalOrder],
    ) -> Settings:
        """The part of a config that instances need."""
        return cls(
            application_id=application_id,
            state_dir=str(config.state_dir),
            kafka=dict(config.kafka),
            over_tcp=over_tcp,
            global_tables=global_tables,
            rocksdb=RocksDBSettings.of(config),
            **{name: getattr(config, name) for name in _PLAIN_OPTIONS},
        )

    def __repr__(self) -> str:
        """Without the properties of Kafka's clients: passwords are among them."""
        return f"Settings({self.config()!r})"

    def config(self) -> Config:
        """The same options as a config; those that instances do not need have their defaults."""
        return Config(
            state_dir=Path(self.state_dir),
            kafka=self.kafka,
            **{name: getattr(self, name) for name in _PLAIN_OPTIONS},
            **{f"rocksdb_{name}": value for name, value in asdict(self.rocksdb).items()},
        )


class ReadHeader(Message, frozen=True):
    """The first part of a read: whose state, as of which commit, and what is asked."""

    task: str
    epoch: tuple[int, int]
    n: int
    store: str
    question: Question = "get"

    @property
    def answers(self) -> pa.Schema:
        """What comes back."""
        return VALUES if self.question == "get" else ENTRIES


class CommitHeader(Message, frozen=True):
    """The first part of a commit: everything but its rows."""

    task: str
    epoch: tuple[int, int]
    n: int
    start: Positions
    end: Positions
    stores: list[str]
    topics: list[str]
    rows: int
    """How many rows follow: a stream that ends earlier was cut off, and looks like any other."""
    metadata: dict[str, str] = {}
    times: Positions = {}
    """The latest timestamp among the slice's records of each input partition."""
    numbered: bool = False
    """Whether to say which rows Kafka refuses, if any: it costs time for each."""


class Rejection(Message, frozen=True):
    """A record that Kafka will never take, or all records of a topic that it does not have."""

    topic: str
    reason: str
    """The error's name in Kafka's protocol."""
    message: str
    row: int = -1
    """Its place among the commit's rows; -1 if it is none of them, or not known which."""
    has_key: bool = True


class Reply(Message, frozen=True):
    """The answer to a read or a commit.

    `ok`: the values before it are right, or the commit is durable. `done`: that number was
    committed before. `refused`: planned from a stale view. `gone`: not here under that epoch.
    `lost`: the outcome is unknown, or the task is being taken anew; plan it again. `rejected`:
    nothing was committed, and nothing will be with these records. If the commit was not `numbered`
    they are not known yet.
    """

    status: Literal["ok", "done", "refused", "gone", "lost", "rejected"]
    n: int = 0
    position: Positions = {}
    metadata: dict[str, str] = {}
    reason: str = ""
    rejected: list[Rejection] = []


class Exchange(Message, frozen=True):
    """What a stream of rows is for."""

    read: ReadHeader | None = None
    commit: CommitHeader | None = None


M = TypeVar("M", bound=Message)
_encoder = msgspec.json.Encoder()


def encode(message: Message) -> bytes:
    """The message as bytes."""
    return _encoder.encode(message)


def decode(data: bytes, kind: type[M]) -> M:
    """The message in these bytes. Raises `InstanceError` if they are not such a message."""
    try:
        return decoder(kind).decode(data)
    except msgspec.DecodeError as error:
        raise InstanceError(
            f"A message is not a {kind.__name__}: {error}",
            hint="All parts of an application must run the same version of Penstock",
        ) from error


def fault_of(error: BaseException) -> Fault:
    """The error as a message."""
    if isinstance(error, PenstockError):
        where = {name: str(value) for name, value in error.where.items()}
        return Fault(
            kind=type(error).__name__,
            message=error.message,
            where=where,
            hint=error.hint,
            details=error.details,
        )
    return Fault(kind="InstanceError", message=f"{type(error).__name__}: {error}")


def error_of(fault: Fault) -> PenstockError:
    """The message as an error of the kind it was; only names of our own tree are looked up."""
    kind = getattr(errors, fault.kind, InstanceError)
    if not (isinstance(kind, type) and issubclass(kind, PenstockError)):
        kind = InstanceError
    return kind(fault.message, where=fault.where, hint=fault.hint).arrived(fault.details)
