"""Where the input logs end, while brokers come and go."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.driver import inputs
from penstock.driver.inputs import InputLogs
from penstock.errors import BrokerUnreachableError

A, B = ("in", 0), ("in", 1)


class Broker:
    """Answers for the partitions that have a leader."""

    def __init__(self) -> None:
        self.ends = {A: 10, B: 20}
        self.without_leader: set[tuple[str, int]] = set()

    def told(self, clients: object, wanted: Iterable[tuple[str, int]], *_: Any) -> Any:
        return {each: self.ends[each] for each in wanted if each not in self.without_leader}

    def asked(self, clients: object, wanted: Iterable[tuple[str, int]], *_: Any) -> Any:
        if self.without_leader & set(wanted):
            raise BrokerUnreachableError("nothing answers")
        return self.told(clients, wanted)


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    broker = Broker()
    monkeypatch.setattr(inputs, "told_offsets", broker.told)
    monkeypatch.setattr(inputs, "log_offsets", broker.asked)
    return broker


def logs(ask_seconds: float, *, last_known: bool = True) -> InputLogs:
    clients: Any = SimpleNamespace(ask_timeout=timedelta(seconds=ask_seconds))
    return InputLogs(clients, [A, B], last_known=last_known)


def test_a_log_without_leader_ends_where_it_was_known_to_end(broker: Broker) -> None:
    known = logs(1000.0)
    assert known.ends() == {A: 10, B: 20}
    broker.without_leader = {A}
    broker.ends = {A: 11, B: 21}
    assert known.ends() == {A: 10, B: 21}
    broker.without_leader = set()
    assert known.ends() == {A: 11, B: 21}


def test_a_log_that_nobody_told_of_is_asked_for_until_it_is_told(broker: Broker) -> None:
    broker.without_leader = {A}
    with pytest.raises(BrokerUnreachableError):
        logs(1000.0).ends()


def test_a_log_that_has_no_leader_for_long_is_an_error(broker: Broker) -> None:
    known = logs(0.0)
    assert known.ends() == {A: 10, B: 20}
    broker.without_leader = {B}
    with pytest.raises(BrokerUnreachableError):
        known.ends()


def test_whoever_must_know_is_not_told_of_the_past(broker: Broker) -> None:
    known = logs(1000.0, last_known=False)
    assert known.ends() == {A: 10, B: 20}
    broker.without_leader = {A}
    with pytest.raises(BrokerUnreachableError):
        known.ends()
