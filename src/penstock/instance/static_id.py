"""A static id is one instance's in all applications of a Kafka cluster.

Within an application the coordinator sees to it, by beats. Between applications nobody but Kafka
knows of both, so that a static instance is for as long as it lives the member of a consumer group
of its id's own, `penstock-instance-<id>`, under a client id that says who it is.

What this cannot see: one that died without a goodbye counts as alive until its session timeout, and
of two that come in the same moment both may be refused. Never are both let in.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaException

from penstock.changelog.clients import LogClients
from penstock.changelog.groups import GroupClient, live_members, membership
from penstock.changelog.topics import commits_name
from penstock.config import Config
from penstock.errors import KafkaError, MemberRefusedError

_POLL_SECONDS = 0.1
_CLOSE_SECONDS = 5.0


def group_of(static_id: str) -> str:
    """The consumer group that the holder of an id is in."""
    return f"penstock-instance-{static_id}"


def client_id_of(application_id: str, host: str, pid: int) -> str:
    """What the holder of an id is called there; no application id has an `@`."""
    return f"{application_id}@{host}:{pid}"


def check_id_free(static_id: str, own: str, members: list[GroupClient]) -> None:
    """Raise `MemberRefusedError` if an instance of another application has the id.

    One of the same application is a predecessor: of that the coordinator knows more.
    """
    application = own.partition("@")[0]
    for member in members:
        if member.client_id.partition("@")[0] != application:
            raise MemberRefusedError(
                f"{_named(own)} is refused: {_named(member.client_id)} has the same "
                "group_instance_id and is alive, or was within its session timeout",
                where={"group_instance_id": static_id},
                hint="Ids are unique in a Kafka cluster: give each instance an id of its own, or "
                "stop the other one",
            )


def _named(client_id: str) -> str:
    application, _, process = client_id.partition("@")
    host, _, pid = process.rpartition(":")
    return f"The instance of application {application!r} on {host}, process {pid},"


class StaticId:
    """The right to an id, held from `take` to `close`."""

    def __init__(self, static_id: str, application_id: str, config: Config) -> None:
        self._id = static_id
        self._own = client_id_of(application_id, socket.gethostname(), os.getpid())
        self._topic = commits_name(application_id)
        self._logs = LogClients(config, application_id)
        self._timeout = config.session_timeout.total_seconds()
        self._properties = config.client_properties(
            group_id=group_of(static_id),
            client_id=self._own,
            **membership(config),
            enable_auto_commit=False,
            partition_assignment_strategy="range",
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._stay, name="static-id", daemon=True)

    def take(self, should_stop: Callable[[], bool]) -> None:
        """Hold the id. Raises `MemberRefusedError`, `KafkaError`."""
        check_id_free(self._id, self._own, self._members())
        self._thread.start()
        deadline = time.monotonic() + self._timeout
        while not should_stop():
            # Again, now that others see us: one that came in the same moment is here by now, or
            # will see us when it looks.
            members = self._members()
            if any(each.client_id == self._own for each in members):
                check_id_free(self._id, self._own, members)
                return
            if time.monotonic() > deadline:
                raise KafkaError(
                    f"The consumer group of group_instance_id {self._id!r} cannot be joined",
                    where={"group": group_of(self._id)},
                    hint="Grant this client the right to read that group",
                )
            time.sleep(_POLL_SECONDS)

    def close(self) -> None:
        """Let the id go."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(_CLOSE_SECONDS)

    def _members(self) -> list[GroupClient]:
        group = group_of(self._id)
        return live_members(self._logs.admin, group, timeout_seconds=self._timeout)

    def _stay(self) -> None:
        """Be a member and read nothing; the consumer is this thread's alone."""
        consumer = Consumer(self._properties)
        pause = {"on_assign": lambda consumer, partitions: consumer.pause(partitions)}
        consumer.subscribe([self._topic], **pause)
        while not self._stop.is_set():
            # What goes wrong goes away, or the group gives us up; another one is then let in.
            with contextlib.suppress(KafkaException):
                consumer.poll(_POLL_SECONDS)
        consumer.close()
