"""Rows `failover` and `standby_lag`: instances die, stop and join while records come steadily.

Each story starts an application with a gibibyte of state (`--records` scales state and rate), waits
until it and its standbys have all of it, and lets things go wrong. What is measured is seen from
outside: when committed outputs of each partition arrive. At the end every count must be exact.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from operator import methodcaller
from pathlib import Path

from bench.errors import BenchError
from bench.inputs import BLOB_BYTES, BlobsChangelog, key_bytes
from bench.lab import Lab, Settings
from bench.load import create_topic, delete_topics, produce
from bench.measure import CommittedOffsets
from bench.plot import Panel, svg
from bench.results import Row
from bench.rows.failover_scenes import (
    PARTITIONS,
    JavaScene,
    PenstockScene,
    Scene,
    log_ends,
)
from bench.steady import Feeder, OutputReader
from bench.systems import Guarantee, Job, System
from bench.timeline import Timeline, missed_batches, percentile_lag
from bench.verify import differences, long_value, read_all, same_key

GUARANTEE: Guarantee = "exactly_once"
RATE = 20_000
GIB = 2**30
FULL = Settings().records
SESSION_SECONDS = 10
CHILD_SECONDS_MAX = 3.0
OTHERS_BATCHES_MAX = 2.0
JOIN_BATCHES_MAX = 1.0
LAG_BATCHES_MAX = 2.0
START_SECONDS = 900.0
CALM_SECONDS = 10.0
STEP_SECONDS = 0.25
PLOT = Path(__file__).parents[2] / "docs" / "failover.svg"


@dataclass(frozen=True, kw_only=True)
class Fault:
    """Something that happens to an application, and who has to do with it."""

    name: str
    title: str
    strike: Callable[[Scene], list[int] | None]
    """Returns the partitions of the tasks that it hits, None if only the result tells."""
    heal: Callable[[Scene], None] = lambda scene: None


@dataclass(frozen=True, kw_only=True)
class Story:
    """An application, and what happens to it."""

    name: str
    title: str
    faults: tuple[Fault, ...]
    standbys: int = 1
    external: bool = False
    protocol: str = "cooperative"
    system: str = "penstock"

    def scene(self, lab: Lab, job: Job, stack: contextlib.ExitStack) -> Scene:
        if self.system == "kafka_streams":
            return JavaScene(lab, job, stack, standbys=self.standbys, session=SESSION_SECONDS)
        options = {
            "num_standby_replicas": str(self.standbys),
            "rebalance_protocol": self.protocol,
            "session_timeout": str(SESSION_SECONDS * 1000),
            # Kafka Streams looks every ten minutes whether those who warm up have caught up.
            "probing_rebalance_interval": "5000",
        }
        return PenstockScene(lab, job, stack, options=options, external=self.external)


KILL, STOP, JOIN = methodcaller("kill_owner"), methodcaller("stop_owner"), methodcaller("join")
AGAIN = methodcaller("start_again")
STORIES = (
    Story(
        name="child",
        title="a child instance is killed, one standby",
        faults=(Fault(name="failover", title="kill -9", strike=KILL),),
    ),
    Story(
        name="external",
        title="external instances, one standby",
        external=True,
        faults=(
            Fault(
                name="failover_external",
                title="kill -9",
                strike=KILL,
                heal=AGAIN,
            ),
            Fault(
                name="failover_stopped",
                title="SIGSTOP",
                strike=STOP,
                heal=AGAIN,
            ),
            Fault(name="failover_join", title="a fourth joins", strike=JOIN),
        ),
    ),
    Story(
        name="cooperative",
        title="a child instance is killed, no standby, cooperative",
        standbys=0,
        faults=(Fault(name="failover_no_standby", title="kill -9", strike=KILL),),
    ),
    Story(
        name="eager",
        title="a child instance is killed, no standby, eager",
        standbys=0,
        protocol="eager",
        faults=(Fault(name="failover_eager", title="kill -9", strike=KILL),),
    ),
    Story(
        name="java",
        title="Kafka Streams: a process is killed, one standby",
        system="kafka_streams",
        faults=(Fault(name="failover_external", title="kill -9", strike=KILL),),
    ),
)


@dataclass(frozen=True, kw_only=True)
class Observed:
    """What a fault did to the outputs."""

    seconds: float
    """The longest time without an output of a task that was hit."""
    others_seconds: float
    """The same of the other tasks."""


@dataclass(frozen=True, kw_only=True)
class Told:
    """What a story gave."""

    system: str
    faults: dict[str, Observed]
    steady_seconds: float
    """The longest time without an output before anything happened."""
    batch_seconds: float | None
    lag_batches: float | None
    problems: tuple[str, ...]
    panels: tuple[Panel, ...]


@dataclass(frozen=True, kw_only=True)
class Load:
    """How much state, and how many records a second."""

    table: BlobsChangelog
    rate: int
    topic: str

    @classmethod
    def of(cls, records: int) -> Load:
        table = BlobsChangelog(records=max(1_000, GIB // BLOB_BYTES * records // FULL))
        rate = max(200, RATE * records // FULL)
        return cls(table=table, rate=rate, topic=f"bench-failover-rows-{os.getpid()}")


@dataclass
class Steady:
    """A while in which nothing happens, by both clocks."""

    start: float = field(default_factory=time.perf_counter)
    start_wall: float = field(default_factory=time.time)
    end: float = 0.0
    end_wall: float = 0.0


def run(lab: Lab) -> list[Row]:
    """Each story once; the stories take minutes, so that rounds are for other rows."""
    load = Load.of(lab.settings.records)
    create_topic(lab.admin(), load.topic, partitions=PARTITIONS)
    told: dict[str, Told] = {}
    try:
        lab.display.status(f"failover: writing a table of {load.table.records:,} rows")
        produce(lab.bootstrap_servers, load.table.load(load.topic))
        for story in STORIES:
            if story.system in lab.systems and _is_told(story.name, lab.settings.stories):
                told[story.name] = play(lab, story, lab.systems[story.system], load)
    finally:
        delete_topics(lab.admin(), [load.topic])
    draw(lab, told, load)
    return rows(told, load)


def _is_told(name: str, chosen: Collection[str]) -> bool:
    return not chosen or name in chosen


def play(lab: Lab, story: Story, system: System, load: Load) -> Told:
    """One application from its start to its end."""
    label = f"failover, {story.title}"
    topic = f"bench-failover-in-{story.name}-{os.getpid()}"
    create_topic(lab.admin(), topic, partitions=PARTITIONS)
    feeder = Feeder(lab.bootstrap_servers, topic, keys=load.table.records, rate=load.rate)
    try:
        with (
            lab.job(
                system,
                input=topic,
                other=load.topic,
                guarantee=GUARANTEE,
                row="failover",
                topology="join_count",
                partitions=PARTITIONS,
            ) as job,
            contextlib.ExitStack() as stack,
        ):
            lab.wait_for_quiet(label)
            lab.display.status(f"{label}: starting, and reading the table")
            scene = story.scene(lab, job, stack)
            return tell(lab, story, scene, job, feeder, load, label)
    finally:
        delete_topics(lab.admin(), [topic])


def tell(
    lab: Lab, story: Story, scene: Scene, job: Job, feeder: Feeder, load: Load, label: str
) -> Told:
    wait_committed(lab, scene, job, load.topic, load.table.records)
    reader = OutputReader(lab.bootstrap_servers, job.output, partitions=range(PARTITIONS))
    reader.start()
    feeder.start()
    try:
        scene.wait(lambda: len(reader.timeline.arrivals) == PARTITIONS, START_SECONDS, "outputs")
        wait_for_copies(lab, story, scene, label)
        lab.display.status(f"{label}: running in, then a steady while")
        scene.rest(lab.settings.seconds)
        steady, batch, changes = watch_steadily(lab, scene, job)
        faults, panels = {}, []
        for fault in story.faults:
            wait_for_copies(lab, story, scene, label)
            scene.rest(CALM_SECONDS)
            wait_for_calm(scene, reader.timeline, steady)
            lab.display.status(f"{label}: {fault.title}")
            observed, panel = observe(lab, story, fault, scene, reader.timeline)
            faults[fault.name] = observed
            panels.append(panel)
            fault.heal(scene)
            lab.display.figure(
                fault.name,
                lab.systems[story.system].title,
                GUARANTEE,
                f"{story.title}, {fault.title}: {observed.seconds:.2f} s, "
                f"other tasks {observed.others_seconds:.2f} s",
            )
        feeder.stop()
        wait_committed(lab, scene, job, job.input, feeder.sent)
    finally:
        feeder.stop()
        reader.stop()
    scene.stop()
    problems = wrong_counts(lab, job, feeder)
    if problems:
        lab.display.warning(f"{label}: {len(problems)} counts are wrong, such as {problems[0]}")
    samples = dict(scene.lag_samples())
    lag = percentile_lag(samples, steady.start_wall, steady.end_wall, percent=99)
    everywhere = range(PARTITIONS)
    return Told(
        system=story.system,
        faults=faults,
        steady_seconds=reader.timeline.longest_wait(everywhere, steady.start, steady.end),
        batch_seconds=batch,
        lag_batches=lag / changes if story.standbys and changes else None,
        problems=tuple(problems),
        panels=tuple(panels),
    )


def observe(
    lab: Lab, story: Story, fault: Fault, scene: Scene, timeline: Timeline
) -> tuple[Observed, Panel]:
    begin = time.perf_counter()
    hit = fault.strike(scene)
    scene.rest(SESSION_SECONDS + lab.settings.seconds)
    # A wait that is not over would be told too short.
    rested = time.perf_counter()
    scene.wait(lambda: timeline.has_all_after(rested, PARTITIONS), START_SECONDS, "outputs again")
    end = time.perf_counter()
    everywhere = list(range(PARTITIONS))
    if hit is None:
        hit = timeline.late_partitions(everywhere, begin, end)
    others = [each for each in everywhere if each not in hit]
    first = begin - CALM_SECONDS
    lines = [("tasks that were hit", timeline.rate(hit, first, end, step=STEP_SECONDS))]
    if others:
        lines.append(("other tasks", timeline.rate(others, first, end, step=STEP_SECONDS)))
    panel = Panel(title=story.title, lines=lines, marks=[(CALM_SECONDS, fault.title)])
    observed = Observed(
        seconds=timeline.longest_wait(hit, begin, end),
        others_seconds=timeline.longest_wait(others, begin, end),
    )
    return observed, panel


def watch_steadily(lab: Lab, scene: Scene, job: Job) -> tuple[Steady, float | None, float | None]:
    """Wait a minute; how long a batch took in it, and how many changes a task's batch had."""
    steady = Steady()
    before = log_ends(lab, job)
    scene.rest(2 * lab.settings.seconds)
    after = log_ends(lab, job)
    steady.end, steady.end_wall = time.perf_counter(), time.time()
    # A commit takes two offsets: its record, and its transaction's marker.
    commits = (after.commits - before.commits) / 2
    if not commits:
        return steady, None, None
    batch = (steady.end - steady.start) * PARTITIONS / commits
    return steady, batch, (after.changes - before.changes) / commits


def wait_for_copies(lab: Lab, story: Story, scene: Scene, label: str) -> None:
    if story.standbys:
        lab.display.status(f"{label}: waiting for standbys")
        scene.wait(scene.has_copies, START_SECONDS, "standbys that have caught up")


def wait_for_calm(scene: Scene, timeline: Timeline, steady: Steady) -> None:
    """Wait until outputs come as steadily as at first: what the last fault left to do is done."""
    everywhere = range(PARTITIONS)
    usual = timeline.longest_wait(everywhere, steady.start, steady.end)

    def is_calm() -> bool:
        now = time.perf_counter()
        return timeline.longest_wait(everywhere, now - CALM_SECONDS, now) <= usual

    scene.wait(is_calm, START_SECONDS, "outputs as steady as at first")


def wait_committed(lab: Lab, scene: Scene, job: Job, topic: str, records: int) -> None:
    offsets = CommittedOffsets(
        lab.bootstrap_servers, group=job.application_id, topics=[topic], partitions=PARTITIONS
    )
    try:
        what = f"{records:,} records of {topic} committed"
        scene.wait(lambda: offsets.records() >= records, START_SECONDS, what)
    finally:
        offsets.close()


def wrong_counts(lab: Lab, job: Job, feeder: Feeder) -> list[str]:
    """Where outputs and changelog differ from how often each key was sent."""
    expected = {
        key_bytes(number): count for number, count in enumerate(feeder.counts.tolist()) if count
    }
    changelog = f"{job.application_id}-counts-changelog"
    return [
        f"{topic}: {problem}"
        for topic in (job.output, changelog)
        for problem in differences(
            read_all(lab.bootstrap_servers, topic), expected, key=same_key, value=long_value
        )
    ]


def rows(told: dict[str, Told], load: Load) -> list[Row]:
    """A row for each thing that the issue of failover has a figure for."""
    problems = {name: each.problems for name, each in told.items()}
    for name, found in problems.items():
        if found:
            raise BenchError(f"story {name}: {len(found)} counts are wrong, such as {found[0]}")
    made = []
    within_session = SESSION_SECONDS + CHILD_SECONDS_MAX
    limits = {
        "failover": CHILD_SECONDS_MAX,
        "failover_external": within_session,
        "failover_stopped": within_session,
        "failover_no_standby": None,
        "failover_eager": None,
    }
    for name, limit in limits.items():
        seconds = {
            each.system: [each.faults[name].seconds]
            for each in told.values()
            if name in each.faults
        }
        if seconds:
            unit = "s without outputs of the tasks that were hit (lower is better)"
            made.append(_row(name, unit, seconds, limit, told, load))
    made += _batch_rows(told, load)
    return made


_MISSED = "batches missed, beside the one between any two outputs (lower is better)"
_BATCH_UNITS = {
    "failover_others": _MISSED,
    "failover_join": _MISSED,
    "standby_lag": "batches (lower is better)",
}


def _batch_rows(told: dict[str, Told], load: Load) -> list[Row]:
    child, external = told.get("child"), told.get("external")
    found: dict[str, tuple[float, float]] = {}
    if child is not None and child.batch_seconds:
        others = child.faults["failover"].others_seconds
        found["failover_others"] = (
            missed_batches(others, child.batch_seconds),
            OTHERS_BATCHES_MAX,
        )
    if external is not None and external.batch_seconds:
        joined = external.faults["failover_join"].seconds
        found["failover_join"] = (missed_batches(joined, external.batch_seconds), JOIN_BATCHES_MAX)
    if child is not None and child.lag_batches is not None:
        found["standby_lag"] = (child.lag_batches, LAG_BATCHES_MAX)
    return [
        _row(name, _BATCH_UNITS[name], {"penstock": [value]}, limit, told, load)
        for name, (value, limit) in found.items()
    ]


def _row(
    name: str,
    unit: str,
    figures: dict[str, list[float]],
    limit: float | None,
    told: dict[str, Told],
    load: Load,
) -> Row:
    return Row(
        name=name,
        guarantee=GUARANTEE,
        unit=unit,
        figures=figures,
        targets={},
        exact=True,
        lower_is_better=True,
        limit=limit,
        details={
            "records_per_second": load.rate,
            "table_rows": load.table.records,
            "partitions": PARTITIONS,
            "session_timeout_seconds": SESSION_SECONDS,
            "batch_ms": {
                story: round(each.batch_seconds * 1000)
                for story, each in told.items()
                if each.batch_seconds
            },
            "longest_steady_wait_ms": {
                story: round(each.steady_seconds * 1000) for story, each in told.items()
            },
            "others_seconds": {
                story: round(each.faults[name].others_seconds, 3)
                for story, each in told.items()
                if name in each.faults
            },
        },
    )


def draw(lab: Lab, told: dict[str, Told], load: Load) -> None:
    """Write the plot: into the docs if this is the benchmark, else beside other passing things."""
    path = PLOT if lab.settings == Settings() else Path(tempfile.gettempdir(), PLOT.name)
    panels = [panel for each in told.values() for panel in each.panels]
    gib = load.table.records * BLOB_BYTES / GIB
    title = f"Outputs while instances come and go: {load.rate:,} records/s, {gib:.2g} GiB of state"
    path.write_text(svg(title, panels, unit="committed output records per second, over time"))
    lab.display.status(f"failover: the plot is in {path}")
