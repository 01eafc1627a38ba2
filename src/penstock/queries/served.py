"""What the HTTP service asks, whoever has it: the driver, or an instance."""

from __future__ import annotations

from typing import Protocol

from penstock.queries.catalogue import Catalogue
from penstock.queries.contract import Queries, Question
from penstock.queries.prepared import Prepared
from penstock.topology import StoreSpec


class ServedQueries(Queries, Protocol):
    """Queries whose keys and values can be made JSON. What is said here never waits."""

    def catalogue(self) -> Catalogue | None:
        """The stores that there are; None if nobody is to be asked now."""
        ...

    def spec_of(self, store: str) -> StoreSpec:
        """What a store is written by. Raises `QueryError`."""
        ...

    def prepare(self, store: str, question: Question) -> Prepared | None:
        """A question for keys, ready to be sent by who must not wait; None if it cannot be.

        Raises `QueryError`.
        """
        ...
