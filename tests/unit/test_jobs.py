"""What travels to workers."""

from __future__ import annotations

import pickle
from dataclasses import dataclass

from pyspark import cloudpickle

from penstock.pipeline.jobs import pickle_sub_topology, travelling_handler
from penstock.serdes import serde_of
from penstock.topology import Record, RecordFailure, StreamsBuilder


def test_a_dataclass_of_the_program_travels_after_its_serde_was_used() -> None:
    # A class inside a function is pickled whole, as those of a program's own file are.
    @dataclass(frozen=True)
    class Beat:
        bpm: int

    builder = StreamsBuilder()
    builder.stream("beats", key=str, value=Beat).map_values(lambda beat: Beat(beat.bpm + 1)).to(
        "more", value=Beat
    )
    (sub,) = builder.build().sub_topologies
    serde = sub.sources[0].value_serde
    assert serde.deserialize(serde.serialize(Beat(1))) == Beat(1)
    again = cloudpickle.loads(pickle_sub_topology(sub)).sources[0].value_serde
    assert again.deserialize(b'{"bpm":1}').bpm == 1
    assert serde.deserialize(b'{"bpm":2}') == Beat(2)
    assert pickle_sub_topology(sub)


def test_a_handler_of_failures_travels_with_what_it_refers_to() -> None:
    @dataclass(frozen=True)
    class Beat:
        bpm: int

    serde = serde_of(Beat)
    assert serde.deserialize(serde.serialize(Beat(1))) == Beat(1)

    def decide(failure: RecordFailure) -> str:
        beat = failure.record and failure.record.value
        return "continue" if beat == Beat(0).bpm else "fail"

    travelling = travelling_handler(decide)  # type: ignore[arg-type]
    # Spark's own closure carries it as any other object.
    again = pickle.loads(pickle.dumps(travelling))
    assert callable(again)
    failed = [
        RecordFailure(
            error=ValueError(), step="s", record=Record("k", n, 0), topic="t", partition=0, offset=n
        )
        for n in (0, 1)
    ]
    assert [again(each) for each in failed] == ["continue", "fail"]
    assert travelling_handler("continue") == "continue"
