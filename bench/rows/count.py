"""Row `count`: records per second of a count per key, in steady state, every count verified."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, dataclass
from functools import cache

from bench.lab import Lab, rotated
from bench.load import CountInput, ensure_loaded
from bench.measure import CommittedOffsets, rate, sample_until
from bench.processes import running
from bench.results import Row
from bench.systems import COMMIT_INTERVAL_MS, Guarantee, Job, System
from bench.verify import differences, long_value, read_all, same_key

TARGETS = {"kafka_streams": 2.0, "quix_streams": 10.0}
STALL_SECONDS = 240.0


@dataclass(frozen=True)
class Run:
    """What one run gave: its rate, what it wrote, and what was wrong with that."""

    records_per_second: float
    cpu_seconds: float
    output_records: int
    changelog_records: int
    problems: tuple[str, ...]


def input_for(system: str, records: int) -> CountInput:
    """The same shape for every system; a slow one gets a twentieth of the records."""
    measured = records // 20 if system == "quix_streams" else records
    # The warm-up covers the start of JVM, Spark and stores; the tail outlasts a commit interval.
    return CountInput(warmup=measured // 4, measured=measured, tail=measured // 8)


def run(lab: Lab) -> list[Row]:
    """Both guarantees, in interleaved rounds."""
    systems = list(lab.systems.values())
    for system in systems:
        spec = input_for(system.name, lab.settings.records)
        lab.display.status(f"loading {spec.total:,} records")
        ensure_loaded(lab.bootstrap_servers, spec)
    runs: dict[Guarantee, dict[str, list[Run]]] = {
        guarantee: defaultdict(list) for guarantee in COMMIT_INTERVAL_MS
    }
    for number in range(lab.settings.rounds):
        for guarantee, by_system in runs.items():
            for system in rotated(systems, number):
                by_system[system.name].append(run_once(lab, system, guarantee, number))
    return [row(lab, guarantee, by_system) for guarantee, by_system in runs.items()]


def run_once(lab: Lab, system: System, guarantee: Guarantee, number: int) -> Run:
    """Run a system over the whole input, measure it, stop it, and read back what it wrote."""
    spec = input_for(system.name, lab.settings.records)
    label = f"{system.title}, {guarantee}, round {number + 1} of {lab.settings.rounds}"
    with lab.job(system, input=spec.topic, guarantee=guarantee, row="count") as job:
        lab.wait_for_quiet(label)
        per_second, cpu_seconds = measure(lab, system, job, spec, label)
        lab.display.status(f"{label}: reading back")
        output, changelog, problems = read_back(lab, system, job, spec)
    result = Run(per_second, cpu_seconds, output, changelog, problems)
    verdict = "exact" if not result.problems else f"WRONG: {result.problems[0]}"
    text = (
        f"{per_second:,.0f} records/s, {cpu_seconds:.0f} s of CPU, "
        f"{result.changelog_records:,} changelog records, "
        f"{result.output_records:,} output records, {verdict}"
    )
    lab.display.figure("count", system.title, guarantee, text)
    return result


def measure(
    lab: Lab, system: System, job: Job, spec: CountInput, label: str
) -> tuple[float, float]:
    """The rate, and the processor time from the start of the processes to the last record."""
    offsets = CommittedOffsets(lab.bootstrap_servers, group=job.application_id, topic=job.input)
    try:
        with running(system.commands(job), lab.log(job)) as processes:
            samples = sample_until(
                offsets.records,
                spec.total,
                alive=processes,
                stall_seconds=STALL_SECONDS,
                on_progress=lambda n: lab.display.status(f"{label}: {n:,} of {spec.total:,}"),
            )
            cpu_seconds = processes.cpu_seconds()
            processes.stop()
    finally:
        offsets.close()
    return rate(samples, warmup=spec.warmup, measured=spec.measured), cpu_seconds


@cache
def expected_counts(spec: CountInput) -> dict[bytes, int]:
    return spec.expected()


def read_back(
    lab: Lab, system: System, job: Job, spec: CountInput
) -> tuple[int, int, tuple[str, ...]]:
    """How many records output and changelog hold, and where their last values are wrong."""
    expected = expected_counts(spec)
    output = read_all(lab.bootstrap_servers, job.output)
    changelog = read_all(lab.bootstrap_servers, system.changelog(job))
    wrong = differences(output, expected, key=same_key, value=long_value)
    wrong_state = differences(
        changelog, expected, key=system.changelog_key, value=system.changelog_value
    )
    problems = [f"output {text}" for text in wrong] + [f"changelog {text}" for text in wrong_state]
    return output.records, changelog.records, tuple(problems)


def row(lab: Lab, guarantee: Guarantee, runs: dict[str, list[Run]]) -> Row:
    targets = {name: value for name, value in TARGETS.items() if name in runs}
    return Row(
        name="count",
        guarantee=guarantee,
        unit="records/s",
        figures={system: [run.records_per_second for run in each] for system, each in runs.items()},
        targets=targets,
        exact=not any(run.problems for each in runs.values() for run in each),
        details={
            "commit_interval_ms": COMMIT_INTERVAL_MS[guarantee],
            "inputs": {name: asdict(input_for(name, lab.settings.records)) for name in runs},
            "cpu_seconds": {n: [round(r.cpu_seconds, 1) for r in each] for n, each in runs.items()},
            "changelog_records": {
                n: [r.changelog_records for r in each] for n, each in runs.items()
            },
            "output_records": {n: [r.output_records for r in each] for n, each in runs.items()},
        },
    )
