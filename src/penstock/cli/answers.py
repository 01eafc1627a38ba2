"""What commands print: sentences for people, one JSON object for programs."""

from __future__ import annotations

import sys
from collections.abc import Mapping

import msgspec

from penstock.errors import (
    ApplicationUnreachableError,
    BrokerUnreachableError,
    InstanceUnreachableError,
    PenstockError,
    ServiceBusyError,
    ServiceUnreachableError,
    StoreUnavailableError,
)

EXIT_REFUSED = 1
EXIT_UNREACHABLE = 3
_UNREACHABLE = (
    ApplicationUnreachableError,
    BrokerUnreachableError,
    InstanceUnreachableError,
    ServiceBusyError,
    ServiceUnreachableError,
    StoreUnavailableError,
)


def print_answer(text: str, data: Mapping[str, object], *, as_json: bool) -> None:
    """Print the text, or `{ok, data}`; flushed, since who reads may be waiting on a pipe."""
    print(_json({"ok": True, "data": data}) if as_json else text, flush=True)


def print_error(error: PenstockError, *, as_json: bool) -> int:
    """Print the error and return the exit status that goes with it."""
    if as_json:
        fields = {
            "code": error.code,
            "message": error.message,
            "where": {key: str(value) for key, value in error.where.items()},
            "hint": error.hint,
        }
        print(_json({"ok": False, "error": fields}), flush=True)
    else:
        print(f"penstock: {error}", file=sys.stderr)
    return EXIT_UNREACHABLE if isinstance(error, _UNREACHABLE) else EXIT_REFUSED


def print_progress(text: str) -> None:
    """Say what takes a while, where it does not mix with the answer."""
    print(text, file=sys.stderr, flush=True)


def _json(answer: Mapping[str, object]) -> str:
    return msgspec.json.encode(answer).decode()


def printable(text: str) -> str:
    """The text in one line, without what would do something to a terminal: records hold anything.

    >>> print(printable("two" + chr(10) + "lines"), printable(chr(27) + "[2J"))
    two\\nlines \\x1b[2J
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def counted(count: int, what: str) -> str:
    """A number of things.

    >>> counted(1, "task"), counted(4, "task")
    ('1 task', '4 tasks')
    """
    return f"{count:,} {what}{'' if count == 1 else 's'}"
