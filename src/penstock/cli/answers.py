"""What commands print: sentences for people, one JSON object for programs."""

from __future__ import annotations

import json
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
    UsageError,
    UserFunctionError,
    in_sentences,
)

EXIT_REFUSED = 1
EXIT_USAGE = 2
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
    """Print the error in a line, and return the exit status that goes with it.

    Where the object cannot be printed (a full disk), people are told at least.
    """
    if not as_json or not _print_object(error):
        text = in_sentences(error.summary, _hint(error))
        print(f"penstock: {one_line(text)}", file=sys.stderr)
    return exit_status(error)


def _print_object(error: PenstockError) -> bool:
    """Print the error for programs; whether that went."""
    fields = {
        "code": error.code,
        "message": error.message,
        "where": {key: str(value) for key, value in error.where.items()},
        "hint": _hint(error),
    }
    try:
        print(_json({"ok": False, "error": fields}), flush=True)
    except OSError:
        return False
    return True


def exit_status(error: PenstockError) -> int:
    """The status of a command that ends with this error."""
    if isinstance(error, UsageError):
        return EXIT_USAGE
    return EXIT_UNREACHABLE if isinstance(error, _UNREACHABLE) else EXIT_REFUSED


def _hint(error: PenstockError) -> str:
    """What to do next; who wants to know more than a line has is told how."""
    if not error.details:
        return error.hint
    what = "the traceback" if isinstance(error, UserFunctionError) else "more of it"
    more = f"the same command with --debug shows {what}"
    return f"{error.hint}; {more}" if error.hint else more.capitalize()


def print_progress(text: str) -> None:
    """Say what takes a while, where it does not mix with the answer."""
    print(text, file=sys.stderr, flush=True)


def _json(answer: Mapping[str, object]) -> str:
    try:
        text = msgspec.json.encode(answer).decode()
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        # A file's name may be no text, and a terminal may not have all letters: JSON can say both.
        return json.dumps(msgspec.to_builtins(answer), separators=(",", ":"))
    return text


def printable(text: str) -> str:
    """The text in one line, without what would do something to a terminal: records hold anything.

    >>> print(printable("two" + chr(10) + "lines"), printable(chr(27) + "[2J"))
    two\\nlines \\x1b[2J
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def one_line(text: str) -> str:
    """The text of an error in one line: its own breaks become blanks, and nothing is hidden.

    >>> one_line("no such" + chr(10) + "  ward")
    'no such ward'
    """
    return printable(" ".join(line.strip() for line in text.splitlines()))


def counted(count: int, what: str) -> str:
    """A number of things.

    >>> counted(1, "task"), counted(4, "task")
    ('1 task', '4 tasks')
    """
    return f"{count:,} {what}{'' if count == 1 else 's'}"
