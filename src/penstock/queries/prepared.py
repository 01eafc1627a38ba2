"""Keys that are looked up: a question that is ready to be sent, and the rows of what came back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from penstock.instance.query_messages import StoreAnswer
from penstock.queries.catalogue import AskedStore
from penstock.queries.contract import Answer, Row, Source
from penstock.queries.pages import Page, page_text
from penstock.queries.planning import Part, Plan
from penstock.queries.rows import looked_up_rows
from penstock.serdes import (
    BoolSerde,
    BytesSerde,
    DateTimeSerde,
    DoubleSerde,
    FloatSerde,
    IntegerSerde,
    JsonSerde,
    LongSerde,
    ShortSerde,
    StringSerde,
    UuidSerde,
)

_NEVER_WAIT = frozenset(
    {
        *(BoolSerde, BytesSerde, DateTimeSerde, DoubleSerde, FloatSerde, IntegerSerde),
        *(JsonSerde, LongSerde, ShortSerde, StringSerde, UuidSerde),
    }
)
"""A user's own may, and those that ask a schema registry do."""


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """What is to be sent to whom, and what makes the answer of what they say.

    `finish` returns None if that will not do: then the question is to be asked as usual.
    """

    calls: list[tuple[Path, bytes]]
    """Sockets of instances, as in `penstock.instance.question_socket`, and messages."""
    token: str = field(repr=False)
    finish: Callable[[Sequence[bytes]], Answer | None]


def never_waits(store: AskedStore) -> bool:
    """Whether a store's keys and values are read and written without a wait for anything."""
    serdes = {type(store.spec.key_serde), type(store.spec.value_serde)}
    return serdes <= _NEVER_WAIT and store.placement.partitioner is None


def looked_up(planned: Plan, answers: Iterable[tuple[Part, tuple[StoreAnswer, Source]]]) -> Answer:
    """The answer to a question for keys, of what each partition said."""
    asked = planned.question.keys
    first, count = planned.page.key, len(asked)
    rows: list[Row | None] = [None] * (count - first)
    answered: list[tuple[int, Source]] = []
    for part, (answer, source) in answers:
        numbers = [part.numbers[each[0]] for each in answer.found]
        keys = [asked[number] for number in numbers]
        for number, row in zip(
            numbers, looked_up_rows(planned.store.spec, keys, answer.found), strict=True
        ):
            rows[number - first] = row
        answered.append((part.numbers[0], source))
    # A partition with too large values leaves gaps; what is behind the first is not told.
    told: list[Row] = []
    for each in rows:
        if each is None:
            break
        told.append(each)
    end = first + len(told)
    answered.sort(key=lambda part: part[0])
    return Answer(
        rows=told,
        sources=[source for number, source in answered if number < end],
        next_page=page_text(Page(key=end), planned.fingerprint) if end < count else None,
    )
