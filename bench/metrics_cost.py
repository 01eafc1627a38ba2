"""What metrics cost: processor time per record at each level, over the same slices.

Worker and instance run in this process, without Spark and Kafka, whose work does not depend on the
level: what is measured is all that counting adds, against less than all that a record costs. So the
ratios are upper bounds. Levels take turns, and the least of each is compared: whatever else runs on
the machine only adds to it. A ratio means nothing where the spread is larger than it.

    python -m bench.metrics_cost [--records 50000] [--slices 10] [--rounds 5]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa

from penstock.config import Config, RecordingLevel
from penstock.driver.monitor import Monitor
from penstock.instance import protocol
from penstock.instance.changes import collect_changes
from penstock.instance.meters import TaskMeter
from penstock.instance.protocol import ReadHeader, StoreOrder, TakeOrder
from penstock.observability.recorder import Recorder
from penstock.pipeline.clock import SliceClock
from penstock.pipeline.orders import Outcome
from penstock.pipeline.worker import commit_rows
from penstock.processors import Entry, Limits, Records, SliceRun, changelog_headers
from penstock.stores.contract import Change
from penstock.stores.rocksdb import RocksDBStore
from penstock.stores.rocksdb_engine import RocksDBEngine, RocksDBSettings
from penstock.topology import StreamsBuilder, SubTopology

LEVELS: tuple[RecordingLevel, ...] = ("OFF", "INFO", "DEBUG", "TRACE")
KEYS = 100_000
STORE, TASK = "counts", "0_0"


class Instance:
    """One store, read and written as an instance does."""

    def __init__(self, level: RecordingLevel, directory: Path) -> None:
        recorder = Recorder(level, first=("instance.1",))
        self._meter = TaskMeter(recorder, _take_order())
        settings = RocksDBSettings.of(Config())
        engine = RocksDBEngine(settings, statistics=recorder.records("DEBUG"))
        self.store = RocksDBStore(STORE, directory, engine=engine)

    def get_many(self, store: str, keys: pa.Array) -> pa.Array:
        header = ReadHeader(task=TASK, epoch=(1, 1), n=1, store=store)
        questions = pa.table([keys], schema=protocol.QUESTIONS["get"])
        batches = list(self._meter.answers(self.store, header, questions))
        return pa.concat_arrays([batch.column(0) for batch in batches])

    def fetch_many(self, store: str, questions: Sequence[object]) -> list[list[Entry]]:
        raise NotImplementedError

    def range_many(self, store: str, ranges: Sequence[object]) -> list[list[Entry]]:
        raise NotImplementedError

    def fetch_times(self, store: str, first: int, last: int) -> list[Entry]:
        raise NotImplementedError

    def apply(self, changes: list[Change]) -> None:
        with self._meter.writing(STORE, changes):
            self.store.apply(changes, offset=1)


def _take_order() -> TakeOrder:
    return TakeOrder(
        task=TASK,
        name="counts-0",
        epoch=(1, 1),
        first_taking=True,
        inputs=[],
        stores=[StoreOrder(name=STORE)],
        commits_partition=1,
    )


def topology() -> SubTopology:
    """Count per key, to a topic."""
    builder = StreamsBuilder()
    stream = builder.stream("in", key=str, value=bytes)
    stream.group_by_key().count(STORE).to_stream().to("out")
    return builder.build().sub_topologies[0]


def slices(count: int, size: int) -> list[Records]:
    """The same records in every run."""
    random = np.random.default_rng(7)
    value = b"x" * 64
    return [
        Records(
            topic="in",
            partition=0,
            offsets=np.arange(number * size, (number + 1) * size, dtype=np.int64),
            timestamps=np.full(size, 1_700_000_000_000, dtype=np.int64),
            keys=pa.array([b"key-%08d" % key for key in random.integers(0, KEYS, size)]),
            values=pa.array([value] * size),
        )
        for number in range(count)
    ]


def seconds(level: RecordingLevel, sub: SubTopology, records: list[Records]) -> float:
    """Processor time of all slices, from records to stored state and counted metrics."""
    monitor = Monitor("cost", Config(metrics_recording_level=level))
    limits = Limits(cache_max_bytes=5 * 1024 * 1024, partition_counts={"out": 4}, metrics=level)
    with tempfile.TemporaryDirectory() as directory:
        instance = Instance(level, Path(directory) / STORE)
        began = time.process_time()
        for each in records:
            _run_slice(instance, monitor, sub, limits, each)
        took = time.process_time() - began
        instance.store.close()
    return took


def _run_slice(
    instance: Instance, monitor: Monitor, sub: SubTopology, limits: Limits, records: Records
) -> None:
    clock = SliceClock(limits.metrics)
    clock.polled(len(records.offsets), 0.0)
    with clock.processing():
        run = SliceRun(sub, application_id="cost", state=instance, limits=limits)
        run.process(records)
        result = run.finish()
    changes: dict[str, list[Change]] = {}
    with clock.committing():
        for batch in commit_rows(result, changelog_headers(sub, result.changes)):
            collect_changes(batch, [STORE], (), changes)
        instance.apply(changes.get(STORE, []))
    entries = clock.entries(result.meter, records=len(records.offsets))
    outcome = Outcome(task=TASK, status="committed", metrics=entries)
    told = msgspec.json.decode(msgspec.json.encode(outcome), type=Outcome)
    monitor.committed("instance.1", sub.name, told)


def main() -> None:
    """Measure, and print the ratios to `OFF`."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--records", type=int, default=50_000, help="records in a slice")
    parser.add_argument("--slices", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    sub, records = topology(), slices(arguments.slices, arguments.records)
    seconds("INFO", sub, records[:1])  # Imports and caches are filled.
    found: dict[RecordingLevel, list[float]] = {level: [] for level in LEVELS}
    for number in range(arguments.rounds):
        for level in (*LEVELS[number % 4 :], *LEVELS[: number % 4]):
            found[level].append(seconds(level, sub, records))
    total = arguments.records * arguments.slices
    base = min(found["OFF"])
    for level, times in found.items():
        spread = statistics.median(times) / min(times) - 1
        print(
            f"{level:6} {min(times) / total * 1e6:7.3f} us of processor time a record, "
            f"{min(times) / base:5.3f} of OFF, the median {spread:.1%} above the least"
        )


if __name__ == "__main__":
    main()
