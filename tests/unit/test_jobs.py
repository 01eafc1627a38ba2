"""What travels to workers."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark import cloudpickle

from penstock.pipeline.jobs import pickle_sub_topology
from penstock.topology import StreamsBuilder


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
