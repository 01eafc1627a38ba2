"""Joins of a stream, as methods that `KStream` has."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

from penstock.serdes import Serde
from penstock.topology.flow import Flow
from penstock.topology.joins import (
    INNER,
    LEFT,
    OUTER,
    JoinOptions,
    Partner,
    join,
    not_to_be_met,
)
from penstock.topology.tables import KTable
from penstock.topology.windows import JoinWindows

if TYPE_CHECKING:
    from penstock.topology.streams import GlobalKTable, KStream

K = TypeVar("K")
V = TypeVar("V")
V2 = TypeVar("V2")
V3 = TypeVar("V3")


class JoinableStream(Generic[K, V]):
    """The joins of a stream.

    A joiner is given both values; with `with_key=True` the stream's key comes first.
    """

    def __init__(self, flow: Flow) -> None:
        self.flow = flow

    @overload
    def join(
        self,
        other: KStream[K, V2] | KTable[K, V2] | GlobalKTable[Any, V2],
        joiner: Callable[[V, V2], V3],
        windows: JoinWindows | None = None,
        *,
        with_key: Literal[False] = False,
        key_selector: Callable[[K, V], Any] | None = None,
        grace: timedelta | None = None,
        persistent: bool | None = None,
        value: type[V3] | Serde[V3] | None = None,
        name: str | None = None,
    ) -> KStream[K, V3]: ...

    @overload
    def join(
        self,
        other: KStream[K, V2] | KTable[K, V2] | GlobalKTable[Any, V2],
        joiner: Callable[[K, V, V2], V3],
        windows: JoinWindows | None = None,
        *,
        with_key: Literal[True],
        key_selector: Callable[[K, V], Any] | None = None,
        grace: timedelta | None = None,
        persistent: bool | None = None,
        value: type[V3] | Serde[V3] | None = None,
        name: str | None = None,
    ) -> KStream[K, V3]: ...

    def join(
        self,
        other: KStream[K, V2] | KTable[K, V2] | GlobalKTable[Any, V2],
        joiner: Callable[..., V3],
        windows: JoinWindows | None = None,
        *,
        with_key: bool = False,
        key_selector: Callable[[K, V], Any] | None = None,
        grace: timedelta | None = None,
        persistent: bool | None = None,
        value: type[V3] | Serde[V3] | None = None,
        name: str | None = None,
    ) -> KStream[K, V3]:
        """Join records of equal keys: with a stream's inside `windows`, or with a table's row now.

        A row of a global table is that of `key_selector(key, value)`, one of a versioned table that
        of the record's own time. With `grace` a record waits until the stream is so much further,
        so that rows which come late are met; the table must keep versions for as long. With
        `persistent=False` a join of streams keeps their records in memory. With `with_key=True`
        the joiner is given the record's key too: `joiner(key, left, right)`.

        >>> from penstock.topology import StreamsBuilder
        >>> builder = StreamsBuilder()
        >>> names = builder.table("names", "names", key=str, value=str)
        >>> calls = builder.stream("calls", key=str, value=str)
        >>> calls.join(names, lambda call, name: f"{name}: {call}", value=str).to("named-calls")
        """
        options = JoinOptions(windows, key_selector, value, name, grace, persistent, with_key)
        return _stream(join(self.flow, _partner(other, self.flow.step), joiner, INNER, options))

    @overload
    def left_join(
        self,
        other: KStream[K, V2] | KTable[K, V2] | GlobalKTable[Any, V2],
        joiner: Callable[[V, V2 | None], V3],
        windows: JoinWindows | None = None,
        *,
        with_key: Literal[False] = False,
        key_selector: Callable[[K, V], Any] | None = None,
        grace: timedelta | None = None,
        persistent: bool | None = None,
        value: type[V3] | Serde[V3] | None = None,
        name: str | None = None,
    ) -> KStream[K, V3]: ...

    @overload
    def left_join(
        self,
        other: KStream[K, V2] | KTable[K, V2] | GlobalKTable[Any, V2],
        joiner: Callable[[K, V, V2 | None], V3],
        windows: JoinWindows | None = None,
        *,
        with_key: Literal[True],
        key_selector: Callable[[K, V], Any] | None = None,
        grace: timedelta | None = None,
        persistent: bool | None = None,
        value: type[V3] | Serde[V3] | None = None,
        name: str | None = None,
    ) -> KStream[K, V3]: ...

    def left_join(
        self,
        other: KStream[K, V2] | KTable[K, V2] | GlobalKTable[Any, V2],
        joiner: Callable[..., V3],
        windows: JoinWindows | None = None,
        *,
        with_key: bool = False,
        key_selector: Callable[[K, V], Any] | None = None,
        grace: timedelta | None = None,
        persistent: bool | None = None,
        value: type[V3] | Serde[V3] | None = None,
        name: str | None = None,
    ) -> KStream[K, V3]:
        """As `join`, and a record of this stream that meets nothing is joined with None."""
        options = JoinOptions(windows, key_selector, value, name, grace, persistent, with_key)
        return _stream(join(self.flow, _partner(other, self.flow.step), joiner, LEFT, options))

    @overload
    def outer_join(
        self,
        other: KStream[K, V2],
        joiner: Callable[[V | None, V2 | None], V3],
        windows: JoinWindows,
        *,
        with_key: Literal[False] = False,
        persistent: bool | None = None,
        value: type[V3] | Serde[V3] | None = None,
        name: str | None = None,
    ) -> KStream[K, V3]: ...

    @overload
    def outer_join(
        self,
        other: KStream[K, V2],
        joiner: Callable[[K, V | None, V2 | None], V3],
        windows: JoinWindows,
        *,
        with_key: Literal[True],
        persistent: bool | None = None,
        value: type[V3] | Serde[V3] | None = None,
        name: str | None = None,
    ) -> KStream[K, V3]: ...

    def outer_join(
        self,
        other: KStream[K, V2],
        joiner: Callable[..., V3],
        windows: JoinWindows,
        *,
        with_key: bool = False,
        persistent: bool | None = None,
        value: type[V3] | Serde[V3] | None = None,
        name: str | None = None,
    ) -> KStream[K, V3]:
        """As `join` of streams, and a record of either that meets nothing is joined with None."""
        options = JoinOptions(windows, None, value, name, None, persistent, with_key)
        return _stream(join(self.flow, _partner(other, self.flow.step), joiner, OUTER, options))


def _stream(flow: Flow) -> KStream[Any, Any]:
    # streams.py imports this module for its KStream.
    from penstock.topology.streams import KStream

    return KStream(flow)


def _partner(
    other: KStream[Any, Any] | KTable[Any, Any] | GlobalKTable[Any, Any], step: str
) -> Partner:
    from penstock.topology.streams import GlobalKTable, KStream

    if isinstance(other, GlobalKTable):
        return Partner(other.draft, table=other.store)
    if not isinstance(other, KStream | KTable):
        raise not_to_be_met("The join", step, other, "a stream or a table")
    return Partner(other.flow.draft, flow=other.flow, is_table=isinstance(other, KTable))
