"""Row `latency`: from a record's produce call to its result at a read_committed reader."""

from __future__ import annotations

import math
import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from bench import clients
from bench.errors import BenchError
from bench.inputs import VALUE_BYTES
from bench.lab import Lab, rotated
from bench.load import PARTITIONS, create_topic, delete_topics
from bench.processes import Running, running
from bench.results import Row
from bench.systems import COMMIT_INTERVAL_MS, Guarantee, Job, System
from bench.verify import long_value

GUARANTEE: Guarantee = "exactly_once"
SYSTEMS = ("penstock", "kafka_streams")
TARGETS = {"kafka_streams": 5.0}
RECORDS_PER_SECOND = 1_000
WARMUP_SECONDS = 60
FIRST_OUTPUT_SECONDS = 240.0
LAST_OUTPUT_SECONDS = 30.0


@dataclass
class Trace:
    """When each key was sent and when its result arrived; keys are unique, so one of each."""

    sent: dict[bytes, float] = field(default_factory=dict)
    arrived: dict[bytes, float] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def arrival(self, key: bytes, count: int, now: float) -> None:
        """Note a result; a second one for a key, or a count other than 1, is a mistake."""
        if key in self.arrived or count != 1:
            self.problems.append(f"{key!r}: count {count}, but the key was sent once")
        self.arrived.setdefault(key, now)

    def latencies_ms(self, prefix: bytes) -> list[float]:
        """The latencies of the keys with this prefix, in the order they were sent."""
        return [
            (self.arrived[key] - sent) * 1000
            for key, sent in self.sent.items()
            if key.startswith(prefix) and key in self.arrived
        ]


@dataclass(frozen=True)
class Run:
    """What one run gave, in milliseconds."""

    p50: float
    p99: float
    problems: tuple[str, ...]


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that at least this share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def run(lab: Lab) -> list[Row]:
    """Exactly-once, 100 ms between commits, the default cache, in interleaved rounds."""
    systems = [lab.systems[name] for name in SYSTEMS if name in lab.systems]
    runs: dict[str, list[Run]] = defaultdict(list)
    for number in range(lab.settings.rounds):
        for system in rotated(systems, number):
            runs[system.name].append(run_once(lab, system, number))
    return [row(lab, runs)] if runs else []


def run_once(lab: Lab, system: System, number: int) -> Run:
    label = f"{system.title}, latency, round {number + 1} of {lab.settings.rounds}"
    topic = f"bench-latency-{system.name}-{time.time_ns()}".replace("_", "-")
    create_topic(lab.admin(), topic)
    try:
        with lab.job(system, input=topic, guarantee=GUARANTEE, row="latency") as job:
            lab.wait_for_quiet(label)
            trace = measure(lab, system, job, label)
    finally:
        delete_topics(lab.admin(), [topic])
    values = trace.latencies_ms(b"measured-")
    result = Run(percentile(values, 50), percentile(values, 99), tuple(trace.problems))
    verdict = "exact" if not result.problems else f"WRONG: {result.problems[0]}"
    text = f"p50 {result.p50:,.0f} ms, p99 {result.p99:,.0f} ms, {verdict}"
    lab.display.figure("latency", system.title, GUARANTEE, text)
    return result


def measure(lab: Lab, system: System, job: Job, label: str) -> Trace:
    """Start the system, wait for a first result, then send at a steady rate and watch."""
    trace = Trace()
    consumer = output_consumer(lab.bootstrap_servers, job.output)
    producer = clients.producer(lab.bootstrap_servers, linger_ms=0)
    try:
        with running(system.commands(job), lab.log(job)) as processes:
            lab.display.status(f"{label}: starting")
            send(producer, job.input, trace, b"first-%08d" % 0)
            receive_all(consumer, trace, processes, FIRST_OUTPUT_SECONDS)
            for prefix, seconds in (
                (b"warmup", WARMUP_SECONDS),
                (b"measured", lab.settings.seconds),
            ):
                lab.display.status(f"{label}: {prefix.decode()}, {seconds} s")
                sender = threading.Thread(
                    target=send_steadily, args=(producer, job.input, trace, prefix, seconds)
                )
                sender.start()
                receive_while(consumer, trace, processes, sender.is_alive)
                sender.join()
            receive_all(consumer, trace, processes, LAST_OUTPUT_SECONDS)
            processes.stop()
    finally:
        consumer.close()
    return trace


def send(producer: Producer, topic: str, trace: Trace, key: bytes) -> None:
    trace.sent[key] = time.perf_counter()
    producer.produce(topic, key=key, value=b"%0*d" % (VALUE_BYTES, time.time_ns()))
    producer.poll(0)


def send_steadily(
    producer: Producer, topic: str, trace: Trace, prefix: bytes, seconds: float
) -> None:
    """One record a millisecond by the clock: a late one is followed by the next at once."""
    begin = time.perf_counter()
    for number in range(int(seconds * RECORDS_PER_SECOND)):
        wait = begin + number / RECORDS_PER_SECOND - time.perf_counter()
        if wait > 0:
            time.sleep(wait)
        send(producer, topic, trace, b"%s-%08d" % (prefix, number))
    producer.flush(30)


def receive_all(consumer: Consumer, trace: Trace, processes: Running, seconds: float) -> None:
    """Receive until every record that was sent has its result; raise after so many seconds."""
    deadline = time.perf_counter() + seconds

    def waiting() -> bool:
        missing = len(trace.sent) - len(trace.arrived)
        if missing and time.perf_counter() > deadline:
            raise BenchError(f"{missing} records had no result after {seconds:.0f} s")
        return missing > 0

    receive_while(consumer, trace, processes, waiting)


def receive_while(
    consumer: Consumer, trace: Trace, processes: Running, condition: Callable[[], bool]
) -> None:
    while condition():
        # One at a time: consume(n) would hold early records back until n are there.
        message = consumer.poll(0.05)
        now = time.perf_counter()
        if message is None:
            processes.check()
            continue
        error = message.error()
        if error is None:
            trace.arrival(message.key() or b"", long_value(message.value() or b""), now)
        else:
            raise KafkaException(error)


def output_consumer(bootstrap_servers: str, topic: str) -> Consumer:
    consumer = clients.consumer(
        bootstrap_servers, group="bench-latency-reader", isolation_level="read_committed"
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    return consumer


def row(lab: Lab, runs: dict[str, list[Run]]) -> Row:
    return Row(
        name="latency",
        guarantee=GUARANTEE,
        unit="ms, p50 (lower is better)",
        figures={system: [run.p50 for run in each] for system, each in runs.items()},
        targets={name: value for name, value in TARGETS.items() if name in runs},
        exact=not any(run.problems for each in runs.values() for run in each),
        lower_is_better=True,
        details={
            "commit_interval_ms": COMMIT_INTERVAL_MS[GUARANTEE],
            "records_per_second": RECORDS_PER_SECOND,
            "seconds": lab.settings.seconds,
            "p99": {
                system: round(statistics.median(run.p99 for run in each), 1)
                for system, each in runs.items()
            },
        },
    )
