"""Stale reads while active instances are killed and all are restarted: answered, and truly."""

from __future__ import annotations

import itertools
import json
import os
import signal
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest

from penstock.queries.contract import Question
from tests.harness import Scene, Stream
from tests.integration.test_standbys import Watched

pytestmark = pytest.mark.usefixtures("spark")

PARTITIONS = 4
KILLS = int(os.environ.get("PENSTOCK_TEST_KILLS", "10"))
INTERVAL_SECONDS = 0.01
DEADLINE = timedelta(seconds=1)
KEYS = [b"k%d" % i for i in range(40)]


@dataclass(frozen=True)
class Told:
    """What an answer said: a key's count, and as of which offset of which changelog partition."""

    key: bytes
    count: int | None
    partition: int
    position: int | None
    role: str
    age: timedelta


@dataclass
class Asker:
    """Asks for one key after the other, on time, whatever becomes of the last question."""

    ask: Callable[[bytes], Told]
    told: list[Told] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    _stopping: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        due = time.monotonic()
        with ThreadPoolExecutor(max_workers=16) as pool:
            for key in itertools.cycle(KEYS):
                if self._stopping.wait(max(0.0, due - time.monotonic())):
                    return
                due += INTERVAL_SECONDS
                pool.submit(self._ask, key)

    def stop(self) -> None:
        self._stopping.set()

    def _ask(self, key: bytes) -> None:
        started = time.monotonic()
        try:
            self.told.append(self.ask(key))
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            self.failures.append(str(error))
        self.seconds.append(time.monotonic() - started)


def test_stale_reads_are_answered_and_true_through_kills_and_a_rolling_restart(
    kafka: str, tmp_path: Path
) -> None:
    scene = Scene(kafka, tmp_path, partitions=PARTITIONS).create_topics()
    first = scene.produce((key, b"v") for key in KEYS)
    with Watched(scene, num_standby_replicas=1) as run:
        run.wait_committed(first)
        wait_followed(run)
        # Else a standby that has read nothing yet tells so, truly: it has no position.
        run.wait_for(
            lambda: not any(each.lag for each in run.app.all_local_store_partition_lags()),
            what="standbys had the first records",
        )
        counts = run.app.store("counts")

        def ask(key: bytes) -> Told:
            question = Question(kind="get", keys=(key,))
            answer = counts.answer(question, stale=True, timeout=DEADLINE)
            [source], [row] = answer.sources, answer.rows
            return Told(key, row.value, source.partition, source.position, source.role, source.age)

        asker = Asker(ask)
        thread = threading.Thread(target=asker.run)
        thread.start()
        try:
            with Stream(scene, KEYS) as stream:
                for number in range(KILLS):
                    disturb(run, owner_of(run, number % PARTITIONS), signal.SIGKILL)
                for name in sorted({owner_of(run, each) for each in range(PARTITIONS)}):
                    disturb(run, name, signal.SIGTERM)
        finally:
            asker.stop()
            thread.join()
        run.wait_committed(first + stream.sent)
    check_against_changelog(scene, asker.told)
    assert scene.sequences() == scene.expected_sequences()
    slowest = ", ".join(f"{each:.3f}" for each in sorted(asker.seconds)[-20:])
    assert not asker.failures, f"{len(asker.told)} were answered; the slowest took {slowest} s"
    assert {"active", "standby"} == {each.role for each in asker.told}


def wait_followed(run: Watched) -> None:
    """Until each partition has an owner that serves it and a standby, and nothing is to move.

    One that has just given a task up to its standby is not there yet as the next standby.
    """

    def followed() -> bool:
        lags = run.app.all_local_store_partition_lags()
        held = {(each.partition, each.role) for each in lags}
        loads = Counter(each.instance for each in lags if each.role == "active")
        is_even = set(loads.values()) == {PARTITIONS // 2}
        return len(held) == 2 * PARTITIONS and is_even and run.app.is_alive(next(iter(loads)))

    run.wait_for(followed, what="every partition had a standby")


def owner_of(run: Watched, partition: int) -> str:
    """The instance that has the active copy of a partition."""
    lags = run.app.all_local_store_partition_lags()
    return next(e.instance for e in lags if (e.partition, e.role) == (partition, "active"))


def disturb(run: Watched, name: str, number: signal.Signals) -> None:
    """End an instance, and wait until another has come in its place."""
    pid = json.loads((run.directory(name) / ".lock").read_text())["pid"]
    os.kill(pid, number)
    run.wait_for(lambda: not run.app.is_alive(name), what=f"{name} was missed")
    wait_followed(run)


def check_against_changelog(scene: Scene, told: list[Told]) -> None:
    """Each value is what the changelog says for its key up to the position that came with it."""
    history: dict[tuple[int, bytes], list[tuple[int, int]]] = defaultdict(list)
    for row in scene.read(scene.changelog):
        assert row.key is not None
        assert row.value is not None
        count = int.from_bytes(row.value, "big", signed=True)
        history[row.partition, row.key].append((row.offset, count))
    assert told
    for each in told:
        assert each.position is not None
        until = [
            count for offset, count in history[each.partition, each.key] if offset <= each.position
        ]
        assert each.count == (until[-1] if until else None), each
        assert each.role != "active" or each.age == timedelta()
