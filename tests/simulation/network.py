"""Calls between processes: some are lost on the way there or back, some come late or twice."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TypeVar

import pyarrow as pa

from penstock.errors import InstanceUnreachableError
from tests.simulation.world import Died, Process, World, WouldBlock

T = TypeVar("T")
FAULTS = ("request lost", "reply lost", "request delayed", "request doubled")
_TRIES = 40


class Network:
    """Carries calls; while it is bad, some of them badly."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.bad: dict[str, float] = {}
        """Faults, and until when they may happen."""

    def call(self, target: Process | None, work: Callable[[], T], *, timeout: float = 10.0) -> T:
        """The answer of another process. Raises `InstanceUnreachableError`.

        The caller stands still meanwhile, as real callers do.
        """
        world = self.world
        if target is None or target.dead:
            raise InstanceUnreachableError("simulated: nobody there")
        fault = self._fault()
        if fault == "request lost":
            raise InstanceUnreachableError("simulated: lost")
        if fault == "request delayed":
            self._later(target, work, world.random.uniform(0.1, 8.0))
            raise InstanceUnreachableError("simulated: no answer in time")
        if target.is_paused:
            self._later(target, work, 0.0)
            world.wait(min(timeout, 1.0))
            raise InstanceUnreachableError("simulated: no answer in time")
        if fault == "request doubled":
            self._later(target, work, world.random.uniform(0.0, 5.0))
        caller, began = world.current, world.now
        result = self._handled(target, work)
        if caller is not None and caller.dead:
            raise Died(caller)
        if fault == "reply lost" or world.now - began > timeout:
            raise InstanceUnreachableError("simulated: the answer was lost")
        return result

    def _handled(self, target: Process, work: Callable[[], T]) -> T:
        world, caller = self.world, self.world.current
        for _ in range(_TRIES):
            world.current = target
            try:
                return work()
            except Died as died:
                if died.process is not target:
                    raise
                raise InstanceUnreachableError("simulated: it died") from None
            except WouldBlock:
                world.current = caller
                world.wait(0.1)
                if target.dead:
                    break
            finally:
                world.current = caller
        raise InstanceUnreachableError("simulated: it does not answer")

    def _later(self, target: Process, work: Callable[[], object], seconds: float) -> None:
        def handle() -> None:
            # Nobody waits for the answer.
            with contextlib.suppress(InstanceUnreachableError, pa.ArrowException):
                work()

        target.after(seconds, handle)

    def _fault(self) -> str:
        world = self.world
        if not self.bad:
            return ""
        fault = world.random.choice(list(self.bad))
        if self.bad[fault] < world.now:
            del self.bad[fault]
            return ""
        if world.random.random() > 0.3:
            return ""
        world.fired(fault)
        return fault
