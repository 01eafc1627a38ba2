"""Stores of limited size: what goes, and that it goes from the changelog too."""

from __future__ import annotations

from collections import OrderedDict

from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.processors import Limits, RecordRun
from penstock.testing import TopologyTestDriver
from penstock.testing.stores import DriverState
from penstock.topology import StoreSpec
from tests.unit.slices import Row, records


def _counts(max_entries: int) -> TopologyTestDriver:
    app = ps.Application("recent")
    words = app.stream("words", key=str, value=str)
    words.group_by_key().count("counts", max_entries=max_entries).to_stream().to("out")
    return TopologyTestDriver(app)


@given(st.lists(st.sampled_from("abcdefg"), max_size=40), st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_the_key_that_was_not_used_for_longest_goes(words: list[str], most: int) -> None:
    driver = _counts(most)
    model: OrderedDict[str, int] = OrderedDict()
    topic = driver.input_topic("words", key=str, value=str)
    expected = []
    for word in words:
        topic.pipe(word, "x")
        model[word] = model.pop(word, 0) + 1
        if len(model) > most:
            model.popitem(last=False)
        expected.append((word, model[word]))
    assert driver.output_topic("out", key=str, value=int).read_pairs() == expected
    assert dict(driver.store("counts")) == dict(model)


def test_reading_keeps_a_key_too() -> None:
    class Reads(ps.Processor[str, str, str, str]):
        def process(self, record: ps.Record[str, str]) -> None:
            recent = self.context.store("recent")
            if record.value == "read":
                recent.get(record.key)
            else:
                recent.put(record.key, record.value)

    app = ps.Application("reads")
    app.add_state_store(ps.lru_store("recent", key=str, value=str, max_entries=2))
    app.stream("in", key=str, value=str).process(Reads, stores=["recent"])
    driver = TopologyTestDriver(app)
    topic = driver.input_topic("in", key=str, value=str)
    topic.pipe_all([("a", "1"), ("b", "2"), ("a", "read"), ("c", "3")])
    assert dict(driver.store("recent")) == {"a": "1", "c": "3"}


def test_a_limit_that_was_lowered_holds_from_the_next_write_on() -> None:
    def written(most: int, word: str) -> list[bytes]:
        """Count a word in a store of so many entries; which keys went."""
        builder = ps.StreamsBuilder()
        words = builder.stream("in", key=str, value=str)
        words.group_by_key().count("counts", max_entries=most).to_stream().to("out")
        [sub] = builder.build().sub_topologies
        specs.update({spec.name: spec for spec in sub.stores})
        limits = Limits(cache_max_bytes=0, partition_counts={"out": 1})
        run = RecordRun(sub, application_id="app", state=state, limits=limits, metadata={})
        run.process(records([Row(0, 0, word.encode(), b"x")]))
        changes = run.finish().changes
        state.apply(changes)
        rows = changes.to_pylist()
        return [row["key"] for row in rows if row["store"] == "counts" and row["value"] is None]

    specs: dict[str, StoreSpec] = {}
    state = DriverState(specs)
    assert [written(9, letter) for letter in "abcde"] == [[]] * 5
    assert written(2, "f") == [b"a", b"b", b"c", b"d"]
    assert list(state.of("counts")) == [b"e", b"f"]
