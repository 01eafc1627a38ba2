"""Words that a command cannot take: exit status 2, and in the form of every other error."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from penstock.errors import ConfigError, UsageError


@contextlib.contextmanager
def as_usage() -> Iterator[None]:
    """Tell of a value that cannot work as of a wrong word: it came from the command line."""
    try:
        yield
    except UsageError:
        raise
    except ConfigError as error:
        raise UsageError(error.message, where=error.where, hint=error.hint) from error


def usage_error(error: Exception, command: str) -> UsageError | None:
    """What is wrong with a command's words, and who knows better; None if nothing is.

    What the parser raises is known by what it can: some versions of typer use the package click,
    others have their own.
    """
    if isinstance(error, UsageError):
        hint = error.hint or _help(f"penstock {command}")
        return UsageError(error.message, where=error.where, hint=hint)
    parsed: Any = error
    if getattr(error, "exit_code", None) is None or not hasattr(error, "format_message"):
        return None
    context = getattr(error, "ctx", None)
    message = parsed.format_message().strip().removesuffix(".")
    return UsageError(message, hint=_help("penstock" if context is None else context.command_path))


def _help(command: str) -> str:
    return f"`{command} --help` shows what it takes"


def is_help(error: Exception) -> bool:
    """Whether the parser ended because nothing was asked for, and help was shown instead."""
    return type(error).__name__ == "NoArgsIsHelpError"
