"""Copies of tasks' state: the real watch over them, and the real followers, without threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from penstock.changelog.reading import never
from penstock.coordination.members import Member
from penstock.driver.copies import ASK_SECONDS, CopyWatch
from penstock.instance import protocol
from penstock.instance.standby import Followed, Standbys, _Following
from penstock.instance.state import TaskStores
from tests.simulation.broker import Partition, SimMessage, sim_log_offsets
from tests.simulation.world import Process, World, WouldBlock

if TYPE_CHECKING:
    from tests.simulation.drivers import DriverProcess


class SimCopyWatch(CopyWatch):
    """CopyWatch, which asks over the simulated network."""

    driver: DriverProcess
    """Of the world that is simulated now; told before each is made."""

    def __init__(self, *given: Any, **options: Any) -> None:
        self._driver = SimCopyWatch.driver
        super().__init__(*given, **options)

    def _run(self) -> None:
        if not self._stopping:
            self._turn()
            self._driver.after(ASK_SECONDS, self._run)

    def _ask(self, member: Member, action: str, message: Any, reply: type[Any]) -> Any:
        target = self._driver.application.find(member.unix_location)
        body = protocol.encode(message)
        if action != "copies":
            self._driver.world.reached(f"an instance was told to {action}")

        def work() -> Any:
            assert target.holder is not None
            return target.holder.actions[action](body)

        return self._driver.world.network.call(target, work)


class SimFollower:
    """A consumer of committed records that follows several logs."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._next: dict[Partition, int] = {}

    def incremental_assign(self, partitions: Iterable[Any]) -> None:
        for each in partitions:
            assert (each.topic, each.partition) not in self._next, "assigned twice"
            self._next[each.topic, each.partition] = each.offset

    def incremental_unassign(self, partitions: Iterable[Any]) -> None:
        for each in partitions:
            del self._next[each.topic, each.partition]

    def list_topics(self, topic: str, timeout: float) -> None: ...

    def consume(self, count: int, timeout: float) -> list[SimMessage]:
        """Some of what there is; the end of a log is told where it is reached."""
        found: list[SimMessage] = []
        for where, start in self._next.items():
            log = self._world.broker.log(where)
            records = list(log.committed(start))
            some = self._world.random.randint(1, 4)
            found += [SimMessage(where, offset, entry) for offset, entry in records[:some]]
            if len(records) > some:
                self._next[where] = records[some - 1][0] + 1
            else:
                self._next[where] = max(start, log.stable_end)
                found.append(SimMessage(where, self._next[where], None))
        return found

    def get_watermark_offsets(self, where: Any, *, cached: bool) -> tuple[int, int]:
        return 0, self._world.broker.log((where.topic, where.partition)).stable_end

    def close(self) -> None: ...


def follow_without_a_thread(standbys: Standbys, process: Process) -> None:
    """What the thread of `Standbys` does, turn by turn."""
    world = process.world
    following = _Following(SimFollower(world))  # type: ignore[arg-type]

    def turn() -> None:
        wanted = standbys._round()
        if wanted is not None:
            following.turn(wanted)
            process.after(world.random.uniform(0.05, 0.4), turn)

    turn()


def end_followers(standbys: Standbys) -> None:
    """As `Standbys.close` of a process that nothing else happens in."""
    standbys._stopping.set()
    for each in (*standbys.all(), *standbys._leaving):
        each.stop()
    for each in (*standbys.all(), *standbys._leaving):
        each.close()


def is_following(standbys: Standbys, task: str) -> bool:
    """Whether it is followed there, and nothing of its changelogs is missing."""
    followed = standbys.get(task)
    return followed is not None and followed.state == "following" and followed.status().lag == 0


def _is_at_work(followed: Followed) -> bool:
    """Whether someone who would use its stores would have to wait."""
    lock: Any = followed._lock
    return bool(lock.is_held)


def replace_followers(patch: Any, world_of: Callable[[], World]) -> None:
    """Put this in the place of what waits and of what runs by itself; count what happens."""
    hand_over, catch_up, apply = Standbys.hand_over, Followed.catch_up, Followed.apply
    await_tail = Followed.await_tail

    def run(self: Standbys) -> None:
        process = world_of().current
        assert process is not None
        follow_without_a_thread(self, process)

    def handed_over(
        self: Standbys, task: str, stop: Callable[[], bool] = never
    ) -> TaskStores | None:
        followed = self.get(task)
        leaving = [each for each in self._leaving if each.order.task == task]
        # Whoever would wait here for the one at work on it comes again, and finds as it was what
        # the real one has in hand while it waits: a copy that is followed since another is not.
        if any(_is_at_work(each) for each in leaving):
            world_of().reached("an owner waited for a copy to be let go")
            raise WouldBlock
        if followed is not None and _is_at_work(followed):
            world_of().reached("an owner waited for a copy to be cut off")
            self.unfollow(task)
            raise WouldBlock
        stores = hand_over(self, task, stop)
        if stores is not None:
            world_of().reached("an owner was handed the open stores of a copy")
        return stores

    def caught_up(self: Followed) -> None:
        catch_up(self)
        world_of().reached(f"a copy that caught up is {self.state}")

    def applied(self: Followed, topic: str, messages: list[Any], of_round: int) -> None:
        if any(message.error() is None for message in messages):
            world_of().reached("a copy followed its changelog")
        apply(self, topic, messages, of_round)

    def awaited_tail(self: Followed, stop: Callable[[], bool]) -> None:
        # The rest may be too slow to come; here it would, nearly always.
        if world_of().random.random() < 0.5:
            await_tail(self, stop)
            world_of().reached("an owner waited for what its follower lacked")

    patch.setattr(Followed, "await_tail", awaited_tail)
    patch.setattr(Standbys, "_run", run)
    patch.setattr(Standbys, "hand_over", handed_over)
    patch.setattr(Followed, "catch_up", caught_up)
    patch.setattr(Followed, "apply", applied)
    patch.setattr("penstock.instance.standby.told_offsets", sim_log_offsets)
    patch.setattr("penstock.instance.standby.LATEST", "latest")
