"""Goal: what is known of Kafka Streams' results is what the oracle says, and what Penstock gives.

Method: the tables of known.py go through Kafka Streams, and through Penstock's test driver.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.known import KNOWN, Known
from tests.conformance.oracle import Oracle


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    with Oracle() as running:
        yield running


@pytest.mark.parametrize("known", KNOWN, ids=lambda known: known.name)
def test_kafka_streams_gives_the_known_results(oracle: Oracle, known: Known) -> None:
    assert known.shown(oracle.ask(known.case)) == known.expected
