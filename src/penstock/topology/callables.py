"""Functions and objects that a user hands over: what nobody could call is refused with its step."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator
from typing import Any

from penstock.errors import TopologyError
from penstock.serdes import Serde
from penstock.topology.arity import check_arity
from penstock.topology.functions import BatchFunction, Expression, is_async
from penstock.topology.nodes import Node, ProcessNode, StoreSpec, TableTransformValuesNode

_PROCESSOR = ("init", "process", "close")
_TRANSFORMER = ("init", "transform", "close")


def check_functions(node: Node) -> None:
    """Refuse what nobody would call: what returns a coroutine, and functions of columns where the
    step knows functions of one record only. Raises `TopologyError`."""
    for field in dataclasses.fields(node):
        given = getattr(node, field.name)
        if isinstance(given, BatchFunction | Expression):
            raise TopologyError(
                f"The {field.name} of step {node.name} must be a function of one record",
                hint="ps.batch and ps.expr go into filter, filter_not, map_values, map, "
                "select_key, group_by and branch; on tables into the first three and group_by",
            )
        check_awaits_nothing(given, f"The {field.name} of step {node.name}")
        if isinstance(given, Serde):
            _check_serde(given, f"step {node.name}")
    check_arity(node)
    if isinstance(node, ProcessNode):
        _check_supplier(node.supplier, node.name, "processor", _PROCESSOR)
    elif isinstance(node, TableTransformValuesNode):
        _check_supplier(node.supplier, node.name, "transformer", _TRANSFORMER)


def check_store_functions(spec: StoreSpec) -> None:
    """Refuse async functions in a store's serdes and in the class that gives it a shape."""
    for serde in (spec.key_serde, spec.value_serde):
        _check_serde(serde, f"store {spec.name!r}")
    if spec.shape is not None and not isinstance(spec.shape.made_of, str):
        made_of, where = spec.shape.made_of, f"what the store {spec.name!r} is made of"
        check_awaits_nothing(made_of, where.capitalize())
        check_awaits_nothing(getattr(made_of, "flush", None), f"The flush of {where}")


def check_awaits_nothing(function: object, what: str) -> None:
    """Raise `TopologyError` for an async function, or an object that is called as one."""
    if is_async(function):
        raise TopologyError(
            f"{what} is an async function, which nobody awaits",
            hint="Write it with def; asyncio.run(...) in it waits for what must be awaited",
        )


def _check_serde(serde: Serde[Any], where: str) -> None:
    for each in _parts(serde):
        for name in ("to_bytes", "from_bytes", "serialize", "deserialize"):
            function = getattr(each, name, None)
            check_awaits_nothing(function, f"The {name} of serde {each.name!r} of {where}")


def _parts(serde: Serde[Any]) -> Iterator[Serde[Any]]:
    """A serde and those that it is made of."""
    yield serde
    for name in getattr(serde, "__dataclass_fields__", ()):
        inner = getattr(serde, name)
        if isinstance(inner, Serde):
            yield from _parts(inner)


def _check_supplier(
    supplier: Callable[[], Any], step: str, what: str, methods: tuple[str, ...]
) -> None:
    """Look at what a supplier makes, as Kafka Streams does: a class is not called for it."""
    if not callable(supplier):
        raise TopologyError(
            f"The supplier of step {step} is a {type(supplier).__name__}, which cannot be called",
            hint=f"Pass the {what}'s class, or a function that makes one: every slice has its own",
        )
    made = supplier
    if not inspect.isclass(supplier):
        try:
            made = supplier()
        except Exception:  # noqa: BLE001
            # What it needs may be there only where it runs; there the error is told in full.
            return
    _check_made(made, step, what, methods)
    if not inspect.isclass(supplier) and supplier() is made:
        raise TopologyError(
            f"The supplier of step {step} gives the same {what} each time",
            hint=f"Let it make a new {what}: every slice of every task has its own",
        )


def check_processor(made: object, step: str) -> None:
    """Raise `TopologyError` if what a supplier made is no processor, or must be awaited."""
    _check_made(made, step, "processor", _PROCESSOR)


def _check_made(made: object, step: str, what: str, methods: tuple[str, ...]) -> None:
    lacking = [name for name in methods if not callable(getattr(made, name, None))]
    if lacking:
        kind = made.__name__ if inspect.isclass(made) else type(made).__name__
        raise TopologyError(
            f"The supplier of step {step} makes no {what}: {kind} has no {lacking[0]}(...)",
            hint=f"Let it return a subclass of ps.{_CLASSES[what]}",
        )
    for name in (*methods, "keys_to_read"):
        check_awaits_nothing(getattr(made, name, None), f"The {name} of the {what} of step {step}")


_CLASSES = {"processor": "Processor", "transformer": "ValueTransformer"}
