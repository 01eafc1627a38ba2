"""Rows `queries...`: point reads of a count that goes on at half its capacity."""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from bench import clients
from bench.errors import BenchError
from bench.inputs import key_bytes, value_bytes
from bench.lab import Lab
from bench.load import create_topic, delete_topics
from bench.measure import CommittedOffsets
from bench.processes import Running, running
from bench.results import Row
from bench.rows.latency import percentile
from bench.systems import Guarantee, Job
from penstock.errors import PenstockError
from penstock.queries import Client

GUARANTEE: Guarantee = "exactly_once"
KEYS = 100_000
BATCH_KEYS = 1_000
FEED_PER_SECOND = 150_000
"""Less than half of what row `count` gives on two cores."""
ASKERS = 4
BATCHED_LEAST = 50_000
SINGLE_LEAST = 2_000
SINGLE_P99_MS = 20.0
WARM_SECONDS = 20.0
START_SECONDS = 240.0


@dataclass
class Figures:
    """A figure per round of each way to ask."""

    batched: list[float] = field(default_factory=list)
    single: list[float] = field(default_factory=list)
    p99_ms: list[float] = field(default_factory=list)
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
    with feeding(lab.bootstrap_servers, job.input), client_of(job, processes) as client:
        offsets = CommittedOffsets(
            lab.bootstrap_servers, group=job.application_id, topics=[job.input]
        )
        try:
            time.sleep(WARM_SECONDS)
            wait_for_keys(client, processes)
            for way, asked in (
                ("alone", lambda: time.sleep(seconds)),
                ("batched", lambda: figures.batched.append(batched(client, seconds, figures))),
                ("single", lambda: ask_singly(client, seconds, figures)),
            ):
                lab.display.status(f"{label}: {way}, {seconds:.0f} s")
                rate = fed_meanwhile(offsets, asked)
                figures.fed.setdefault(way, []).append(rate)
        finally:
            offsets.close()
    text = (
        f"{figures.batched[-1]:,.0f} keys/s in batches, {figures.single[-1]:,.0f}/s one by one "
        f"with p99 {figures.p99_ms[-1]:.1f} ms; committed "
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


def ask_singly(client: Client, seconds: float, figures: Figures) -> None:
    """Questions of one key from several threads: how many a second, and how long they took."""
    end = time.monotonic() + seconds

    def ask(seed: int) -> list[float]:
        draw, took = np.random.default_rng(seed), []
        while (begin := time.monotonic()) < end:
            if client.get("counts", key_bytes(int(draw.integers(0, KEYS)))) is None:
                figures.problems.append("a key that was counted has no count")
            took.append((time.monotonic() - begin) * 1000)
        return took

    with ThreadPoolExecutor(ASKERS) as pool:
        times = [each for took in pool.map(ask, range(ASKERS)) for each in took]
    figures.single.append(len(times) / seconds)
    figures.p99_ms.append(percentile(times, 99))


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
def feeding(bootstrap_servers: str, topic: str) -> Iterator[None]:
    """Records at a steady rate from a process of their own."""
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=feed, args=(bootstrap_servers, topic), daemon=True)
    process.start()
    try:
        yield
    finally:
        process.terminate()
        process.join()


def feed(bootstrap_servers: str, topic: str) -> None:
    """All keys in turn, by the clock: what is late follows at once."""
    # As Java chooses partitions: that is where keys are asked for.
    producer = clients.producer(bootstrap_servers, linger_ms=50, partitioner="murmur2_random")
    keys = [key_bytes(n) for n in range(KEYS)]
    value, begin, sent = value_bytes(0), time.monotonic(), 0
    ended = threading.Event()
    while not ended.wait(0.02):
        due = int((time.monotonic() - begin) * FEED_PER_SECOND)
        for number in range(sent, due):
            while True:
                try:
                    producer.produce(topic, value, keys[number % KEYS])
                    break
                except BufferError:
                    producer.poll(0.1)
        sent = max(sent, due)
        producer.poll(0)


def rows(figures: Figures) -> list[Row]:
    exact = not figures.problems
    fed = {way: [round(rate) for rate in rates] for way, rates in figures.fed.items()}
    return [
        Row(
            name="queries",
            guarantee=GUARANTEE,
            unit="point reads/s in batches over HTTP",
            figures={"penstock": figures.batched},
            targets={},
            exact=exact,
            least=BATCHED_LEAST,
            details={"batch_keys": BATCH_KEYS, "committed_per_second": fed},
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
