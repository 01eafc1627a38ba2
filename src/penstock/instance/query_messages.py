"""What an instance is asked about its stores, and what it says; bytes as the stores hold them."""

from __future__ import annotations

from typing import Literal

import msgspec

from penstock.instance.protocol import UNKNOWN_LAG, Message
from penstock.topology.nodes import StoreKind

Role = Literal["active", "standby", "global"]
Kind = Literal["get", "as_of", "scan", "fetch", "count"]
Found = tuple[int, bytes, bytes | None, int | None]
"""Which of the keys it answers, the store's key, the stored value, and until when it was valid."""

ANSWER_BYTES = 4 * 1024 * 1024
"""How large an answer gets, about."""
SCAN_ENTRIES = 10_000
"""How many entries one look goes through at most: the store's writer may have to wait for it."""


class Cursor(Message, frozen=True):
    """How far an answer came: the key's place in the question, and the last entry that it saw."""

    number: int = 0
    key: bytes | None = None


class StoreQuestion(Message, frozen=True):
    """What is asked of one partition of a store.

    `scan` is for entries whose key is `lower` or more and less than `upper`; of windows and
    sessions that is the key inside, and they begin from `first` to `last`.
    """

    store: str
    task: str = ""
    """Empty for a global table."""
    kind: Kind = "get"
    layout: StoreKind = "key_value"
    retention_ms: int = 0
    keys: list[bytes] = msgspec.field(default_factory=list)
    lower: bytes | None = None
    upper: bytes | None = None
    first: int = 0
    last: int = 2**63 - 1
    as_of: int = 0
    reverse: bool = False
    limit: int = 1_000
    bytes_max: int = ANSWER_BYTES
    after: Cursor | None = None


class StoreAnswer(Message, frozen=True):
    """What a copy of a store holds; with a `reason` it does not answer.

    All of it is as of one moment: the entries are what the changelog says up to `position`.
    """

    reason: str = ""
    role: Role = "standby"
    epoch: tuple[int, int] = (0, 0)
    """Under which an active copy answers."""
    position: int | None = None
    """The offset of the last changelog record that the store holds."""
    next_offset: int = 0
    """Up to where the changelog was read: behind the last record may be markers."""
    lag: int = UNKNOWN_LAG
    age_ms: int = 0
    """How long ago the copy was known to hold all that was committed."""
    found: list[Found] = msgspec.field(default_factory=list)
    count: int = 0
    size: int = 0
    """In bytes; only of what RocksDB keeps, and with `count`."""
    after: Cursor | None = None
    """Where to go on, if there may be more."""


class StoreQuestions(Message, frozen=True):
    """What is asked of several partitions that one instance holds."""

    questions: list[StoreQuestion]


class StoreAnswers(Message, frozen=True):
    """What it says to each of them, each as of a moment of its own."""

    answers: list[StoreAnswer]


class HeldStore(Message, frozen=True):
    """A copy of a store's partition."""

    task: str
    store: str
    role: Role
    next_offset: int


class HeldReply(Message, frozen=True):
    """All copies of stores that an instance keeps up to date and that have a changelog."""

    stores: list[HeldStore] = msgspec.field(default_factory=list)
