"""Wall-clock punctuators fire where no records come, exactly once, and cost nothing else."""

from __future__ import annotations

import time
from collections import defaultdict
from datetime import timedelta
from pathlib import Path

import pytest

import penstock as ps
from tests.harness import Scene
from tests.in_process import Run, Topology

pytestmark = pytest.mark.usefixtures("spark")


class Ticker(ps.Processor[str, str, str, int]):
    """Counts its calls in a store, and says each count; records are counted too."""

    def __init__(self, interval: timedelta) -> None:
        self._interval = interval

    def init(self, context: ps.ProcessorContext) -> None:
        super().init(context)
        context.schedule(self._interval, "wall_clock_time", self._tick)

    def process(self, record: ps.Record[str, str]) -> None:
        self._count(f"records-{self.context.partition}", record.timestamp)

    def _tick(self, now_ms: int) -> None:
        self._count(f"ticks-{self.context.partition}", now_ms)

    def _count(self, key: str, now_ms: int) -> None:
        store = self.context.store("calls")
        calls = (store.get(key) or 0) + 1
        store.put(key, calls)
        self.context.forward(ps.Record(key, calls, now_ms))


def ticking(interval: timedelta) -> Topology:
    def topology(app: ps.Application, source: str, results: str) -> None:
        app.add_state_store(ps.key_value_store("calls", key=str, value=int))
        stream = app.stream(source, key=str, value=str)
        stream.process(lambda: Ticker(interval), stores=["calls"], key=str, value=int).to(results)

    return topology


def calls(scene: Scene) -> dict[bytes, list[int]]:
    found: dict[bytes, list[int]] = defaultdict(list)
    for row in scene.read(scene.results):
        assert row.key is not None
        assert row.value is not None
        found[row.key].append(int.from_bytes(row.value, "big"))
    return dict(found)


def test_timers_fire_on_every_partition_with_records_or_without(kafka: str, tmp_path: Path) -> None:
    scene = Scene(kafka, tmp_path, partitions=2).create_topics()
    topology = ticking(timedelta(milliseconds=100))
    wanted = total = 0
    for _ in range(2):
        wanted += 3
        with Run(scene, topology) as run:
            # Some of them while another partition has records.
            total += scene.produce([(b"one key", b"v")] * 20)
            run.wait_for(
                lambda: all(
                    len(calls(scene).get(b"ticks-%d" % p, ())) >= wanted  # noqa: B023
                    for p in range(2)
                ),
                what="timers fired on both partitions",
            )
            run.wait_committed(total)
    found = calls(scene)
    # Over the restart too: each call once, with the state that the one before it left.
    for counts in found.values():
        assert counts == list(range(1, len(counts) + 1))
    [records] = [counts for key, counts in found.items() if key.startswith(b"records")]
    assert len(records) == 40


def test_a_task_whose_timer_is_far_off_is_left_alone(kafka: str, tmp_path: Path) -> None:
    scene = Scene(kafka, tmp_path, partitions=2).create_topics()
    with Run(scene, ticking(timedelta(hours=1))) as run:
        total = scene.produce([(b"k%d" % n, b"v") for n in range(20)])
        run.wait_for(lambda: run.app.totals.records == total, what="all was processed")
        done = run.app.totals.batches
        time.sleep(1)  # Fifty rounds of planning.
        assert run.app.totals.batches == done
    assert not any(key.startswith(b"ticks") for key in calls(scene))
