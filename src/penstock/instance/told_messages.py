"""What the driver tells instances that answer over HTTP: the stores, and who holds them.

Serdes are told by their names and types. What only the program knows is not told, and nothing here
is code.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from penstock.instance.protocol import Message
from penstock.topology.nodes import StoreKind

JsonKind = Literal[
    "any",
    "none",
    "bool",
    "int",
    "float",
    "str",
    "bytes",
    "datetime",
    "date",
    "time",
    "uuid",
    "decimal",
    "list",
    "tuple",
    "dict",
    "union",
    "object",
]


class FieldTold(Message, frozen=True):
    """A field of an object; `default` is JSON, and None if the field must be there."""

    name: str
    written: str
    """What it is called in JSON."""
    type: TypeTold
    default: str | None = None


class TypeTold(Message, frozen=True):
    """A type that JSON is read as."""

    kind: JsonKind
    of: list[TypeTold] = msgspec.field(default_factory=list)
    fields: list[FieldTold] = msgspec.field(default_factory=list)
    forbids_others: bool = False
    """Whether an object with further fields is refused."""


class SerdeTold(Message, frozen=True):
    """A serde of ours."""

    name: str
    inner: SerdeTold | None = None
    size_ms: int = 0
    """Of windows."""
    type: TypeTold | None = None
    """Of JSON."""


class StoreTold(Message, frozen=True):
    """A store that can be asked, and how to read it unless only the program knows."""

    name: str
    kind: StoreKind
    sub_topology: int
    partitions: int
    is_global: bool
    changelog: str
    key_name: str
    value_name: str
    key: SerdeTold | None
    value: SerdeTold | None
    is_placed_by_program: bool
    """A function of the program's chooses the partitions of its keys."""
    unplacing: int
    """How many bytes at the end of a key do not choose its partition."""
    retention_ms: int | None
    window_ms: int | None
    duplicates: bool

    @property
    def is_told(self) -> bool:
        """Whether others than the driver can read it."""
        return self.key is not None and self.value is not None and not self.is_placed_by_program


class HttpTold(Message, frozen=True):
    """What an instance needs to answer over HTTP."""

    token: str
    """The run's own, which the driver's service lets in too."""
    driver_url: str
    stores: list[StoreTold]

    def __repr__(self) -> str:
        """Without the token."""
        return f"HttpTold({self.driver_url!r}, {len(self.stores)} stores)"


class PlacesRequest(Message, frozen=True):
    """Who holds what, unless nothing changed since that version."""

    version: int = 0
    with_ends: bool = False


class HoldersTold(Message, frozen=True):
    """Who holds a task."""

    owner: str
    epoch: tuple[int, int]
    followers: list[str]


class PlacesReply(Message, frozen=True):
    """Who holds what; without `holders` nothing changed."""

    version: int
    holders: dict[str, HoldersTold] | None = None
    locations: dict[str, str] = msgspec.field(default_factory=dict)
    """Where the instances that are there listen, by name."""
    urls: dict[str, str] = msgspec.field(default_factory=dict)
    """Where those of them answer that have an HTTP service."""
    ends: list[tuple[str, int, int, int]] = msgspec.field(default_factory=list)
    """Topic, partition, where it was last seen to end, and milliseconds since then."""


class LogEndsReply(Message, frozen=True):
    """Where changelogs end now: topic, partition, end."""

    ends: list[tuple[str, int, int]]
