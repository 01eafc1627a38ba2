"""Row `start`: from the start of the process to the first result a read_committed reader sees."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass

from bench.errors import BenchError
from bench.inputs import CountInput
from bench.lab import Lab, rotated
from bench.load import ensure_loaded
from bench.measure import CommittedOffsets, sample_until
from bench.processes import running
from bench.results import Row
from bench.rows.latency import output_consumer
from bench.systems import COMMIT_INTERVAL_MS, Guarantee, Job, System
from bench.verify import differences, long_value, read_all, same_key

GUARANTEE: Guarantee = "exactly_once"
SYSTEMS = ("penstock", "kafka_streams")
INPUT = CountInput(warmup=0, measured=1_000, tail=0, keys=100)
FIRST_OUTPUT_SECONDS = 240.0


@dataclass(frozen=True)
class Run:
    seconds: float
    problems: tuple[str, ...]


def run(lab: Lab) -> list[Row]:
    """A new application over an existing topic of a thousand records, in interleaved rounds."""
    systems = [lab.systems[name] for name in SYSTEMS if name in lab.systems]
    ensure_loaded(lab.bootstrap_servers, INPUT)
    runs: dict[str, list[Run]] = defaultdict(list)
    for number in range(lab.settings.rounds):
        for system in rotated(systems, number):
            label = f"{system.title}, start, round {number + 1} of {lab.settings.rounds}"
            lab.wait_for_quiet(label)
            lab.display.status(label)
            runs[system.name].append(run_once(lab, system))
    return [row(runs)] if runs else []


def run_once(lab: Lab, system: System) -> Run:
    with lab.job(system, input=INPUT.topic, guarantee=GUARANTEE, row="start") as job:
        seconds = measure(lab, system, job)
        output = read_all(lab.bootstrap_servers, job.output)
    problems = differences(output, INPUT.expected(), key=same_key, value=long_value)
    verdict = "exact" if not problems else f"WRONG: {problems[0]}"
    lab.display.figure("start", system.title, GUARANTEE, f"{seconds:.1f} s, {verdict}")
    return Run(seconds, tuple(problems))


def measure(lab: Lab, system: System, job: Job) -> float:
    consumer = output_consumer(lab.bootstrap_servers, job.output)
    offsets = CommittedOffsets(lab.bootstrap_servers, group=job.application_id, topics=[job.input])
    try:
        # The consumer connects first, so that its own start is not part of the figure.
        consumer.poll(0.5)
        begin = time.monotonic()
        with running(system.commands(job), lab.log(job)) as processes:
            while (message := consumer.poll(0.05)) is None or message.error() is not None:
                processes.check()
                if time.monotonic() - begin > FIRST_OUTPUT_SECONDS:
                    raise BenchError(f"no result after {FIRST_OUTPUT_SECONDS:.0f} s")
            seconds = time.monotonic() - begin
            sample_until(
                offsets.records,
                INPUT.total,
                alive=processes,
                stall_seconds=FIRST_OUTPUT_SECONDS,
                on_progress=lambda _: None,
            )
            processes.stop()
    finally:
        consumer.close()
        offsets.close()
    return seconds


def row(runs: dict[str, list[Run]]) -> Row:
    return Row(
        name="start",
        guarantee=GUARANTEE,
        unit="s to the first output (lower is better)",
        figures={system: [run.seconds for run in each] for system, each in runs.items()},
        targets={},
        exact=not any(run.problems for each in runs.values() for run in each),
        lower_is_better=True,
        details={"commit_interval_ms": COMMIT_INTERVAL_MS[GUARANTEE]},
    )
