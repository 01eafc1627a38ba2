"""Errors on their way through HTTP: a status and a JSON body there, the same class again here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock import errors
from penstock.errors import (
    PenstockError,
    QueryAccessError,
    QueryError,
    QueryLimitError,
    ServiceBusyError,
    StoreElsewhereError,
    StoreUnavailableError,
    TopicMissingError,
    UnknownStoreError,
)

BAD_REQUEST = 400
INTERNAL = 500
_STATUSES: dict[type[PenstockError], int] = {
    UnknownStoreError: 404,
    TopicMissingError: 404,
    QueryLimitError: 413,
    StoreUnavailableError: 503,
    ServiceBusyError: 503,
    QueryAccessError: 403,
    StoreElsewhereError: 421,
    QueryError: BAD_REQUEST,
}
_TEXT_MAX = 2_000


def status_of(error: PenstockError) -> int:
    """The HTTP status that says who has to mend it.

    >>> status_of(UnknownStoreError("")), status_of(errors.QuestionRefusedError(""))
    (404, 400)
    """
    return next((status for kind, status in _STATUSES.items() if isinstance(error, kind)), INTERNAL)


def error_body(error: PenstockError) -> dict[str, Any]:
    """What a program is told: the same as `--json` prints on the command line."""
    return {
        "ok": False,
        "error": {
            "code": error.code,
            "message": _short(error.message),
            "where": {_short(key): _short(value) for key, value in error.where.items()},
            "hint": _short(error.hint),
        },
    }


def error_of(body: Any) -> PenstockError:
    """The error of such a body; one that is not known here is a `QueryError`.

    >>> error_of(error_body(UnknownStoreError("There is no store 'x'")))
    UnknownStoreError("There is no store 'x'")
    """
    told = body.get("error") if isinstance(body, dict) else None
    if not isinstance(told, dict):
        return QueryError("The answer is none of ours", hint="Is that address one of Penstock's?")
    where = told.get("where")
    kind = _BY_CODE.get(str(told.get("code")), QueryError)
    return kind(
        str(told.get("message", "")),
        where=where if isinstance(where, dict) else None,
        hint=str(told.get("hint", "")),
    )


def _kinds(base: type[PenstockError]) -> Iterator[type[PenstockError]]:
    yield base
    for kind in base.__subclasses__():
        yield from _kinds(kind)


# Others than those of the tree, which parts have for themselves, are made of something else.
_BY_CODE = {
    kind("").code: kind
    for kind in _kinds(errors.PenstockError)
    if kind.__module__ == errors.__name__
}


def _short(value: object) -> str:
    # What cannot be encoded must not keep the error from being told.
    text = str(value).encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= _TEXT_MAX else f"{text[:_TEXT_MAX]}..."
