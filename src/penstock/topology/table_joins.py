"""Joins of a table, as methods that `KTable` has."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, Unpack, overload

from penstock.errors import TopologyError
from penstock.serdes import Serde
from penstock.topology.flow import Flow, chosen_serde, returned_type
from penstock.topology.foreign_keys import ForeignKeyJoin, join_foreign_key
from penstock.topology.holding import Store, TableOptions, check_options
from penstock.topology.joins import INNER, LEFT, OUTER, JoinKind, join_tables, not_to_be_met
from penstock.topology.sinks import Partitioner

if TYPE_CHECKING:
    from penstock.topology.tables import KTable

K = TypeVar("K")
V = TypeVar("V")
K2 = TypeVar("K2")
V2 = TypeVar("V2")
V3 = TypeVar("V3")
Chosen = int | Collection[int] | None
"""What a partitioner says: a partition, or None for the one of the key."""


class JoinableTable(Generic[K, V]):
    """The joins of a table.

    A joiner is given both values and `foreign_key` this table's; with `with_key=True` this table's
    key comes first, for both.
    """

    def __init__(self, flow: Flow) -> None:
        self.flow = flow

    @overload
    def join(
        self,
        other: KTable[K2, V2],
        joiner: Callable[[V, V2], V3],
        store: Store | None = None,
        *,
        with_key: Literal[False] = False,
        foreign_key: Callable[[V], K2 | None] | None = None,
        value: type[V3] | Serde[V3] | None = None,
        name: str | None = None,
        partitioner: Callable[[K, None, int], Chosen] | None = None,
        other_partitioner: Callable[[K2, None, int], Chosen] | None = None,
        **options: Unpack[TableOptions],
    ) -> KTable[K, V3]: ...

    @overload
    def join(
        self,
        other: KTable[K2, V2],
        joiner: Callable[[K, V, V2], V3],
        store: Store | None = None,
        *,
        with_key: Literal[True],
        foreign_key: Callable[[K, V], K2 | None] | None = None,
        value: type[V3] | Serde[V3] | None = None,
        name: str | None = None,
        partitioner: Callable[[K, None, int], Chosen] | None = None,
        other_partitioner: Callable[[K2, None, int], Chosen] | None = None,
        **options: Unpack[TableOptions],
    ) -> KTable[K, V3]: ...

    def join(
        self,
        other: KTable[K2, V2],
        joiner: Callable[..., V3],
        store: Store | None = None,
        *,
        with_key: bool = False,
        foreign_key: Callable[..., K2 | None] | None = None,
        value: type[V3] | Serde[V3] | None = None,
        name: str | None = None,
        partitioner: Callable[[K, None, int], Chosen] | None = None,
        other_partitioner: Callable[[K2, None, int], Chosen] | None = None,
        **options: Unpack[TableOptions],
    ) -> KTable[K, V3]:
        """The rows that have the same key in both tables, kept up to date.

        With `foreign_key(value)` each row meets the one that its own value refers to. With
        `with_key=True` the functions are given this table's key, too: `joiner(key, left, right)`
        and `foreign_key(key, value)`.

        With `store` the rows are kept there; `options` say how, as in `KStream.to_table`.

        A table of a foreign-key join whose keys are not where Kafka's partitioner puts them has a
        partitioner, as in `repartition`: `partitioner` that of this table, `other_partitioner` that
        of the other. They are given None for the value, and say one partition.
        """
        where = (partitioner, other_partitioner)
        asked = _JoinOptions(foreign_key, value, store, options, name, with_key, *where)
        return _joined(self.flow, other, joiner, INNER, asked)

    @overload
    def left_join(
        self,
        other: KTable[K2, V2],
        joiner: Callable[[V, V2 | None], V3],
        store: Store | None = None,
        *,
        with_key: Literal[False] = False,
        foreign_key: Callable[[V], K2 | None] | None = None,
        value: type[V3] | Serde[V3] | None = None,
        name: str | None = None,
        partitioner: Callable[[K, None, int], Chosen] | None = None,
        other_partitioner: Callable[[K2 | None, None, int], Chosen] | None = None,
        **options: Unpack[TableOptions],
    ) -> KTable[K, V3]: ...

    @overload
    def left_join(
        self,
        other: KTable[K2, V2],
        joiner: Callable[[K, V, V2 | None], V3],
        store: Store | None = None,
        *,
        with_key: Literal[True],
        foreign_key: Callable[[K, V], K2 | None] | None = None,
        value: type[V3] | Serde[V3] | None = None,
        name: str | None = None,
        partitioner: Callable[[K, None, int], Chosen] | None = None,
        other_partitioner: Callable[[K2 | None, None, int], Chosen] | None = None,
        **options: Unpack[TableOptions],
    ) -> KTable[K, V3]: ...

    def left_join(
        self,
        other: KTable[K2, V2],
        joiner: Callable[..., V3],
        store: Store | None = None,
        *,
        with_key: bool = False,
        foreign_key: Callable[..., K2 | None] | None = None,
        value: type[V3] | Serde[V3] | None = None,
        name: str | None = None,
        partitioner: Callable[[K, None, int], Chosen] | None = None,
        other_partitioner: Callable[[K2 | None, None, int], Chosen] | None = None,
        **options: Unpack[TableOptions],
    ) -> KTable[K, V3]:
        """As `join`, and a row of this table that the other lacks is joined with None.

        A row that refers to nothing is shown to `other_partitioner` too, with None for the key.
        """
        where = (partitioner, other_partitioner)
        asked = _JoinOptions(foreign_key, value, store, options, name, with_key, *where)
        return _joined(self.flow, other, joiner, LEFT, asked)

    @overload
    def outer_join(
        self,
        other: KTable[K, V2],
        joiner: Callable[[V | None, V2 | None], V3],
        store: Store | None = None,
        *,
        with_key: Literal[False] = False,
        value: type[V3] | Serde[V3] | None = None,
        name: str | None = None,
        **options: Unpack[TableOptions],
    ) -> KTable[K, V3]: ...

    @overload
    def outer_join(
        self,
        other: KTable[K, V2],
        joiner: Callable[[K, V | None, V2 | None], V3],
        store: Store | None = None,
        *,
        with_key: Literal[True],
        value: type[V3] | Serde[V3] | None = None,
        name: str | None = None,
        **options: Unpack[TableOptions],
    ) -> KTable[K, V3]: ...

    def outer_join(
        self,
        other: KTable[K, V2],
        joiner: Callable[..., V3],
        store: Store | None = None,
        *,
        with_key: bool = False,
        value: type[V3] | Serde[V3] | None = None,
        name: str | None = None,
        **options: Unpack[TableOptions],
    ) -> KTable[K, V3]:
        """As `join`, and a row of either table that the other lacks is joined with None."""
        asked = _JoinOptions(None, value, store, options, name, with_key)
        return _joined(self.flow, other, joiner, OUTER, asked)


@dataclass(frozen=True)
class _JoinOptions:
    foreign_key: Callable[..., Any] | None
    value: Any
    store: Store | None
    kept: TableOptions
    name: str | None
    with_key: bool
    partitioner: Partitioner | None = None
    other_partitioner: Partitioner | None = None


def _joined(
    flow: Flow,
    other: KTable[Any, Any],
    joiner: Callable[..., Any],
    kind: JoinKind,
    options: _JoinOptions,
) -> KTable[Any, Any]:
    # tables.py imports this module for its KTable.
    from penstock.topology.tables import KTable

    if not isinstance(other, KTable):
        raise not_to_be_met("The join of a table", flow.step, other, "a table")
    if kind.right and "foreign_key" in options.kept:
        raise TopologyError(
            "A join by foreign_key= has no outer form: rows to which none refers would have no key",
            where={"step": flow.step},
            hint="Use join, or left_join for the rows that refer to nothing",
        )
    check_options(options.kept, f"The join behind step {flow.step}")
    value = chosen_serde(
        options.value, returned_type(joiner), f"join (of step {flow.step})", "value"
    )
    if options.foreign_key is not None:
        join = ForeignKeyJoin(
            joiner=joiner,
            extractor=options.foreign_key,
            with_key=options.with_key,
            left=kind.left,
            value=value,
            store=options.store,
            kept=options.kept,
            name=options.name,
            partitioner=options.partitioner,
            other_partitioner=options.other_partitioner,
        )
        return KTable(join_foreign_key(flow, other.flow, join))
    if options.partitioner is not None or options.other_partitioner is not None:
        raise TopologyError(
            "Only a join by foreign_key= sends records of its own, which a partitioner could steer",
            where={"step": flow.step},
            hint="Leave the partitioners out: tables that are joined by key have the same one",
        )
    return KTable(
        join_tables(
            flow,
            other.flow,
            joiner=joiner,
            with_key=options.with_key,
            kind=kind,
            value=value,
            store=options.store,
            kept=options.kept,
            name=options.name,
        )
    )
