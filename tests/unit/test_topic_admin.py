"""Questions about topics, while the broker that the client knows as the controller is gone."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from penstock.changelog.topic_admin import TopicAdmin
from penstock.config import Config
from penstock.errors import BrokerUnreachableError


class Topic:
    partitions = ("first", "second")


class Client:
    """Waits for a controller that is gone until it looks at the cluster again."""

    def __init__(self, *, finds_another: bool) -> None:
        self.looked = 0
        self.waited: list[float] = []
        self._finds_another = finds_another

    def list_topics(self, *, timeout: float) -> None:
        self.looked += 1
        if not self._finds_another:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    def describe_topics(self, topics: Any, *, request_timeout: float) -> dict[str, Future[Topic]]:
        self.waited.append(request_timeout)
        future: Future[Topic] = Future()
        if self.looked and self._finds_another:
            future.set_result(Topic())
        else:
            future.set_exception(KafkaException(KafkaError(KafkaError._TIMED_OUT)))
        return {"orders": future}


def count(client: Any) -> int | None:
    return TopicAdmin(Config(), admin=client).partition_count("orders")


def test_a_controller_that_is_gone_is_looked_for() -> None:
    client = Client(finds_another=True)
    assert count(client) == 2
    assert client.looked == 1
    # Whoever plans waits meanwhile: the first try is a short one.
    assert client.waited[0] < client.waited[1]


def test_a_cluster_that_is_gone_is_told() -> None:
    client = Client(finds_another=False)
    with pytest.raises(BrokerUnreachableError):
        count(client)
    assert client.looked == 1
