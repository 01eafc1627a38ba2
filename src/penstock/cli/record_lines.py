"""A record as a line of text, and back: KEY, two blanks, VALUE.

Texts stand as they are. One that would not be the same when the line is read again (it has a line
break, a tab or two blanks, begins or ends with a blank or a quotation mark, is empty, or reads like
something else) is written as a JSON string. Bytes that are no text are 0x and their digits. All
other types are JSON. No value at all is `(deleted)`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from penstock.cli.results import DELETED, shown, shown_key
from penstock.errors import ConfigError
from penstock.examples.catalogue import ExampleTopic
from penstock.serdes import BytesSerde, Serde, Windowed
from penstock.serdes.decoders import decoder
from penstock.serdes.texts import is_text

Encoded = tuple[bytes | None, bytes | None]
_BETWEEN = "  "
_HEX = re.compile(r"0x(?:[0-9a-f]{2})*")


def record_line(topic: ExampleTopic, key: Any, value: Any) -> str:
    """A record of the topic in one line, as `encode_lines` takes it."""
    return f"{_field(topic.key, key)}{_BETWEEN}{_field(topic.value, value)}"


def encode_lines(topic: ExampleTopic, lines: Iterable[str], *, name: str) -> list[Encoded]:
    """The records of a file's lines; empty lines are none. Raises `ConfigError` with the line."""
    encoded = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            encoded.append(_encode_line(topic, line))
        except ConfigError as error:
            raise ConfigError(
                error.message, where={"file": name, "line": number, **error.where}, hint=error.hint
            ) from error
    return encoded


def written(serde: Serde[Any], value: Any) -> str:
    """A key or a value as its text, for programs that print it elsewhere.

    >>> from penstock.serdes import LongSerde, StringSerde
    >>> written(StringSerde(), "ann"), written(LongSerde(), 71), written(LongSerde(), None)
    ('ann', '71', '(deleted)')
    """
    if value is None or isinstance(value, Windowed):
        return shown_key(value)
    try:
        if is_text(serde):
            return _text(serde.serialize(value))
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError):
        return shown(value)


def encode_text(serde: Serde[Any], text: str, topic: str) -> bytes:
    """The bytes of what somebody typed: texts as they are, all else as JSON."""
    try:
        if is_text(serde):
            serde.deserialize(text.encode())
            return text.encode()
        return serde.serialize(decoder(object).decode(text.encode()))
    except Exception as error:
        reason = "it is no JSON" if isinstance(error, msgspec.DecodeError) else error
        raise ConfigError(
            f"{text!r} does not fit the topic: {reason}",
            where={"topic": topic, "serde": serde.name},
            hint="Write texts as they are, and everything else as JSON",
        ) from error


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return f"0x{data.hex()}"


def _field(serde: Serde[Any], value: Any) -> str:
    text = written(serde, value)
    if value is None or isinstance(value, Windowed) or not _is_plain_text(serde):
        return _in_a_line(text)
    is_digits = isinstance(value, bytes) and text != value.decode(errors="replace")
    return text if is_digits or _stands(text) else quoted(text)


def _is_plain_text(serde: Serde[Any]) -> bool:
    """Whether it is text without a form of its own: JSON has quotation marks and escapes itself."""
    return is_text(serde) and serde.name != "json"


def _stands(text: str) -> bool:
    """Whether a text is the same when its line is read again."""
    return (
        text.isprintable()
        and text == text.strip()
        and _BETWEEN not in text
        and text not in ("", DELETED)
        and not text.startswith('"')
        and _HEX.fullmatch(text) is None
    )


def quoted(text: str) -> str:
    """A text as a JSON string in which everything can be printed.

    >>> print(quoted("two" + chr(10) + "lines"), quoted(chr(27) + "[2J"), quoted("a  b"))
    "two\\nlines" "\\u001b[2J" "a \\u0020b"
    """
    return _in_a_line(msgspec.json.encode(text).decode())


def _in_a_line(json: str) -> str:
    """JSON whose strings have nothing that ends a line, or does something to a terminal."""
    if json.isprintable() and _BETWEEN not in json:
        return json
    printable = "".join(each if each.isprintable() else _escaped(each) for each in json)
    # What is written here has blanks in strings alone.
    return printable.replace(_BETWEEN, " \\u0020")


def _escaped(character: str) -> str:
    """JSON's escape: beyond the first plane, two of them."""
    data = character.encode("utf-16-be")
    return "".join(f"\\u{data[i : i + 2].hex()}" for i in range(0, len(data), 2))


def _encode_line(topic: ExampleTopic, line: str) -> Encoded:
    key, between, value = line.partition("\t" if "\t" in line else _BETWEEN)
    if not between:
        raise ConfigError(
            f"{line!r} is no record", hint="Write KEY, two blanks or a tab, and VALUE"
        )
    return _encode_field(topic.key, key, topic.name), _encode_field(topic.value, value, topic.name)


def _encode_field(serde: Serde[Any], field: str, topic: str) -> bytes | None:
    if field == DELETED:
        return None
    if _is_plain_text(serde):
        if isinstance(serde, BytesSerde) and _HEX.fullmatch(field):
            return bytes.fromhex(field[2:])
        field = _unquoted(field)
    return encode_text(serde, field, topic)


def _unquoted(field: str) -> str:
    """The text of a JSON string; what only begins like one is meant as it stands."""
    if not field.startswith('"'):
        return field
    try:
        return decoder(str).decode(field)
    except msgspec.DecodeError:
        return field
