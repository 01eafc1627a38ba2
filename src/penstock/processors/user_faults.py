"""The error of a user's function: in a line, with the place in their own file."""

from __future__ import annotations

import reprlib
import sysconfig
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import penstock.errors
from penstock.errors import UserFunctionError
from penstock.serdes import Serde

_OURS = Path(penstock.errors.__file__).parent
_EXAMPLES = _OURS / "examples"
_PACKAGES = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "purelib", "platlib"))
_USUAL = (TypeError, ValueError, OverflowError, AttributeError)
"""What serdes raise of values that are of another type: their words say it all."""


def function_error(step: str, error: Exception, where: Mapping[str, object]) -> UserFunctionError:
    """What is raised from the error of a step's function; `details` has the traceback."""
    frames = error.__traceback__.tb_next if error.__traceback__ else None
    text = "".join(traceback.format_exception(type(error), error, frames)).rstrip()
    failure = UserFunctionError(
        f"The function of step {step} raised {said(error)}",
        where={**where, **_place(traceback.extract_tb(frames))},
        hint="The slice was not committed; mend the function and start again",
    )
    failure.details = text
    return failure


def stored_error(
    step: str,
    store: str,
    serde: Serde[Any],
    error: Exception,
    where: Mapping[str, object],
    key: object,
) -> UserFunctionError:
    """What is raised from the error of a serde that cannot read what a store has."""
    return UserFunctionError(
        f"Step {step} cannot read what the store {store!r} has, as {serde.name}: {error}",
        where={**where, "store": store, "key": reprlib.repr(key)},
        hint="Name the serde that the store was written with, and one that reads what it writes",
    )


def refused_error(
    step: str, serde: Serde[Any], what: str, error: Exception, where: Mapping[str, object]
) -> UserFunctionError:
    """What is raised from the error of a serde that cannot write a key or a value."""
    words = error if isinstance(error, _USUAL) else said(error)
    return UserFunctionError(
        f"Step {step} got a {what} that its serde {serde.name!r} cannot write: {words}",
        where=where,
        hint=f"Return the type that the topology names, or name another by {what}=",
    )


def said(error: BaseException) -> str:
    """An exception's kind and its words, in a line.

    >>> said(ValueError("bad:" + chr(10) + "  very")), said(KeyError())
    ('ValueError: bad: very', 'KeyError')
    """
    words = " ".join(str(error).split())
    return f"{type(error).__name__}: {words}" if words else type(error).__name__


def _place(frames: traceback.StackSummary) -> dict[str, object]:
    """The line of the user's own that was reached last; it may have called into a package."""
    others = [each for each in frames if not _is_ours(each.filename)]
    own = [each for each in others if not each.filename.startswith(_PACKAGES)]
    found = (own or others)[-1:]
    return {key: value for each in found for key, value in _named(each).items()}


def _named(frame: traceback.FrameSummary) -> dict[str, object]:
    return {"file": Path(frame.filename).name, "line": frame.lineno}


def _is_ours(file: str) -> bool:
    path = Path(file)
    return path.is_relative_to(_OURS) and not path.is_relative_to(_EXAMPLES)
