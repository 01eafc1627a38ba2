"""An application that is fed without pause, and the means to kill its parts and look at it."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from confluent_kafka import Consumer, Producer, TopicPartition

from penstock.changelog.commit_record import DRIVER_PARTITION, CommitRecord
from penstock.changelog.topics import commits_name
from penstock.observability.crash_points import DEATHS
from tests.crash import processes
from tests.harness import AppProcess, Scene

KEYS = 500
RECORDS_PER_TICK = 8
TICK_SECONDS = 0.02
PILE = 10
"""So many records without a commit are as many as come between two commits, at least."""


class Feeder:
    """Produces records of many keys, a few hundred a second, until it is stopped."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._stop = threading.Event()
        self._failures: list[str] = []
        self._thread = threading.Thread(target=self._run, name="feeder")
        self.records = 0

    def start(self) -> Self:
        self._thread.start()
        return self

    def stop(self) -> None:
        """End with one record of each key, so that every key's last count is asked for."""
        self._stop.set()
        self._thread.join()
        assert not self._failures, self._failures

    def _run(self) -> None:
        choice = random.Random(7)
        producer = Producer(
            {
                "bootstrap.servers": self._scene.bootstrap,
                "partitioner": "murmur2_random",
                "enable.idempotence": True,
                "linger.ms": 5,
                "on_delivery": self._on_delivery,
            }
        )
        while not self._stop.wait(TICK_SECONDS):
            for _ in range(RECORDS_PER_TICK):
                self._produce(producer, choice.randrange(KEYS))
        for key in range(KEYS):
            self._produce(producer, key)
        if producer.flush(60):
            self._failures.append("records were not delivered")

    def _produce(self, producer: Producer, key: int) -> None:
        producer.produce(self._scene.source, b"value", b"key-%d" % key)
        self.records += 1
        producer.poll(0)

    def _on_delivery(self, error: object, message: object) -> None:
        if error is not None:
            self._failures.append(str(error))


@dataclass(frozen=True)
class Death:
    """A kill: what was killed, and when, in milliseconds since the epoch."""

    what: str
    at_ms: int


class World:
    """A scene, its feeder, and the application, started again when its driver is killed."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.feeder = Feeder(scene).start()
        self.app = self._start()
        self._deaths: list[Death] = []
        self._partitions = [TopicPartition(scene.source, p) for p in range(scene.partitions)]
        self._consumer = Consumer(
            {"bootstrap.servers": scene.bootstrap, "group.id": scene.application_id}
        )

    # Looking.

    def committed(self) -> list[int]:
        """The group's offset of each source partition."""
        found = self._consumer.committed(self._partitions, timeout=30)
        return [max(each.offset, 0) for each in found]

    def ends(self) -> list[int]:
        """The end of each source partition."""
        return [
            self._consumer.get_watermark_offsets(each, timeout=30)[1] for each in self._partitions
        ]

    def wait_moved(self, records: int) -> None:
        """Wait until so many further records are committed."""
        until = sum(self.committed()) + records
        self.app.wait_for(lambda: sum(self.committed()) >= until, what=f"{records} were committed")

    def wait_gone_on(self) -> None:
        """Wait until all that is in the source now is committed."""
        ends = self.ends()
        self.app.wait_for(
            lambda: all(a >= b for a, b in zip(self.committed(), ends, strict=True)),
            what=f"the group's offsets passed {ends}",
        )

    def deaths(self) -> list[Death]:
        """Every kill so far, be it at a named point or from outside."""
        notes = (self.app.crash_dir / DEATHS).read_text().splitlines()
        at_points = [Death(name, int(at)) for name, _, at in (note.split() for note in notes)]
        return sorted(at_points + self._deaths, key=lambda death: death.at_ms)

    def instances(self) -> list[processes.psutil.Process]:
        return processes.of_application(self.app.crash_dir, processes.INSTANCE)

    def owners(self) -> list[processes.psutil.Process]:
        return processes.owners(self.app.crash_dir, self.scene.state_dir)

    def workers(self) -> list[processes.psutil.Process]:
        return processes.workers(self.app.crash_dir)

    # Killing.

    def kill_stalled(self, what: str, find: Callable[[], list[processes.psutil.Process]]) -> None:
        """Freeze processes where they are; once records pile up before them, kill them.

        That records pile up shows that work was under way in these very processes.
        """
        self.app.wait_for(lambda: bool(find()), what=f"there was a {what}")
        victims = find()
        for victim in victims:
            victim.suspend()
        try:
            self._wait_piled_up(what)
            self._deaths.append(Death(what, _now_ms()))
        finally:
            for victim in victims:
                victim.kill()

    def kill_driver(self) -> None:
        """Kill the driver while records wait; everything that it started must end by itself."""
        self._wait_piled_up("driver")
        self._deaths.append(Death("driver", _now_ms()))
        self.app.kill()

    def restart(self) -> None:
        """Start the application again, as an operator would."""
        self.app = self._start()

    def close(self) -> None:
        """Leave nothing running."""
        self.feeder.stop()
        self.app.kill()
        for process in processes.of_application(self.app.crash_dir):
            process.kill()
        self._consumer.close()

    def _wait_piled_up(self, what: str) -> None:
        """Wait until a partition has grown while its group offset stood still."""
        seen: dict[tuple[int, int], int] = {}

        def piled_up() -> bool:
            """Whether so many records came since a partition's present offset was first seen."""
            now = list(enumerate(zip(self.committed(), self.ends(), strict=True)))
            return any(end >= seen.setdefault((p, at), end) + PILE for p, (at, end) in now)

        self.app.wait_for(piled_up, what=f"records waited for the {what}")

    def _start(self) -> AppProcess:
        return AppProcess(self.scene, statestore_cache_max_bytes=0, num_instances=2)


def uncommitted_at(scene: Scene, deaths: list[Death]) -> list[int]:
    """For each kill: how many records were in the source by then, and committed only later.

    A commit counts from the moment its commit record was written, which is before it took effect:
    the numbers are lower bounds.
    """
    source = sorted((row.timestamp, row.partition, row.offset) for row in scene.read(scene.source))
    commits = [
        (row.timestamp, CommitRecord.decode(row.value).position[scene.source])
        for row in scene.read(commits_name(scene.application_id))
        if row.partition != DRIVER_PARTITION and row.value is not None
    ]
    commits.sort(key=lambda commit: commit[0])
    result = []
    for death in deaths:
        done = dict.fromkeys(range(scene.partitions), 0)
        for at_ms, position in commits:
            if at_ms <= death.at_ms:
                done.update(position)
        result.append(sum(at_ms < death.at_ms and offset >= done[p] for at_ms, p, offset in source))
    return result


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
