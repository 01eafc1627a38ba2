"""A driver whose Spark still starts: tasks are taken, no job is run, and failures are told."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.config import Config
from penstock.driver.driver import Driver
from penstock.driver.events import Totals
from penstock.driver.monitor import Monitor
from penstock.driver.parts import WarmSpark
from penstock.errors import ConfigError
from penstock.queries.catalogue import Catalogue
from penstock.queries.freshness import EndsSeen


class Owners:
    """Every task has an owner that serves it."""

    are_settled = True

    def __init__(self) -> None:
        self.asked = 0

    def hear_members(self) -> None: ...

    def assign_tasks(self) -> None: ...

    def close(self) -> None: ...

    def ask(self) -> None:
        self.asked += 1


class QuietDriver(Driver):
    """A driver without instances."""

    def _watch_copies(self, commits: object) -> Any:
        return SimpleNamespace(ends_seen=EndsSeen())


class World:
    """A driver, what it asked for, and the Spark that it waits for."""

    def __init__(self) -> None:
        self.spark: Future[WarmSpark] = Future()
        self.settled: list[bool] = []
        self.owners = Owners()
        config = Config()
        parts: Any = SimpleNamespace(
            prepared=SimpleNamespace(
                config=config, layout=SimpleNamespace(tasks=[]), task_facts=list
            ),
            lease=SimpleNamespace(check=lambda: None, record=SimpleNamespace(generation=1)),
            coordinator=SimpleNamespace(status=None, names=tuple),
            inputs=SimpleNamespace(ends=dict),
            monitor=Monitor("app", config),
            spark=self.spark,
            is_paused=lambda: False,
            catalogue=Catalogue([]),
        )
        self.driver = QuietDriver(parts, {}, lambda event: None, Totals())
        made_up: Any = self.owners
        self.driver._owners = made_up

    def step(self) -> None:
        self.driver.step(self.settled.append)


def test_tasks_are_taken_while_spark_starts() -> None:
    world = World()
    world.step()
    world.step()
    assert (world.owners.asked, world.settled) == (2, [False, False])
    jobs: Any = None
    world.spark.set_result(WarmSpark(jobs=jobs, cores=3))
    world.step()
    assert (world.owners.asked, world.settled) == (3, [False, False, True])
    world.driver.drain(0.0)


def test_no_job_is_planned_before_spark_is_warm() -> None:
    world = World()
    world.step()
    assert world.driver._limits.jobs_max == 0
    jobs: Any = None
    world.spark.set_result(WarmSpark(jobs=jobs, cores=3))
    world.step()
    assert world.driver._limits.jobs_max == 4
    world.driver.drain(0.0)


def test_a_spark_that_does_not_start_is_told_before_anyone_thinks_it_runs() -> None:
    world = World()
    world.step()
    world.spark.set_exception(ConfigError("no Java"))
    with pytest.raises(ConfigError, match="no Java"):
        world.step()
    assert world.settled == [False]


def test_a_driver_can_be_drained_before_spark_is_there() -> None:
    world = World()
    world.step()
    world.driver.drain(0.0)
