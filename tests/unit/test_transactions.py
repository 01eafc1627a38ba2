"""A group's offsets in a transaction: the client's own time limit is not to be relied on."""

from __future__ import annotations

import re
import threading
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from penstock.changelog import transactions
from penstock.changelog.kafka_failures import transactions_refused
from penstock.changelog.transactions import send_offsets


class Client:
    """Takes offsets as it is told to."""

    def __init__(self, *, error: Exception | None = None, hangs: bool = False) -> None:
        self.taken: list[Any] = []
        self.let_go = threading.Event()
        self._error = error
        self._hangs = hangs

    def send_offsets_to_transaction(self, offsets: Any, group: Any, timeout: float) -> None:
        if self._hangs:
            self.let_go.wait()
        if self._error is not None:
            raise self._error
        self.taken.append((offsets, group, timeout))


def send(client: Any, *, timeout_seconds: float = 30) -> None:
    send_offsets(client, [], "group", timeout_seconds=timeout_seconds)


def test_offsets_are_sent() -> None:
    client = Client()
    send(client)
    assert client.taken == [([], "group", 30)]


def test_what_the_client_raises_is_raised() -> None:
    with pytest.raises(KafkaException) as raised:
        send(Client(error=KafkaException(KafkaError(KafkaError.PRODUCER_FENCED))))
    assert raised.value.args[0].code() == KafkaError.PRODUCER_FENCED


def test_a_call_that_does_not_come_back_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "_GRACE_SECONDS", 0.01)
    client = Client(hangs=True)
    try:
        with pytest.raises(KafkaException, match="coordinator") as raised:
            send(client, timeout_seconds=0.01)
    finally:
        client.let_go.set()
    native = raised.value.args[0]
    assert native.code() == KafkaError._TIMED_OUT
    # Its outcome is unknown: neither may the transaction go on, nor is the producer fenced.
    assert not any([native.fatal(), native.retriable(), native.txn_requires_abort()])


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (KafkaError._TIMED_OUT, "gave no coordinator.*transaction.state.log.replication.factor"),
        (
            KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "refused to begin transactions.*Grant this client the right",
        ),
    ],
)
def test_who_is_not_let_into_transactions_is_told_what_to_do(code: int, told: str) -> None:
    error = transactions_refused(KafkaException(KafkaError(code)), topic="ward-commits")
    assert re.search(told, f"{error.summary} {error.hint}")
    assert "ward-commits" in error.summary
