"""JSON decoders, each made by one thread alone.

msgspec works out a type the first time that it decodes it, and fills in what it finds step by step.
A second thread that decodes the same type meanwhile reads what is not there yet, and the process
dies of it. So every decoder of the package is made here, under one lock.
"""

from __future__ import annotations

import threading
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

_making = threading.Lock()
_made: dict[Any, msgspec.json.Decoder[Any]] = {}


def decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    """The decoder of a type; one per type and process, for making one takes a while.

    >>> decoder(dict[str, int]).decode(b'{"bpm": 72}')
    {'bpm': 72}
    """
    made = _made.get(kind)
    if made is None:
        with _making:
            made = _made.get(kind)
            if made is None:
                made = _made[kind] = msgspec.json.Decoder(kind)
    return made


def converted(value: Any, kind: type[T]) -> T:
    """A value of dicts and lists as the type that it describes.

    >>> converted({"bpm": 72}, dict[str, int])
    {'bpm': 72}
    """
    # Making the decoder works the type out, under the lock; here it is only looked up.
    decoder(kind)
    return msgspec.convert(value, kind)
