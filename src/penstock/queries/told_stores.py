"""Stores as the driver tells instances of them, and as these ask for them.

The serdes that come with Penstock are told by name, and JSON by its type. A store with a serde or
a partitioner that only the program has is told of, and not how to read it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Any

from penstock.errors import StoreElsewhereError
from penstock.instance.told_messages import SerdeTold, StoreTold
from penstock.queries.asking import Places, StoreQueries
from penstock.queries.catalogue import AskedStore, Catalogue
from penstock.queries.contract import (
    TIMEOUT,
    Answer,
    Bound,
    KeyMetadata,
    PartitionLag,
    Question,
    StoreDescription,
)
from penstock.queries.prepared import Prepared
from penstock.queries.told_types import told_type, type_of
from penstock.serdes import (
    BoolSerde,
    BytesSerde,
    DateTimeSerde,
    DoubleSerde,
    FloatSerde,
    IntegerSerde,
    JsonSerde,
    ListSerde,
    LongSerde,
    MeanSerde,
    Serde,
    SessionWindowedSerde,
    ShortSerde,
    StringSerde,
    UuidSerde,
    WindowedSerde,
)
from penstock.topology import StoreSpec
from penstock.topology.placement import Placement

_BY_NAME: dict[str, type[Serde[Any]]] = {
    kind.name: kind
    for kind in (
        BoolSerde,
        BytesSerde,
        DateTimeSerde,
        DoubleSerde,
        FloatSerde,
        IntegerSerde,
        LongSerde,
        MeanSerde,
        ShortSerde,
        StringSerde,
        UuidSerde,
    )
}
_ANYTHING = Bound()


def told_serde(serde: Serde[Any], *, is_key: bool) -> SerdeTold | None:
    """A serde as a message; None if only the program has it.

    A value of a JSON type that cannot be told is shown as it was written; a key cannot be.

    >>> told_serde(ListSerde(LongSerde()), is_key=True).inner.name
    'long'
    """
    # A subclass is the user's own, and may do anything.
    if type(serde) is _BY_NAME.get(serde.name):
        return SerdeTold(name=serde.name)
    if type(serde) is JsonSerde:
        kind = told_type(serde.type) or (None if is_key else told_type(Any))
        return None if kind is None else SerdeTold(name=serde.name, type=kind)
    if not isinstance(serde, ListSerde | WindowedSerde | SessionWindowedSerde):
        return None
    inner = told_serde(serde.inner, is_key=is_key)
    if inner is None:
        return None
    size_ms = serde.size_ms if isinstance(serde, WindowedSerde) else 0
    return SerdeTold(name=serde.name, inner=inner, size_ms=size_ms)


def serde_told(told: SerdeTold) -> Serde[Any]:
    """The serde of such a message.

    >>> serde_told(told_serde(WindowedSerde(StringSerde(), 60_000), is_key=True))
    WindowedSerde(inner=StringSerde(), size_ms=60000)
    """
    if told.type is not None:
        return JsonSerde(type_of(told.type))
    if told.inner is None:
        return _BY_NAME[told.name]()
    inner = serde_told(told.inner)
    if told.name == WindowedSerde.name:
        return WindowedSerde(inner, told.size_ms)
    return ListSerde(inner) if told.name == ListSerde.name else SessionWindowedSerde(inner)


def told_store(store: AskedStore) -> StoreTold:
    """A store as a message."""
    spec = store.spec
    return StoreTold(
        name=spec.name,
        kind=spec.kind,
        sub_topology=store.sub_topology,
        partitions=store.partitions,
        is_global=spec.is_global,
        changelog=store.changelog,
        key_name=spec.key_serde.name,
        value_name=spec.value_serde.name,
        key=told_serde(spec.key_serde, is_key=True),
        value=told_serde(spec.value_serde, is_key=False),
        is_placed_by_program=store.placement.partitioner is not None,
        unplacing=store.placement.unplacing,
        retention_ms=spec.retention_ms,
        window_ms=spec.window_ms,
        duplicates=spec.duplicates,
    )


def store_told(told: StoreTold) -> AskedStore:
    """The store of such a message; what it is written by is bytes, if that was not told."""
    spec = StoreSpec(
        name=told.name,
        key_serde=BytesSerde() if told.key is None else serde_told(told.key),
        value_serde=BytesSerde() if told.value is None else serde_told(told.value),
        kind=told.kind,
        retention_ms=told.retention_ms,
        window_ms=told.window_ms,
        duplicates=told.duplicates,
        is_global=told.is_global,
    )
    return AskedStore(
        spec=spec,
        sub_topology=told.sub_topology,
        partitions=told.partitions,
        changelog=told.changelog,
        placement=Placement(unplacing=told.unplacing),
    )


class ToldQueries:
    """`contract.Queries` of a process that has not the program, with what the driver told it."""

    def __init__(self, stores: Iterable[StoreTold], places: Places, *, driver_url: str) -> None:
        self._told = {told.name: told for told in stores}
        self._driver_url = driver_url
        catalogue = Catalogue(store_told(told) for told in self._told.values())
        self._asked = StoreQueries(catalogue, places)

    def catalogue(self) -> Catalogue:
        """The stores that there are."""
        return self._asked.catalogue

    def spec_of(self, store: str) -> StoreSpec:
        """What a store is written by. Raises `UnknownStoreError`, `StoreElsewhereError`."""
        self._check(store)
        return self._asked.catalogue.find(store).spec

    def stores(self) -> list[StoreDescription]:
        """All stores, by name; also those that only the driver answers for."""
        described = (
            (each.description, self._told[each.spec.name]) for each in self._asked.catalogue.all()
        )
        return [replace(d, key=told.key_name, value=told.value_name) for d, told in described]

    def ask(
        self,
        store: str,
        question: Question,
        *,
        bound: Bound = _ANYTHING,
        timeout: timedelta = TIMEOUT,
    ) -> Answer:
        """The answer of whoever holds the state."""
        self._check(store)
        return self._asked.ask(store, question, bound=bound, timeout=timeout)

    def prepare(self, store: str, question: Question) -> Prepared | None:
        """None: the driver is to be asked too, which takes a while."""
        del store, question
        return None

    def approximate_count(
        self, store: str, *, bound: Bound = _ANYTHING, timeout: timedelta = TIMEOUT
    ) -> int:
        """About how many entries a store holds in all its partitions."""
        self._check(store)
        return self._asked.approximate_count(store, bound=bound, timeout=timeout)

    def key_metadata(self, store: str, key: Any) -> KeyMetadata:
        """Where a key lives."""
        self._check(store)
        return self._asked.key_metadata(store, key)

    def lags(self) -> list[PartitionLag]:
        """How far every copy of every store is behind."""
        return self._asked.lags()

    def _check(self, store: str) -> None:
        told = self._told[self._asked.catalogue.find(store).spec.name]
        if told.is_told:
            return
        what = "a partitioner" if told.is_placed_by_program else "serdes"
        where = f" at {self._driver_url}" if self._driver_url else ""
        raise StoreElsewhereError(
            f"The store {store!r} has {what} of the program's own, which instances do not have",
            where={"store": store},
            hint=f"Ask the driver{where}",
        )
