"""Goal: bytes are Kafka's, columns equal single values, and what is not decodable is refused."""

from __future__ import annotations

import math
import pickle
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import TopologyError
from penstock.serdes import Serde, serde_of


@dataclass(frozen=True)
class Pulse:
    bpm: int
    where: str = "ward"


class Reading(msgspec.Struct):
    celsius: float


@dataclass(frozen=True)
class Reversed(Serde[str]):
    name = "reversed"

    def serialize(self, value: str) -> bytes:
        return value.encode()[::-1]

    def deserialize(self, data: bytes) -> str:
        return data[::-1].decode()


@pytest.mark.parametrize(
    ("kind", "value", "data"),
    [
        (bytes, b"\x00\xff", b"\x00\xff"),
        (str, "Zürich", b"Z\xc3\xbcrich"),
        (int, 258, b"\x00\x00\x00\x00\x00\x00\x01\x02"),
        (int, -1, b"\xff" * 8),
        (float, 1.0, b"\x3f\xf0\x00\x00\x00\x00\x00\x00"),
        (bool, True, b"\x01"),
        (Pulse, Pulse(72), b'{"bpm":72,"where":"ward"}'),
        (Reading, Reading(36.5), b'{"celsius":36.5}'),
        (dict[str, int], {"a": 1}, b'{"a":1}'),
        (list, [1, "x"], b'[1,"x"]'),
        (int | None, 1, b"\x00\x00\x00\x00\x00\x00\x00\x01"),
        (Reversed(), "abc", b"cba"),
    ],
)
def test_bytes_are_kafkas(kind: Any, value: Any, data: bytes) -> None:
    serde = serde_of(kind)
    assert serde.serialize(value) == data
    assert serde.deserialize(data) == value
    again = pickle.loads(pickle.dumps(serde))
    assert again == serde
    assert again.deserialize(data) == value


VALUES: dict[Any, st.SearchStrategy[Any]] = {
    bytes: st.binary(max_size=12),
    str: st.text(max_size=12),
    int: st.integers(-(2**63), 2**63 - 1),
    float: st.floats(allow_nan=False),
    bool: st.booleans(),
    list[int]: st.lists(st.integers(-5, 5), max_size=3),
}


@pytest.mark.parametrize("kind", VALUES, ids=str)
@settings(deadline=None)
@given(data=st.data())
def test_columns_equal_single_values(kind: Any, data: st.DataObject) -> None:
    serde: Serde[Any] = serde_of(kind)
    values = data.draw(st.lists(st.one_of(st.none(), VALUES[kind]), max_size=20))
    skip = data.draw(st.integers(0, len(values)))
    column = serde.serialize_column(values)
    assert column.type == pa.binary()
    assert column.to_pylist() == [None if v is None else serde.serialize(v) for v in values]
    # A slice begins inside its buffers.
    assert serde.deserialize_column(column[skip:]) == values[skip:]
    serde.check_column(column[skip:])


@pytest.mark.parametrize(
    ("kind", "bad"),
    [
        (str, b"\xff\xfe"),
        (int, b"123"),
        (int, b""),
        (float, b"123456789"),
        (bool, b"\x02"),
        (Pulse, b'{"bpm":"fast"}'),
        (Pulse, b"{"),
    ],
)
def test_undecodable_bytes_raise_value_error(kind: Any, bad: bytes) -> None:
    serde = serde_of(kind)
    good = {str: b"ok", int: b"\x00" * 8, float: b"\x00" * 8, bool: b"\x01", Pulse: b'{"bpm":1}'}
    with pytest.raises(ValueError, match=r".*"):
        serde.deserialize(bad)
    column = pa.array([good[kind], bad, None], pa.binary())
    with pytest.raises(ValueError, match=r".*"):
        serde.check_column(column)
    with pytest.raises(ValueError, match=r".*"):
        serde.deserialize_column(column)


@pytest.mark.parametrize(
    ("kind", "value"), [(bytes, "text"), (str, b"bytes"), (int, "1"), (int, 2**63), (bool, 1)]
)
def test_a_value_of_another_type_is_refused(kind: Any, value: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        serde_of(kind).serialize(value)


def test_not_a_number_is_a_value_and_no_null() -> None:
    column = serde_of(float).serialize_column([math.nan, None])
    assert column.null_count == 1
    first, second = serde_of(float).deserialize_column(column)
    assert first is not None
    assert math.isnan(first)
    assert second is None


def test_a_type_without_serde_is_named() -> None:
    with pytest.raises(TopologyError, match="no serde for <class 'complex'>"):
        serde_of(complex)
    with pytest.raises(TopologyError, match="no serde"):
        serde_of(int | str)  # type: ignore[arg-type]
