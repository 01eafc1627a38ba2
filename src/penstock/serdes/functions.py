"""A serde made of two functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from penstock.errors import PenstockError
from penstock.serdes.contract import Serde

T = TypeVar("T")


@dataclass(frozen=True)
class FunctionSerde(Serde[T], Generic[T]):
    """Two functions as a serde; equal to another one of the same functions and name."""

    to_bytes: Callable[[T], bytes]
    from_bytes: Callable[[bytes], T]
    # The contract has the name on the class; here every pair has one of its own.
    name: str = field(default="custom")  # type: ignore[misc]

    def serialize(self, value: T) -> bytes:
        data = self.to_bytes(value)
        if not isinstance(data, bytes):
            raise TypeError(f"serde {self.name!r} returned {type(data).__name__}, not bytes")
        return data

    def deserialize(self, data: bytes) -> T:
        try:
            return self.from_bytes(data)
        except (ValueError, OSError, PenstockError):
            # A service that does not answer is no fault of the record's.
            raise
        except Exception as error:
            # Bytes that are not a value are a bad record, whatever the function calls it.
            raise ValueError(f"{type(error).__name__}: {error}") from error


def serde(
    serialize: Callable[[T], bytes],
    deserialize: Callable[[bytes], T],
    *,
    name: str = "custom",
) -> Serde[T]:
    """A serde of a pair of functions; `None` reaches neither, since Kafka has a null of its own.

    >>> celsius = serde(lambda value: b"%.1fC" % value, lambda data: float(data.rstrip(b"C")))
    >>> celsius.serialize(21.5)
    b'21.5C'

    What `deserialize` raises makes the record undecodable, except `OSError`, which stops the step.
    """
    return FunctionSerde(serialize, deserialize, name)
