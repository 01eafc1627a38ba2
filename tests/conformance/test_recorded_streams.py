"""Goal: caching, the order between inputs, and waiting results are those of a real KafkaStreams.

Method: replay recorded runs (record_streams.py made them) in Penstock's own tasks, each recorded
commit as one slice of each task; no Java and no Kafka runs here.
"""

from __future__ import annotations

from collections import Counter

import pytest

from penstock.processors import choice
from penstock.processors.aggregate import AggregateRun
from tests.conformance.compare_streams import Answer, replayed, streams_difference
from tests.conformance.record_streams import recorded_streams
from tests.conformance.streams_cases import KINDS, StreamsCase, make_streams_case
from tests.conformance.tasks import Row, Tasks

RECORDED = list(recorded_streams())
CASES = [pytest.param(case, answer, id=f"{case.kind}-{case.seed}") for case, answer in RECORDED]
UNCACHED = [
    pytest.param(case, answer, id=f"{case.kind}-{case.seed}")
    for case, answer in RECORDED
    if case.cache == 0
]


@pytest.fixture(autouse=True)
def columns_for_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a few records be joined as many are."""
    monkeypatch.setattr(choice, "FEW_RECORDS", 0)


@pytest.mark.parametrize(("case", "answer"), CASES)
def test_a_slice_gives_what_kafka_streams_gave(case: StreamsCase, answer: Answer) -> None:
    assert streams_difference(case, answer) is None


@pytest.mark.parametrize(("case", "answer"), CASES)
def test_so_it_does_record_by_record(
    case: StreamsCase, answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choice, "runs_in_columns", lambda _: False)
    assert streams_difference(case, answer) is None


@pytest.mark.parametrize(("case", "answer"), UNCACHED)
def test_slices_of_any_size_take_records_in_one_order(case: StreamsCase, answer: Answer) -> None:
    """Where a slice cuts an input short, the others wait for what Kafka still holds of it."""
    whole, _ = replayed(case, answer)
    for size in (2, 7, 20):
        sliced, _ = replayed(case, answer, slice_records=size)
        for topic, partitions in whole.topics.items():
            # A suppress buffer's changelog has what is there at the end of each slice.
            assert sliced.topics[topic] == partitions or topic.endswith("-calm-store-changelog")


@pytest.mark.parametrize("seed", [20, 790, 3772])
def test_looks_into_a_table_count_as_use_of_its_cache(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a real KafkaStreams has it in these cases, whose caches are too small for the table."""
    case = make_streams_case(seed)
    [changelog] = [f"{case.id}-{step['store']}-changelog" for step in case.steps if "store" in step]

    def told() -> list[list[Row]]:
        tasks = Tasks(case)
        for phase in case.phases:
            tasks.write(phase)
            tasks.run_to(tasks.ends())
        return tasks.topics[changelog]

    in_columns = told()
    with monkeypatch.context() as without:
        without.setattr(AggregateRun, "looked_up", lambda self, looks: None)
        blind = told()
    monkeypatch.setattr(choice, "runs_in_columns", lambda _: False)
    assert told() == in_columns
    assert (blind == in_columns) == (seed == 20)


def test_enough_is_recorded() -> None:
    assert len(RECORDED) >= 100
    kinds = Counter(case.kind for case, _ in RECORDED)
    assert set(kinds) == set(KINDS)
    assert all(any(answer["topics"].values()) for _, answer in RECORDED)
