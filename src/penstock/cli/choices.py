"""Words of which a command takes one."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import TypeVar

import typer

E = TypeVar("E", bound=StrEnum)


def completed_from(words: Iterable[str]) -> Callable[[str], list[str]]:
    """What a shell asks for the words that go on as one was begun."""
    known = [str(each) for each in words]

    def complete(incomplete: str) -> list[str]:
        return [each for each in known if each.startswith(incomplete)]

    return complete


def one_of(choices: type[E]) -> Callable[[str], E]:
    """The parser of an argument; who mistypes a word is told which one is near."""
    words = [str(each) for each in choices]

    def parse(text: str) -> E:
        if text in words:
            return choices(text)
        near = difflib.get_close_matches(text, words, n=1)
        meant = f" Did you mean {near[0]!r}?" if near else ""
        known = ", ".join(map(repr, words))
        raise typer.BadParameter(f"{text!r} is not one of {known}.{meant}")

    return parse
