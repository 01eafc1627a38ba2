"""Grouped streams and tables: records brought together by key, ready to be aggregated."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack

from penstock.serdes import MeanSerde, Serde, serde_of
from penstock.topology.aggregation import (
    Aggregation,
    Grouping,
    aggregate_serde,
    lists_of,
    table_of,
)
from penstock.topology.builtins import (
    Builtin,
    StoreOptions,
    add_to_mean,
    collected,
    mean_value,
    no_mean,
)
from penstock.topology.changelogs import Logging, RecoverFrom
from penstock.topology.cogrouped import CogroupedKStream, part_of
from penstock.topology.external import PostgreSQL
from penstock.topology.flow import Flow
from penstock.topology.holding import Store
from penstock.topology.windowed import WindowedKStream
from penstock.topology.windows import Windows, check_windows

if TYPE_CHECKING:
    from penstock.topology.tables import KTable

K = TypeVar("K")
V = TypeVar("V")
V2 = TypeVar("V2")


class KGroupedStream(Generic[K, V]):
    """A stream whose records are brought together by key, ready to be aggregated."""

    def __init__(self, flow: Flow, name: str | None) -> None:
        self.grouping = Grouping(flow, name)

    def count(
        self,
        name: Store | None = None,
        *,
        caching: bool = True,
        logging: Logging = True,
        recover_from: RecoverFrom = "changelog",
        persistent: bool | None = None,
        supplier: str | None = None,
        max_entries: int | None = None,
        kept_in: PostgreSQL | None = None,
    ) -> KTable[K, int]:
        """Count the records of each key in the store `name`.

        Records without a key or a value are not counted. With `max_entries` the store forgets the
        key that was not used for longest when there is one too many, and has no cache. In place of
        a name may stand a `versioned_store(...)`. With `recover_from="input"` the task of a store
        that is lost reads its input again. With `persistent=False` instances keep the store in
        memory; else `dsl_store` says. `supplier` names what opens a store of yours, as for
        `key_value_store`; with `kept_in` a database keeps the store.
        """
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
                max_entries=max_entries,
                kept_in=kept_in,
            )
        )

    def reduce(
        self,
        reducer: Callable[[V, V], V | None],
        name: Store | None = None,
        *,
        caching: bool = True,
        logging: Logging = True,
        recover_from: RecoverFrom = "changelog",
        persistent: bool | None = None,
        supplier: str | None = None,
        max_entries: int | None = None,
        kept_in: PostgreSQL | None = None,
    ) -> KTable[K, V]:
        """Combine each key's values by `reducer(aggregate, value)`; the first value starts.

        A reducer that returns `None` deletes the key.
        """
        return self._aggregate(
            Aggregation(
                kind="reduce",
                prefix="KSTREAM-REDUCE",
                value=self.grouping.flow.value,
                store=name,
                caching=caching,
                logging=logging,
                recover_from=recover_from,
                persistent=persistent,
                supplier=supplier,
                max_entries=max_entries,
                kept_in=kept_in,
                aggregator=reducer,
            )
        )

    def aggregate(
        self,
        initializer: Callable[[], V2],
        aggregator: Callable[[K, V, V2], V2 | None],
        name: Store | None = None,
        *,
        value: type[V2] | Serde[V2] | None = None,
        caching: bool = True,
        logging: Logging = True,
        recover_from: RecoverFrom = "changelog",
        persistent: bool | None = None,
        supplier: str | None = None,
        max_entries: int | None = None,
        kept_in: PostgreSQL | None = None,
    ) -> KTable[K, V2]:
        """Fold each key's values by `aggregator(key, value, aggregate)`, from `initializer()`.

        An aggregator that returns `None` deletes the key.
        """
        return self._aggregate(
            Aggregation(
                kind="aggregate",
                prefix="KSTREAM-AGGREGATE",
                value=aggregate_serde(
                    value, initializer, aggregator, behind=self.grouping.flow.step
                ),
                store=name,
                caching=caching,
                logging=logging,
                recover_from=recover_from,
                persistent=persistent,
                supplier=supplier,
                max_entries=max_entries,
                kept_in=kept_in,
                initializer=initializer,
                aggregator=aggregator,
            )
        )

    def sum(self, name: Store | None = None, **options: Unpack[StoreOptions]) -> KTable[K, V]:
        """Add up the numbers of each key.

        >>> from penstock.topology import StreamsBuilder
        >>> sales = StreamsBuilder().stream("sales", key=str, value=int)
        >>> sales.group_by_key().sum("turnover").to_stream().to("turnover")
        """
        return self.reduce(Builtin("sum"), name, **options)

    def min(self, name: Store | None = None, **options: Unpack[StoreOptions]) -> KTable[K, V]:
        """Keep the smallest value of each key."""
        return self.reduce(Builtin("min"), name, **options)

    def max(self, name: Store | None = None, **options: Unpack[StoreOptions]) -> KTable[K, V]:
        """Keep the largest value of each key."""
        return self.reduce(Builtin("max"), name, **options)

    def average(
        self, name: Store | None = None, **options: Unpack[StoreOptions]
    ) -> KTable[K, float]:
        """The average of each key's numbers; the store holds their sum and number."""
        means = self.aggregate(no_mean, add_to_mean, name, value=MeanSerde(), **options)
        return means.map_values(mean_value, value=float)

    def collect(
        self, name: Store | None = None, **options: Unpack[StoreOptions]
    ) -> KTable[K, list[V]]:
        """All values of each key in a list, oldest first; it grows with every record.

        The store, and a topic that the lists go to, hold them as `ListSerde` of the values' serde
        writes them.
        """
        return self.aggregate(list, collected, name, value=lists_of(self.grouping.flow), **options)

    def cogroup(self, aggregator: Callable[[K, V, V2], V2 | None]) -> CogroupedKStream[K, V2]:
        """Begin one aggregate of several grouped streams; `aggregator(key, value, aggregate)`.

        >>> from penstock.topology import StreamsBuilder
        >>> builder = StreamsBuilder()
        >>> paid = builder.stream("paid", key=str, value=int).group_by_key()
        >>> owed = builder.stream("owed", key=str, value=int).group_by_key()
        >>> balance = paid.cogroup(lambda name, sum, total: total + sum).cogroup(
        ...     owed, lambda name, sum, total: total - sum
        ... ).aggregate(int, "balances")
        """
        return CogroupedKStream((part_of(self.grouping, aggregator),))

    def windowed_by(self, windows: Windows) -> WindowedKStream[K, V]:
        """Divide each key's records into windows: `tumbling`, `hopping`, `sliding` or `session`.

        >>> from datetime import timedelta
        >>> from penstock.topology import StreamsBuilder, tumbling
        >>> beats = StreamsBuilder().stream("beats", key=str, value=bytes)
        >>> minutes = tumbling(timedelta(minutes=1), grace=timedelta(seconds=5))
        >>> beats.group_by_key().windowed_by(minutes).count("rates").to_stream().to("rates")
        """
        check_windows(windows, self.grouping.flow.step)
        return WindowedKStream(self.grouping, windows)

    def _aggregate(self, spec: Aggregation) -> KTable[Any, Any]:
        return table_of(self.grouping.aggregate(spec))


class KGroupedTable(Generic[K, V]):
    """A table whose rows are brought together by a new key, ready to be aggregated."""

    def __init__(self, flow: Flow, name: str | None) -> None:
        self._grouping = Grouping(flow, name, table=True)

    def count(
        self,
        name: Store | None = None,
        *,
        caching: bool = True,
        logging: Logging = True,
        persistent: bool | None = None,
        supplier: str | None = None,
        kept_in: PostgreSQL | None = None,
    ) -> KTable[K, int]:
        """Count the rows of each group, in the store `name`."""
        return self._aggregate(
            Aggregation(
                kind="count",
                prefix="KTABLE-AGGREGATE",
                value=serde_of(int),
                store=name,
                caching=caching,
                logging=logging,
                persistent=persistent,
                supplier=supplier,
                kept_in=kept_in,
            )
        )

    def reduce(
        self,
        adder: Callable[[V, V], V | None],
        subtractor: Callable[[V, V], V | None],
        name: Store | None = None,
        *,
        caching: bool = True,
        logging: Logging = True,
        persistent: bool | None = None,
        supplier: str | None = None,
        kept_in: PostgreSQL | None = None,
    ) -> KTable[K, V]:
        """Combine the rows of each group: `adder(aggregate, new)`, `subtractor(aggregate, old)`."""
        return self._aggregate(
            Aggregation(
                kind="reduce",
                prefix="KTABLE-REDUCE",
                value=self._grouping.flow.value,
                store=name,
                caching=caching,
                logging=logging,
                persistent=persistent,
                supplier=supplier,
                kept_in=kept_in,
                aggregator=adder,
                subtractor=subtractor,
            )
        )

    def aggregate(
        self,
        initializer: Callable[[], V2],
        adder: Callable[[K, V, V2], V2 | None],
        subtractor: Callable[[K, V, V2], V2 | None],
        name: Store | None = None,
        *,
        value: type[V2] | Serde[V2] | None = None,
        caching: bool = True,
        logging: Logging = True,
        persistent: bool | None = None,
        supplier: str | None = None,
        kept_in: PostgreSQL | None = None,
    ) -> KTable[K, V2]:
        """Fold the rows of each group; `subtractor(key, old, aggregate)` takes out an old row."""
        return self._aggregate(
            Aggregation(
                kind="aggregate",
                prefix="KTABLE-AGGREGATE",
                value=aggregate_serde(value, initializer, adder, behind=self._grouping.flow.step),
                store=name,
                caching=caching,
                logging=logging,
                persistent=persistent,
                supplier=supplier,
                kept_in=kept_in,
                initializer=initializer,
                aggregator=adder,
                subtractor=subtractor,
            )
        )

    def _aggregate(self, spec: Aggregation) -> KTable[Any, Any]:
        return table_of(self._grouping.aggregate(spec))
