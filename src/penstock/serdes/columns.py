"""Values as Arrow columns: which type a serde's values have there, and the way there and back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import lru_cache
from typing import Any
from uuid import UUID

import msgspec
import pyarrow as pa

from penstock.serdes.contract import Serde
from penstock.serdes.datetimes import DateTimeSerde
from penstock.serdes.json import JsonSerde
from penstock.serdes.lists import ListSerde
from penstock.serdes.registry import RegistrySerde
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
from penstock.serdes.windowed import SessionWindowedSerde, Windowed, WindowedSerde

_MICROSECONDS = pa.timestamp("us", tz="UTC")
PLAIN_TYPES: dict[type[Serde[Any]], pa.DataType] = {
    BytesSerde: pa.binary(),
    StringSerde: pa.string(),
    LongSerde: pa.int64(),
    IntegerSerde: pa.int32(),
    ShortSerde: pa.int16(),
    DoubleSerde: pa.float64(),
    FloatSerde: pa.float32(),
    BoolSerde: pa.bool_(),
}
"""The columns of serdes whose values Arrow has as they are."""


class ColumnForm(ABC):
    """How values of one type stand in an Arrow column; `None` is a null there and back."""

    type: pa.DataType

    @abstractmethod
    def column(self, values: Sequence[Any]) -> pa.Array:
        """The column of these values; raises `TypeError`, `ValueError` or `OverflowError`."""

    @abstractmethod
    def values(self, column: pa.Array) -> list[Any]:
        """The values of a column of this type; raises `ValueError` for what is no value."""


@dataclass(frozen=True)
class _Plain(ColumnForm):
    """Values that Arrow knows itself."""

    type: pa.DataType
    from_arrow: Callable[[Any], Any] | None = None
    to_arrow: Callable[[Any], Any] | None = None

    def column(self, values: Sequence[Any]) -> pa.Array:
        convert = self.to_arrow
        if convert is not None:
            values = [None if value is None else convert(value) for value in values]
        try:
            return pa.array(values, type=self.type, from_pandas=False)
        except pa.ArrowException as error:
            raise ValueError(str(error)) from error

    def values(self, column: pa.Array) -> list[Any]:
        values: list[Any] = column.to_pylist()
        convert = self.from_arrow
        if convert is None:
            return values
        return [None if value is None else convert(value) for value in values]


_PLAIN: dict[type[Serde[Any]], ColumnForm] = {
    serde: _Plain(kind) for serde, kind in PLAIN_TYPES.items()
}


@dataclass(frozen=True)
class _Field:
    name: str
    form: ColumnForm
    nullable: bool


@dataclass(frozen=True)
class _Record(ColumnForm):
    """Values with fields: `get(value, name)` reads one, `make(fields)` builds a value."""

    type: pa.DataType
    fields: tuple[_Field, ...]
    get: Callable[[Any, str], Any]
    make: Callable[[dict[str, Any]], Any]

    def column(self, values: Sequence[Any]) -> pa.Array:
        get = self.get
        children = [
            field.form.column([None if v is None else get(v, field.name) for v in values])
            for field in self.fields
        ]
        absent = pa.array([value is None for value in values], pa.bool_())
        return pa.StructArray.from_arrays(children, fields=list(self.type), mask=absent)

    def values(self, column: pa.Array) -> list[Any]:
        parts = [
            field.form.values(child)
            for field, child in zip(self.fields, column.flatten(), strict=True)
        ]
        valid = column.is_valid().to_pylist()
        names = [field.name for field in self.fields]
        required = [field.name for field in self.fields if not field.nullable]
        rows: list[Any] = []
        for is_there, row in zip(valid, zip(*parts, strict=True), strict=True):
            if not is_there:
                rows.append(None)
                continue
            fields = dict(zip(names, row, strict=True))
            for name in required:
                if fields[name] is None:
                    raise ValueError(f"the field {name!r} is null, which its type does not allow")
            rows.append(self.make(fields))
        return rows


@dataclass(frozen=True)
class _Items(ColumnForm):
    """Lists of values."""

    type: pa.DataType
    item: ColumnForm

    def column(self, values: Sequence[Any]) -> pa.Array:
        flat = self.item.column([item for value in values if value is not None for item in value])
        return pa.ListArray.from_arrays(_offsets(values), flat, mask=_absent(values))

    def values(self, column: pa.Array) -> list[Any]:
        items = self.item.values(column.values)
        return [items[start:end] if valid else None for start, end, valid in _spans(column)]


@dataclass(frozen=True)
class _Dictionary(ColumnForm):
    """Dictionaries with text for keys."""

    type: pa.DataType
    item: ColumnForm

    def column(self, values: Sequence[Any]) -> pa.Array:
        there = [value for value in values if value is not None]
        names = pa.array([name for value in there for name in value], pa.string())
        items = self.item.column([item for value in there for item in value.values()])
        return pa.MapArray.from_arrays(_offsets(values), names, items, mask=_absent(values))

    def values(self, column: pa.Array) -> list[Any]:
        names, items = column.keys.to_pylist(), self.item.values(column.items)
        return [
            dict(zip(names[start:end], items[start:end], strict=True)) if valid else None
            for start, end, valid in _spans(column)
        ]


def column_form(serde: Serde[Any]) -> ColumnForm | None:
    """How a serde's values stand in a column; `None` where Arrow has nothing for them.

    >>> column_form(LongSerde()).type
    DataType(int64)
    """
    plain = _PLAIN.get(type(serde))
    if plain is not None:
        return plain
    match serde:
        case DateTimeSerde():
            return _Plain(_MICROSECONDS, from_arrow=_in_utc, to_arrow=_checked_time)
        case UuidSerde():
            return _Plain(pa.string(), from_arrow=UUID, to_arrow=str)
        case JsonSerde() | RegistrySerde():
            kind = getattr(serde, "type", None)
            return None if kind is None else _form_of_type(kind)
        case ListSerde():
            inner = column_form(serde.inner)
            return None if inner is None else _Items(pa.list_(inner.type), inner)
        case WindowedSerde() | SessionWindowedSerde():
            return _windowed(column_form(serde.inner))
    return None


def column_of_bytes(serde: Serde[Any], data: pa.BinaryArray) -> pa.Array | None:
    """The values of a column of bytes, without a Python object for each; `None` where none can."""
    match serde:
        case BytesSerde():
            return data
        case StringSerde():
            return data.cast(pa.string())
        case LongSerde() | IntegerSerde() | ShortSerde() | DoubleSerde() | FloatSerde():
            absent = data.is_null().to_numpy(zero_copy_only=False) if data.null_count else None
            return pa.array(serde.read(data), mask=absent, from_pandas=False)
    return None


def bytes_of_column(serde: Serde[Any], column: pa.Array) -> pa.BinaryArray | None:
    """The bytes of a column of values, without a Python object for each; `None` where none can."""
    match serde:
        case BytesSerde():
            return column
        case StringSerde():
            return column.cast(pa.binary())
        case LongSerde() | IntegerSerde() | ShortSerde() | DoubleSerde() | FloatSerde():
            if not column.null_count:
                return serde.write(column.to_numpy())
            valid = column.is_valid().to_numpy(zero_copy_only=False)
            return serde.write(column.fill_null(0).to_numpy(), valid)
    return None


@lru_cache(maxsize=256)
def _form_of_type(kind: Any) -> ColumnForm | None:
    try:
        return _form(msgspec.inspect.type_info(kind), ())
    except (TypeError, NameError):
        return None


def _form(info: msgspec.inspect.Type, inside: tuple[Any, ...]) -> ColumnForm | None:
    """The form of what msgspec knows of a type; `inside` are the types that it is part of."""
    plain = _plain_form(info)
    if plain is not None:
        return plain
    match info:
        case msgspec.inspect.UnionType():
            rest = [t for t in info.types if not isinstance(t, msgspec.inspect.NoneType)]
            return _form(rest[0], inside) if len(rest) == 1 else None
        case msgspec.inspect.ListType():
            item = _form(info.item_type, inside)
            return None if item is None else _Items(pa.list_(item.type), item)
        case msgspec.inspect.DictType() if isinstance(info.key_type, msgspec.inspect.StrType):
            item = _form(info.value_type, inside)
            return None if item is None else _Dictionary(pa.map_(pa.string(), item.type), item)
        case (
            msgspec.inspect.StructType()
            | msgspec.inspect.DataclassType()
            | msgspec.inspect.TypedDictType()
        ):
            return _record(info, inside)
    return None


def _plain_form(info: msgspec.inspect.Type) -> ColumnForm | None:
    match info:
        case msgspec.inspect.BoolType():
            return _Plain(pa.bool_())
        case msgspec.inspect.IntType():
            return _Plain(pa.int64())
        case msgspec.inspect.FloatType():
            return _Plain(pa.float64())
        case msgspec.inspect.StrType():
            return _Plain(pa.string())
        case msgspec.inspect.BytesType():
            return _Plain(pa.binary())
        case msgspec.inspect.DateType():
            return _Plain(pa.date32(), to_arrow=_checked_date)
        case msgspec.inspect.UUIDType():
            return _Plain(pa.string(), from_arrow=UUID, to_arrow=str)
        case msgspec.inspect.LiteralType():
            kinds = {type(value) for value in info.values}
            if kinds <= {str}:
                return _Plain(pa.string())
            return _Plain(pa.int64()) if kinds <= {int} else None
    return None


def _record(
    info: msgspec.inspect.StructType
    | msgspec.inspect.DataclassType
    | msgspec.inspect.TypedDictType,
    inside: tuple[Any, ...],
) -> ColumnForm | None:
    if info.cls in inside or not info.fields:
        return None
    fields = []
    for each in info.fields:
        form = _form(each.type, (*inside, info.cls))
        if form is None:
            return None
        fields.append(_Field(each.name, form, _may_be_null(each.type) or not each.required))
    kind = pa.struct([pa.field(each.name, each.form.type) for each in fields])
    if isinstance(info, msgspec.inspect.TypedDictType):
        optional = frozenset(each.name for each in info.fields if not each.required)
        return _Record(kind, tuple(fields), dict.get, _Without(optional))
    return _Record(kind, tuple(fields), getattr, _Made(info.cls, _defaults(info)))


@dataclass(frozen=True)
class _Without:
    """A dictionary of fields; of those that may be missing, a null one is."""

    optional: frozenset[str]

    def __call__(self, fields: dict[str, Any]) -> dict[str, Any]:
        if not self.optional:
            return fields
        return {k: v for k, v in fields.items() if v is not None or k not in self.optional}


@dataclass(frozen=True)
class _Made:
    """An object of a class; a field that may not be null and has a default gets that instead."""

    cls: Callable[..., Any]
    defaulted: frozenset[str]

    def __call__(self, fields: dict[str, Any]) -> Any:
        if self.defaulted:
            fields = {k: v for k, v in fields.items() if v is not None or k not in self.defaulted}
        return self.cls(**fields)


def _defaults(info: msgspec.inspect.StructType | msgspec.inspect.DataclassType) -> frozenset[str]:
    return frozenset(
        each.name for each in info.fields if not each.required and not _may_be_null(each.type)
    )


def _may_be_null(info: msgspec.inspect.Type) -> bool:
    return isinstance(info, msgspec.inspect.UnionType) and any(
        isinstance(each, msgspec.inspect.NoneType) for each in info.types
    )


def _windowed(inner: ColumnForm | None) -> ColumnForm | None:
    if inner is None:
        return None
    fields = (
        _Field("key", inner, True),
        _Field("start", _Plain(pa.int64()), False),
        _Field("end", _Plain(pa.int64()), False),
    )
    kind = pa.struct([pa.field(each.name, each.form.type) for each in fields])
    return _Record(kind, fields, getattr, _windowed_key)


def _windowed_key(fields: dict[str, Any]) -> Windowed[Any]:
    return Windowed(**fields)


def _in_utc(time: datetime) -> datetime:
    return time.astimezone(UTC)


def _checked_time(time: Any) -> datetime:
    if not isinstance(time, datetime) or time.utcoffset() is None:
        raise TypeError(f"expected a datetime with a time zone, got {time!r}")
    return time


def _checked_date(day: Any) -> date:
    if not isinstance(day, date) or isinstance(day, datetime):
        raise TypeError(f"expected date, got {type(day).__name__}")
    return day


def _offsets(values: Sequence[Any]) -> pa.Array:
    offsets = [0]
    for value in values:
        offsets.append(offsets[-1] + (0 if value is None else len(value)))
    return pa.array(offsets, pa.int32())


def _absent(values: Sequence[Any]) -> pa.Array:
    return pa.array([value is None for value in values], pa.bool_())


def _spans(column: pa.Array) -> list[tuple[int, int, bool]]:
    offsets = column.offsets.to_pylist()
    return list(zip(offsets[:-1], offsets[1:], column.is_valid().to_pylist(), strict=True))
