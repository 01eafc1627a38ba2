"""Records that Kafka does not take: too large, without the key that a compacted topic wants, or for
a topic that does not exist.

The instance sees which they are; what becomes of them is said by the application's handler, which
the worker has. It knows them again by a digest.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError as NativeError
from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the stubs do not re-export
    ConfigResource,
    ResourceType,
)

from penstock.errors import ProductionError
from penstock.instance.clients import SharedClients
from penstock.instance.protocol import Rejection

_TOO_LARGE, _INVALID = "MSG_SIZE_TOO_LARGE", "INVALID_RECORD"
_MISSING = {
    NativeError._UNKNOWN_TOPIC,  # noqa: SLF001 - it has no other name
    NativeError._UNKNOWN_PARTITION,  # noqa: SLF001
    NativeError.UNKNOWN_TOPIC_OR_PART,
    NativeError.TOPIC_EXCEPTION,
    NativeError.TOPIC_AUTHORIZATION_FAILED,
}
_OF_RECORDS = {
    NativeError.MSG_SIZE_TOO_LARGE,
    NativeError.RECORD_LIST_TOO_LARGE,
    NativeError.INVALID_MSG_SIZE,
    NativeError.INVALID_RECORD,
    NativeError.INVALID_TIMESTAMP,
    NativeError.POLICY_VIOLATION,
    NativeError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
}
_HINTS = {
    _TOO_LARGE: "Raise the topic's max.message.bytes, and message.max.bytes in kafka=, or write "
    "less; production_exception_handler says what such records do",
    _INVALID: "A compacted topic takes records with keys only; "
    "production_exception_handler says what others do",
    "TOPIC_AUTHORIZATION_FAILED": "Allow the application's user to write the topic",
}
_CREATE = "Create the topic; production_exception_handler says what records do that have none"
_NEVER_SKIPPED = {"TOPIC_AUTHORIZATION_FAILED", "TOPIC_EXCEPTION"}
"""As in Kafka Streams, no handler is asked: a right that lacks would empty the topic."""
_SMALL_BATCH = 1024
"""Where a topic's limit cannot be asked for: below every limit that is of use."""


def rejection(
    error: NativeError, topic: str, key: bytes | None, value: bytes | None
) -> Rejection | None:
    """What a failed delivery says of the record; None if the same record may pass later."""
    if error.code() not in _MISSING | _OF_RECORDS:
        return None
    reason, message = error.name(), error.str()
    if error.code() in _MISSING:
        return Rejection(topic=topic, reason=reason, message=message)
    return Rejection(
        topic=topic,
        reason=reason,
        message=message,
        record=record_digest(key, value),
        has_key=key is not None,
    )


def record_digest(key: bytes | None, value: bytes | None) -> str:
    """A short name of a record's bytes.

    >>> record_digest(b"a", b"b") == record_digest(b"ab", b"")
    False
    """
    digest = hashlib.blake2b(digest_size=16)
    for part in (key, value):
        digest.update(b"-" if part is None else b"%d:" % len(part))
        digest.update(part or b"")
    return digest.hexdigest()


def to_be_judged(rejected: Sequence[Rejection], internal: Collection[str]) -> list[Rejection]:
    """Those that a handler may judge.

    An own topic that is gone is looked for by who takes the task. Of the records beside one
    without a key that a compacted topic refuses, the client says the same as of that one.
    """
    keyless = {each.topic for each in rejected if each.reason == _INVALID and not each.has_key}
    return [
        each
        for each in rejected
        if (each.record or each.topic not in internal)
        and not (each.reason == _INVALID and each.has_key and each.topic in keyless)
    ]


def fitting_batch(clients: SharedClients, rejected: Sequence[Rejection]) -> tuple[int, str]:
    """How many bytes batches may have, so that none is refused for a record that is not to blame,
    and the topic that wants it; 0 if all of these are to blame.

    A broker judges a whole batch, and Java's producer splits one that is too large. This client
    does not: small records beside each other would be refused for a large one, or for their
    number.
    """
    too_large = {each.topic for each in rejected if each.reason == _TOO_LARGE}
    invalid = Counter(each.topic for each in rejected if each.reason == _INVALID and each.has_key)
    limits = [(_limit(clients, topic), topic) for topic in too_large]
    # The first record of a batch is not held to its limit: each goes alone.
    alone = [(1, topic) for topic, count in invalid.items() if count > 1]
    return min([*limits, *alone], default=(0, ""))


def _limit(clients: SharedClients, topic: str) -> int:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    admin, seconds = clients.logs.admin, clients.timeout_seconds
    try:
        [answer] = admin.describe_configs([resource], request_timeout=seconds).values()
        return int(answer.result(seconds)["max.message.bytes"].value)
    except (KafkaException, TimeoutError, KeyError, ValueError):
        return _SMALL_BATCH


def rejected_rows(
    outputs: pa.RecordBatch, rejected: Sequence[Rejection]
) -> dict[int, ProductionError]:
    """Why which rows of a slice's outputs are refused.

    Raises `ProductionError` for a record that is none of them: a change of a store, of which none
    may be left out; and where the topic may not be written at all.
    """
    found: dict[int, ProductionError] = {}
    for each in rejected:
        rows = list(_rows_of(outputs, each))
        if not rows:
            raise _error(each)
        if each.reason in _NEVER_SKIPPED:
            raise _error(each, size=_size(outputs, rows[0]))
        found |= {row: _error(each, size=_size(outputs, row)) for row in rows}
    return found


def refused_outbox(rejected: Sequence[Rejection], task: str) -> ProductionError:
    """The error of outputs that wait in a database's outbox: no handler can undo them."""
    found = _error(rejected[0], size=0)
    return ProductionError(
        f"{found.message}. It waits in the outbox of the store's database",
        where={"topic": rejected[0].topic, "error": rejected[0].reason, "task": task},
        hint="Let the topic take it, and start again",
    )


def _rows_of(outputs: pa.RecordBatch, rejected: Rejection) -> Iterator[int]:
    keys, values = outputs.column("key"), outputs.column("value")
    named = pc.equal(outputs.column("topic").cast(pa.string()), rejected.topic)
    of_topic = pc.indices_nonzero(named).to_pylist()
    if not rejected.record:
        yield from of_topic
        return
    same = [
        row
        for row in of_topic
        if record_digest(keys[row].as_py(), values[row].as_py()) == rejected.record
    ]
    if same and rejected.reason == _TOO_LARGE:
        # A transaction ends with its first failure: larger ones were not tried yet.
        least = _size(outputs, same[0])
        same = [row for row in of_topic if _size(outputs, row) >= least]
    yield from same


def _size(outputs: pa.RecordBatch, row: int) -> int:
    parts = (outputs.column(name)[row].as_buffer() for name in ("key", "value"))
    return sum(0 if part is None else part.size for part in parts)


def _error(rejected: Rejection, *, size: int | None = None) -> ProductionError:
    where = {"topic": rejected.topic, "error": rejected.reason}
    what = "a record" if size is not None else "a change of a store"
    return ProductionError(
        f"Kafka does not take {what}: {rejected.message}",
        where=where if size is None else {**where, "bytes": size},
        hint=_HINTS.get(rejected.reason, _CREATE if not rejected.record else "Mend the record"),
    )
