"""Which serde a type stands for."""

from __future__ import annotations

import dataclasses
import types
import typing
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

import msgspec

from penstock.errors import TopologyError
from penstock.serdes.contract import Serde
from penstock.serdes.datetimes import DateTimeSerde
from penstock.serdes.json import JsonSerde
from penstock.serdes.scalars import (
    BoolSerde,
    BytesSerde,
    DoubleSerde,
    FloatSerde,
    IntegerSerde,
    LongSerde,
    ShortSerde,
    StringSerde,
    UuidSerde,
)

T = TypeVar("T")

_BY_TYPE: dict[Any, Serde[Any]] = {
    bytes: BytesSerde(),
    str: StringSerde(),
    int: LongSerde(),
    float: DoubleSerde(),
    bool: BoolSerde(),
    UUID: UuidSerde(),
    datetime: DateTimeSerde(),
}
_TYPES: dict[type, type] = {
    **{type(serde): kind for kind, serde in _BY_TYPE.items()},
    IntegerSerde: int,
    ShortSerde: int,
    FloatSerde: float,
}


def serde_of(type_or_serde: type[T] | Serde[T]) -> Serde[T]:
    """The serde that a type stands for; a serde stands for itself.

    >>> serde_of(int).serialize(1)
    b'\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x01'

    Raises `TopologyError` for a type that has none.
    """
    if isinstance(type_or_serde, Serde):
        return type_or_serde
    kind = _bare(type_or_serde)
    known = _BY_TYPE.get(kind) if isinstance(kind, type) else None
    if known is not None:
        return known
    if _is_json(kind):
        return JsonSerde(kind)
    raise TopologyError(
        f"There is no serde for {kind!r}",
        hint="Use bytes, str, int, float, bool, UUID, datetime, a dataclass, a msgspec Struct, a "
        "TypedDict, dict or list; or pass ps.JsonSerde(kind) or ps.serde(to_bytes, from_bytes)",
    )


def plain_type(serde: Serde[Any]) -> type | None:
    """The type of a serde's values, if it is one of Kafka's own; None if nobody knows.

    >>> plain_type(serde_of(int))
    <class 'int'>
    """
    return _TYPES.get(type(serde))


def _bare(kind: Any) -> Any:
    """The type itself: of one with a name or a note of its own, the one that it is made of.

    `int | None` has the serde of `int`: a null is Kafka's, no serde sees it.
    """
    if isinstance(kind, typing.NewType):
        return _bare(kind.__supertype__)
    origin = typing.get_origin(kind)
    if origin is typing.Annotated:
        return _bare(kind.__origin__)
    if type(kind).__name__ == "TypeAliasType":  # `type Name = str`, of Python 3.12.
        return _bare(kind.__value__)
    if origin not in (typing.Union, types.UnionType):
        return kind
    rest = [each for each in typing.get_args(kind) if each is not type(None)]
    return _bare(rest[0]) if len(rest) == 1 else kind


def _is_json(kind: Any) -> bool:
    base = typing.get_origin(kind) or kind
    if not isinstance(base, type):
        return False
    return (
        dataclasses.is_dataclass(base)
        or issubclass(base, msgspec.Struct)
        or base in (dict, list, tuple)
        or typing.is_typeddict(base)
    )
