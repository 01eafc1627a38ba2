"""Records that Kafka does not take: too large, without the key that a compacted topic wants, or for
a topic that does not exist.

The instance sees which they are; what becomes of them is said by the application's handler, which
the worker has. A commit of which some are refused is sent again with its rows numbered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError as NativeError

from penstock.changelog.topic_admin import TopicAdmin
from penstock.errors import KafkaError, ProductionError
from penstock.instance.clients import SharedClients
from penstock.instance.protocol import Rejection
from penstock.processors.records import SliceResult

_TOO_LARGE, _INVALID = "MSG_SIZE_TOO_LARGE", "INVALID_RECORD"
_GONE = {
    NativeError._UNKNOWN_TOPIC,  # noqa: SLF001 - it has no other name
    NativeError._UNKNOWN_PARTITION,  # noqa: SLF001
    NativeError.UNKNOWN_TOPIC_OR_PART,
}
_FORBIDDEN = {NativeError.TOPIC_EXCEPTION, NativeError.TOPIC_AUTHORIZATION_FAILED}
_OF_RECORDS = {
    NativeError.MSG_SIZE_TOO_LARGE,
    NativeError.RECORD_LIST_TOO_LARGE,
    NativeError.INVALID_MSG_SIZE,
    NativeError.INVALID_RECORD,
    NativeError.INVALID_TIMESTAMP,
    NativeError.POLICY_VIOLATION,
    NativeError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
}
_GONE_NAMES = {NativeError(code).name() for code in _GONE}
_FORBIDDEN_NAMES = {NativeError(code).name() for code in _FORBIDDEN}
"""As in Kafka Streams, no handler is asked: a right that lacks would empty the topic."""
_HINTS = {
    _TOO_LARGE: "Raise the topic's max.message.bytes, and message.max.bytes in kafka=, or write "
    "less; production_exception_handler says what such records do",
    _INVALID: "A compacted topic takes records with keys only; "
    "production_exception_handler says what others do",
    "TOPIC_AUTHORIZATION_FAILED": "Allow the application's user to write the topic",
}
_CREATE = "Create the topic; production_exception_handler says what records do that have none"
_SMALL_BATCH = 1024
"""Where a topic's limit cannot be asked for: below every limit that is of use."""


def rejection(error: NativeError, topic: str, *, has_key: bool, row: int = -1) -> Rejection | None:
    """What a failed delivery says of the record; None if the same record may pass later."""
    reason, message = error.name(), error.str()
    if error.code() in _GONE | _FORBIDDEN:
        return Rejection(topic=topic, reason=reason, message=message)
    if error.code() in _OF_RECORDS:
        return Rejection(topic=topic, reason=reason, message=message, row=row, has_key=has_key)
    return None


def numbered_rows(batch: pa.RecordBatch, first: int) -> pa.RecordBatch:
    """The rows of a commit with their places in it, as a further column."""
    return batch.append_column("row", pa.array(range(first, first + batch.num_rows), pa.int64()))


def to_be_judged(rejected: Sequence[Rejection], internal: Collection[str]) -> list[Rejection]:
    """Those that a handler may judge.

    An own topic that is gone is looked for by who takes the task. Of the records beside one
    without a key that a compacted topic refuses, the client says the same as of that one.
    """
    keyless = {each.topic for each in rejected if each.reason == _INVALID and not each.has_key}
    return [
        each
        for each in rejected
        if (each.reason not in _GONE_NAMES or each.topic not in internal)
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
    batches = (_INVALID, "INVALID_TIMESTAMP")
    invalid = Counter(each.topic for each in rejected if each.reason in batches and each.has_key)
    limits = [(_limit(clients, topic), topic) for topic in too_large]
    # The first record of a batch is not held to its limit: each goes alone.
    alone = [(1, topic) for topic, count in invalid.items() if count > 1]
    return min([*limits, *alone], default=(0, ""))


def _limit(clients: SharedClients, topic: str) -> int:
    try:
        found = TopicAdmin(clients.config, admin=clients.logs.admin).describe([topic])
        return int(found[topic].config["max.message.bytes"])
    except (KafkaError, KeyError):  # It may not be asked for, or the topic has just gone.
        return _SMALL_BATCH


def rejected_rows(result: SliceResult, rejected: Sequence[Rejection]) -> dict[int, ProductionError]:
    """Why which rows of a slice's outputs are refused, by what was said of its numbered commit.

    Raises `ProductionError` for a record that is none of them: a change of a store, of which none
    may be left out; and where the topic may not be written at all.
    """
    outputs, first = result.outputs, result.changes.num_rows
    found: dict[int, ProductionError] = {}
    for each in rejected:
        rows = [each.row - first]
        if each.reason in _GONE_NAMES | _FORBIDDEN_NAMES:
            rows = _rows_of_topic(outputs, each.topic)
        if not rows or rows[0] < 0:
            raise _error(each, "a change of a store")
        errors = {row: _error(each, "a record", bytes=_size(outputs, row)) for row in rows}
        if each.reason in _FORBIDDEN_NAMES:
            raise errors[rows[0]]
        found |= errors
    return found


def refused_outbox(rejected: Sequence[Rejection], task: str) -> ProductionError:
    """The error of outputs that wait in a database's outbox: no handler can undo them."""
    return _error(rejected[0], "a record that waits in the outbox of its database", task=task)


def _rows_of_topic(outputs: pa.RecordBatch, topic: str) -> list[int]:
    named = pc.equal(outputs.column("topic").cast(pa.string()), topic)
    rows: list[int] = pc.indices_nonzero(named).to_pylist()
    return rows


def _size(outputs: pa.RecordBatch, row: int) -> int:
    """How many bytes a record has, its headers' included."""
    key, value, headers = (
        outputs.column(name)[row].as_py() for name in ("key", "value", "headers")
    )
    parts = [key, value, *(part for each in headers or () for part in each.values())]
    return sum(len(part) for part in parts if part is not None)


def _error(rejected: Rejection, what: str, **where: object) -> ProductionError:
    create = _CREATE if rejected.reason in _GONE_NAMES else "Mend the record"
    return ProductionError(
        f"Kafka does not take {what}: {rejected.message}",
        where={"topic": rejected.topic, "error": rejected.reason, **where},
        hint=_HINTS.get(rejected.reason, create),
    )
