"""A question's pages through all partitions are its whole answer in pieces, either way round."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from random import Random
from typing import Any, get_args

import pytest

from penstock.instance import query_answers
from penstock.instance.query_answers import findings
from penstock.instance.query_messages import StoreAnswer, StoreQuestion
from penstock.queries import asking
from penstock.queries.asking import StoreQueries
from penstock.queries.catalogue import AskedStore, Catalogue
from penstock.queries.contract import Question, Row, Source, StoreKind
from penstock.serdes import serde_of
from penstock.serdes.windowed import session_key, window_key
from penstock.stores.contract import KeyValueStore, stored_value, version_key
from penstock.stores.memory import MemoryStore
from penstock.stores.segments import SegmentedStore
from penstock.stores.versioned import VersionsStore
from penstock.topology import StoreSpec

PARTITIONS = 3
RETENTION_MS = 1_000_000
KEYS = [first + rest for first in "abc" for rest in ("", "a", "b", "é")]


class Asked(StoreQueries):
    """The partitions of one store, asked here and not at instances."""

    def __init__(self, kind: StoreKind) -> None:
        spec = StoreSpec(
            name="asked",
            key_serde=serde_of(str),
            value_serde=serde_of(str),
            kind=kind,
            retention_ms=RETENTION_MS,
        )
        self.asked = AskedStore(spec=spec, sub_topology=0, partitions=PARTITIONS)
        self.catalogue = Catalogue([self.asked])
        self.kept = [_store(kind) for _ in range(PARTITIONS)]

    def put(self, key: str, start: int, end: int, *, is_value: bool) -> None:
        data = self.asked.key_bytes(key)
        kind = self.asked.spec.kind
        names = {
            "key_value": data,
            "versioned": version_key(data, start),
            "window": window_key(data, start),
            "session": session_key(data, start, end),
        }
        value = stored_value(start, b"%d" % start) if is_value else None
        [partition] = self.asked.partitions_of([key], [data])
        self.kept[partition].apply([(names[kind], value)], offset=0)

    def rows(self, question: Question, between: Callable[[], None] = lambda: None) -> list[Row]:
        """Those of all pages; something else may happen between two of them."""
        found: list[Row] = []
        while True:
            answer = self.ask("asked", question)
            assert len(answer.rows) <= question.limit
            found += answer.rows
            if answer.next_page is None:
                return found
            question = replace(question, page=answer.next_page)
            between()

    def _ask_partition(
        self, store: AskedStore, partition: int, message: StoreQuestion, *_: Any
    ) -> tuple[StoreAnswer, Source]:
        part = findings(self.kept[partition], message)
        source = Source(
            partition=partition, instance="i", role="active", position=0, age=timedelta()
        )
        return StoreAnswer(found=part.found, after=part.after), source


def _store(kind: StoreKind) -> KeyValueStore:
    inner = MemoryStore("asked")
    if kind == "key_value":
        return inner
    if kind == "versioned":
        return VersionsStore(inner, retention_ms=RETENTION_MS, segment_ms=50)
    return SegmentedStore(inner, kind=kind, retention_ms=RETENTION_MS, segment_ms=60)


def any_change(asked: Asked, random: Random, keys: Sequence[str]) -> None:
    start = random.randrange(300)
    asked.put(
        random.choice(keys), start, start + random.randrange(50), is_value=random.random() < 0.6
    )


def any_question(random: Random, kind: StoreKind) -> Question:
    lower, upper = random.choices([None, *KEYS], k=2)
    start, end = random.choices([None, *range(0, 300, 7)], k=2)
    keys = tuple(random.choices(KEYS, k=random.randrange(5)))
    timed = Question(kind="fetch", keys=keys, start=start, end=end)
    of_range = Question(kind="fetch_range", lower=lower, upper=upper, start=start, end=end)
    choices = {
        "key_value": [
            Question(kind="range", lower=lower, upper=upper),
            Question(kind="prefix", prefix=random.choice(["", "a", "é"])),
        ],
        "versioned": [timed],
        "window": [timed, of_range, Question(kind="fetch_all", start=start, end=end)],
        "session": [timed, of_range],
    }
    chosen = random.choice([*choices[kind], Question(kind="all")])
    return replace(chosen, partition=random.choice([None, None, *range(PARTITIONS)]))


@pytest.mark.parametrize("kind", get_args(StoreKind))
def test_pages_are_the_whole_answer(kind: StoreKind, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(60):
        random = Random(seed)
        asked = Asked(kind)
        for key in KEYS:
            for _ in range(random.choice([0, 1, 3, 6])):
                start = random.randrange(300)
                is_value = kind != "versioned" or random.random() < 0.8
                asked.put(key, start, start + random.randrange(50), is_value=is_value)
        question = any_question(random, kind)
        monkeypatch.undo()
        whole = asked.ask("asked", replace(question, limit=10_000))
        assert whole.next_page is None
        for reverse in (False, True):
            monkeypatch.setattr(query_answers, "SCAN_ENTRIES", random.choice([1, 2, 7, 10_000]))
            monkeypatch.setattr(asking, "ANSWER_BYTES", random.choice([1, 40, 4_000_000]))
            limit = random.choice([1, 2, 3, 10, 10_000])
            found = asked.rows(replace(question, limit=limit, reverse=reverse))
            assert found == (whole.rows[::-1] if reverse else whole.rows), (seed, question)


@pytest.mark.parametrize("kind", get_args(StoreKind))
def test_what_changes_between_pages_moves_nothing_else(
    kind: StoreKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(60):
        random = Random(seed)
        asked = Asked(kind)
        changing = random.sample(KEYS, len(KEYS) // 2)
        for key in KEYS * 4:
            any_change(asked, random, [key])
        question = any_question(random, kind)
        for reverse in (False, True):
            monkeypatch.undo()
            whole = asked.ask("asked", replace(question, limit=10_000, reverse=reverse))
            monkeypatch.setattr(query_answers, "SCAN_ENTRIES", random.choice([1, 2, 10_000]))
            limit = random.choice([1, 2, 3])
            found = asked.rows(
                replace(question, limit=limit, reverse=reverse),
                between=partial(any_change, asked, random, changing),
            )
            steady = [row for row in whole.rows if row.key not in changing]
            assert [row for row in found if row.key not in changing] == steady, (seed, question)
            # Who asks for a key twice gets its rows twice.
            times = max((question.keys.count(key) for key in KEYS), default=1) or 1
            names = Counter((row.key, row.start, row.end) for row in found)
            assert max(names.values(), default=0) <= times, (seed, question)
