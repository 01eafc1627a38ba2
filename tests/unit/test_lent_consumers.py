"""Consumers for short readings are lent again, but for those of which nobody knows how they are."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from penstock.changelog.clients import LogClients
from penstock.config import Config


class Lent:
    """A consumer, as far as it is lent."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.unassigned = 0
        self.closed = False
        self.is_deaf = False

    def list_topics(self, topic: str, timeout: float) -> None:
        self.asked.append(topic)
        if self.is_deaf:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    def unassign(self) -> None:
        self.unassigned += 1

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Lent]:
    found: list[Lent] = []

    def consumer(self: LogClients, **_: object) -> Lent:
        found.append(Lent())
        return found[-1]

    monkeypatch.setattr(LogClients, "consumer", consumer)
    return found


def clients(idle_max: int) -> LogClients:
    return LogClients(Config(bootstrap_servers="127.0.0.1:1"), "app", idle_max=idle_max)


def test_one_that_has_read_is_asked_for_the_leader_and_reads_again(made: list[Lent]) -> None:
    logs = clients(1)
    for _ in range(2):
        with logs.lent_consumer("commits"):
            pass
    [one] = made
    assert (one.asked, one.unassigned, one.closed) == (["commits", "commits"], 2, False)


def test_one_that_is_deaf_or_was_left_in_the_middle_is_thrown_away(made: list[Lent]) -> None:
    logs = clients(1)
    with logs.lent_consumer("commits"):
        made[0].is_deaf = True
    with pytest.raises(ValueError, match="broken"), logs.lent_consumer("commits"):
        raise ValueError("broken")
    assert [each.closed for each in made] == [True, True]
    with logs.lent_consumer("commits"):
        pass
    assert [each.closed for each in made] == [True, True, False]


def test_no_more_are_kept_than_are_to_be(made: list[Lent]) -> None:
    logs = clients(1)
    with logs.lent_consumer("commits"), logs.lent_consumer("commits"):
        pass
    assert sorted(each.closed for each in made) == [False, True]
    with clients(0).lent_consumer("commits"):
        pass
    assert made[2].closed
