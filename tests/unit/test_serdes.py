"""Goal: bytes are Kafka's, columns equal single values, and what is not decodable is refused."""

from __future__ import annotations

import math
import pickle
import subprocess
import sys
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Annotated, Any, NewType, TypedDict
from uuid import UUID

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark import cloudpickle

from penstock.errors import LocalPartsError, TopologyError
from penstock.serdes import (
    AvroSerde,
    FloatSerde,
    IntegerSerde,
    JsonSerde,
    ListSerde,
    Serde,
    ShortSerde,
    serde,
    serde_of,
)


@dataclass(frozen=True)
class Pulse:
    bpm: int
    where: str = "ward"


class Reading(msgspec.Struct):
    celsius: float


class Ward(Enum):
    NORTH = "north"


class Number(IntEnum):
    ONE = 1


class Bed(TypedDict, total=False):
    number: int
    ward: Ward


@dataclass(frozen=True)
class Stay:
    """Everything that may be in a record, one of each."""

    patient: UUID
    born: date
    admitted: datetime
    price: Decimal
    pulse: Pulse
    bed: Bed | None = None
    wards: list[Ward] = field(default_factory=list)
    before: Stay | None = None


STAY = Stay(
    patient=UUID(int=1),
    born=date(1999, 1, 2),
    admitted=datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC),
    price=Decimal("1.50"),
    pulse=Pulse(72),
    bed={"number": 4, "ward": Ward.NORTH},
    wards=[Ward.NORTH],
)
STAY_JSON = (
    b'{"patient":"00000000-0000-0000-0000-000000000001","born":"1999-01-02",'
    b'"admitted":"2024-01-02T03:04:05Z","price":"1.50","pulse":{"bpm":72,"where":"ward"},'
    b'"bed":{"number":4,"ward":"north"},"wards":["north"],"before":null}'
)
# Written by Kafka's own serializers, release 4.1.1.
UUID_IN_KAFKA = UUID("0f8fad5b-d9cb-469f-a165-70867728950e")
UUID_BYTES = bytes.fromhex(
    "30663866616435622d643963622d343639662d613136352d373038363737323839353065"
)


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
        (NewType("PatientId", str), "ann", b"ann"),
        (Annotated[int, "per minute"], 1, b"\x00\x00\x00\x00\x00\x00\x00\x01"),
        (NewType("Nested", NewType("Inner", bytes)) | None, b"x", b"x"),
        (Reversed(), "abc", b"cba"),
        (UUID, UUID_IN_KAFKA, UUID_BYTES),
        (datetime, datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), b"\x00" * 6 + b"\x03\xe8"),
        (Bed, {"number": 4, "ward": Ward.NORTH}, b'{"number":4,"ward":"north"}'),
        (Stay, STAY, STAY_JSON),
        (JsonSerde(Decimal), Decimal("1.50"), b'"1.50"'),
        (IntegerSerde(), 258, b"\x00\x00\x01\x02"),
        (IntegerSerde(), -(2**31), b"\x80\x00\x00\x00"),
        (ShortSerde(), -1, b"\xff\xff"),
        (ShortSerde(), 32767, b"\x7f\xff"),
        (FloatSerde(), -1.5, b"\xbf\xc0\x00\x00"),
        (FloatSerde(), math.inf, b"\x7f\x80\x00\x00"),
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
    UUID: st.uuids(),
    datetime: st.datetimes(timezones=st.just(UTC)).map(
        lambda moment: moment.replace(microsecond=moment.microsecond // 1000 * 1000)
    ),
    IntegerSerde(): st.integers(-(2**31), 2**31 - 1),
    ShortSerde(): st.integers(-(2**15), 2**15 - 1),
    FloatSerde(): st.floats(width=32, allow_nan=False),
    ListSerde(serde_of(int)): st.lists(st.none() | st.integers(-5, 5), max_size=3),
    ListSerde(serde_of(str)): st.lists(st.none() | st.text(max_size=3), max_size=3),
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


def test_many_texts_equal_single_ones() -> None:
    """They are decoded all at once, where a few are not."""
    serde, values = serde_of(str), ["", "a", None, "straße", "\U0001f600"] * 40
    column = serde.serialize_column(values)
    assert serde.deserialize_column(column[3:]) == values[3:]
    serde.check_column(column[3:])


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
        (UUID, b"{0f8fad5b-d9cb-469f-a165-70867728950e}"),
        (UUID, b"0f8fad5bd9cb469fa16570867728950e"),
        (datetime, b"\x7f" + b"\xff" * 7),
        (datetime, b"2024"),
        (IntegerSerde(), b"\x00" * 8),
        (ShortSerde(), b"\x00"),
        (FloatSerde(), b"\x00" * 8),
    ],
)
def test_undecodable_bytes_raise_value_error(kind: Any, bad: bytes) -> None:
    serde = serde_of(kind)
    good = {
        str: b"ok",
        int: b"\x00" * 8,
        float: b"\x00" * 8,
        bool: b"\x01",
        Pulse: b'{"bpm":1}',
        UUID: UUID_BYTES,
        datetime: b"\x00" * 8,
        IntegerSerde(): b"\x00" * 4,
        ShortSerde(): b"\x00" * 2,
        FloatSerde(): b"\x00" * 4,
    }
    with pytest.raises(ValueError, match=r".*"):
        serde.deserialize(bad)
    for goods in (1, 100):
        column = pa.array([*[good[kind]] * goods, bad, None], pa.binary())
        with pytest.raises(ValueError, match=r".*"):
            serde.check_column(column)
        with pytest.raises(ValueError, match=r".*"):
            serde.deserialize_column(column)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (bytes, "text"),
        (str, b"bytes"),
        (int, "1"),
        (int, 2**63),
        (float, "1"),
        (bool, 1),
        (UUID, str(UUID_IN_KAFKA)),
        (datetime, 1),
        (IntegerSerde(), 2**31),
        (ShortSerde(), 2**15),
        (FloatSerde(), 1e39),
        (ListSerde(serde_of(str)), "text"),
        (ListSerde(serde_of(str)), {"text"}),
    ],
)
def test_a_value_of_another_type_is_refused(kind: Any, value: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        serde_of(kind).serialize(value)
    with pytest.raises((TypeError, ValueError, OverflowError)):
        serde_of(kind).serialize_column([value])


NARROW = [IntegerSerde(), ShortSerde(), FloatSerde()]
ODD = [
    "text", b"bytes", bytearray(b"b"), memoryview(b"m"), 1, True, 1.0, 1.5, -0.5, 2**40, 2**63, "1",
    np.int64(3), np.uint8(3), np.float64(1.5), np.float32(1.5), np.bool_(True), np.str_("x"),
    np.bytes_(b"x"), Decimal(2), Decimal("1.5"), Number.ONE, Ward.NORTH, math.nan, math.inf, 1e300,
    UUID(int=1), datetime(2024, 1, 1, tzinfo=UTC), date(2024, 1, 1), "\ud800", [1], (1,), {},
]  # fmt: skip


@pytest.mark.parametrize("kind", [bytes, str, int, float, bool, UUID, datetime, *NARROW])
@pytest.mark.parametrize("filled", [None, 100])
def test_a_column_takes_what_is_taken_alone(kind: Any, filled: int | None) -> None:
    """Arrow would cut 1.5 to 1 for a whole number, and take a text for bytes."""
    made = serde_of(kind) if isinstance(kind, type) else kind
    for value in ODD:
        # Many values go another way than a few, and a null among them yet another.
        for others in ([], [None] * (filled or 0), [_sample(kind)] * (filled or 0)):
            alone = _written(lambda v=value: made.serialize(v))
            beside = _written(lambda v=value, o=others: made.serialize_column([*o, v])[-1].as_py())
            assert beside == alone, (value, len(others))


def _written(write: Any) -> Any:
    """The bytes; whoever refuses a value says so by one of these."""
    try:
        return write()
    except (TypeError, ValueError, OverflowError):
        return "refused"


def _sample(kind: Any) -> Any:
    samples = {bytes: b"b", str: "t", bool: True, UUID: UUID(int=2), int: 7, float: 0.5}
    return samples.get(kind, datetime(2024, 1, 1, tzinfo=UTC) if kind is datetime else 7)


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


@dataclass
class Strange:
    inside: dict[str, list[complex]]


@dataclass
class Ambiguous:
    either: Pulse | Stay


def test_a_field_without_json_is_refused_before_anything_runs() -> None:
    with pytest.raises(TopologyError, match=r"no JSON for <class 'complex'>.*Strange.*ps\.serde"):
        serde_of(Strange)
    with pytest.raises(TopologyError, match=r"no JSON for .*Ambiguous"):
        serde_of(Ambiguous)


def test_a_class_that_cannot_be_seen_from_its_module_is_named() -> None:
    @dataclass
    class Inner:
        bpm: int

    @dataclass
    class Outer:
        inner: Inner

    with pytest.raises(TopologyError, match=r"Outer.*Inner.*top of a module"):
        serde_of(Outer)


def test_any_json_is_any_json() -> None:
    free = serde_of(dict[str, object])
    assert free.deserialize(b'{"a":[1,{"b":null}]}') == {"a": [1, {"b": None}]}


def test_a_moment_is_the_same_in_every_time_zone() -> None:
    moments = serde_of(datetime)
    noon = datetime(2024, 7, 1, 12, 0, 0, 999_999, tzinfo=timezone(timedelta(hours=2)))
    again = moments.deserialize(moments.serialize(noon))
    assert again == datetime(2024, 7, 1, 10, 0, 0, 999_000, tzinfo=UTC)
    assert again.utcoffset() == timedelta(0)
    before = datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
    assert moments.serialize(before) == b"\xff" * 8


def test_a_moment_without_time_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="has no time zone"):
        serde_of(datetime).serialize(datetime(2024, 1, 1))  # noqa: DTZ001


def parse(data: bytes) -> tuple[int, ...]:
    return tuple(int(each) for each in data.split(b","))


def test_a_pair_of_functions_is_a_serde() -> None:
    numbers = serde(lambda value: b",".join(b"%d" % each for each in value), parse, name="numbers")
    assert numbers.name == "numbers"
    assert numbers.serialize((1, 2)) == b"1,2"
    assert numbers.deserialize(b"1,2") == (1, 2)
    assert serde_of(numbers) is numbers
    again = cloudpickle.loads(cloudpickle.dumps(numbers))
    assert again.deserialize(again.serialize((3,))) == (3,)


def test_pairs_of_the_same_functions_are_equal() -> None:
    assert serde(repr, parse) == serde(repr, parse)
    assert serde(repr, parse) != serde(str, parse)
    assert pickle.loads(pickle.dumps(serde(repr, parse))) == serde(repr, parse)


def test_what_a_function_raises_says_whose_fault_it_is() -> None:
    def refuse(data: bytes) -> str:
        raise {b"key": KeyError("x"), b"away": ConnectionError("away")}[data]

    broken = serde(str, refuse)
    with pytest.raises(ValueError, match="KeyError"):
        broken.deserialize(b"key")
    # With deserialization_exception_handler="continue" a ValueError would drop the record.
    with pytest.raises(ConnectionError, match="away"):
        broken.deserialize(b"away")
    with pytest.raises(TypeError, match="returned str, not bytes"):
        broken.serialize("text")


def test_without_the_extra_a_registry_serde_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka.schema_registry.avro", None)
    with pytest.raises(LocalPartsError, match=r"pip install 'penstock\[registry\]'"):
        AvroSerde('"string"', registry="http://nowhere")


def test_most_serdes_are_the_same_for_every_topic() -> None:
    lists = ListSerde(serde_of(str))
    assert lists.for_topic("beats", "key") == lists
    assert serde_of(Pulse).for_topic("beats", "value") == serde_of(Pulse)


def test_the_package_is_imported_without_the_registrys_packages() -> None:
    heavy = "fastavro jsonschema httpx2 authlib google.protobuf confluent_kafka.schema_registry"
    program = f"import sys, penstock; print([n for n in {heavy.split()!r} if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout == b"[]\n"
