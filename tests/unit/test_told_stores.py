"""What instances are told of stores: others find the same bytes, or hear that they cannot."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple, TypedDict
from uuid import UUID

import msgspec
import pytest

import penstock as ps
from penstock.errors import QuestionRefusedError
from penstock.instance import protocol
from penstock.instance.told_messages import HttpTold, SerdeTold
from penstock.queries.catalogue import Catalogue
from penstock.queries.json_values import key_of_json, plain
from penstock.queries.told_stores import serde_told, store_told, told_serde, told_store
from penstock.serdes import (
    JsonSerde,
    ListSerde,
    LongSerde,
    Mean,
    MeanSerde,
    Serde,
    SessionWindowedSerde,
    StringSerde,
    Windowed,
    WindowedSerde,
    serde,
    serde_of,
)


class Colour(enum.Enum):
    RED = "red"


@dataclass(frozen=True)
class Bed:
    number: int
    since: date | None = None


@dataclass(frozen=True)
class Patient:
    """Fields of every sort, with and without defaults."""

    ward: str
    beds: list[Bed]
    born: datetime
    weight: float = 3
    tags: dict[str, int] = field(default_factory=dict)
    colour: Colour = Colour.RED
    picture: bytes = b"\x00"
    cost: Decimal = Decimal("1.50")


class Renamed(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    first_name: str
    last_name: str = "none"


PATIENT = {
    "born": "2026-01-01T01:00:00+01:00",
    "beds": [{"number": 1}, {"since": "2026-01-02", "number": 2}],
    "ward": "A",
    "weight": 2,
}


def sent(told: SerdeTold) -> Serde[Any]:
    return serde_told(protocol.decode(protocol.encode(told), SerdeTold))


def heard(known: Any, *, is_key: bool = True) -> Serde[Any]:
    """What whoever is told of a serde makes of it."""
    told = told_serde(serde_of(known), is_key=is_key)
    assert told is not None
    return sent(told)


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        (str, "ann"),
        (int, 7),
        (float, 7),
        (bool, True),
        (bytes, "0x00ff"),
        (UUID, str(UUID(int=1))),
        (datetime, "2026-01-01T00:00:00Z"),
        (Patient, PATIENT),
        (Bed, {"number": 1}),
        (Renamed, {"lastName": "b", "firstName": "a"}),
        (dict[str, float], {"a": 1}),
        (list[Bed], [{"number": 1}]),
        (tuple[str, int], ["a", 1]),
        (JsonSerde(int | None), 7),
        (JsonSerde(Colour), "red"),
        (JsonSerde(Any), {"b": 1, "a": [None]}),
        (ListSerde(LongSerde()), [1, 2]),
    ],
)
def test_a_key_that_is_given_as_json_has_the_same_bytes_wherever_it_is_given(
    kind: Any, given: Any
) -> None:
    known, other = serde_of(kind), heard(kind)
    data = known.serialize(key_of_json(known, given))
    assert other.serialize(key_of_json(other, given)) == data
    # And it is shown alike.
    assert plain(other.deserialize(data)) == plain(known.deserialize(data))
    assert other.name == known.name


def test_a_key_without_its_defaults_is_the_one_that_a_program_makes() -> None:
    for each in (serde_of(Bed), heard(Bed)):
        key = key_of_json(each, {"number": 1})
        assert each.serialize(key) == serde_of(Bed).serialize(Bed(1))
    nested = [{"number": 1}, {"since": None, "number": 2}]
    beds = serde_of(list[Bed])
    assert beds.serialize(key_of_json(beds, nested)) == beds.serialize([Bed(1), Bed(2)])


def test_what_a_type_refuses_is_refused() -> None:
    for kind, given in (
        (Renamed, {"firstName": "a", "other": 1}),
        (Bed, {"since": None}),
        (Patient, {**PATIENT, "beds": None}),
    ):
        for each in (serde_of(kind), heard(kind)):
            with pytest.raises(QuestionRefusedError):
                key_of_json(each, given)


def test_windows_and_means_are_told() -> None:
    windowed = WindowedSerde(StringSerde(), 60_000)
    assert heard(windowed) == windowed
    assert heard(SessionWindowedSerde(StringSerde())) == SessionWindowedSerde(StringSerde())
    data = windowed.serialize(Windowed("a", 60_000, 120_000))
    assert heard(windowed).deserialize(data) == Windowed("a", 60_000, 120_000)
    assert heard(MeanSerde()).deserialize(MeanSerde().serialize(Mean(2.5, 3))) == Mean(2.5, 3)


@dataclass(frozen=True)
class Normal:
    """It makes another key of what it is given."""

    name: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.name.lower())


@dataclass(frozen=True)
class Drawn:
    number: int = field(default_factory=lambda: 7)


@dataclass(frozen=True)
class Chain:
    next: Chain | None = None


class Tagged(msgspec.Struct, tag=True):
    name: str


class Sparse(msgspec.Struct, omit_defaults=True):
    name: str = ""


class Listed(msgspec.Struct, array_like=True):
    name: str


class Named(NamedTuple):
    name: str


class Typed(TypedDict):
    name: str


class OwnString(StringSerde):
    def serialize(self, value: str) -> bytes:
        return value.upper().encode()


@pytest.mark.parametrize(
    "kind", [Normal, Drawn, Chain, Tagged, Sparse, Listed, Named, Typed, set[int]]
)
def test_a_type_that_others_would_write_otherwise_is_no_key_of_theirs(kind: Any) -> None:
    json = JsonSerde(kind)
    assert told_serde(json, is_key=True) is None
    assert told_serde(ListSerde(json), is_key=True) is None
    # As a value it is shown as it was written.
    told = told_serde(json, is_key=False)
    assert told is not None
    assert sent(told).deserialize(b'{"name":"a"}') == {"name": "a"}


@pytest.mark.parametrize(
    "own",
    [
        serde(str.encode, bytes.decode),
        OwnString(),
        ListSerde(OwnString()),
    ],
)
def test_serdes_of_the_program_are_not_told(own: Serde[Any]) -> None:
    assert told_serde(own, is_key=True) is None
    assert told_serde(own, is_key=False) is None


def test_stores_are_told_with_all_that_reading_them_takes() -> None:
    app = ps.Application("told")
    stream = app.stream("in", key=str, value=str)
    stream.group_by_key().windowed_by(ps.tumbling(timedelta(minutes=1), grace=timedelta())).count(
        "windows"
    )
    app.table("own", "own", key=str, value=serde(str.encode, bytes.decode))
    stream.to("sorted", partitioner=lambda key, value, count: 0)
    app.stream("sorted", key=str, value=str).group_by_key().count("placed")
    topology = app.build()
    widths = {sub.name: 3 for sub in topology.sub_topologies}
    stores = Catalogue.of(topology, "told", widths).all()
    told = HttpTold(token="canary", driver_url="", stores=[told_store(each) for each in stores])
    assert "canary" not in repr(told)
    again = protocol.decode(protocol.encode(told), HttpTold)
    assert {each.name: each.is_told for each in again.stores} == {
        "windows": True,
        "own": False,
        "placed": False,
    }
    for store, message in zip(stores, again.stores, strict=True):
        other = store_told(message)
        assert other.task(2) == store.task(2)
        assert (other.changelog, other.spec.kind) == (store.changelog, store.spec.kind)
        assert other.spec.retention_ms == store.spec.retention_ms
        assert other.spec.window_ms == store.spec.window_ms
        assert other.partitions_of(["a"], [b"a"]) == store.partitions_of(["a"], [b"a"]) or (
            message.is_placed_by_program
        )
