"""Goal: what is known of Kafka Streams' results is what the oracle says.

Method: the tables of known.py go through Kafka Streams itself, as data; and some cases go through
its own stores as well as through the quick ones.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.cases import make_case
from tests.conformance.known import KNOWN
from tests.conformance.known_case import Known
from tests.conformance.oracle import Oracle


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    with Oracle() as running:
        yield running


@pytest.mark.parametrize("known", KNOWN, ids=lambda known: known.name)
def test_kafka_streams_gives_the_known_results(oracle: Oracle, known: Known) -> None:
    answer = oracle.ask(known.case)
    assert known.shown(answer) == known.expected
    assert known.shown_store(answer) == known.held


@pytest.mark.parametrize("seed", [3, 4, 5, 6, 7, 11, 12, 14])
def test_quick_stores_answer_as_kafka_streams_own_do(oracle: Oracle, seed: int) -> None:
    case = make_case(seed)
    assert oracle.ask(case) == oracle.ask(case, full_stores=True)
