"""What a worker makes of the rows that Spark gives it: whose they are, in which order, how far."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest

from penstock.instance.answers import answers
from penstock.instance.protocol import CommitHeader, ReadHeader, Reply, decode
from penstock.instance.server import Server
from penstock.pipeline import worker
from penstock.pipeline.jobs import pickle_sub_topology
from penstock.pipeline.orders import Address, BatchOrder, Outcome, SliceOrder
from penstock.pipeline.worker import in_order, run_batch
from penstock.processors import Limits, Records, SliceResult
from penstock.processors.depth_first.record import Shared
from penstock.processors.depth_first.steps import Step
from penstock.processors.outputs import Changes, Outputs
from penstock.serdes.windowed import window_key
from penstock.stores.memory import MemoryStore
from penstock.stores.segments import SegmentedStore
from tests.unit.slices import build

Row = tuple[str, int, int]
"""Topic, partition, offset."""
TOPICS = ("a", "b")


class Instance:
    """Notes commits, and answers reads from one store."""

    def __init__(self) -> None:
        self.commits: list[CommitHeader] = []
        self.store = SegmentedStore(
            MemoryStore("windows"), kind="window", retention_ms=1000, segment_ms=60, indexed=True
        )

    def read(self, header: ReadHeader, questions: pa.Table) -> Iterator[pa.RecordBatch | Reply]:
        yield from answers(self.store, header.question, questions)
        yield Reply(status="ok" if header.n == 1 else "done", n=1, metadata={"said": "before"})

    def commit(self, header: CommitHeader, batches: Iterator[pa.RecordBatch]) -> Reply:
        for _ in batches:
            pass
        self.commits.append(header)
        return Reply(status="ok", n=header.n, position=header.end, metadata=header.metadata)


class Run:
    """Stands where the operators stand, and notes what reaches them."""

    made: ClassVar[list[Run]] = []
    ends: ClassVar[dict[tuple[str, int], int]] = {}
    look: ClassVar[Callable[[Any], object]] = staticmethod(lambda state: None)

    def __init__(self, sub_topology: object, *, state: Any, metadata: Any, **rest: Any) -> None:
        self.rows: list[Row] = []
        self.state = state
        self.metadata = metadata
        self.more: Collection[tuple[str, int]] = ()
        self.seen: object = None
        Run.made.append(self)

    def process(self, records: Records) -> None:
        self.rows += [(records.topic, records.partition, int(o)) for o in records.offsets]

    def finish(self, *, more: Collection[tuple[str, int]] = ()) -> SliceResult:
        self.more = more
        self.seen = Run.look(self.state)
        ends = {k: end for k, end in Run.ends.items() if self.rows and k[1] == self.rows[0][1]}
        return SliceResult(
            changes=Changes(()).result(),
            outputs=Outputs((), 0).result(),
            dropped={},
            metadata={**self.metadata, "rows": str(len(self.rows))},
            ends=ends,
        )


@pytest.fixture
def instance() -> Instance:
    return Instance()


@pytest.fixture
def location(tmp_path: Path, instance: Instance, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(worker, "start_slice", Run)
    monkeypatch.setattr(Run, "made", [])
    place = f"grpc+unix://{tmp_path}/s"
    server = Server(place, token="t", actions={}, rows=instance)
    yield place
    worker._clients.drop(place)
    server.shutdown()


def order(location: str, ends: dict[str, int], *, partitions: int = 2, n: int = 1) -> BatchOrder:
    """Each task's range is 0 to these ends in each topic; of topic a there is more in Kafka."""
    address = Address(host=os.uname().nodename, unix_location=location, tcp_location="")
    return BatchOrder(
        application_id="app",
        sub_topology=pickle_sub_topology(build(lambda s: s.to("out")).sub_topologies[0]),
        slices={
            partition: SliceOrder(
                task=f"0_{partition}",
                epoch=(1, 1),
                n=n,
                start={topic: {partition: 0} for topic in ends},
                end={topic: {partition: end} for topic, end in ends.items()},
                address=address,
                metadata={"said": "before"},
                more=frozenset({("a", partition)}),
            )
            for partition in range(partitions)
        },
        limits=Limits(cache_max_bytes=0),
        token="t",
        timeout_seconds=20,
    )


def batch(rows: list[Row], *, with_topic: bool) -> pa.RecordBatch:
    columns: dict[str, pa.Array] = {
        "partition": pa.array([row[1] for row in rows], pa.int32()),
        "offset": pa.array([row[2] for row in rows], pa.int64()),
        "timestamp": pa.array([row[2] for row in rows], pa.int64()),
        "key": pa.array([b"k"] * len(rows), pa.binary()),
        "value": pa.array([b"v"] * len(rows), pa.binary()),
    }
    if with_topic:
        columns["topic"] = pa.array([TOPICS.index(row[0]) for row in rows], pa.int32())
    return pa.record_batch(columns)


def outcomes(order: BatchOrder, *batches: pa.RecordBatch) -> dict[str, Outcome]:
    [told] = run_batch(order, iter(batches))
    found = [decode(data, Outcome) for data in told.column(0).to_pylist()]
    return {each.task: each for each in found}


def test_inputs_of_a_task_meet_however_their_rows_come(location: str, instance: Instance) -> None:
    one = batch([("a", 0, 0), ("a", 0, 1), ("a", 1, 0), ("b", 0, 0)], with_topic=True)
    two = batch([("b", 0, 2), ("b", 1, 5), ("a", 0, 2)], with_topic=True)
    found = outcomes(
        order(location, {"a": 3, "b": 9}), one, pa.RecordBatch.from_pylist([], one.schema), two
    )
    runs = {run.rows[0][1]: run for run in Run.made}
    assert len(Run.made) == 2
    assert runs[0].rows == [("a", 0, 0), ("a", 0, 1), ("a", 0, 2), ("b", 0, 0), ("b", 0, 2)]
    assert runs[1].rows == [("a", 1, 0), ("b", 1, 5)]
    assert runs[1].more == {("a", 1)}
    assert found["0_0"].records == 5
    assert found["0_0"].metadata == {"said": "before", "rows": "5"}
    ends = {header.task: header.end for header in instance.commits}
    assert ends == {"0_0": {"a": {0: 3}, "b": {0: 9}}, "0_1": {"a": {1: 3}, "b": {1: 9}}}


def test_a_commit_goes_no_further_than_the_operators_went(
    location: str, instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Run, "ends", {("b", 0): 2})
    rows = [("a", 0, 0), ("b", 0, 0), ("b", 0, 2), ("b", 0, 4), ("a", 1, 1), ("b", 1, 2)]
    found = outcomes(order(location, {"a": 3, "b": 9}), batch(rows, with_topic=True))
    assert found["0_0"].position == {"a": {0: 3}, "b": {0: 2}}
    assert found["0_0"].records == 2
    assert found["0_1"].position == {"a": {1: 3}, "b": {1: 9}}
    assert found["0_1"].records == 2


def test_rows_of_one_topic_need_not_name_it(location: str, instance: Instance) -> None:
    """Also of a sub-topology with several topics, where the others have nothing new."""
    rows = [("a", 0, 0), ("a", 0, 1), ("a", 1, 0)]
    found = outcomes(order(location, {"a": 3, "b": 0}), batch(rows, with_topic=False))
    assert [run.rows for run in Run.made] == [rows[:2], rows[2:]]
    assert found["0_1"].position == {"a": {1: 3}, "b": {1: 0}}


def test_a_task_without_records_is_run_and_committed_when_a_row_says_so(
    location: str, instance: Instance
) -> None:
    ordered = order(location, {})
    assert (ordered.topics, ordered.ticks) == ((), (0, 1))
    found = outcomes(ordered, batch([("a", 0, -1), ("a", 1, -1)], with_topic=False))
    assert [run.rows for run in Run.made] == [[], []]
    assert {task: (each.status, each.records) for task, each in found.items()} == {
        "0_0": ("committed", 0),
        "0_1": ("committed", 0),
    }
    assert sorted((each.task, each.rows) for each in instance.commits) == [("0_0", 0), ("0_1", 0)]


def test_records_of_other_tasks_may_come_with_it(location: str) -> None:
    rows = [("a", 0, 0), ("b", 0, 0), ("a", 1, -1)]
    outcomes(order(location, {"a": 3, "b": 9}), batch(rows, with_topic=True))
    assert sorted(run.rows for run in Run.made) == [[], rows[:2]]


def test_an_input_that_a_shuffle_disordered_is_put_in_order() -> None:
    first = batch([("a", 0, 5), ("a", 0, 6)], with_topic=True)
    second = batch([("a", 0, 1), ("a", 0, 3)], with_topic=True)
    assert in_order([second, first]) == [second, first]
    [ordered] = in_order([first, second])
    assert ordered.column("offset").to_pylist() == [1, 3, 5, 6]


def test_operators_can_ask_for_windows_ranges_and_times(
    location: str, instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = [(window_key(key, start), b"%d" % start) for key in (b"x", b"y") for start in (0, 9)]
    instance.store.apply(entries, offset=0)

    def look(state: Any) -> object:
        return (
            state.get_many(
                "windows", pa.array([entries[1][0], b"none" * 4], pa.binary())
            ).to_pylist(),
            state.fetch_many("windows", [(b"y", 1, 9), (b"z", 0, 9), (b"x", 0, 9)]),
            state.fetch_many("windows", []),
            state.range_many("windows", [(b"y", None), (None, b"y")]),
            state.fetch_times("windows", 9, 9),
        )

    monkeypatch.setattr(Run, "look", staticmethod(look))
    outcomes(order(location, {"a": 3}, partitions=1), batch([("a", 0, 0)], with_topic=False))
    x0, x9, y0, y9 = entries
    assert Run.made[0].seen == (
        [b"9", None],
        [[y9], [], [x0, x9]],
        [],
        [[y0, y9], [x0, x9]],
        [x9, y9],
    )


@pytest.mark.parametrize("keys", [[b"y", b"z", b"x"], [b"z"]])
def test_operators_can_ask_for_windows_in_columns(
    location: str, instance: Instance, monkeypatch: pytest.MonkeyPatch, keys: list[bytes]
) -> None:
    entries = [(window_key(key, start), b"%d" % start) for key in (b"x", b"y") for start in (0, 9)]
    instance.store.apply(entries, offset=0)
    first, last = np.arange(len(keys)), np.full(len(keys), 9)

    def look(state: Any) -> object:
        found = state.fetch_columns("windows", pa.array(keys, pa.binary()), first, last)
        each = state.fetch_many("windows", list(zip(keys, first, last, strict=True)))
        columns = [found.questions.tolist(), found.keys.to_pylist(), found.values.to_pylist()]
        numbered = [(n, *entry) for n, answer in enumerate(each) for entry in answer]
        return list(zip(*columns, strict=True)), numbered

    monkeypatch.setattr(Run, "look", staticmethod(look))
    outcomes(order(location, {"a": 3}, partitions=1), batch([("a", 0, 0)], with_topic=False))
    columns, numbered = Run.made[0].seen
    assert columns == numbered
    # Of y from 0 on and of x from 2 on.
    assert len(columns) == (3 if b"y" in keys else 0)


def test_a_slice_that_was_done_before_is_told_as_such(
    location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Run, "look", staticmethod(lambda state: state.fetch_times("windows", 0, 9)))
    ordered = order(location, {"a": 3}, partitions=1, n=0)
    found = outcomes(ordered, batch([("a", 0, 0)], with_topic=False))
    assert (found["0_0"].status, found["0_0"].n) == ("committed", 1)
    assert found["0_0"].metadata == {"said": "before"}


def test_a_processor_whose_read_is_stopped_is_not_taken_for_one_that_failed(
    location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = Step("processor", Shared({}, now_ms=0))
    read = staticmethod(lambda state: step.call(state.fetch_times, "windows", 0, 9))
    monkeypatch.setattr(Run, "look", read)
    ordered = order(location, {"a": 3}, partitions=1, n=0)
    found = outcomes(ordered, batch([("a", 0, 0)], with_topic=False))
    assert found["0_0"].status == "committed"


def test_an_instance_that_did_not_answer_is_not_asked_again_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker, "_silent", {"grpc://there": 10.0})
    assert worker.is_silent("grpc://there", 11.9)
    assert not worker.is_silent("grpc://elsewhere", 11.9)
    # It may well be back: the next task tries.
    assert not worker.is_silent("grpc://there", 12.1)
    assert not worker.is_silent("grpc://there", 11.9)


def test_a_task_whose_owner_said_goodbye_is_skipped_and_others_are_not(
    location: str, instance: Instance
) -> None:
    ordered = order(location, {"a": 3})
    nowhere = Address(host="", unix_location="", tcp_location="")
    slices = {**ordered.slices, 1: replace(ordered.slices[1], address=nowhere)}
    rows = [("a", 0, 0), ("a", 1, 0)]
    found = outcomes(replace(ordered, slices=slices), batch(rows, with_topic=False))
    assert (found["0_0"].status, found["0_1"].status) == ("committed", "skipped")
    assert "goodbye" in found["0_1"].reason
