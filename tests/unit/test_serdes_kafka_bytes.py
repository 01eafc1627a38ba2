"""Goal: lists and windowed keys are Kafka's to the byte, and read as Kafka reads them.

All bytes were written by the serializers of Kafka 4.1.1 (ListSerde, WindowedSerdes, and
WindowKeySchema for stores).
"""

from __future__ import annotations

import pickle
from typing import Any
from uuid import UUID

import pytest

from penstock.serdes import (
    BytesSerde,
    FloatSerde,
    IntegerSerde,
    ListSerde,
    Serde,
    SessionWindowedSerde,
    ShortSerde,
    Windowed,
    WindowedSerde,
    serde_of,
)
from penstock.serdes.windowed import (
    session_key,
    split_session_key,
    split_window_key,
    window_key,
)

LONGS_1_2 = "00000000000000000200000000000000010000000000000002"
NO_LONGS = "000000000000000000"
LISTS: list[tuple[Serde[Any], list[Any], str]] = [
    (
        serde_of(int),
        [1, -1, 258],
        "0000000000000000030000000000000001ffffffffffffffff0000000000000102",
    ),
    (
        serde_of(int),
        [1, None, 2, None],
        "000000000200000001000000030000000400000000000000010000000000000002",
    ),
    (serde_of(int), [], "000000000000000000"),
    (serde_of(int), [None, None], "0000000002000000000000000100000002"),
    (IntegerSerde(), [1, None], "0000000001000000010000000200000001"),
    (ShortSerde(), [1, None, -2], "000000000100000001000000030001fffe"),
    (FloatSerde(), [1.5, None], "000000000100000001000000023fc00000"),
    (serde_of(float), [1.5, None], "000000000100000001000000023ff8000000000000"),
    (
        serde_of(UUID),
        [UUID("0f8fad5b-d9cb-469f-a165-70867728950e"), None],
        "000000000100000001" + "00000002" + b"0f8fad5b-d9cb-469f-a165-70867728950e".hex(),
    ),
    (serde_of(bool), [True, None, False], "01000000030000000101ffffffff0000000100"),
    (serde_of(str), ["a", "", "Zürich"], "0100000003000000016100000000000000075ac3bc72696368"),
    (serde_of(str), ["a", None, "bc", None], "01000000040000000161ffffffff000000026263ffffffff"),
    (serde_of(str), [], "0100000000"),
    (BytesSerde(), [b"\x01\x02", None, b""], "0100000003000000020102ffffffff00000000"),
    (
        ListSerde(serde_of(int)),
        [[1, 2], [], None],
        "0100000003" + "00000019" + LONGS_1_2 + "00000009" + NO_LONGS + "ffffffff",
    ),
]


@pytest.mark.parametrize(("inner", "value", "data"), LISTS)
def test_lists(inner: Serde[Any], value: list[Any], data: str) -> None:
    lists = ListSerde(inner)
    assert lists.serialize(value).hex() == data
    assert lists.deserialize(bytes.fromhex(data)) == value
    assert pickle.loads(pickle.dumps(lists)) == lists
    assert lists.serialize(tuple(value)).hex() == data


def test_items_of_known_length_are_read_in_either_form_as_java_does() -> None:
    data = bytes.fromhex("0100000001000000080000000000000005")
    assert ListSerde(serde_of(int)).deserialize(data) == [5]


@pytest.mark.parametrize(
    ("inner", "data"),
    [
        (int, ""),
        (int, "02"),
        (int, "00"),
        (int, "0000000000000000020000000000000001"),
        (int, "00000000000000000100000000000000010000000000000002ff"),
        (int, "000000000100000009000000010000000000000001"),
        (int, "00ffffffff00000000"),
        (int, "0000000000ffffffff"),
        (int, "007fffffff"),
        (str, "010000000100000009aa"),
        (str, "0100000001fffffffe"),
        (str, "01000000010000000161ff"),
        (str, "01ffffffff"),
        (str, "017fffffff"),
        (str, "0100000002ffffffff"),
        (str, "0000000000000000010000000161"),
        (str, "010000000100000001ff"),
    ],
)
def test_bytes_that_are_no_list_are_refused(inner: type[Any], data: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        ListSerde(serde_of(inner)).deserialize(bytes.fromhex(data))


WINDOWS = [
    ("a", 0, "610000000000000000"),
    ("a", 1_700_000_000_000, "610000018bcfe56800"),
    ("Zürich", 1_700_000_000_000, "5ac3bc726963680000018bcfe56800"),
    ("", 0, "0000000000000000"),
    # The last window ends with time itself.
    ("a", 2**63 - 11, "617ffffffffffffff5"),
]
MINUTES = WindowedSerde(serde_of(str), 60_000)
SESSIONS = SessionWindowedSerde(serde_of(str))


@pytest.mark.parametrize(("key", "start", "data"), WINDOWS)
def test_windows(key: str, start: int, data: str) -> None:
    window = Windowed(key, start, min(start + 60_000, 2**63 - 1))
    assert MINUTES.serialize(window).hex() == data
    assert MINUTES.deserialize(bytes.fromhex(data)) == window
    stored = window_key(key.encode(), start)
    assert stored.hex() == data + "00000000"
    assert split_window_key(stored) == (key.encode(), start, 0)


def test_windows_of_one_key_and_start_are_told_apart_by_a_number() -> None:
    assert window_key(b"a", 5, 7).hex() == "61000000000000000500000007"
    assert split_window_key(window_key(b"a", 5, 7)) == (b"a", 5, 7)


@pytest.mark.parametrize(
    ("key", "start", "end", "data"),
    [
        ("a", 0, 0, "6100000000000000000000000000000000"),
        ("a", 5, 9, "6100000000000000090000000000000005"),
        (
            "Zürich",
            1_700_000_000_000,
            1_700_000_060_000,
            "5ac3bc726963680000018bcfe652600000018bcfe56800",
        ),
        ("", 5, 9, "00000000000000090000000000000005"),
    ],
)
def test_sessions(key: str, start: int, end: int, data: str) -> None:
    assert SESSIONS.serialize(Windowed(key, start, end)).hex() == data
    assert SESSIONS.deserialize(bytes.fromhex(data)) == Windowed(key, start, end)
    assert session_key(key.encode(), start, end).hex() == data
    assert split_session_key(bytes.fromhex(data)) == (key.encode(), start, end)


@pytest.mark.parametrize("serde", [MINUTES, SESSIONS], ids=lambda serde: serde.name)
@pytest.mark.parametrize("data", ["", "00", "61ffffffffffffffff", "ff" * 16])
def test_bytes_that_are_no_windowed_key_are_refused(serde: Serde[Any], data: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        serde.deserialize(bytes.fromhex(data))


def test_a_session_ends_after_it_began() -> None:
    with pytest.raises(ValueError, match="begin at 5 and end at 1"):
        SESSIONS.deserialize(bytes.fromhex("6100000000000000010000000000000005"))
    with pytest.raises(ValueError, match="begin at 5 and end at 1"):
        SESSIONS.serialize(Windowed("a", 5, 1))


@pytest.mark.parametrize("serde", [MINUTES, SESSIONS], ids=lambda serde: serde.name)
def test_windowed_keys_travel_and_compare(serde: Serde[Any]) -> None:
    assert pickle.loads(pickle.dumps(serde)) == serde
    assert serde != WindowedSerde(serde_of(str), 1)
