"""One seed, and many."""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from tests.simulation import faults
from tests.simulation.application import Application, shape_of
from tests.simulation.broker import Broker
from tests.simulation.checks import check_results, is_done, where_it_stands
from tests.simulation.disk import Disk
from tests.simulation.network import Network
from tests.simulation.surroundings import simulated
from tests.simulation.world import ViolationError, World

HEAL_SECONDS = 120.0
"""How long everything may take to be processed once nothing goes wrong any more."""

BRANCHES = (
    "a call was not served: another epoch",
    "a call was not served: no lease",
    "a call was not served: that number was committed before",
    "a call was not served: the task is failed",
    "a call was not served: the task is taking",
    "a commit was judged: apply",
    "a commit was judged: refuse",
    "a copy followed its changelog",
    "a copy that caught up is following",
    "a damaged store was rebuilt",
    "a driver gave up, and was started again",
    "a fenced driver stopped",
    "a job failed, and its tasks were planned alone",
    "a late owner found a newer one's commit",
    "a late request of a fenced producer was refused",
    "a member joined",
    "a member left",
    "a member lost",
    "a member returned",
    "a member waited for a sign of life of the one before",
    "a member was doubted",
    "a member was lost by its silence",
    "a range without records was committed",
    "a rebalance",
    "a rebalance of all tasks at once",
    "a second member of one id was refused",
    "a standby followed its changelog",
    "a standby was promoted",
    "a static member got its tasks back",
    "a store was restored from an empty disk and its changelog",
    "a store was restored from what was on the disk and its changelog",
    "a take that failed was tried again",
    "a task moved between two slices",
    "a task moved to one that had warmed up",
    "a task read its input again",
    "a task was given to its owner again",
    "a task was taken anew after an unknown outcome",
    "a task went on from the group's offsets",
    "a task went on where another program left it",
    "a transaction was aborted, and its producer went on",
    "a worker was told done",
    "a worker was told lost",
    "an instance began to warm a task up",
    "an instance ended with its lease",
    "an instance learnt that nobody counts on it",
    "an instance was told to follow",
    "an instance was told to release",
    "an instance was told to unfollow",
    "an owner waited for a copy to be cut off",
    "an owner was fenced",
    "an owner was handed the open stores of a copy",
    "an instance got ready for a task that another served",
    "an owner waited for what its follower lacked",
    "a copy came from a peer",
    "a copy from a peer broke off",
    "a copy that had come early was used",
    "a copy that had come early lacked what was written since",
    "an owner began with what it had got ready",
    "one that was to get a task did not get ready",
    "one that was to get a task was lost before",
    "a task that was to move stays, or is to go elsewhere",
    "a driver ended while tasks were to move",
    "the broker ended a transaction that took too long",
    "the group's offsets were written again",
    "waited for markers of the last transaction",
    "waited for open transactions in a log",
    "waited for the group's offsets",
)
"""The ways to recover that many seeds must have taken."""


Mutant = Callable[[pytest.MonkeyPatch], None]


@dataclass
class Report:
    """What many seeds did."""

    seeds: int = 0
    records: int = 0
    fewest_faults: int = sys.maxsize
    """In any one seed."""
    faults: Counter[str] = field(default_factory=Counter)
    branches: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, world: World, application: Application) -> Report:
        """What one seed did."""
        return cls(
            seeds=1,
            records=application.produced,
            fewest_faults=sum(world.faults.values()),
            faults=world.faults,
            branches=world.branches,
        )

    def add(self, other: Report) -> None:
        """Count what others did too."""
        self.seeds += other.seeds
        self.records += other.records
        self.fewest_faults = min(self.fewest_faults, other.fewest_faults)
        self.faults.update(other.faults)
        self.branches.update(other.branches)

    @property
    def never(self) -> list[str]:
        """Fault classes and branches that no seed reached."""
        missing = [name for name in faults.CLASSES if not self.faults[name]]
        return [*missing, *(name for name in BRANCHES if not self.branches[name])]

    def __str__(self) -> str:
        struck = f"{sum(self.faults.values())} faults, at least {self.fewest_faults} in each seed"
        lines = [f"{self.seeds} seeds, {self.records} records, {struck}"]
        for title, counts in (("faults", self.faults), ("branches", self.branches)):
            lines.append(f"{title}:")
            lines += [f"  {counts[name]:8} {name}" for name in sorted(counts)]
        return "\n".join(lines)


class SeedError(AssertionError):
    """A seed showed a violation; `report` is of those before it."""

    def __init__(self, seed: int, error: BaseException, report: Report) -> None:
        super().__init__(f"seed {seed}: {type(error).__name__}: {error}")
        self.seed = seed
        self.report = report


def play(world: World) -> Application:
    """Let one world run to its end. Raises `ViolationError`."""
    world.broker = Broker(world, transaction_timeout=3.0)
    world.disk = Disk(world)
    world.network = Network(world)
    application = Application(world, shape_of(world))
    if application.shape.copies is not None:
        world.fetch_max = 3  # So that much happens between two pieces of a restore.
    application.begin()
    application.start_driver()
    start = world.now
    # Sometimes the last faults find an application that has nothing more to read.
    input_seconds = world.random.choice([faults.LASTING_SECONDS, faults.LASTING_SECONDS * 0.6])
    for _ in range(world.random.randint(10, 25)):
        world.at(start + world.random.uniform(0.0, input_seconds), application.produce)
    faults.schedule(world, application)
    world.run_until(start + faults.LASTING_SECONDS - 3.0)
    faults.top_up(world, application)
    world.run_until(max(world.now, start + faults.LASTING_SECONDS))
    faults.stop(world)
    deadline = world.now + HEAL_SECONDS
    while not is_done(world, application):
        if world.now > deadline:
            what = "no progress after the faults stopped"
            raise ViolationError(f"{what}\n{where_it_stands(world, application)}")
        world.run_until(world.now + 1.0)
    check_results(world, application)
    return application


def run_seeds(
    first: int, count: int, *, trace: bool = False, mutant: Mutant | None = None
) -> Report:
    """Run these seeds. Raises `SeedError` that names the seed."""
    sys.setrecursionlimit(10_000)
    logging.getLogger("penstock").setLevel(logging.CRITICAL)
    report = Report()
    with simulated(mutant) as enter:
        for seed in range(first, first + count):
            world = World(seed)
            enter(world)
            try:
                application = play(world)
            except (ViolationError, Exception) as error:
                if trace:
                    print("\n".join(world.trace))
                raise SeedError(seed, error, report) from error
            report.add(Report.of(world, application))
    return report


@dataclass
class Part:
    """What some seeds in a row did, and which of them showed a violation."""

    report: Report = field(default_factory=Report)
    failing: dict[int, str] = field(default_factory=dict)


def run_part(first: int, count: int) -> Part:
    """Run these seeds, those behind one that failed too; of a single one, tell what happened."""
    part, end = Part(), first + count
    while first < end:
        try:
            part.report.add(run_seeds(first, end - first, trace=count == 1))
        except SeedError as error:
            part.report.add(error.report)
            part.failing[error.seed] = str(error)
            first = error.seed + 1
        else:
            break
    return part
