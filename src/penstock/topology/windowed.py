"""Grouped streams that are divided into windows."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack

from penstock.errors import TopologyError
from penstock.serdes import MeanSerde, Serde, Windowed, serde_of
from penstock.topology.aggregation import (
    Aggregation,
    Grouping,
    aggregate_serde,
    check_merger,
    lists_of,
    table_of,
    window_store,
    windowed_serde,
)
from penstock.topology.builtins import (
    Builtin,
    WindowOptions,
    add_to_mean,
    collected,
    mean_value,
    merge_lists,
    merge_means,
    no_mean,
)
from penstock.topology.changelogs import Logging, RecoverFrom
from penstock.topology.draft import needed
from penstock.topology.flow import Flow
from penstock.topology.nodes import Emit, WindowAggregateNode
from penstock.topology.windows import SessionWindows, TimeWindows, Windows

if TYPE_CHECKING:
    from penstock.topology.tables import KTable

K = TypeVar("K")
V = TypeVar("V")
V2 = TypeVar("V2")


class WindowedKStream(Generic[K, V]):
    """A grouped stream that is divided into windows."""

    def __init__(self, grouping: Grouping, windows: Windows, emit: Emit = "update") -> None:
        self._grouping = grouping
        self._windows = windows
        self._emit: Emit = emit

    def emit_on_window_close(self) -> WindowedKStream[K, V]:
        """Emit one result per window, when it can no longer change, instead of every update.

        Raises `TopologyError` for an unlimited window, which always can.
        """
        if isinstance(self._windows, TimeWindows) and not self._windows.has_end:
            raise TopologyError(
                "An unlimited window never closes, so nothing could be emitted at its close",
                where={"behind step": self._grouping.flow.step},
                hint="Leave emit_on_window_close() out, or use windows that end",
            )
        return WindowedKStream(self._grouping, self._windows, "close")

    def count(
        self,
        name: str | None = None,
        *,
        retention: timedelta | None = None,
        caching: bool = True,
        logging: Logging = True,
        recover_from: RecoverFrom = "changelog",
        persistent: bool | None = None,
        supplier: str | None = None,
    ) -> KTable[Windowed[K], int]:
        """Count the records of each key and window in the store `name`."""
        return self._aggregate(
            Aggregation(
                kind="count",
                prefix="KSTREAM-AGGREGATE",
                value=serde_of(int),
                store=name,
                caching=caching,
                logging=logging,
                recover_from=recover_from,
                persistent=persistent,
                supplier=supplier,
                retention=retention,
            )
        )

    def reduce(
        self,
        reducer: Callable[[V, V], V | None],
        name: str | None = None,
        *,
        retention: timedelta | None = None,
        caching: bool = True,
        logging: Logging = True,
        recover_from: RecoverFrom = "changelog",
        persistent: bool | None = None,
        supplier: str | None = None,
    ) -> KTable[Windowed[K], V]:
        """Combine the values of each key and window by `reducer(aggregate, value)`."""
        return self._aggregate(
            Aggregation(
                kind="reduce",
                prefix="KSTREAM-REDUCE",
                value=self._grouping.flow.value,
                store=name,
                caching=caching,
                logging=logging,
                recover_from=recover_from,
                persistent=persistent,
                supplier=supplier,
                retention=retention,
                aggregator=reducer,
            )
        )

    def aggregate(
        self,
        initializer: Callable[[], V2],
        aggregator: Callable[[K, V, V2], V2 | None],
        name: str | None = None,
        *,
        merger: Callable[[K, V2, V2], V2] | None = None,
        value: type[V2] | Serde[V2] | None = None,
        retention: timedelta | None = None,
        caching: bool = True,
        logging: Logging = True,
        recover_from: RecoverFrom = "changelog",
        persistent: bool | None = None,
        supplier: str | None = None,
    ) -> KTable[Windowed[K], V2]:
        """Fold the values of each key and window by `aggregator(key, value, aggregate)`.

        Sessions also need `merger(key, left, right)`, for a record that makes two of them one.
        """
        check_merger(self._windows, merger, behind=self._grouping.flow.step)
        return self._aggregate(
            Aggregation(
                kind="aggregate",
                prefix="KSTREAM-AGGREGATE",
                value=aggregate_serde(
                    value, initializer, aggregator, behind=self._grouping.flow.step
                ),
                store=name,
                caching=caching,
                logging=logging,
                recover_from=recover_from,
                persistent=persistent,
                supplier=supplier,
                retention=retention,
                initializer=initializer,
                aggregator=aggregator,
                merger=merger,
            )
        )

    def sum(
        self, name: str | None = None, **options: Unpack[WindowOptions]
    ) -> KTable[Windowed[K], V]:
        """Add up the numbers of each key and window."""
        return self.reduce(Builtin("sum"), name, **options)

    def min(
        self, name: str | None = None, **options: Unpack[WindowOptions]
    ) -> KTable[Windowed[K], V]:
        """Keep the smallest value of each key and window."""
        return self.reduce(Builtin("min"), name, **options)

    def max(
        self, name: str | None = None, **options: Unpack[WindowOptions]
    ) -> KTable[Windowed[K], V]:
        """Keep the largest value of each key and window."""
        return self.reduce(Builtin("max"), name, **options)

    def average(
        self, name: str | None = None, **options: Unpack[WindowOptions]
    ) -> KTable[Windowed[K], float]:
        """The average of the numbers of each key and window."""
        merger = merge_means if isinstance(self._windows, SessionWindows) else None
        means = self.aggregate(
            no_mean, add_to_mean, name, merger=merger, value=MeanSerde(), **options
        )
        return means.map_values(mean_value, value=float)

    def collect(
        self, name: str | None = None, **options: Unpack[WindowOptions]
    ) -> KTable[Windowed[K], list[V]]:
        """All values of each key and window in a list, oldest first."""
        merger = merge_lists if isinstance(self._windows, SessionWindows) else None
        lists = lists_of(self._grouping.flow)
        return self.aggregate(list, collected, name, merger=merger, value=lists, **options)

    def _aggregate(self, spec: Aggregation) -> KTable[Any, Any]:
        grouping, windows, emit = self._grouping, self._windows, self._emit
        flow, draft = grouping.flow, grouping.flow.draft
        store = grouping.store_name(spec, windows)
        step = draft.number(f"{spec.prefix}-")
        where = f"The store {store!r}"
        inner = needed(flow.key, "key", where)
        held = window_store(draft, store, windows, spec, inner, emit=emit, step=step)
        draft.add_store(held, behind=flow.step)
        source = grouping.source(store)
        node = WindowAggregateNode(
            name=step,
            kind=spec.kind,
            store=store,
            initializer=spec.initializer,
            aggregator=spec.aggregator,
            merger=spec.merger,
            windows=windows,
            emit=emit,
        )
        draft.add(node, after=[source])
        key = windowed_serde(windows, inner)
        return table_of(Flow(draft, step, key, spec.value, origin=store, reads=(store,)))
