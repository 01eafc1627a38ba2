"""Whose a static id is, among the applications of a cluster, and who is in a consumer group."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError

from penstock.changelog.groups import GroupClient, membership
from penstock.config import Config
from penstock.driver.member import GroupMember
from penstock.errors import MemberRefusedError
from penstock.instance.static_id import check_id_free, client_id_of

WARD = client_id_of("ward", "a.example", 17)


def member(client_id: str) -> GroupClient:
    return GroupClient(client_id=client_id, host="/10.0.0.1", group_instance_id=None)


def test_nobody_and_a_predecessor_are_no_hindrance() -> None:
    check_id_free("bed-1", WARD, [])
    check_id_free("bed-1", WARD, [member(client_id_of("ward", "b.example", 3)), member(WARD)])


def test_one_of_another_application_is_and_both_are_named() -> None:
    other = member(client_id_of("theatre", "b.example", 4))
    with pytest.raises(MemberRefusedError) as caught:
        check_id_free("bed-1", WARD, [member(WARD), other])
    text = str(caught.value)
    assert "'ward' on a.example, process 17" in text
    assert "'theatre' on b.example, process 4" in text
    assert "bed-1" in text


@pytest.mark.parametrize(
    ("seconds", "beat", "session_ms", "heartbeat_ms"),
    [
        (2, 0.5, 6_000, 500),
        (45, 3, 45_000, 3_000),
        (600, 3, 600_000, 3_000),
        (9 * 3600, 3600, 1_800_000, 600_000),
    ],
)
def test_any_session_timeout_is_one_that_brokers_and_the_client_take(
    seconds: float, beat: float, session_ms: int, heartbeat_ms: int
) -> None:
    config = Config(
        session_timeout=timedelta(seconds=seconds), heartbeat_interval=timedelta(seconds=beat)
    )
    times = membership(config)
    assert times["session_timeout_ms"] == session_ms
    assert times["heartbeat_interval_ms"] == heartbeat_ms
    Consumer(config.client_properties(group_id="ward", **times)).close()


def test_a_driver_that_is_not_let_into_its_group_says_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    codes = [KafkaError.INVALID_SESSION_TIMEOUT, KafkaError._TRANSPORT]

    def told() -> Iterator[Any]:
        for error in map(KafkaError, codes * 2):
            yield SimpleNamespace(error=lambda error=error: error)
        member._stop.set()
        while True:
            yield None

    messages = told()
    consumer = SimpleNamespace(
        poll=lambda _: next(messages), subscribe=lambda *_, **__: None, close=lambda: None
    )
    monkeypatch.setattr(GroupMember, "_new_consumer", lambda _: consumer)
    member = GroupMember("ward", "commits", Config(), is_driver=lambda: True)
    with caplog.at_level(logging.WARNING, "penstock.driver"):
        member.join()
        member._thread.join(60)
        member.close()
    [warning] = caplog.messages
    assert "not let into the consumer group" in warning
