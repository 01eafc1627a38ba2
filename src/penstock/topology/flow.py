"""Where a stream or table stands while a topology is written, and what is known of its types."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from penstock.errors import TopologyError
from penstock.serdes import serde_of
from penstock.topology.draft import Draft, Missing, SerdeOrMissing, said_serde
from penstock.topology.nodes import Node


@dataclass(frozen=True)
class Flow:
    """The step that a stream or table comes from; `reads` are the stores behind a table's rows."""

    draft: Draft
    step: str
    key: SerdeOrMissing
    value: SerdeOrMissing
    origin: str
    rekeyed: bool = False
    reads: tuple[str, ...] = ()
    history_ms: int | None = None
    """Of a table that keeps versions: for how long."""

    def then(self, node: Node, **changes: Any) -> Flow:
        """The flow behind one more step."""
        step = self.draft.add(node, after=[self.step])
        return dataclasses.replace(self, step=step, **changes)


def chosen_serde(given: Any, annotated: Any, step: str, option: str) -> SerdeOrMissing:
    """The serde that was given, else that of an annotation, else a note of what is missing."""
    if given is not None:
        return said_serde(given, option, step)
    if annotated is None or annotated is Any:
        return Missing(step, option)
    try:
        return serde_of(annotated)
    except TopologyError:
        # An annotation without a serde matters only if bytes are ever needed.
        return Missing(step, option, annotated)


def pair_types(kind: Any) -> tuple[Any, Any]:
    """The types of a pair, as its annotation says; `None` where it says nothing."""
    kinds = typing.get_args(kind) if typing.get_origin(kind) is tuple else ()
    return kinds if len(kinds) == 2 else (None, None)


def item_type(kind: Any) -> Any:
    """The type of what an annotated iterable holds; `None` where it says nothing."""
    origin, kinds = typing.get_origin(kind), typing.get_args(kind)
    is_iterable = isinstance(origin, type) and issubclass(origin, Iterable)
    return kinds[0] if is_iterable and kinds else None


def returned_type(function: Callable[..., Any]) -> Any:
    """What a function's annotation says that it returns; `None` where it says nothing."""
    try:
        hints = typing.get_type_hints(function)
    except (NameError, TypeError, AttributeError):
        return None
    kind = hints.get("return")
    return None if kind is type(None) else kind
