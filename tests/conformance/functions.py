"""The words that a case may use for user functions; oracle/Functions.java has the same in Java.

Results are built so that order shows: a different order gives a different text.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

# Texts that grow with every step are cut here, and what was cut still shows in the checksum.
_TEXT_MAX = 80
_TAIL = 40
INITIAL = "0"
# Keys that the functions make of values.
GUESSED_KEYS = ("a", "b", "c", "d", "e", "é", "𝄞", "1", "x", "n0", "n1", "n2")


def text(value: Any) -> str:
    """A value as a text: `null`, a count's digits, a windowed key as key@start/end."""
    if value is None:
        return "null"
    if hasattr(value, "start") and hasattr(value, "end"):
        return f"{text(value.key)}@{value.start}/{value.end}"
    return str(value)


def shorten(long: str) -> str:
    """The text itself, or its checksum and its end."""
    if len(long) <= _TEXT_MAX:
        return long
    return f"~{zlib.crc32(long.encode()):08x}~{long[-_TAIL:]}"


def has(value: Any, part: str) -> bool:
    """Whether a value is there and has a part."""
    return value is not None and part in text(value)


def even(value: Any) -> bool:
    """Whether a value ends in a letter of an even number, or is empty."""
    return text(value) == "" or ord(text(value)[-1]) % 2 == 0


def _first(full: str) -> str:
    # Behind what folds, joins and merges put in front, so that keys keep meeting keys.
    start = 0
    while start < len(full) - 1 and full[start] in "(<[|+0":
        start += 1
    return full[start : start + 1]


def first_of(_key: Any, value: Any) -> str | None:
    """The first letter that no function put in front of a value."""
    return None if value is None or text(value) == "" else _first(text(value))


def inner(key: Any) -> str | None:
    """A key, or the one of a window, as a text."""
    if hasattr(key, "start") and hasattr(key, "end"):
        key = key.key
    return None if key is None else text(key)


PREDICATES: dict[str, Callable[[Any, Any], bool]] = {
    "has_a": lambda _k, v: has(v, "a"),
    "has_b_or_none": lambda _k, v: v is None or has(v, "b"),
    "even_end": lambda _k, v: even(v),
    "short_key": lambda k, _v: k is not None and len(inner(k) or "") < 2,
    "has_value": lambda _k, v: v is not None,
    "has_key": lambda k, _v: k is not None,
}

VALUES: dict[str, Callable[[Any], str | None]] = {
    "text": lambda v: None if v is None else text(v),
    "suffix": lambda v: None if v is None else text(v) + "!",
    "bracket": lambda v: shorten(f"<{text(v)}>"),
    "drop_b": lambda v: None if v is None or has(v, "b") else text(v),
    "first": lambda v: None if v is None else _first(text(v)),
}


def keyed_value(word: str) -> Callable[[Any, Any], str | None]:
    """The word's function of a value, which shows that it was given the key, too."""

    def mapped(key: Any, value: Any) -> str | None:
        made = VALUES[word](value)
        return None if made is None else shorten(f"{made}%{text(key)}")

    return mapped


def keyed_values(word: str) -> Callable[[Any, Any], list[str | None]]:
    """The same of the values of a word."""
    return lambda key, value: [
        None if each is None else shorten(f"{each}%{text(key)}")
        for each in FLAT_VALUES[word](value)
    ]


FLAT_VALUES: dict[str, Callable[[Any], list[str | None]]] = {
    "letters": lambda v: [] if v is None else list(text(v)[:3]),
    "twice": lambda v: [None, None] if v is None else [text(v), text(v) + "'"],
}

KEYS: dict[str, Callable[[Any, Any], str | None]] = {
    "same": lambda k, _v: None if k is None else text(k),
    "inner": lambda k, _v: inner(k),
    "first_of_value": first_of,
    "whole_value": lambda _k, v: None if v is None else text(v),
    "length_of_value": lambda _k, v: f"n{len(text(v)) % 3}",
    "none_if_x": lambda k, v: None if has(v, "x") else inner(k),
}


def _none_or_text(value: Any) -> str | None:
    return None if value is None else text(value)


def _keyed(word: str) -> Callable[[Any, Any], tuple[str | None, str | None]]:
    return lambda k, v: (KEYS[word](k, v), _none_or_text(v))


# For map, and for the group_by of a table, where no pair means: skip.
PAIRS: dict[str, Callable[[Any, Any], tuple[str | None, str | None] | None]] = {
    "first_of_value": _keyed("first_of_value"),
    "whole_value": _keyed("whole_value"),
    "same": _keyed("same"),
    "inner": _keyed("inner"),
    "length_of_value": _keyed("length_of_value"),
    "swap": lambda k, v: (first_of(k, v), shorten(text(k))),
    "skip_x": lambda k, v: None if has(v, "x") else (inner(k), _none_or_text(v)),
}

FLAT_PAIRS: dict[str, Callable[[Any, Any], list[tuple[str | None, str | None]]]] = {
    "both": lambda k, v: [
        (inner(k), _none_or_text(v)),
        (first_of(k, v), _none_or_text(v)),
    ],
}


def _folded(sign: str, *, delete: bool = False) -> Callable[[Any, Any], str | None]:
    def fold(aggregate: Any, value: Any) -> str | None:
        if delete and has(value, "x"):
            return None
        return shorten(f"{text(aggregate)}{sign}{text(value)}")

    return fold


# Reducers and aggregators, as fold(aggregate, value); the `or_delete` ones sometimes give None.
FOLDS: dict[str, Callable[[Any, Any], str | None]] = {
    "add": _folded("+"),
    "add_or_delete": _folded("+", delete=True),
    "subtract": _folded("-"),
    "subtract_or_delete": _folded("-", delete=True),
    "times": _folded("*"),
}


def merge(left: Any, right: Any) -> str:
    """Two sessions' aggregates as one."""
    return shorten(f"[{text(left)}|{text(right)}]")


JOINERS: dict[str, Callable[[Any, Any], str | None]] = {
    "pair": lambda left, right: shorten(f"({text(left)},{text(right)})"),
    "pair_or_none": lambda left, right: (
        None if has(left, "x") else shorten(f"({text(left)},{text(right)})")
    ),
}


def keyed_joiner(word: str) -> Callable[[Any, Any, Any], str | None]:
    """The word's joiner, which shows that it was given the key, too."""

    def join(key: Any, left: Any, right: Any) -> str | None:
        made = JOINERS[word](left, right)
        return None if made is None else shorten(f"{made}%{text(key)}")

    return join


FOREIGN_KEYS: dict[str, Callable[[Any], str | None]] = {
    "first": lambda v: first_of(None, v),
    "first_or_none": lambda v: None if has(v, "x") else first_of(None, v),
    "last": lambda v: None if v is None or text(v) == "" else text(v)[-1],
    "behind_hash": lambda v: text(v)[text(v).find("#") + 1 :],
}


def keyed_foreign_key(word: str) -> Callable[[Any, Any], str | None]:
    """The word's foreign key, except for a row that refers to its own key."""
    return lambda key, value: text(key) if text(key) == "b" else FOREIGN_KEYS[word](value)
