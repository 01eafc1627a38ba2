"""JSON by msgspec: typed, so that a record of another shape is refused and not half understood."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
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

    Equal sets have equal bytes, so that they can be keys:

    >>> JsonSerde(frozenset[str]).serialize(frozenset({"b", "a"}))
    b'["a","b"]'

    Raises `TopologyError` for a type that has a field which cannot be read back.
    """

    type: Any
    name: ClassVar[str] = "json"
    _sorts: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_json_type(self.type)
        object.__setattr__(self, "_sorts", _has_sets(self.type))

    def serialize(self, value: T) -> bytes:
        return _sorted(value) if self._sorts else _ENCODE(value)

    def deserialize(self, data: bytes) -> T:
        value: T = decoder(self.type).decode(data)
        return value


_ENCODE = msgspec.json.Encoder().encode
_ENCODE_SORTED = msgspec.json.Encoder(order="deterministic").encode
_SETS = (msgspec.inspect.SetType, msgspec.inspect.FrozenSetType)


def _sorted(value: Any) -> bytes:
    """JSON with sets in their items' order; in any, where the items have none."""
    try:
        return _ENCODE_SORTED(value)
    except TypeError:
        return _ENCODE(value)


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
    for part in _parts(root):
        if isinstance(part, msgspec.inspect.CustomType) and part.cls is not object:
            yield part.cls


def _has_sets(kind: Any) -> bool:
    """Whether there are sets inside a type, whose items come in an order that is not theirs."""
    return any(isinstance(part, _SETS) for part in _parts(msgspec.inspect.type_info(kind)))


def _parts(root: msgspec.inspect.Type) -> Iterator[Any]:
    """A type and the types inside it."""
    seen: set[int] = set()
    waiting: list[Any] = [root]
    while waiting:
        part = waiting.pop()
        # A type may contain itself.
        if id(part) in seen:
            continue
        seen.add(id(part))
        if isinstance(part, (tuple, list)):
            waiting += part
        elif isinstance(part, (msgspec.inspect.Type, msgspec.inspect.Field)):
            yield part
            waiting += [getattr(part, each) for each in part.__struct_fields__]
