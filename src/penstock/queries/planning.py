"""A question in the bytes of its store: which partitions are asked for what, in which order."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from penstock.errors import PageRefusedError, QuestionRefusedError
from penstock.instance.query_messages import Kind, StoreQuestion
from penstock.queries.catalogue import AskedStore
from penstock.queries.contract import LIMIT_MAX, Question, QuestionKind, StoreKind
from penstock.queries.pages import Page, page_of

_ANSWERED: dict[QuestionKind, tuple[StoreKind, ...]] = {
    "get": ("key_value", "versioned"),
    "as_of": ("versioned",),
    "range": ("key_value",),
    "prefix": ("key_value",),
    "all": ("key_value", "window", "session", "versioned"),
    "fetch": ("window", "session", "versioned"),
    "fetch_range": ("window", "session"),
    "fetch_all": ("window",),
}
_ASKED_AS: dict[QuestionKind, Kind] = {"get": "get", "as_of": "as_of", "fetch": "fetch"}
"""All others are scans."""
_TIME_MAX = 2**63 - 1


@dataclass(frozen=True)
class Part:
    """What one partition is asked for: of the question's keys those with these numbers, if any."""

    partition: int
    numbers: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A question that can be asked, partition by partition."""

    store: AskedStore
    question: Question
    keys: tuple[bytes, ...]
    parts: tuple[Part, ...]
    message: StoreQuestion
    """What all partitions are asked, without their keys."""
    page: Page

    @property
    def fingerprint(self) -> bytes:
        """All that is asked; worked out when a page needs it, for it is as long as the question."""
        return _fingerprint(self.question, self.keys, self.message)

    @property
    def looks_up(self) -> bool:
        """Whether each key has one row, whatever is there."""
        return self.question.kind in ("get", "as_of")


def plan(store: AskedStore, question: Question) -> Plan:
    """How a store is asked. Raises `QuestionRefusedError`, `PageRefusedError`."""
    _check(store, question)
    keys = tuple(store.keys_bytes(question.keys))
    message = _message(store, question)
    page = Page()
    if question.page is not None:
        page = page_of(question.page, _fingerprint(question, keys, message))
    parts = _parts(store, question, keys, page)
    return Plan(
        store=store,
        question=question,
        keys=keys,
        parts=parts,
        message=message,
        page=page,
    )


def _fingerprint(question: Question, keys: tuple[bytes, ...], message: StoreQuestion) -> bytes:
    return msgspec.json.encode([message, keys, question.kind, question.partition])


def _check(store: AskedStore, question: Question) -> None:
    spec, kind = store.spec, question.kind
    if spec.kind not in _ANSWERED.get(kind, ()):
        known = ", ".join(each for each, kinds in _ANSWERED.items() if spec.kind in kinds)
        raise _refused(
            store, f"A {spec.kind} store does not answer {kind!r}", f"It answers: {known}"
        )
    if kind == "as_of" and question.as_of is None:
        raise _refused(store, "It is not said as of when", "Say as_of= in milliseconds")
    if kind == "prefix" and question.prefix is None:
        raise _refused(store, "It is not said what keys begin with", "Say prefix=, or ask for all")
    if not 1 <= question.limit <= LIMIT_MAX:
        raise _refused(
            store, f"The limit is {question.limit}", f"Let it be from 1 to {LIMIT_MAX:,}"
        )
    if len(question.keys) > LIMIT_MAX:
        raise _refused(
            store,
            f"{len(question.keys):,} keys are asked for at once",
            f"Ask for {LIMIT_MAX:,} at most, and then for the others",
        )
    if question.partition is not None and not 0 <= question.partition < store.partitions:
        raise _refused(
            store,
            f"There is no partition {question.partition}",
            f"The store has {store.partitions}, from 0 on",
        )


def _message(store: AskedStore, question: Question) -> StoreQuestion:
    lower, upper = _bounds(store, question)
    start, end = question.start, question.end
    return StoreQuestion(
        store=store.spec.name,
        kind=_ASKED_AS.get(question.kind, "scan"),
        layout=store.spec.kind,
        retention_ms=store.spec.retention_ms or 0,
        lower=lower,
        upper=upper,
        first=0 if start is None else _time(max(start, 0)),
        last=_TIME_MAX if end is None else _time(end),
        as_of=_time(question.as_of or 0),
        reverse=question.reverse,
    )


def _time(time: int) -> int:
    """As near to a time as there are times: before the first and behind the last there is nothing.

    >>> _time(2**80) == _TIME_MAX, _time(-(2**80))
    (True, -1)
    """
    return max(-1, min(time, _TIME_MAX))


def _bounds(store: AskedStore, question: Question) -> tuple[bytes | None, bytes | None]:
    """The first key, and the first one that is too large."""
    if question.kind == "prefix":
        prefix = store.key_bytes(question.prefix)
        return prefix, after_prefix(prefix)
    if question.kind not in ("range", "fetch_range"):
        return None, None
    lower = None if question.lower is None else store.key_bytes(question.lower)
    upper = None if question.upper is None else store.key_bytes(question.upper) + b"\x00"
    return lower, upper


def after_prefix(prefix: bytes) -> bytes | None:
    """The first bytes after all that begin so; None if nothing is.

    >>> after_prefix(b"a"), after_prefix(b"a\\xff"), after_prefix(b"\\xff")
    (b'b', b'b', None)
    """
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None


def _parts(
    store: AskedStore, question: Question, keys: tuple[bytes, ...], page: Page
) -> tuple[Part, ...]:
    one = question.partition
    if question.kind in ("get", "as_of", "fetch"):
        wanted_in = store.partitions_of(question.keys, keys) if one is None else [one] * len(keys)
        found: dict[int, list[int]] = {}
        for number in range(page.key, len(keys)):
            found.setdefault(wanted_in[number], []).append(number)
        parts = [Part(partition, tuple(numbers)) for partition, numbers in sorted(found.items())]
    else:
        wanted = range(store.partitions) if one is None else [one]
        parts = [Part(partition) for partition in wanted]
    if question.reverse:
        parts.reverse()
    return tuple(_from(parts, page)) if question.page is not None else tuple(parts)


def _from(parts: list[Part], page: Page) -> list[Part]:
    """The parts that are still to come."""
    if page.key:
        return parts
    for at, part in enumerate(parts):
        if part.partition == page.partition:
            return parts[at:]
    raise PageRefusedError("The page is of a partition that is not asked for")


def _refused(store: AskedStore, what: str, hint: str) -> QuestionRefusedError:
    return QuestionRefusedError(what, where={"store": store.spec.name}, hint=hint)
