"""Instances of an application without Spark: started, told to take its tasks, and asked."""

from __future__ import annotations

import secrets
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import pyarrow as pa

from bench.errors import BenchError
from bench.lab import Lab
from bench.load import PARTITIONS, delete_topics
from penstock.changelog.topic_admin import TopicAdmin
from penstock.changelog.topics import TopicSpec, changelog_topic, commits_topic
from penstock.config import Config
from penstock.driver.coordinator import Coordinator
from penstock.errors import InstanceError
from penstock.instance import protocol
from penstock.instance.client import Client
from penstock.instance.protocol import (
    Beat,
    BeatReply,
    InputOrder,
    ReadHeader,
    Settings,
    StatusQuestion,
    StatusReply,
    StoreOrder,
    TakeOrder,
    TaskStatus,
)

STORE = "values"
WAIT_SECONDS = 600.0
PAUSE_SECONDS = 0.005
ANSWER_MS = 500
"""How long an instance may keep a question for what changes."""


@contextmanager
def passing(lab: Lab, application_id: str) -> Iterator[Instances]:
    """The instances of an application of which nothing is left afterwards."""
    state_dir = lab.directory / application_id
    with Instances(
        lab.bootstrap_servers, application_id, state_dir, partitions=PARTITIONS
    ) as instances:
        try:
            yield instances
        finally:
            names = lab.admin().list_topics(timeout=30).topics
            delete_topics(lab.admin(), [name for name in names if application_id in name])
    shutil.rmtree(state_dir, ignore_errors=True)


class Instances:
    """The instances of an application with one store; every instance takes all of its tasks.

    The topics are made here: an input that nobody reads, commits, and the store's changelog. The
    instances listen on TCP.
    """

    def __init__(
        self, bootstrap_servers: str, application_id: str, state_dir: Path, *, partitions: int
    ) -> None:
        self.application_id = application_id
        self.partitions = partitions
        config = Config(bootstrap_servers=bootstrap_servers, state_dir=state_dir)
        admin = TopicAdmin(config)
        changelog = changelog_topic(application_id, STORE, partitions=partitions)
        commits = commits_topic(application_id, partitions=partitions + 1)
        specs = [TopicSpec(f"{application_id}-in", partitions, {}), commits, changelog]
        admin.create(specs)
        self.input, self.changelog = specs[0].name, changelog.name
        self._topics = admin.describe(spec.name for spec in specs)
        self._token = secrets.token_hex()
        settings = Settings.of(application_id, config, over_tcp=True, global_tables=[])
        self._coordinator = Coordinator(settings, token=self._token, listen="127.0.0.1:0")
        self._takings = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._coordinator.close(30.0)

    def start(self, slot: str) -> str:
        """Start an instance with a directory of that name, and wait until it is there."""
        name = self._coordinator.start_child(slot)
        deadline = time.monotonic() + WAIT_SECONDS
        while name not in self._coordinator.names():
            self._wait(deadline, f"instance {name} does not register")
            self._coordinator.changes()
        return name

    def stop(self, name: str) -> None:
        """Stop an instance, and wait until its stores are closed."""
        self._coordinator.call(name, "stop", Beat(instance=name), BeatReply)
        deadline = time.monotonic() + WAIT_SECONDS
        while not self._coordinator.has_ended(name):
            self._wait(deadline, f"instance {name} does not stop")

    def take(self, name: str, *, peers: Sequence[str] = ()) -> list[str]:
        """Have an instance take all tasks, and wait until it serves them; what it notes of it."""
        self.share([name], peers=peers)
        return [note for status in self.statuses(name) for note in status.notes]

    def share(self, names: Sequence[str], *, peers: Sequence[str] = ()) -> list[str]:
        """Have instances take all tasks in turn, and wait until they serve them; whose each is."""
        self._takings += 1
        locations = [self._location(peer) for peer in peers]
        owners = [names[partition % len(names)] for partition in range(self.partitions)]
        for partition, owner in enumerate(owners):
            self._coordinator.call(owner, "take", self._order(partition, locations), StatusReply)
        for name in names:
            self.wait_running(name)
        return owners

    def wait_running(self, name: str) -> None:
        """Wait until an instance serves all of its tasks."""
        deadline = time.monotonic() + WAIT_SECONDS
        found = self.statuses(name)
        while not all(status.state == "running" for status in found):
            if time.monotonic() > deadline:
                raise BenchError(f"instance {name} does not serve its tasks")
            found = self.statuses(name, seen={each.task: each.state for each in found})

    def statuses(self, name: str, *, seen: Mapping[str, str] | None = None) -> list[TaskStatus]:
        """Where an instance's tasks stand, once one is in another state than was `seen`, as the
        driver asks; raises when one of them failed."""
        question = StatusQuestion() if seen is None else StatusQuestion(dict(seen), ANSWER_MS)
        reply = self._coordinator.call(name, "status", question, StatusReply)
        for status in reply.tasks:
            if status.fault is not None:
                raise BenchError(f"task {status.task}: {status.fault.message}")
        return reply.tasks

    def get(self, name: str, partition: int, keys: Sequence[bytes]) -> list[bytes | None]:
        """What the store of a partition answers, without the values' timestamps."""
        client = Client(self._location(name), token=self._token, timeout_seconds=WAIT_SECONDS)
        header = ReadHeader(
            task=f"0_{partition}", epoch=(1, self._takings), n=1, store=STORE, question="get"
        )
        schema = protocol.QUESTIONS["get"]
        asked = pa.record_batch([pa.array(keys, pa.binary())], schema=schema)
        try:
            reply, batches = client.read(header, asked)
        finally:
            client.close()
        if reply.status != "ok":
            raise BenchError(f"task 0_{partition} does not answer: {reply.reason}")
        values = [value for batch in batches for value in batch.column(0).to_pylist()]
        return [None if value is None else value[8:] for value in values]

    def _order(self, partition: int, peers: list[str]) -> TakeOrder:
        inputs = InputOrder(
            topic=self.input,
            partition=partition,
            topic_id=self._topics[self.input].id,
            partitions=self.partitions,
            reset="earliest",
        )
        changelog_id = self._topics[self.changelog].id
        return TakeOrder(
            task=f"0_{partition}",
            name=f"{STORE}-{partition}",
            epoch=(1, self._takings),
            first_taking=self._takings == 1,
            inputs=[inputs],
            stores=[StoreOrder(name=STORE, changelog=self.changelog, changelog_id=changelog_id)],
            commits_partition=partition + 1,
            peers=peers,
        )

    def _location(self, name: str) -> str:
        member = self._coordinator.member(name)
        if member is None:
            raise InstanceError("There is no such instance", where={"instance": name})
        return member.tcp_location

    def _wait(self, deadline: float, what: str) -> None:
        if time.monotonic() > deadline:
            raise BenchError(what)
        time.sleep(PAUSE_SECONDS)
