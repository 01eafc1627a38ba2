"""Rows `restore`, `restore_at_start`: records per second from a changelog into empty stores.

The first is what instances do by themselves. In the second an application starts, and Spark's JVM
starts beside the restore, on the same processor.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.inputs import CountsChangelog, Probes, key_bytes
from bench.instances import Instances, passing
from bench.lab import Lab, rotated
from bench.load import PARTITIONS, create_topic, ensure_loaded, produce
from bench.measure import CommittedOffsets, sample_until
from bench.processes import running
from bench.restores import Restored, wait_restored
from bench.results import Row
from bench.systems import Guarantee, Job, System
from bench.verify import differences, long_value, read_all, same_key

GUARANTEE: Guarantee = "exactly_once"
SYSTEMS = ("penstock", "kafka_streams")
TARGET = 1.0
PROBES = Probes(warmup=0, measured=1_000, tail=0)
TIMEOUT_SECONDS = 600.0
INSTANCES = 2
"""As many as Kafka Streams has threads here: both restore in parallel as far as that."""


ASKED_AT_ONCE = 50_000


@dataclass(frozen=True)
class Run:
    restored: Restored
    problems: tuple[str, ...]


Runs = Mapping[str, Sequence[Run]]
"""By the system's name."""


def changelog_for(records: int) -> CountsChangelog:
    """1.4 million records in the benchmark; `--records` scales them."""
    return CountsChangelog(records=records * 35 // 100)


def run(lab: Lab) -> list[Row]:
    """A new application whose changelog is there and whose disk is empty, in interleaved rounds."""
    systems = [lab.systems[name] for name in SYSTEMS if name in lab.systems]
    changelog = changelog_for(lab.settings.records)
    ensure_loaded(lab.bootstrap_servers, PROBES)
    starts: dict[str, list[Run]] = defaultdict(list)
    alone: list[Run] = []
    for number in range(lab.settings.rounds):
        for system in rotated(systems, number):
            label = f"{system.title}, restore, round {number + 1} of {lab.settings.rounds}"
            starts[system.name].append(run_once(lab, system, changelog, label))
            if system.name == "penstock":
                alone.append(run_alone(lab, changelog, f"{label}, without Spark"))
    if not starts:
        return []
    runs = {**starts, "penstock": alone} if alone else starts
    return [row("restore", runs, changelog), row("restore_at_start", starts, changelog)]


def run_alone(lab: Lab, changelog: CountsChangelog, label: str) -> Run:
    """Two instances take the tasks, which is timed until they serve all of them."""
    application = f"bench-restore-{os.getpid()}-alone-{time.monotonic_ns()}"
    with passing(lab, application) as instances:
        lab.display.status(f"{label}: writing a changelog of {changelog.records:,} records")
        produce(lab.bootstrap_servers, changelog.load(instances.changelog))
        names = [instances.start(f"instance-{number}") for number in range(INSTANCES)]
        lab.wait_for_quiet(label)
        begin = time.monotonic()
        owners = instances.share(names)
        seconds = time.monotonic() - begin
        problems = wrong_values(instances, owners, changelog)
    restored = Restored(seconds, changelog.records - len(problems))
    tell(lab, "Penstock without Spark", restored, problems)
    return Run(restored, tuple(problems))


def wrong_values(
    instances: Instances, owners: Sequence[str], changelog: CountsChangelog
) -> list[str]:
    """Which keys are not in one partition, with their count."""
    problems = []
    for start in range(0, changelog.records, ASKED_AT_ONCE):
        numbers = range(start, min(start + ASKED_AT_ONCE, changelog.records))
        keys = [key_bytes(number) for number in numbers]
        found = [instances.get(owner, partition, keys) for partition, owner in enumerate(owners)]
        for number, values in zip(numbers, zip(*found, strict=True), strict=True):
            held = [value for value in values if value is not None]
            if held != [changelog.count(number).to_bytes(8, "big")]:
                problems.append(f"{key_bytes(number)!r}: {len(held)} values, or a wrong one")
    return problems


def run_once(lab: Lab, system: System, changelog: CountsChangelog, label: str) -> Run:
    [probes] = PROBES.loads
    with lab.job(system, input=probes.topic, guarantee=GUARANTEE, row="restore") as job:
        lab.display.status(f"{label}: writing a changelog of {changelog.records:,} records")
        topic = system.changelog(job)
        create_topic(lab.admin(), topic, cleanup_policy="compact")
        produce(lab.bootstrap_servers, changelog.load(topic))
        lab.wait_for_quiet(label)
        lab.display.status(label)
        found = measure(lab, system, job)
        output = read_all(lab.bootstrap_servers, job.output)
    expected = {key_bytes(n): changelog.count(n) + 1 for n in range(PROBES.total)}
    problems = differences(output, expected, key=same_key, value=long_value)
    if found.records != changelog.records:
        problems.append(f"{found.records:,} records were restored, not {changelog.records:,}")
    tell(lab, system.title, found, problems)
    return Run(found, tuple(problems))


def tell(lab: Lab, who: str, found: Restored, problems: Sequence[str]) -> None:
    verdict = "exact" if not problems else f"WRONG: {problems[0]}"
    text = f"{found.per_second:,.0f} records/s, {found.records:,} in {found.seconds:.2f} s, "
    lab.display.figure("restore", who, GUARANTEE, text + verdict)


def measure(lab: Lab, system: System, job: Job) -> Restored:
    offsets = CommittedOffsets(lab.bootstrap_servers, group=job.application_id, topics=[job.input])
    try:
        options = {"PENSTOCK_NUM_INSTANCES": str(INSTANCES)}
        with running(system.commands(job), lab.log(job), options) as processes:
            found = wait_restored(
                lab.log(job),
                partitions=PARTITIONS,
                processes=processes,
                timeout_seconds=TIMEOUT_SECONDS,
            )
            sample_until(
                offsets.records,
                PROBES.total,
                alive=processes,
                stall_seconds=TIMEOUT_SECONDS,
                on_progress=lambda _: None,
            )
            processes.stop()
    finally:
        offsets.close()
    return found


def row(name: str, runs: Runs, changelog: CountsChangelog) -> Row:
    """Only what instances do by themselves has a target."""
    has_target = name == "restore" and "kafka_streams" in runs
    return Row(
        name=name,
        guarantee=GUARANTEE,
        unit="records/s",
        figures={name: [run.restored.per_second for run in each] for name, each in runs.items()},
        targets={"kafka_streams": TARGET} if has_target else {},
        exact=not any(run.problems for each in runs.values() for run in each),
        details={
            "changelog_records": changelog.records,
            "instances": INSTANCES,
            "restored": {n: [run.restored.records for run in each] for n, each in runs.items()},
        },
    )
