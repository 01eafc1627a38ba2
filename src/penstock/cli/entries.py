"""A store's entries as an application's serdes read them, or as bytes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from penstock.cli.answers import printable
from penstock.errors import ConfigError, DeserializationError
from penstock.serdes import JsonSerde, Serde
from penstock.serdes.decoders import decoder
from penstock.serdes.scalars import BytesSerde, StringSerde
from penstock.serdes.windowed import split_session_key, split_window_key, window_end
from penstock.stores.contract import (
    GAP,
    NOTHING,
    Entry,
    split_stored_value,
    split_version_key,
)
from penstock.topology import StoreSpec


@dataclass(frozen=True, kw_only=True)
class Row:
    """An entry, taken apart; what no serde read is bytes."""

    key: Any
    window_start: int | None
    window_end: int | None
    value: Any
    timestamp: int
    partition: int | None

    def facts(self) -> dict[str, object]:
        """The row for programs: bytes are written in hexadecimal digits, after 0x."""
        return {
            "partition": self.partition,
            "key": _plain(self.key),
            "window_start": self.window_start,
            "window_end": self.window_end,
            "value": _plain(self.value),
            "timestamp": self.timestamp,
        }

    def line(self) -> str:
        """The row for people.

        >>> window = {"window_start": 0, "window_end": 60_000}
        >>> Row(key="ann", **window, value=72, timestamp=59_000, partition=3).line()
        '3  1970-01-01T00:00:59.000  ann [1970-01-01T00:00:00.000 to 1970-01-01T00:01:00.000] = 72'
        """
        key = shown(self.key)
        if self.window_start is not None:
            end = "" if self.window_end is None else f" to {shown_time(self.window_end)}"
            key = f"{key} [{shown_time(self.window_start)}{end}]"
        where = "-" if self.partition is None else str(self.partition)
        return f"{where}  {shown_time(self.timestamp)}  {key} = {shown(self.value)}"


def row_of(
    entry: Entry, *, kind: str, spec: StoreSpec | None, partition: int | None, strict: bool = False
) -> Row:
    """An entry's row. What the serdes cannot read stays bytes or, if `strict`, is an error."""
    key, stored = entry
    start = end = None
    if kind == "window":
        key, start, _ = split_window_key(key)
        size = None if spec is None or spec.duplicates else spec.window_ms
        end = None if size is None else window_end(start, size)
    elif kind == "session":
        key, start, end = split_session_key(key)
    timestamp, value = split_stored_value(stored)
    return Row(
        key=_read(key, None if spec is None else spec.key_serde, strict),
        window_start=start,
        window_end=end,
        value=_read(value, None if spec is None else spec.value_serde, strict),
        timestamp=timestamp,
        partition=partition,
    )


def version_row(entry: Entry, *, spec: StoreSpec | None, partition: int | None) -> Row:
    """The row of a version; None is the value of one that says that the key was deleted."""
    name, stored = entry
    key, time = split_version_key(name)
    is_deleted = stored in (NOTHING, GAP)
    value = b"" if is_deleted else split_stored_value(stored)[1]
    return Row(
        key=_read(key, None if spec is None else spec.key_serde, strict=True),
        window_start=None,
        window_end=None,
        value=None
        if is_deleted
        else _read(value, None if spec is None else spec.value_serde, strict=True),
        timestamp=time,
        partition=partition,
    )


def key_bytes(text: str, spec: StoreSpec | None) -> bytes:
    """The bytes of a key that was typed: as its serde writes it, or as they stand; 0x is hex.

    >>> key_bytes("0x6162", None), key_bytes("ab", None)
    (b'ab', b'ab')
    """
    serde = None if spec is None else spec.key_serde
    try:
        if serde is None or isinstance(serde, BytesSerde):
            return bytes.fromhex(text[2:]) if text.startswith("0x") else text.encode()
        if isinstance(serde, StringSerde):
            return serde.serialize(text)
        if isinstance(serde, JsonSerde):
            return serde.serialize(serde.deserialize(text.encode()))
        return serde.serialize(_number_or_text(text))
    except Exception as error:  # a serde may be the user's own
        raise ConfigError(
            f"{text!r} is no key of this store: {error}",
            hint="Write it as JSON, or leave the application out and give bytes: 0x6162",
        ) from error


def shown(value: Any) -> str:
    """A value in a line.

    >>> shown(b"ann"), shown(bytes([0, 1])), shown({"bpm": 72})
    ('ann', '0x0001', '{"bpm":72}')
    """
    if isinstance(value, bytes):
        try:
            text = value.decode()
        except UnicodeDecodeError:
            return f"0x{value.hex()}"
        return text if text.isprintable() else f"0x{value.hex()}"
    return printable(value if isinstance(value, str) else json_text(value))


def json_text(value: Any) -> str:
    """The value as JSON; what has none is written as its text."""
    return msgspec.json.encode(value, enc_hook=str).decode()


def _read(data: bytes, serde: Serde[Any] | None, strict: bool) -> Any:
    if serde is None:
        return data
    try:
        return serde.deserialize(data)
    except Exception as error:  # a serde may be the user's own
        if not strict:
            return data
        raise DeserializationError(
            f"0x{data.hex()[:80]} cannot be decoded by the serde {serde.name!r}: {error}",
            hint="Leave the application out to get bytes",
        ) from error


def _number_or_text(text: str) -> Any:
    try:
        return decoder(object).decode(text)
    except msgspec.DecodeError:
        return text


def _plain(value: Any) -> object:
    if isinstance(value, bytes):
        return f"0x{value.hex()}"
    return msgspec.to_builtins(value, enc_hook=str)


def shown_time(timestamp_ms: int) -> str:
    """A time in the form of ISO 8601, in UTC."""
    try:
        time = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(timestamp_ms)  # Past the year 9999.
    return time.isoformat(timespec="milliseconds").removesuffix("+00:00")
