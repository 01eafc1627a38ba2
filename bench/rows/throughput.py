"""Rows of records per second in steady state: interleaved rounds, every result verified."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Generic, TypeVar

from bench.inputs import Input
from bench.lab import Lab, rotated
from bench.load import ensure_loaded
from bench.measure import CommittedOffsets, rate, sample_until
from bench.processes import running
from bench.results import Row
from bench.systems import COMMIT_INTERVAL_MS, Guarantee, Job, System

STALL_SECONDS = 240.0

I = TypeVar("I", bound=Input)  # noqa: E741


@dataclass(frozen=True)
class Found:
    """What a run wrote, and what is wrong with it."""

    output_records: int
    changelog_records: int
    problems: tuple[str, ...]


@dataclass(frozen=True)
class Run:
    """What one run gave: its rate, its cost, and what it wrote."""

    records_per_second: float
    cpu_seconds: float
    found: Found


@dataclass(frozen=True, kw_only=True)
class Workload(Generic[I]):
    """A row: which topology the systems run over which input, and how the result is checked."""

    name: str
    targets: Mapping[str, float]
    input_for: Callable[[str, int], I]
    read_back: Callable[[Lab, System, Job, I], Found]
    guarantees: tuple[Guarantee, ...] = ("exactly_once",)
    systems: tuple[str, ...] = ("penstock", "kafka_streams")

    def run(self, lab: Lab) -> list[Row]:
        """A row for each guarantee, measured in interleaved rounds."""
        systems = [lab.systems[name] for name in self.systems if name in lab.systems]
        inputs = {each.name: self.input_for(each.name, lab.settings.records) for each in systems}
        for spec in inputs.values():
            lab.display.status(f"loading {spec.total:,} records")
            ensure_loaded(lab.bootstrap_servers, spec)
        runs: dict[Guarantee, dict[str, list[Run]]] = {
            guarantee: defaultdict(list) for guarantee in self.guarantees
        }
        for number in range(lab.settings.rounds):
            for guarantee, by_system in runs.items():
                for system in rotated(systems, number):
                    spec = inputs[system.name]
                    by_system[system.name].append(
                        self.run_once(lab, system, spec, guarantee, number)
                    )
        return [
            row(self.name, guarantee, by_system, targets=self.targets, inputs=inputs)
            for guarantee, by_system in runs.items()
            if by_system
        ]

    def run_once(self, lab: Lab, system: System, spec: I, guarantee: Guarantee, number: int) -> Run:
        """Run a system over the whole input, measure it, stop it, and read back what it wrote."""
        label = f"{system.title}, {self.name}, {guarantee}, "
        label += f"round {number + 1} of {lab.settings.rounds}"
        first, *others = (load.topic for load in spec.loads)
        with lab.job(
            system,
            input=first,
            other=others[0] if others else "",
            guarantee=guarantee,
            row=self.name,
            topology=self.name,
        ) as job:
            lab.wait_for_quiet(label)
            per_second, cpu_seconds = measure(lab, system, job, spec, label)
            lab.display.status(f"{label}: reading back")
            found = self.read_back(lab, system, job, spec)
        verdict = "exact" if not found.problems else f"WRONG: {found.problems[0]}"
        text = (
            f"{per_second:,.0f} records/s, {cpu_seconds:.0f} s of CPU, "
            f"{found.changelog_records:,} changelog records, "
            f"{found.output_records:,} output records, {verdict}"
        )
        lab.display.figure(self.name, system.title, guarantee, text)
        return Run(per_second, cpu_seconds, found)


def measure(lab: Lab, system: System, job: Job, spec: Input, label: str) -> tuple[float, float]:
    """The rate, and the processor time from the start of the processes to the last record."""
    topics = [load.topic for load in spec.loads]
    offsets = CommittedOffsets(lab.bootstrap_servers, group=job.application_id, topics=topics)
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


def row(
    name: str,
    guarantee: Guarantee,
    runs: Mapping[str, list[Run]],
    *,
    targets: Mapping[str, float],
    inputs: Mapping[str, Any],
) -> Row:
    """The row of all rounds; `inputs` are the dataclasses that each system read."""
    return Row(
        name=name,
        guarantee=guarantee,
        unit="records/s",
        figures={system: [run.records_per_second for run in each] for system, each in runs.items()},
        targets={peer: value for peer, value in targets.items() if peer in runs},
        exact=not any(run.found.problems for each in runs.values() for run in each),
        details={
            "commit_interval_ms": COMMIT_INTERVAL_MS[guarantee],
            "inputs": {system: asdict(inputs[system]) for system in runs},
            "cpu_seconds": {n: [round(r.cpu_seconds, 1) for r in each] for n, each in runs.items()},
            "changelog_records": {
                n: [r.found.changelog_records for r in each] for n, each in runs.items()
            },
            "output_records": {
                n: [r.found.output_records for r in each] for n, each in runs.items()
            },
        },
    )
