"""The dead-letter topic: input records that could not be processed, with the reason in headers."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from penstock.processors.depth_first.record import Context, DeadLetter, Headers, Pair
from penstock.processors.records import Records

# Kafka Streams' names.
_PREFIX = "__streams.errors."

Write = Callable[[str, bytes | None, bytes | None, int, Headers], None]


class DeadLetterTopic:
    """Writes input records, byte for byte, to the dead-letter topic."""

    def __init__(
        self,
        topic: str,
        inputs: Mapping[tuple[str, int], Sequence[Records]],
        write: Write,
        *,
        takes_dropped: bool,
    ) -> None:
        self._topic = topic
        self._inputs = inputs
        self._write = write
        self.takes_dropped = takes_dropped

    def send(self, context: Context, letter: DeadLetter, *, raw: Pair | None = None) -> None:
        """Write the input record, with why, where it came from and its own headers."""
        key, value = raw or self.raw(context) or (None, None)
        reasons = {
            "exception": letter.exception,
            "message": letter.message,
            "stacktrace": letter.stacktrace,
            "topic": context.topic,
            "partition": str(context.partition),
            "offset": str(context.offset),
        }
        told = tuple((_PREFIX + name, text.encode()) for name, text in reasons.items())
        self._write(self._topic, key, value, context.timestamp, (*context.headers, *told))

    def raw(self, context: Context) -> Pair | None:
        """The input record, byte for byte; None if there is none, or it is not known."""
        if context.raw is not None:
            return context.raw
        for chunk in self._inputs.get((context.topic, context.partition), ()):
            row = int(np.searchsorted(chunk.offsets, context.offset))
            if row < len(chunk.offsets) and chunk.offsets[row] == context.offset:
                return chunk.keys[row].as_py(), chunk.values[row].as_py()
        # A punctuator has no input record.
        return None


def letter_of(error: Exception) -> DeadLetter:
    """The letter about an error; its cause is what the user's code raised."""
    cause = error.__cause__ or error
    kind = type(cause)
    name = (
        kind.__qualname__
        if kind.__module__ == "builtins"
        else f"{kind.__module__}.{kind.__qualname__}"
    )
    text = "".join(traceback.format_exception(cause))
    return DeadLetter(name, str(cause), text)
