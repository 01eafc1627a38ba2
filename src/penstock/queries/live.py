"""The queries of an application that may not have started yet, or is opening anew."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol

from penstock.coordination.states import ApplicationState
from penstock.errors import StoreUnavailableError
from penstock.queries.contract import (
    TIMEOUT,
    Answer,
    Bound,
    KeyMetadata,
    PartitionLag,
    Question,
    SizedQueries,
    StoreDescription,
    StoreSize,
)
from penstock.queries.stores import ReadOnlyStore

if TYPE_CHECKING:
    # It brings pyarrow: those who only describe a topology need not wait for it.
    from penstock.queries.catalogue import Catalogue
    from penstock.queries.prepared import Prepared
    from penstock.topology import StoreSpec

_EXPECTED = (ApplicationState.REBALANCING, ApplicationState.RUNNING)
_ANYTHING = Bound()


class OpenedQueries(SizedQueries, Protocol):
    """Those of a driver that runs, with the stores and instances it has."""

    @property
    def catalogue(self) -> Catalogue:
        """The stores that can be asked."""
        ...

    def present(self) -> list[str]:
        """The instances that are there."""
        ...

    def prepare(self, store: str, question: Question) -> Prepared | None:
        """A question for keys, ready to be sent by who must not wait; None if it cannot be."""
        ...


class LiveQueries:
    """An application's state, to be asked while it runs: `contract.Queries`. Any thread may ask.

    One that is starting, or opens anew because its inputs changed, is waited for.
    """

    def __init__(self, *, state: Callable[[], ApplicationState]) -> None:
        self._state = state
        self._changed = threading.Condition()
        self._opened: OpenedQueries | None = None
        self._told: Callable[[], object] = lambda: None

    def tell_when_first_opened(self, told: Callable[[], object]) -> None:
        """Call this once, from the thread that opens: from then on the application is ours."""
        self._told = told

    def open(self, queries: OpenedQueries) -> None:
        """These are to be asked from now on."""
        with self._changed:
            self._opened = queries
            self._changed.notify_all()
        told, self._told = self._told, lambda: None
        told()

    def close(self) -> None:
        """Nobody is to be asked any more."""
        with self._changed:
            self._opened = None

    def catalogue(self) -> Catalogue | None:
        """The stores of the application as it runs; None if it does not."""
        opened = self._opened
        return None if opened is None else opened.catalogue

    def spec_of(self, store: str) -> StoreSpec:
        """What a store is written by; never waits: an event loop may ask.

        Raises `UnknownStoreError`, `StoreUnavailableError`.
        """
        catalogue = self.catalogue()
        if catalogue is None:
            raise _nobody_there(self._state())
        return catalogue.find(store).spec

    def stores(self) -> list[StoreDescription]:
        """All stores, by name."""
        return self._wait(TIMEOUT)[0].stores()

    def ask(
        self,
        store: str,
        question: Question,
        *,
        bound: Bound = _ANYTHING,
        timeout: timedelta = TIMEOUT,
    ) -> Answer:
        """The answer of whoever holds the state."""
        opened, remaining = self._wait(timeout)
        return opened.ask(store, question, bound=bound, timeout=remaining)

    def prepare(self, store: str, question: Question) -> Prepared | None:
        """The question for who must not wait; None if it cannot be asked so, or not now."""
        opened = self._opened
        return None if opened is None else opened.prepare(store, question)

    def approximate_count(
        self, store: str, *, bound: Bound = _ANYTHING, timeout: timedelta = TIMEOUT
    ) -> int:
        """About how many entries a store holds in all its partitions."""
        opened, remaining = self._wait(timeout)
        return opened.approximate_count(store, bound=bound, timeout=remaining)

    def sized_stores(self) -> list[str]:
        """The names of all stores, those too that steps have for themselves."""
        return self._wait(TIMEOUT)[0].sized_stores()

    def size(self, store: str, *, bound: Bound = _ANYTHING) -> StoreSize:
        """About how large a store is in all its partitions."""
        return self._wait(TIMEOUT)[0].size(store, bound=bound)

    def key_metadata(self, store: str, key: Any) -> KeyMetadata:
        """Where a key lives."""
        return self._wait(TIMEOUT)[0].key_metadata(store, key)

    def lags(self) -> list[PartitionLag]:
        """How far every copy of every store is behind."""
        return self._wait(TIMEOUT)[0].lags()

    def is_present(self, instance: str) -> bool:
        """Whether an instance of that name is there."""
        opened = self._opened
        return opened is not None and instance in opened.present()

    def _wait(self, timeout: timedelta) -> tuple[OpenedQueries, timedelta]:
        """Who is to be asked, and how much of the time is left."""
        opened = self._opened
        if opened is not None:
            return opened, timeout
        deadline = time.monotonic() + timeout.total_seconds()
        with self._changed:
            while self._opened is None:
                remaining = deadline - time.monotonic()
                if remaining <= 0 or self._state() not in _EXPECTED:
                    raise _nobody_there(self._state())
                self._changed.wait(min(remaining, 0.1))
            return self._opened, timedelta(seconds=max(deadline - time.monotonic(), 0.0))


def _nobody_there(state: ApplicationState) -> StoreUnavailableError:
    return StoreUnavailableError(
        f"The application is {state}, and nobody holds its state",
        hint="Ask while it runs: `with app:`, or another thread beside app.run()",
    )


class Queryable:
    """What a running application can be asked; `queries` is for those who ask on behalf of others.

    `Application` has it from here.
    """

    queries: LiveQueries
    state: ApplicationState

    def store(self, name: str) -> ReadOnlyStore[Any, Any]:
        """A store to be asked while the application runs, wherever its partitions are.

        Raises `UnknownStoreError`.
        """
        catalogue = self.queries.catalogue() or self._catalogue()
        return ReadOnlyStore(self.queries, catalogue.find(name).spec.name)

    def query_metadata_for_key(self, store: str, key: Any) -> KeyMetadata:
        """Which instance has the active copy of a key, which have standbys, and its partition."""
        return self.queries.key_metadata(store, key)

    def all_local_store_partition_lags(self) -> list[PartitionLag]:
        """How far each copy of each store is behind its changelog, on all instances."""
        return self.queries.lags()

    def is_alive(self, host: str) -> bool:
        """Whether the application is running, every task served, and has an instance so called."""
        return self.state is ApplicationState.RUNNING and self.queries.is_present(host)

    def _catalogue(self) -> Catalogue:
        """The stores of the program, of which it is not known yet how many partitions they have."""
        raise NotImplementedError
