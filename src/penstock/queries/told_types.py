"""Types of JSON as a message, and back: what a key becomes must not depend on who is asked.

A type is told if whoever hears of it writes the same bytes: fields in the same order, by the same
names, with the same defaults.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
from msgspec import inspect

from penstock.instance.told_messages import FieldTold, JsonKind, TypeTold
from penstock.serdes.decoders import decoder

_PLAIN: dict[type[inspect.Type], JsonKind] = {
    inspect.AnyType: "any",
    # Their values are what is written.
    inspect.EnumType: "any",
    inspect.LiteralType: "any",
    inspect.NoneType: "none",
    inspect.BoolType: "bool",
    inspect.IntType: "int",
    inspect.FloatType: "float",
    inspect.StrType: "str",
    inspect.BytesType: "bytes",
    inspect.DateTimeType: "datetime",
    inspect.DateType: "date",
    inspect.TimeType: "time",
    inspect.UUIDType: "uuid",
    inspect.DecimalType: "decimal",
}
_TYPES: dict[JsonKind, Any] = {
    "any": Any,
    "none": None,
    "bool": bool,
    "int": int,
    "float": float,
    "str": str,
    "bytes": bytes,
    "datetime": datetime,
    "date": date,
    "time": time,
    "uuid": UUID,
    "decimal": Decimal,
}
_DEPTH_MAX = 20
"""Deeper is a type that contains itself."""


class _UntoldError(Exception):
    """A type whose bytes others would not know how to write."""


def told_type(kind: Any) -> TypeTold | None:
    """A type as a message; None if others could not write it.

    >>> told_type(dict[str, int]).kind, told_type(set[int])
    ('dict', None)
    """
    try:
        return _told(inspect.type_info(kind), _DEPTH_MAX)
    except _UntoldError:
        return None


def type_of(told: TypeTold) -> Any:
    """A type that reads and writes what the told one does.

    >>> type_of(told_type(list[float | None]))
    list[float | None]
    """
    if told.kind == "object":
        return _object(told)
    of = [type_of(each) for each in told.of]
    match told.kind:
        case "list":
            return list[of[0]]  # type: ignore[valid-type]
        case "tuple":
            return tuple[tuple(of)]  # type: ignore[misc]
        case "dict":
            return dict[of[0], of[1]]  # type: ignore[valid-type]
        case "union":
            return functools.reduce(operator.or_, of)
        case _:
            return _TYPES[told.kind]


def _told(info: inspect.Type, depth: int) -> TypeTold:
    if depth == 0:
        raise _UntoldError

    def inner(*parts: inspect.Type) -> list[TypeTold]:
        return [_told(part, depth - 1) for part in parts]

    plain = _PLAIN.get(type(info))
    if plain is not None:
        return TypeTold(kind=plain)
    match info:
        case inspect.Metadata():
            return _told(info.type, depth - 1)
        case inspect.ListType():
            return TypeTold(kind="list", of=inner(info.item_type))
        case inspect.TupleType():
            return TypeTold(kind="tuple", of=inner(*info.item_types))
        case inspect.DictType():
            return TypeTold(kind="dict", of=inner(info.key_type, info.value_type))
        case inspect.UnionType():
            return TypeTold(kind="union", of=inner(*info.types))
        case inspect.DataclassType() | inspect.StructType():
            return _told_object(info, depth)
        case _:
            raise _UntoldError


def _told_object(info: inspect.DataclassType | inspect.StructType, depth: int) -> TypeTold:
    # It may make another key of what it is given, and only the program knows which.
    if hasattr(info.cls, "__post_init__"):
        raise _UntoldError
    forbids_others = False
    if isinstance(info, inspect.StructType):
        config = info.cls.__struct_config__
        if info.tag is not None or info.array_like or config.omit_defaults:
            raise _UntoldError
        forbids_others = info.forbid_unknown_fields
    fields = [
        FieldTold(
            name=field.name,
            written=field.encode_name,
            type=_told(field.type, depth - 1),
            default=None if field.required else _default(field),
        )
        for field in info.fields
    ]
    return TypeTold(kind="object", fields=fields, forbids_others=forbids_others)


def _default(field: inspect.Field) -> str:
    given = field.default
    if given is msgspec.NODEFAULT:
        # One that is counted or drawn is another one each time.
        if field.default_factory not in (list, dict):
            raise _UntoldError
        given = field.default_factory()
    try:
        return msgspec.json.encode(given).decode()
    except TypeError:
        raise _UntoldError from None


def _object(told: TypeTold) -> Any:
    fields: list[Any] = []
    for each in told.fields:
        kind = type_of(each.type)
        if each.default is None:
            fields.append((each.name, kind))
        else:
            made = _made(kind, each.default)
            fields.append((each.name, kind, msgspec.field(default_factory=made)))
    names = {each.name: each.written for each in told.fields if each.name != each.written}
    return msgspec.defstruct(
        "Told",
        fields,
        rename=names or None,
        kw_only=True,
        forbid_unknown_fields=told.forbids_others,
    )


def _made(kind: Any, default: str) -> Callable[[], Any]:
    return lambda: decoder(kind).decode(default)
