"""A function of the user's that travels to the workers beside the topology, not in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pyspark import cloudpickle


@dataclass(frozen=True)
class Travelling:
    """Calls the function that was pickled by `jobs.pickled`, wherever it is."""

    pickled: bytes

    def __call__(self, *arguments: Any) -> Any:
        """What the function returns."""
        return _function(self.pickled)(*arguments)


@lru_cache(maxsize=16)
def _function(pickled: bytes) -> Callable[..., Any]:
    function: Callable[..., Any] = cloudpickle.loads(pickled)
    return function
