"""Rows `snapshot` and `start_1gib`: a gibibyte of state to an empty disk, and from an intact one.

Kafka Streams replays the same changelog meanwhile measured, because it has no other way.
"""

from __future__ import annotations

import os
import shutil
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from bench.inputs import BLOB_BYTES, BlobsChangelog, blob, key_bytes
from bench.instances import Instances, passing
from bench.lab import Lab
from bench.load import PARTITIONS, create_topic, produce
from bench.processes import running
from bench.restores import wait_restored
from bench.results import Row
from bench.systems import Guarantee, Job

GUARANTEE: Guarantee = "exactly_once"
TARGET = 0.1
OPEN_SECONDS_MAX = 1.0
GIB = 2**30
ASKED = 500
TIMEOUT_SECONDS = 900.0


@dataclass
class Figures:
    """Seconds, a figure per round, and what was wrong."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    opening: list[float] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def changelog_for(records: int) -> BlobsChangelog:
    """A gibibyte in the benchmark; `--records` scales it."""
    return BlobsChangelog(records=GIB // BLOB_BYTES * records // 4_000_000)


def run(lab: Lab) -> list[Row]:
    """A new application whose changelog is there, once for each round."""
    changelog = changelog_for(lab.settings.records)
    figures = Figures()
    for number in range(lab.settings.rounds):
        label = f"snapshot, round {number + 1} of {lab.settings.rounds}"
        application = f"bench-snapshot-{os.getpid()}-{number}"
        with passing(lab, application) as instances:
            lab.display.status(f"{label}: writing a changelog of {changelog.records:,} records")
            produce(lab.bootstrap_servers, changelog.load(instances.changelog))
            if "kafka_streams" in lab.systems:
                lab.wait_for_quiet(label)
                figures.seconds["kafka_streams"].append(replay(lab, instances))
            if "penstock" in lab.systems:
                measure(lab, instances, changelog, figures, label)
    return rows(figures, changelog)


def replay(lab: Lab, instances: Instances) -> float:
    """How long Kafka Streams reads the changelog into empty stores, by its own listener."""
    system = lab.systems["kafka_streams"]
    job = Job(
        bootstrap_servers=lab.bootstrap_servers,
        application_id=instances.application_id,
        input=instances.input,
        output=f"{instances.application_id}-out",
        guarantee=GUARANTEE,
        state_dir=lab.directory / f"{instances.application_id}-java",
        topology="latest",
    )
    create_topic(lab.admin(), job.output)
    with running(system.commands(job), lab.log(job)) as processes:
        found = wait_restored(
            lab.log(job),
            partitions=PARTITIONS,
            processes=processes,
            timeout_seconds=TIMEOUT_SECONDS,
        )
        processes.stop()
    shutil.rmtree(job.state_dir, ignore_errors=True)
    text = f"{found.seconds:.2f} s for a replay of {found.records:,} records"
    lab.display.figure("snapshot", system.title, GUARANTEE, text)
    return found.seconds


def measure(
    lab: Lab, instances: Instances, changelog: BlobsChangelog, figures: Figures, label: str
) -> None:
    """A first instance reads the changelog, a second one gets its stores, and starts again."""
    lab.display.status(f"{label}: filling the first instance")
    first = instances.start("first")
    instances.take(first)
    size = sum(
        path.stat().st_size for path in (lab.directory / instances.application_id).rglob("*.sst")
    )
    second = instances.start("second")
    # The first question of a process waits for its imports, which are no part of a copy.
    instances.get(first, 0, [key_bytes(0)])
    lab.wait_for_quiet(label)
    seconds, notes = until_answered(instances, second, changelog, figures, peers=[first])
    if sum("comes from another instance" in note for note in notes) != PARTITIONS:
        figures.problems.append(f"not all stores came from the peer: {notes}")
    figures.seconds["penstock"].append(seconds)
    verdict = figures.problems[-1] if figures.problems else "exact"
    text = f"{seconds:.2f} s from a peer over TCP, {size / GIB:.2f} GiB of files, {verdict}"
    lab.display.figure("snapshot", "Penstock", GUARANTEE, text)
    instances.stop(second)
    second = instances.start("second")
    seconds, _ = until_answered(instances, second, changelog, figures)
    figures.opening.append(seconds)
    lab.display.figure("start_1gib", "Penstock", GUARANTEE, f"{seconds:.2f} s on an intact disk")


def until_answered(
    instances: Instances,
    name: str,
    changelog: BlobsChangelog,
    figures: Figures,
    *,
    peers: Sequence[str] = (),
) -> tuple[float, list[str]]:
    """From the order to take all tasks until each of them has answered a query."""
    step = max(1, changelog.records // ASKED)
    keys = [key_bytes(n) for n in range(0, changelog.records, step)]
    begin = time.monotonic()
    notes = instances.take(name, peers=peers)
    for partition in range(PARTITIONS):
        instances.get(name, partition, keys[:1])
    seconds = time.monotonic() - begin
    found = [instances.get(name, partition, keys) for partition in range(PARTITIONS)]
    for number, values in enumerate(zip(*found, strict=True)):
        held = [value for value in values if value is not None]
        if held != [blob(number * step)]:
            figures.problems.append(f"{keys[number]!r}: {len(held)} values, or a wrong one")
    return seconds, notes


def rows(figures: Figures, changelog: BlobsChangelog) -> list[Row]:
    """The rows of the systems that ran."""
    details = {"changelog_records": changelog.records, "value_bytes": BLOB_BYTES}
    exact = not figures.problems
    made = []
    if figures.seconds:
        made.append(
            Row(
                name="snapshot",
                guarantee=GUARANTEE,
                unit="s to the first answer on an empty disk (lower is better)",
                figures=figures.seconds,
                targets={"kafka_streams": TARGET} if "kafka_streams" in figures.seconds else {},
                exact=exact,
                lower_is_better=True,
                details=details,
            )
        )
    if figures.opening:
        made.append(
            Row(
                name="start_1gib",
                guarantee=GUARANTEE,
                unit="s to the first answer on an intact disk (lower is better)",
                figures={"penstock": figures.opening},
                targets={},
                exact=exact,
                lower_is_better=True,
                limit=OPEN_SECONDS_MAX,
                details=details,
            )
        )
    return made
