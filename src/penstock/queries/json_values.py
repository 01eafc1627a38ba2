"""Keys and values as JSON, and back: one rule for the service, its client and the command line.

| Python | JSON |
| --- | --- |
| None, str, bool | themselves |
| int | a number; beyond 64 bits its digits as text |
| float | a number; else the texts `NaN`, `Infinity`, `-Infinity` |
| bytes | text: `0x` and hexadecimal digits |
| datetime, date, time | text in the form of ISO 8601 |
| UUID, Decimal | text |
| dataclass, Struct, dict | an object; its bytes are base64, as `JsonSerde` writes them |
| list, tuple, set | an array |
| a Protobuf message | an object, its fields by their own names |
| anything else | its text, `str(value)` |

A key that is given as JSON becomes what the store's key serde takes. A key that is given as text,
as in an address, is that text where the serde takes texts or bytes, and else is read as JSON.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from msgspec import structs

from penstock.errors import QuestionRefusedError
from penstock.serdes import (
    BoolSerde,
    BytesSerde,
    DateTimeSerde,
    DoubleSerde,
    FloatSerde,
    IntegerSerde,
    JsonSerde,
    LongSerde,
    Serde,
    ShortSerde,
    StringSerde,
    UuidSerde,
)
from penstock.serdes.decoders import converted, decoder

VALUES_JSON = "application/vnd.penstock.values+json"
"""What `Accept` says of who wants no more than the values of rows."""
_TYPES: dict[type[Serde[Any]], Any] = {
    StringSerde: str,
    LongSerde: int,
    IntegerSerde: int,
    ShortSerde: int,
    BoolSerde: bool,
    UuidSerde: UUID,
    DateTimeSerde: datetime,
}
_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_INT_MIN, _INT_MAX = -(2**63), 2**64 - 1
_SHOWN_MAX = 80


def plain(value: Any) -> Any:
    """A key or value as what JSON has.

    >>> plain(b"ab"), plain(float("nan")), plain({"bpm": 72}), plain(UUID(int=1))
    ('0x6162', 'NaN', {'bpm': 72}, '00000000-0000-0000-0000-000000000001')
    """
    kind = type(value)
    if value is None or kind is str or kind is bool:
        return value
    if kind is int:
        return value if _INT_MIN <= value <= _INT_MAX else str(value)
    if kind is bytes:
        return "0x" + value.hex()
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return f"0x{bytes(value).hex()}"
    return _finite(msgspec.to_builtins(value, enc_hook=_other, str_keys=True))


def encode_json(data: Any) -> bytes:
    """The bytes of what `plain` made.

    >>> encode_json({"key": "Zoë"}).decode()
    '{"key":"Zoë"}'
    """
    try:
        return msgspec.json.encode(data)
    except UnicodeEncodeError:
        # Half of a surrogate pair is no text to UTF-8; as an escape it is one to JSON.
        return json.dumps(data, separators=(",", ":"), default=structs.asdict).encode()


def key_of_json(serde: Serde[Any], value: Any) -> Any:
    """What the serde takes, of a key that was given as JSON. Raises `QuestionRefusedError`.

    >>> key_of_json(DateTimeSerde(), "1970-01-01T00:00:01Z").timestamp()
    1.0
    >>> key_of_json(BytesSerde(), "0x6162")
    b'ab'
    """
    try:
        key = _typed(serde, value)
        serde.serialize(key)
    except Exception as error:  # a serde may be the user's own
        raise QuestionRefusedError(
            f"{_shown(value)} is no key of this store, whose serde is {serde.name!r}: "
            f"{_shown(error)}",
            hint="docs/http.md says how keys are written",
        ) from error
    return key


def keys_of_json(serde: Serde[Any], values: Sequence[Any]) -> list[Any]:
    """The same for many keys. Raises `QuestionRefusedError` of the first that is none.

    >>> keys_of_json(BytesSerde(), ["0x6162", "c"])
    [b'ab', b'c']
    """
    try:
        if type(serde) is BytesSerde:
            # Most are short: a call for each would cost more than what it does.
            return [
                bytes.fromhex(value[2:]) if value[:2] == "0x" else value.encode()
                for value in values
            ]
        keys = [_typed(serde, value) for value in values]
        serialize = serde.serialize
        for key in keys:
            serialize(key)
    except Exception:  # noqa: BLE001 - one by one it is known which
        return [key_of_json(serde, value) for value in values]
    return keys


def key_of_text(serde: Serde[Any], text: str) -> Any:
    """What the serde takes, of a key that was given as text. Raises `QuestionRefusedError`.

    >>> key_of_text(StringSerde(), "7"), key_of_text(LongSerde(), "7")
    ('7', 7)
    """
    if isinstance(serde, StringSerde | BytesSerde):
        return key_of_json(serde, text)
    try:
        value = decoder(object).decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        value = text
    return key_of_json(serde, value)


def _typed(serde: Serde[Any], value: Any) -> Any:
    if value is None:
        raise ValueError("a key is never null")
    if isinstance(serde, BytesSerde):
        return _bytes_of(value)
    if isinstance(serde, DoubleSerde | FloatSerde):
        return float(converted(_NOT_FINITE.get(value, value) if _is_text(value) else value, float))
    if isinstance(serde, JsonSerde):
        return _with_defaults(converted(value, serde.type))
    kind = _TYPES.get(type(serde))
    return value if kind is None else converted(value, kind)


def _with_defaults(value: Any) -> Any:
    """A key with the defaults that were left out: a program that makes one has them, and they are
    among its bytes. msgspec leaves those of a dataclass to its class.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        for each in dataclasses.fields(value):
            inner = _with_defaults(getattr(value, each.name))
            object.__setattr__(value, each.name, inner)
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            _with_defaults(getattr(value, name))
    elif isinstance(value, dict):
        for inner in value.values():
            _with_defaults(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            _with_defaults(inner)
    return value


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _bytes_of(value: Any) -> bytes:
    if not isinstance(value, str):
        raise TypeError("bytes are written as text, after 0x in hexadecimal digits")
    return bytes.fromhex(value[2:]) if value.startswith("0x") else value.encode()


def _finite(value: Any) -> Any:
    """What has no form in JSON as text, at any depth."""
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, int) and not _INT_MIN <= value <= _INT_MAX:
        return str(value)
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return value


def _other(value: Any) -> Any:
    """What msgspec does not know."""
    if hasattr(type(value), "DESCRIPTOR"):
        from google.protobuf.json_format import MessageToDict

        return MessageToDict(value, preserving_proto_field_name=True)
    return str(value)


def _shown(value: object) -> str:
    text = ascii(value) if not isinstance(value, Exception) else ascii(str(value))[1:-1]
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}..."
