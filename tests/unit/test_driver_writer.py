"""The driver's transactions and its lease, when brokers do not answer."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError as NativeError
from confluent_kafka import KafkaException

from penstock.config import Config
from penstock.driver import lease as lease_module
from penstock.driver.lease import DriverLease
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


class Clock:
    """A time of day that passes when a test says so."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now


class World:
    """A lease with a beat a second, over a Kafka that answers or does not."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = Clock()
        self.producer = FakeProducer()
        self.is_replaced = False
        monkeypatch.setattr(lease_module, "time", self.clock)
        monkeypatch.setattr(lease_module, "Producer", lambda config: self.producer)
        monkeypatch.setattr(lease_module, "GroupMember", lambda *_, **__: SimpleNamespace())
        monkeypatch.setattr(DriverLease, "_is_replaced", lambda *_: self.is_replaced)
        config = Config(heartbeat_interval=timedelta(seconds=1))
        logs: Any = None
        self.lease = DriverLease("app", config, logs)
        self.lease.beat()

    def fail(self, how: KafkaException) -> None:
        self.producer._failures["commit_transaction"] = [how]

    def pass_seconds(self, seconds: float) -> None:
        self.clock.now += seconds


def test_a_driver_knows_for_three_beats_that_nobody_took_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch)
    world.pass_seconds(2.9)
    assert world.lease.holds()
    world.fail(timeout())
    world.lease.beat()
    world.pass_seconds(0.2)
    # It beat, and Kafka did not take it.
    assert not world.lease.holds()
    assert world.lease.renewed == 100.0
    assert not world.lease.holds_since(102.0)
    world.lease.beat()
    assert world.lease.holds()
    # One that is slow may take each beat when three are over.
    world.pass_seconds(60)
    assert not world.lease.holds()
    assert world.lease.holds_since(102.0)
    assert not world.lease.holds_since(110.0)


@pytest.mark.parametrize(("seconds", "asks"), [(2.9, False), (3.1, True)])
def test_one_that_stood_still_asks_before_it_goes_on(
    monkeypatch: pytest.MonkeyPatch, seconds: float, asks: bool
) -> None:
    world = World(monkeypatch)
    world.lease.check()
    world.pass_seconds(seconds)
    world.is_replaced = True
    world.fail(fenced())
    if asks:
        with pytest.raises(FencedError, match="Another driver of 'app' took over"):
            world.lease.check()
        assert not world.lease.holds()
    else:
        world.lease.check()


def test_one_that_stood_still_and_was_not_replaced_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    world.pass_seconds(60)
    world.lease.check()
    assert world.lease.holds()
    # Nor does it end because Kafka does not answer.
    world.pass_seconds(60)
    world.fail(timeout())
    world.lease.check()
    assert not world.lease.holds()
