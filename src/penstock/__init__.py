"""Kafka Streams' stateful processing for Python, run by Spark.

General layout: each folder is a noun of the design, and later ones import earlier ones only:
errors, config, observability, serdes, topology, processors, stores, changelog, coordination,
instance, local, queries, pipeline, console, driver, application, public, testing, examples, cli. A
test checks it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.public import *  # noqa: F403

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # The names bring the whole library with them, most of a second: a command that answers at the
    # press of a key, and a process that starts to take over from another one, need a part of it.
    if name == "__all__" or not name.startswith("_"):
        found = importlib.import_module("penstock.public").__dict__.get(name)
        if found is not None:
            globals()[name] = found
            return found
    raise AttributeError(f"module 'penstock' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__getattr__("__all__")})
