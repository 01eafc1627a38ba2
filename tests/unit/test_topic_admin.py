"""Questions about topics, while the broker that the client knows as the controller is gone."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from penstock.changelog.topic_admin import TopicAdmin
from penstock.config import Config
from penstock.errors import BrokerUnreachableError, TopicMissingError


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


class SlowBroker:
    """Describes a topic at the third question, whether or not it is on the list before."""

    def __init__(self, *, listed: bool, brokers: int = 1) -> None:
        self.asked = 0
        self._listed = listed
        self._brokers = dict.fromkeys(range(brokers))

    def list_topics(self, *, timeout: float) -> Any:
        topics = {"orders": 1} if self._listed else {"others": 1}
        return SimpleNamespace(topics=topics, brokers=self._brokers)

    def describe_topics(self, topics: Any, *, request_timeout: float) -> dict[str, Future[Any]]:
        self.asked += 1
        future: Future[Any] = Future()
        if self.asked < 3:
            future.set_exception(KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)))
        else:
            replicas = SimpleNamespace(replicas=[1])
            future.set_result(SimpleNamespace(partitions=[replicas] * 2, topic_id="id"))
        return {"orders": future}

    def describe_configs(self, resources: Any, *, request_timeout: float) -> Any:
        future: Future[Any] = Future()
        future.set_result({})
        return dict.fromkeys(resources, future)


def test_a_topic_that_one_broker_shows_and_another_does_not_know_yet_is_asked_for_again() -> None:
    client: Any = SlowBroker(listed=True)
    found = TopicAdmin(Config(), admin=client).require(["orders"])
    assert found["orders"].partitions == 2
    assert client.asked == 3


def test_a_topic_that_the_asked_brokers_do_not_know_yet_is_asked_for_again() -> None:
    client: Any = SlowBroker(listed=False, brokers=3)
    assert "orders" in TopicAdmin(Config(), admin=client).require(["orders"])
    assert client.asked == 3


def test_a_topic_that_the_only_broker_does_not_show_is_missing_at_once() -> None:
    client: Any = SlowBroker(listed=False)
    with pytest.raises(TopicMissingError, match="orders"):
        TopicAdmin(Config(), admin=client).require(["orders"])
    assert client.asked == 1
