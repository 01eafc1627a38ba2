"""Goal: a record that nobody can decode in a global table's topic is for the handler, wherever the
row is read, in the test driver and in a slice over what an instance copied.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import penstock as ps
from penstock.errors import DeserializationError
from penstock.testing import TopologyTestDriver

GOOD, BAD = (5).to_bytes(8, "big"), b"xyz"


class Looks(ps.Processor[str, str, str, str]):
    """Forwards what the table says of the value, in every way of asking."""

    def process(self, record: ps.Record[str, str]) -> None:
        """Take a record."""
        store = self.context.store("rows")
        found = [store.get(record.value), store.timestamp(record.value)]
        several = [list(store.all()), list(store.reverse_all()), list(store.prefix_scan("b", str))]
        self.context.forward(record.with_value(f"{found} {several}"))


def joined(app: ps.Application, *, left: bool = False) -> None:
    table = app.global_table("g", "rows", key=str, value=int)
    stream = app.stream("in", key=str, value=str)
    join = stream.left_join if left else stream.join
    join(
        table, lambda v, row: f"{v}:{row}", key_selector=lambda k, v: v, value=str, name="look-up"
    ).to("out")


def left_joined(app: ps.Application) -> None:
    joined(app, left=True)


def processed(app: ps.Application) -> None:
    app.global_table("g", "rows", key=str, value=int)
    stream = app.stream("in", key=str, value=str)
    stream.process(Looks, stores=["rows"], key=str, value=str, name="look-up").to("out")


def driver(program: Callable[[ps.Application], None], handler: Any) -> TopologyTestDriver:
    app = ps.Application(
        "app",
        deserialization_exception_handler=handler,
        errors_dead_letter_queue_topic_name="dead" if handler == "dead_letter" else "",
    )
    program(app)
    made = TopologyTestDriver(app)
    table = made.input_topic("g", key=bytes, value=bytes)
    table.pipe(b"good", GOOD, timestamp=7)
    table.pipe(b"bad", GOOD, timestamp=8)
    # The copy of a topic has the latest bytes of a key, whatever they mean.
    table.pipe(b"bad", BAD, timestamp=9)
    return made


def results(made: TopologyTestDriver, *asked: str) -> list[Any]:
    topic = made.input_topic("in", key=str, value=str)
    for each in asked:
        topic.pipe("k", each)
    return [value for _, value in made.output_topic("out", key=str, value=str).read_pairs()]


@pytest.mark.parametrize("program", [joined, left_joined, processed])
def test_fail_names_the_table_and_the_key(program: Callable[[ps.Application], None]) -> None:
    made = driver(program, "fail")
    if program is not processed:
        assert results(made, "good") == ["good:5"]
    with pytest.raises(DeserializationError, match="long") as raised:
        results(made, "bad")
    assert raised.value.where == {"topic": "g", "step": "look-up", "store": "rows", "key": "'bad'"}


@pytest.mark.parametrize(
    ("program", "expected"),
    [(joined, ["good:5", "good:5"]), (left_joined, ["good:5", "bad:None", "good:5"])],
)
def test_a_row_that_is_skipped_counts_as_not_there(
    program: Callable[[ps.Application], None], expected: list[str]
) -> None:
    made = driver(program, "continue")
    assert not made.dropped
    assert results(made, "good", "bad", "good") == expected
    assert made.dropped == {"undecodable": 1}


def test_a_processor_sees_only_what_can_be_decoded_and_each_bad_row_counts_once() -> None:
    made = driver(processed, "continue")
    rows = "[('good', 5)]"
    assert results(made, "bad") == [f"[None, None] [{rows}, {rows}, []]"]
    assert made.dropped == {"undecodable": 1}
    # A slice of its own for each record, in a test driver.
    assert results(made, "good") == [f"[5, 7] [{rows}, {rows}, []]"]
    assert made.dropped == {"undecodable": 2}


def test_a_key_that_cannot_be_decoded_is_met_by_scans() -> None:
    made = driver(processed, "continue")
    made.input_topic("g", key=bytes, value=bytes).pipe(b"\xff", GOOD)
    rows = "[('good', 5)]"
    assert results(made, "good") == [f"[5, 7] [{rows}, {rows}, []]"]
    assert made.dropped == {"undecodable": 2}
    made = driver(processed, "fail")
    made.input_topic("g", key=bytes, value=bytes).pipe(b"bad", GOOD)
    made.input_topic("g", key=bytes, value=bytes).pipe(b"\xff", GOOD)
    with pytest.raises(DeserializationError) as raised:
        results(made, "good")
    assert raised.value.where["key"] == "0xff"


@pytest.mark.parametrize("program", [joined, processed])
def test_a_dead_letter_has_the_rows_bytes(program: Callable[[ps.Application], None]) -> None:
    made = driver(program, "dead_letter")
    results(made, "bad")
    (letter,) = made.output_topic("dead", key=bytes, value=bytes).read_all()
    assert (letter.key, letter.value, letter.timestamp) == (b"bad", BAD, 9)
    told = dict(letter.headers)
    assert told["__streams.errors.topic"] == b"g"
    assert told["__streams.errors.offset"] == b"-1"
    assert made.dropped == {"undecodable": 1}
