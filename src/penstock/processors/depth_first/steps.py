"""What all steps have in common, and those that keep nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

from penstock.errors import PenstockError
from penstock.processors.depth_first.record import NOT_ASKED, Record, Shared
from penstock.processors.records import UNKEYED
from penstock.serdes import Change
from penstock.topology import ColumnFunction


class Value(NamedTuple):
    """A table's present value of a key, and its timestamp."""

    value: Any
    timestamp: int


NO_TIME = -1
"""Of a row that no record made."""


class View(Protocol):
    """A table as other steps look into it."""

    def get(self, key: Any, *, sent: bool = False) -> Value | None:
        """The row that the table has now for a key; with `sent`, the last that it passed on.

        They differ while a record cache holds a row back.
        """

    def get_as_of(self, key: Any, time: int) -> Value | None:
        """The row that a table which keeps versions had for a key at a time."""


class Step:
    """One step of a run: `process` takes a record and `forward`s what it makes of it."""

    def __init__(self, name: str, shared: Shared) -> None:
        self.name = name
        self.shared = shared
        self.children: list[Callable[[Record], None]] = []
        # Most steps have one child: `connect` lets them call it without a detour.
        self.forward: Callable[[Record], None] = self._forward_to_all

    def connect(self, children: list[Callable[[Record], None]]) -> None:
        """Name the children, each of which is run to its end before the next."""
        self.children = children
        if len(children) == 1:
            self.forward = children[0]

    def process(self, record: Record) -> None:
        """Take a record."""
        raise NotImplementedError

    def _forward_to_all(self, record: Record) -> None:
        for child in self.children:
            child(record)

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """What a user's function returns; its exception gets the record's coordinates."""
        try:
            return function(*arguments)
        except PenstockError:
            # It has its coordinates already: a processor forwards into steps of their own.
            raise
        except Exception as error:
            raise self.shared.failed(self.name, error) from error

    def ask(self, function: Callable[..., Any], record: Record) -> Any:
        """What a function of key and value returns; one of columns may look at the time, too."""
        if isinstance(function, ColumnFunction):
            ahead = self.shared.answer_ahead(self.name, function)
            if ahead is not NOT_ASKED:
                return ahead
            return self.call(function, record.key, record.value, record.timestamp)
        return self.call(function, record.key, record.value)

    def wants(self, predicate: Callable[..., Any], record: Record) -> bool:
        """Whether a predicate wants a record; one that says neither yes nor no has failed."""
        answer = self.ask(predicate, record)
        return answer if answer is True or answer is False else self.call(bool, answer)


class Pass(Step):
    """Passes every record on."""

    def process(self, record: Record) -> None:
        self.forward(record)


class DropNullKey(Step):
    """Drops records without a key."""

    def process(self, record: Record) -> None:
        if record.key is None:
            self.shared.drop(UNKEYED)
        else:
            self.forward(record)


class Filter(Step):
    """Passes on what the predicate wants."""

    def __init__(
        self, name: str, shared: Shared, predicate: Callable[[Any, Any], bool], *, negate: bool
    ) -> None:
        super().__init__(name, shared)
        self._predicate = predicate
        self._negate = negate

    def process(self, record: Record) -> None:
        if self.wants(self._predicate, record) != self._negate:
            self.forward(record)


class Peek(Step):
    """Shows every record to an action; as the last step, `forward` has nobody to go to."""

    def __init__(self, name: str, shared: Shared, action: Callable[[Any, Any], object]) -> None:
        super().__init__(name, shared)
        self._action = action

    def process(self, record: Record) -> None:
        self.call(self._action, record.key, record.value)
        self.forward(record)


class MapValues(Step):
    """Replaces the value."""

    def __init__(
        self, name: str, shared: Shared, mapper: Callable[..., Any], *, with_key: bool
    ) -> None:
        super().__init__(name, shared)
        self._mapper = mapper
        self._asks_pair = with_key or isinstance(mapper, ColumnFunction)

    def process(self, record: Record) -> None:
        if self._asks_pair:
            self.forward(record.with_value(self.ask(self._mapper, record)))
        else:
            self.forward(record.with_value(self.call(self._mapper, record.value)))


class FlatMapValues(Step):
    """Replaces a record by one for each value."""

    def __init__(
        self, name: str, shared: Shared, mapper: Callable[..., Iterable[Any]], *, with_key: bool
    ) -> None:
        super().__init__(name, shared)
        self._mapper = mapper
        self._with_key = with_key

    def process(self, record: Record) -> None:
        given = (record.key, record.value) if self._with_key else (record.value,)
        for value in self.call(self._values, *given):
            self.forward(record.with_value(value))

    def _values(self, *given: Any) -> list[Any]:
        return list(self._mapper(*given))


class Map(Step):
    """Replaces key and value, by one pair or by many."""

    def __init__(
        self, name: str, shared: Shared, mapper: Callable[[Any, Any], Iterable[tuple[Any, Any]]]
    ) -> None:
        super().__init__(name, shared)
        self._mapper = mapper

    def process(self, record: Record) -> None:
        for key, value in self.call(self._pairs, record.key, record.value):
            self.forward(Record(key, value, record.timestamp, record.headers))

    def _pairs(self, key: Any, value: Any) -> list[tuple[Any, Any]]:
        pairs = []
        for new_key, new_value in self._mapper(key, value):
            pairs.append((new_key, new_value))
        return pairs


class MapColumns(Step):
    """Replaces key and value by those that a function of columns makes."""

    def __init__(self, name: str, shared: Shared, mapper: ColumnFunction) -> None:
        super().__init__(name, shared)
        self._mapper = mapper

    def process(self, record: Record) -> None:
        key, value = self.ask(self._mapper, record)
        self.forward(Record(key, value, record.timestamp, record.headers))


class SelectKey(Step):
    """Replaces the key."""

    def __init__(self, name: str, shared: Shared, selector: Callable[[Any, Any], Any]) -> None:
        super().__init__(name, shared)
        self._selector = selector

    def process(self, record: Record) -> None:
        key = self.ask(self._selector, record)
        self.forward(Record(key, record.value, record.timestamp, record.headers))


class Split(Step):
    """Passes a record to the first child whose predicate wants it."""

    def __init__(
        self, name: str, shared: Shared, predicates: list[Callable[[Any, Any], bool] | None]
    ) -> None:
        super().__init__(name, shared)
        self._predicates = predicates

    def process(self, record: Record) -> None:
        for predicate, child in zip(self._predicates, self.children, strict=True):
            if predicate is None or self.wants(predicate, record):
                child(record)
                return


class ToStream(Step):
    """A table's changes become records: the new value alone."""

    def process(self, record: Record) -> None:
        change: Change = record.value
        self.forward(record.with_value(change.new))
