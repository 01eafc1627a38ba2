"""`collect`: the values of a key, as they were."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

import penstock as ps
from penstock.errors import SerdeMissingError
from penstock.serdes import ListSerde, serde_of
from penstock.testing import TopologyTestDriver


@dataclass(frozen=True)
class Point:
    """A value with a value inside."""

    x: int
    tags: tuple[str, ...] = ()
    next: Point | None = None


SOME: dict[str, tuple[Any, list[Any]]] = {
    "dataclass": (Point, [Point(1, ("a",)), Point(2, next=Point(3))]),
    "bytes": (bytes, [b"\x00\xff", b"", b"{}"]),
    "float": (float, [0.1, float("inf"), -0.0]),
    "int": (int, [2**62, -1]),
    "uuid": (UUID, [UUID(int=1), UUID(int=2)]),
    "time": (datetime, [datetime(2024, 2, 29, tzinfo=UTC)]),
    "nested": (dict[str, list[int]], [{"a": [1]}, {}]),
}
WINDOWS = {
    "none": None,
    "tumbling": ps.tumbling(timedelta(seconds=1), grace=timedelta(0)),
    "session": ps.session(timedelta(seconds=1), grace=timedelta(0)),
}


@pytest.mark.parametrize("windows", WINDOWS)
@pytest.mark.parametrize("kind", SOME)
def test_values_come_back_as_they_were(kind: str, windows: str) -> None:
    value, values = SOME[kind]
    builder = ps.StreamsBuilder()
    grouped: Any = builder.stream("in", key=str, value=value).group_by_key()
    if (chosen := WINDOWS[windows]) is not None:
        grouped = grouped.windowed_by(chosen)
    seen: list[Any] = []
    lists = grouped.collect("lists").to_stream()
    lists.foreach(lambda key, held: seen.append(held))
    lists.map(lambda key, held: ("all", held), key=str, value=ListSerde(serde_of(value))).to("out")
    driver = TopologyTestDriver(builder.build())
    driver.input_topic("in", key=str, value=value).pipe_all([("a", each) for each in values])
    [held] = driver.store("lists").values()
    assert held == values
    assert [type(each) for each in held] == [type(each) for each in values]
    # Of sessions the one that grew is told as deleted in between.
    assert [each for each in seen if each is not None][-1] == values
    out = driver.output_topic("out", key=str, value=ListSerde(serde_of(value))).read_pairs()
    assert out[-1] == ("all", values)


def test_a_type_that_nobody_said_is_asked_for() -> None:
    stream = ps.StreamsBuilder().stream("in", key=str, value=str).map_values(lambda text: text)
    with pytest.raises(SerdeMissingError, match="collect"):
        stream.group_by_key().collect("lists")


@pytest.mark.parametrize("kind", [int, str])
def test_a_list_that_holds_nulls_goes_on_where_it_was(kind: type) -> None:
    serde: ListSerde[Any] = ListSerde(serde_of(kind))
    values = [None, kind(1), None, kind(2)]
    opened = serde.opened(serde.serialize(values))
    assert serde.serialize(values) == opened.head + struct.pack(">i", 4) + opened.body
    assert serde.opened(None) == serde.opened(serde.serialize([]))


@pytest.mark.parametrize("kind", [int, str])
@pytest.mark.parametrize("change", [lambda data: data[:4], lambda data: data[:-1], lambda _: b"x"])
def test_bytes_that_are_no_list_are_refused(kind: type, change: Any) -> None:
    serde: ListSerde[Any] = ListSerde(serde_of(kind))
    with pytest.raises(ValueError, match="list"):
        serde.opened(change(serde.serialize([kind(0)])[: 9 if kind is str else None]))


def test_a_list_of_items_with_lengths_is_read_where_their_length_is_known() -> None:
    """Java writes one so where it was told to; it is written the other way again."""
    texts = ListSerde(serde_of(bytes)).serialize([(7).to_bytes(8, "big")])
    numbers: ListSerde[Any] = ListSerde(serde_of(int))
    opened = numbers.opened(texts)
    assert opened == numbers.opened(numbers.serialize([7]))
