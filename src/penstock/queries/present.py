"""Whoever answers now, for those who were there before it and go on after it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from penstock.errors import StoreUnavailableError, UnknownStoreError
from penstock.queries.contract import (
    Answer,
    Bound,
    KeyMetadata,
    PartitionLag,
    Queries,
    Question,
    StoreDescription,
)
from penstock.serdes import Serde
from penstock.topology import StoreSpec

if TYPE_CHECKING:
    # It brings the instances' protocol, which those who only describe a topology need not load.
    from penstock.queries.asking import StoreQueries


@dataclass(frozen=True, kw_only=True)
class StoreSerdes:
    """What the keys and values of a store are written by."""

    key: Serde[Any]
    value: Serde[Any]


@dataclass(frozen=True, kw_only=True)
class _Present:
    queries: Queries
    serdes: dict[str, StoreSerdes]


class PresentQueries:
    """`Queries` of an application that has yet to start, runs, or is between two drivers.

    A driver hands in what answers, with the stores that can be asked; any thread may ask.
    """

    def __init__(self) -> None:
        self._present: _Present | None = None
        self._told: Callable[[], object] = lambda: None

    def tell_when_first_handed_in(self, told: Callable[[], object]) -> None:
        """Call this once, from the thread that hands in: from then on the application is ours."""
        self._told = told

    def hand_in(self, queries: Queries, stores: Iterable[StoreSpec]) -> None:
        """From now on these answer."""
        serdes = {
            each.name: StoreSerdes(key=each.key_serde, value=each.value_serde) for each in stores
        }
        self._present = _Present(queries=queries, serdes=serdes)
        told, self._told = self._told, lambda: None
        told()

    @contextlib.contextmanager
    def handed_in(self, queries: StoreQueries) -> Iterator[None]:
        """Let a driver's queries answer while the block runs."""
        self.hand_in(queries, [each.spec for each in queries.catalogue.all()])
        try:
            yield
        finally:
            self.take_back()

    def take_back(self) -> None:
        """Nobody answers any more."""
        self._present = None

    def serdes_of(self, store: str) -> StoreSerdes:
        """What a store is written by. Raises `UnknownStoreError`, `StoreUnavailableError`."""
        serdes = self._now().serdes
        if store not in serdes:
            raise UnknownStoreError(
                f"There is no store {store!a}",
                hint=f"There is: {', '.join(sorted(serdes)) or 'none'}",
            )
        return serdes[store]

    def stores(self) -> list[StoreDescription]:
        """All stores, by name."""
        return self._now().queries.stores()

    def ask(
        self,
        store: str,
        question: Question,
        *,
        bound: Bound = Bound(),  # noqa: B008 - frozen
        timeout: timedelta = timedelta(seconds=5),
    ) -> Answer:
        """The answer of whoever holds the state."""
        return self._now().queries.ask(store, question, bound=bound, timeout=timeout)

    def approximate_count(self, store: str, *, bound: Bound = Bound()) -> int:  # noqa: B008
        """About how many entries a store holds in all its partitions."""
        return self._now().queries.approximate_count(store, bound=bound)

    def key_metadata(self, store: str, key: Any) -> KeyMetadata:
        """Where a key lives."""
        return self._now().queries.key_metadata(store, key)

    def lags(self) -> list[PartitionLag]:
        """How far every copy of every store is behind."""
        return self._now().queries.lags()

    def _now(self) -> _Present:
        present = self._present
        if present is None:
            raise StoreUnavailableError(
                "The application has no state to ask yet, or no longer",
                hint="Ask again when /health/ready says so",
            )
        return present
