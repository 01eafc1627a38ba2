"""JSON by msgspec: typed, so that a record of another shape is refused and not half understood."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import msgspec

from penstock.errors import TopologyError
from penstock.serdes.contract import Serde
from penstock.serdes.decoders import decoder

T = TypeVar("T")


@dataclass(frozen=True)
class JsonSerde(Serde[T]):
    """A dataclass, msgspec Struct, TypedDict, dict, list or whatever else msgspec knows, as JSON.

    >>> JsonSerde(dict[str, int]).serialize({"bpm": 72})
    b'{"bpm":72}'

    Raises `TopologyError` for a type that has a field which cannot be read back.
    """

    type: Any
    name: ClassVar[str] = "json"

    def __post_init__(self) -> None:
        check_json_type(self.type)

    def serialize(self, value: T) -> bytes:
        return _ENCODE(value)

    def deserialize(self, data: bytes) -> T:
        value: T = decoder(self.type).decode(data)
        return value


_ENCODE = msgspec.json.Encoder().encode


def check_json_type(kind: Any) -> None:
    """Raise `TopologyError` unless every part of a type has a form in JSON."""
    try:
        decoder(kind)
        unknown = next(_unknown(msgspec.inspect.type_info(kind)), None)
    except NameError as error:
        raise TopologyError(
            f"The fields of {kind!r} cannot be found out: {error}",
            hint="Define the types that it names at the top of a module",
        ) from error
    except TypeError as error:
        raise TopologyError(
            f"There is no JSON for {kind!r}: {error}",
            hint="Change that field, or pass ps.serde(to_bytes, from_bytes)",
        ) from error
    if unknown is not None:
        raise TopologyError(
            f"There is no JSON for {unknown!r}, which is part of {kind!r}",
            hint="Change that field, or pass ps.serde(to_bytes, from_bytes)",
        )


def _unknown(root: msgspec.inspect.Type) -> Iterator[Any]:
    """The classes inside a type that msgspec does not know; it would find out only on reading."""
    seen: set[int] = set()
    waiting: list[Any] = [root]
    while waiting:
        part = waiting.pop()
        # A type may contain itself.
        if id(part) in seen:
            continue
        seen.add(id(part))
        if isinstance(part, msgspec.inspect.CustomType) and part.cls is not object:
            yield part.cls
        elif isinstance(part, (tuple, list)):
            waiting += part
        elif isinstance(part, (msgspec.inspect.Type, msgspec.inspect.Field)):
            waiting += [getattr(part, each) for each in part.__struct_fields__]
