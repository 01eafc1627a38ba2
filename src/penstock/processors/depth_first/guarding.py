"""Steps that may fail on a record and go on: what becomes of it is said by a word or a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, get_args

from penstock.errors import TopologyError, UserFunctionError
from penstock.processors.depth_first.dead_letters import letter_of
from penstock.processors.depth_first.record import Origin, Record, Shared
from penstock.processors.records import Handler, OnError
from penstock.serdes import Change
from penstock.topology.processor import Record as UserRecord
from penstock.topology.processor import RecordFailure

_T = TypeVar("_T")


def guarded(
    shared: Shared,
    step: str,
    call: Callable[[_T], None],
    handler: OnError,
    *,
    of_unwritable: OnError | None = None,
) -> Callable[[_T], None]:
    """A step that drops what it fails on; its siblings get the record all the same.

    `of_unwritable` is the handler, if that is another, of what the step cannot write.
    """
    if handler == "fail" and of_unwritable in (None, "fail"):
        return call

    def process(given: _T) -> None:
        try:
            call(given)
        except (UserFunctionError, TopologyError) as error:
            # While records run, the latter is what a processor may not ask of its context.
            if error is shared.decided:
                # A step behind this one failed, and it was said that this is the end.
                raise
            asked = handler
            if of_unwritable is not None and error is shared.unwritable:
                asked = of_unwritable
            if asked == "fail":
                # As in Kafka Streams: the step before this one fails then, too.
                raise
            answer = _answer(shared, step, asked, given, error)
            if answer == "fail":
                shared.decided = error
                raise
            shared.dropped["failed"] += 1
            if answer == "dead_letter" and shared.dead_letters is not None:
                shared.dead_letters.send(shared.context, letter_of(error))

    return process


def answer_to_refusal(
    shared: Shared, origin: Origin, handler: OnError, record: UserRecord[Any, Any], error: Exception
) -> Handler:
    """What the handler says to a record, as bytes, that Kafka does not take."""
    shared.context = origin.context
    if isinstance(handler, str):
        return handler
    return _said(shared, origin.step, handler, record, error)


def _answer(
    shared: Shared, step: str, handler: OnError, given: object, error: Exception
) -> Handler:
    """The word, or what the user's function says. Raises `UserFunctionError` if that is nothing."""
    if isinstance(handler, str):
        return handler
    try:
        return _said(shared, step, handler, given, error)
    except UserFunctionError as refusal:
        shared.decided = refusal
        raise


def _said(
    shared: Shared,
    step: str,
    handler: Callable[[RecordFailure], Handler],
    given: object,
    error: Exception,
) -> Handler:
    cause = error.__cause__
    context = shared.context
    failure = RecordFailure(
        error=cause if isinstance(cause, Exception) else error,
        step=step,
        record=_shown(given),
        topic=context.topic,
        partition=context.partition,
        offset=context.offset,
    )
    try:
        answer: Any = handler(failure)
    except Exception as raised:
        raise shared.failed(step, raised) from raised
    if answer not in get_args(Handler):
        raise UserFunctionError(
            f"The function that handles failures of records said {answer!r}",
            where=context.where(step),
            hint=f"Let it return one of {get_args(Handler)}",
        ) from error
    if answer == "dead_letter" and shared.dead_letters is None:
        raise UserFunctionError(
            "The function that handles failures of records sends one to the dead letters, and no "
            "topic for them is named",
            where=context.where(step),
            hint="Set errors_dead_letter_queue_topic_name to a topic that exists",
        ) from error
    return answer  # type: ignore[no-any-return]


def _shown(given: object) -> UserRecord[Any, Any] | None:
    """The record as users know it: of a table's change what the row becomes; None for a time."""
    if isinstance(given, UserRecord):
        return given
    if not isinstance(given, Record):
        return None
    value = given.value.new if isinstance(given.value, Change) else given.value
    return UserRecord(given.key, value, given.timestamp, given.headers)
