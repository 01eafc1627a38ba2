"""Rows `queries...`: point reads of a count that goes on at half its capacity."""

from __future__ import annotations

import itertools
import multiprocessing
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bench import clients
from bench.errors import BenchError
from bench.http_reads import read_for
from bench.inputs import key_bytes, value_bytes
from bench.lab import Lab
from bench.load import create_topic, delete_topics, records_held
from bench.measure import CommittedOffsets
from bench.processes import Running, running
from bench.results import Row
from bench.rows.latency import percentile
from bench.systems import Guarantee, Job
from penstock.errors import PenstockError
from penstock.queries import Client
from penstock.queries.driver_file import read_driver_file

GUARANTEE: Guarantee = "exactly_once"
KEYS = 100_000
BATCH_KEYS = 1_000
FLAT_OUT = 1_000_000
"""Records a second that no application here can follow."""
ASKERS = 16
BATCHED_LEAST = 50_000
SINGLE_LEAST = 2_000
SINGLE_P99_MS = 20.0
WARM_SECONDS = 20.0
WARM_PER_SECOND = 50_000
SETTLE_SECONDS = 5.0
START_SECONDS = 240.0
MOMENT_RECORDS = 200_000
"""About a second of input."""


@dataclass
class Figures:
    """A figure per round of each way to ask."""

    batched: list[float] = field(default_factory=list)
    single: list[float] = field(default_factory=list)
    p99_ms: list[float] = field(default_factory=list)
    capacity: list[float] = field(default_factory=list)
    """Records a second that are committed when they come faster than that, from the same feeder."""
    fed: dict[str, list[float]] = field(default_factory=dict)
    """Records a second that were committed meanwhile."""
    problems: list[str] = field(default_factory=list)


def run(lab: Lab) -> list[Row]:
    """Penstock alone: Kafka Streams answers inside its own process, and has no service."""
    if "penstock" not in lab.systems:
        return []
    figures = Figures()
    for number in range(lab.settings.rounds):
        label = f"queries, round {number + 1} of {lab.settings.rounds}"
        topic = f"bench-queries-{time.time_ns()}"
        create_topic(lab.admin(), topic)
        system = lab.systems["penstock"]
        try:
            with lab.job(system, input=topic, guarantee=GUARANTEE, row="count") as job:
                lab.wait_for_quiet(label)
                with running(system.commands(job), lab.log(job)) as processes:
                    measure(lab, job, processes, figures, label)
                    processes.stop()
        finally:
            delete_topics(lab.admin(), [topic])
    return rows(figures)


def measure(lab: Lab, job: Job, processes: Running, figures: Figures, label: str) -> None:
    lab.display.status(f"{label}: starting")
    seconds = float(lab.settings.seconds)
    with feeding(lab.bootstrap_servers, job.input) as rate, client_of(job, processes) as client:
        offsets = CommittedOffsets(
            lab.bootstrap_servers, group=job.application_id, topics=[job.input]
        )
        try:
            time.sleep(WARM_SECONDS)
            wait_for_keys(client, processes)
            lab.display.status(f"{label}: as fast as it can, {seconds:.0f} s")
            rate.value = FLAT_OUT
            figures.capacity.append(fed_meanwhile(offsets, lambda: time.sleep(seconds)))
            rate.value = 0
            wait_for_the_end(lab, job, offsets)
            rate.value = figures.capacity[-1] / 2
            time.sleep(SETTLE_SECONDS)
            for way, asked in (
                ("alone", lambda: time.sleep(seconds)),
                ("batched", lambda: figures.batched.append(batched(client, seconds, figures))),
                ("single", lambda: ask_singly(job, seconds, figures)),
            ):
                lab.display.status(f"{label}: {way}, {seconds:.0f} s")
                figures.fed.setdefault(way, []).append(fed_meanwhile(offsets, asked))
        finally:
            offsets.close()
    text = (
        f"{figures.batched[-1]:,.0f} keys/s in batches, {figures.single[-1]:,.0f}/s one by one "
        f"with p99 {figures.p99_ms[-1]:.1f} ms; committed {figures.capacity[-1]:,.0f}/s at most, "
        + ", ".join(f"{rates[-1]:,.0f}/s {way}" for way, rates in figures.fed.items())
    )
    lab.display.figure("queries", "Penstock", GUARANTEE, text)


def batched(client: Client, seconds: float, figures: Figures) -> float:
    """Keys a second, a thousand in each question."""
    draw = np.random.default_rng(7)
    asked, begin = 0, time.monotonic()
    while (took := time.monotonic() - begin) < seconds:
        keys = [key_bytes(int(n)) for n in draw.integers(0, KEYS, BATCH_KEYS)]
        values = client.get_many("counts", keys)
        if any(value is None or value < 1 for value in values):
            figures.problems.append("a key that was counted has no count")
        asked += len(keys)
    return asked / took


def ask_singly(job: Job, seconds: float, figures: Figures) -> None:
    """Questions of one key over several connections: how many a second, and how long they took."""
    draw = np.random.default_rng(11)
    keys = [key_bytes(int(n)) for n in draw.integers(0, KEYS, 20_000)]
    driver = read_driver_file(job.state_dir, job.application_id)
    reads = read_for(driver, "counts", keys, seconds, ASKERS)
    if reads.missing:
        figures.problems.append(f"{reads.missing} keys that were counted have no count")
    figures.single.append(len(reads.milliseconds) / seconds)
    figures.p99_ms.append(percentile(reads.milliseconds, 99))


def fed_meanwhile(offsets: CommittedOffsets, act: Callable[[], object]) -> float:
    """Records a second that the application commits while something is done."""
    first, begin = offsets.records(), time.monotonic()
    act()
    return (offsets.records() - first) / (time.monotonic() - begin)


@contextmanager
def client_of(job: Job, processes: Running) -> Iterator[Client]:
    """The client of an application, once it runs."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            with Client.of_application(job.application_id, state_dir=job.state_dir) as client:
                client.stores()
                yield client
                return
        except PenstockError:
            processes.check()
            if time.monotonic() > deadline:
                raise BenchError("the application does not answer") from None
            time.sleep(0.5)


def wait_for_keys(client: Client, processes: Running) -> None:
    """Wait until every key was counted."""
    keys = [key_bytes(n) for n in range(0, KEYS, 97)]
    deadline = time.monotonic() + START_SECONDS
    while None in client.get_many("counts", keys):
        processes.check()
        if time.monotonic() > deadline:
            raise BenchError("some keys are never counted")
        time.sleep(0.5)


@contextmanager
def feeding(bootstrap_servers: str, topic: str) -> Iterator[Any]:
    """Records at a steady rate, which can be changed, from a process of their own."""
    context = multiprocessing.get_context("spawn")
    rate = context.Value("d", WARM_PER_SECOND)
    process = context.Process(target=feed, args=(bootstrap_servers, topic, rate), daemon=True)
    process.start()
    try:
        yield rate
    finally:
        process.terminate()
        process.join()


def feed(bootstrap_servers: str, topic: str, rate: Any) -> None:
    """All keys in turn, by the clock: what is late follows at once, as far as there is room."""
    # As Java chooses partitions: that is where keys are asked for.
    producer = clients.producer(bootstrap_servers, linger_ms=50, partitioner="murmur2_random")
    keys = itertools.cycle([key_bytes(n) for n in range(KEYS)])
    value, last, due = value_bytes(0), time.monotonic(), 0.0
    while True:
        time.sleep(0.02)
        now = time.monotonic()
        due = min(due + (now - last) * rate.value, float(FLAT_OUT))
        last = now
        try:
            while due >= 1:
                producer.produce(topic, value, next(keys))
                due -= 1
        except BufferError:
            pass
        producer.poll(0)


def wait_for_the_end(lab: Lab, job: Job, offsets: CommittedOffsets) -> None:
    """Wait until what came too fast is worked off."""
    deadline = time.monotonic() + START_SECONDS
    behind = float("inf")
    while behind > MOMENT_RECORDS:
        if time.monotonic() > deadline:
            raise BenchError("the application does not follow half of what it could")
        time.sleep(0.5)
        behind = records_held(lab.bootstrap_servers, job.input) - offsets.records()


def rows(figures: Figures) -> list[Row]:
    exact = not figures.problems
    fed = {way: [round(rate) for rate in rates] for way, rates in figures.fed.items()}
    capacity = [round(rate) for rate in figures.capacity]
    return [
        Row(
            name="queries",
            guarantee=GUARANTEE,
            unit="point reads/s in batches over HTTP",
            figures={"penstock": figures.batched},
            targets={},
            exact=exact,
            least=BATCHED_LEAST,
            details={"batch_keys": BATCH_KEYS, "capacity": capacity, "committed_per_second": fed},
        ),
        Row(
            name="queries_http",
            guarantee=GUARANTEE,
            unit="point reads/s one by one over HTTP",
            figures={"penstock": figures.single},
            targets={},
            exact=exact,
            least=SINGLE_LEAST,
            details={"askers": ASKERS},
        ),
        Row(
            name="queries_http_p99",
            guarantee=GUARANTEE,
            unit="ms, p99 of reads one by one over HTTP (lower is better)",
            figures={"penstock": figures.p99_ms},
            targets={},
            exact=exact,
            lower_is_better=True,
            limit=SINGLE_P99_MS,
        ),
    ]
