"""Time, chance and processes: one queue of events, and nothing happens between two of them.

A process that waits (for a marker, for a broker that hangs, because it was stopped) runs the rest
of the world from where it stands, and goes on when its time has come: so that real code, which
waits in the middle of a function, can be cut off, overtaken and fenced there.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.broker import Broker
    from tests.simulation.disk import Disk
    from tests.simulation.network import Network

DEPTH_MAX = 20
"""So many processes may stand still in the middle of something at once."""


class ViolationError(BaseException):
    """The simulated application did what it must never do; nothing that catches errors gets it."""


class Died(BaseException):
    """A process is no more; what it was doing is not ended."""

    def __init__(self, process: Process) -> None:
        super().__init__(process.name)
        self.process = process


class WouldBlock(BaseException):
    """Another thread of the process holds a lock: what was to be done is done later."""


class Process:
    """Something that crashes, stops, goes on and ends."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.number = world.next_number()
        self.dead = False
        self.paused_until = 0.0
        self.busy = 0
        """How many of its threads stand in the middle of something."""
        world.processes.append(self)

    @property
    def is_paused(self) -> bool:
        """Whether it was stopped, and not continued yet."""
        return self.world.now < self.paused_until

    def after(self, seconds: float, work: Callable[[], None]) -> None:
        """Do this then, if the process lives; later, if it stands still."""
        self.world.at(self.world.now + seconds, lambda: self.run(work))

    def run(self, work: Callable[[], None]) -> None:
        """Do this as this process, now or when it is continued."""
        world = self.world
        if self.dead:
            return
        if self.is_paused:
            world.at(world.after_pause(self), lambda: self.run(work))
            return
        before, world.current = world.current, self
        try:
            work()
        except Died as died:
            if died.process is not self:
                raise
        except WouldBlock:
            self.after(0.1, work)
        finally:
            world.current = before

    def die(self) -> None:
        """End at once; what stands in the middle of something is unwound when its turn comes."""
        self.dead = True


class World:
    """All there is, for one seed."""

    broker: Broker
    disk: Disk
    network: Network

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.now = 1000.0
        self.current: Process | None = None
        self.processes: list[Process] = []
        self.faults: Counter[str] = Counter()
        self.branches: Counter[str] = Counter()
        self.armed: dict[str, int] = {}
        """Faults that strike at the next opportunity, so many times."""
        self.point_faults: list[tuple[str, str, float]] = []
        """What happens to the process that comes to a point of the code next."""
        self.fetch_max: int | None = None
        """How many records a consumer is given at once."""
        self.compared = 0
        """How often a store was compared with its changelog."""
        self.trace: list[str] = []
        self.depth = 0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count(1)

    def next_number(self) -> int:
        """A number that was not given before."""
        return next(self._numbers)

    def at(self, when: float, work: Callable[[], None]) -> None:
        """Do this then."""
        heapq.heappush(self._events, (max(when, self.now), next(self._numbers), work))

    def after_pause(self, process: Process) -> float:
        """When something is done that waits until a process goes on: it does several things then,
        and any of them may be the first.
        """
        if self.fetch_max is None:
            return process.paused_until
        return process.paused_until + self.random.choice([0.0, 0.1])

    def run_until(self, when: float) -> None:
        """Let happen what happens until then."""
        before, self.current = self.current, None
        try:
            while self._events and self._events[0][0] <= when:
                self.now, _, work = heapq.heappop(self._events)
                work()
        finally:
            self.current = before
        self.now = max(self.now, when)

    @property
    def is_crowded(self) -> bool:
        """Whether nobody more may wait; who would wait gives up as if its time were over."""
        return self.depth >= DEPTH_MAX

    def wait(self, seconds: float) -> None:
        """The current process waits for so long, and may not live to see the end of it."""
        process = self.current
        if process is None or self.is_crowded:
            return
        process.busy += 1
        self.depth += 1
        try:
            self.run_until(self.now + seconds)
            while process.is_paused and not process.dead:
                self.run_until(process.paused_until)
        finally:
            self.depth -= 1
            process.busy -= 1
        if process.dead:
            raise Died(process)

    def strikes(self, fault: str) -> bool:
        """Whether an armed fault happens now."""
        left = self.armed.get(fault, 0)
        if not left:
            return False
        self.armed[fault] = left - 1
        self.fired(fault)
        return True

    def fired(self, fault: str) -> None:
        """A fault happened."""
        self.faults[fault] += 1
        self.note(f"fault {fault}")

    def reached(self, branch: str) -> None:
        """A way to recover was taken."""
        self.branches[branch] += 1

    def note(self, text: str) -> None:
        """What happened, for whoever looks into a seed."""
        self.trace.append(f"{self.now:8.2f} {self.current.name if self.current else '-'}: {text}")

    def point(self, name: str) -> None:
        """The current process comes to a named point of its code."""
        process = self.current
        if process is None:
            return
        for index, (where, what, seconds) in enumerate(self.point_faults):
            if where == name:
                del self.point_faults[index]
                self.fired(what)
                self.note(f"at {name}")
                if what == "crash at a point":
                    process.die()
                    raise Died(process)
                process.paused_until = self.now + seconds
                self.wait(0.0)
                return
