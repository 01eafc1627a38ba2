"""The driver's transactions, when brokers do not answer."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError as NativeError
from confluent_kafka import KafkaException

from penstock.driver.writer import DriverWriter
from penstock.errors import FencedError, KafkaError


def timeout() -> KafkaException:
    return KafkaException(NativeError(NativeError._TIMED_OUT, "no answer", retriable=True))


def abortable() -> KafkaException:
    return KafkaException(
        NativeError(NativeError._TIMED_OUT, "not delivered", txn_requires_abort=True)
    )


def fenced() -> KafkaException:
    return KafkaException(NativeError(NativeError._FENCED, "fenced", fatal=True))


class FakeProducer:
    """Notes what it is asked for; calls of a name fail with what is in `failures`, in turn."""

    def __init__(self, **failures: list[KafkaException]) -> None:
        self.calls: list[str] = []
        self._failures = failures

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: object) -> None:
            self.calls.append(name.removesuffix("_transaction"))
            if self._failures.get(name):
                raise self._failures[name].pop(0)

        return call


def written(**failures: list[KafkaException]) -> tuple[DriverWriter, FakeProducer]:
    producer = FakeProducer(**failures)
    return DriverWriter(producer, "commits"), producer  # type: ignore[arg-type]


def write(writer: DriverWriter) -> None:
    writer.write([(0, b"driver", b"1")], 1.0)


def test_an_end_that_nobody_confirms_is_asked_for_again_and_fences_nobody() -> None:
    writer, producer = written(commit_transaction=[timeout(), timeout()])
    for _ in range(2):
        with pytest.raises(KafkaError) as caught:
            write(writer)
        assert not isinstance(caught.value, FencedError)
    write(writer)
    assert producer.calls == [
        *("begin", "produce", "commit", "commit", "commit", "begin", "produce", "commit")
    ]


def test_what_was_not_delivered_is_aborted_and_the_next_one_goes_on() -> None:
    writer, producer = written(
        commit_transaction=[abortable()], abort_transaction=[timeout(), timeout()]
    )
    for _ in range(2):
        with pytest.raises(KafkaError, match="no answer"):
            write(writer)
    write(writer)
    assert producer.calls[2:] == [
        *("commit", "abort", "abort", "abort", "begin", "produce", "commit")
    ]


@pytest.mark.parametrize("call", ["begin_transaction", "commit_transaction", "abort_transaction"])
def test_a_fenced_driver_is_told_so(call: str) -> None:
    failures = {call: [fenced()]}
    if call == "abort_transaction":
        failures["commit_transaction"] = [abortable()]
    writer, _ = written(**failures)
    with pytest.raises(FencedError, match="fenced"):
        write(writer)
