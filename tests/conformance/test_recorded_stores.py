"""What processors find in their stores is what Kafka Streams' stores answered, recorded."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.conformance.record import recorded_stores
from tests.conformance.store_commands import StoreCase, run_store_case

CASES = list(recorded_stores())


@pytest.mark.parametrize(("case", "answer"), CASES, ids=[str(case.seed) for case, _ in CASES])
def test_stores_answer_as_kafka_streams_own_do(case: StoreCase, answer: dict[str, object]) -> None:
    assert run_store_case(case) == answer


def test_every_kind_of_store_is_asked_everything() -> None:
    asked: dict[str, Counter[str]] = {}
    for case, _ in CASES:
        names = (command[0] for _, commands in case.commands for command in commands)
        asked.setdefault(case.store.kind, Counter()).update(names)
    assert {kind: len(names) for kind, names in asked.items()} == {
        "key_value": 11,
        "window": 10,
        "session": 11,
    }
    assert min(count for names in asked.values() for count in names.values()) >= 10
