"""What instances have of the state of tasks that others own; and seeing that they follow some.

The driver says who is to own and to follow what. Threads of their own ask the instances, again and
again, and order what differs: an order that was lost, or an instance that was started anew, needs
no other care, and an instance that does not answer holds up nobody.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from penstock.coordination.ids import TaskId
from penstock.coordination.members import Member
from penstock.driver.coordinator import Coordinator
from penstock.errors import InstanceError, InstanceUnreachableError, KafkaError
from penstock.instance.client import ClientCache
from penstock.instance.protocol import (
    UNKNOWN_LAG,
    CopiesReply,
    CopyStatus,
    FollowOrder,
    M,
    Message,
    ReleaseOrder,
    StatusReply,
    UnfollowOrder,
)
from penstock.queries.freshness import EndsSeen

_log = logging.getLogger("penstock.driver")

ASK_SECONDS = 0.25
"""How often each instance is asked, if there are several."""
_ENDS_SECONDS = 1.0
_ASKED_AT_ONCE = 8
_CALL_SECONDS = 5.0
_FOLLOWED = ("catching_up", "following", "failed")

Ends = Mapping[tuple[str, int], int]
EndsOf = Callable[[], dict[tuple[str, int], int]]


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What an instance is to hold."""

    owned: frozenset[str] = frozenset()
    followed: frozenset[str] = frozenset()


def wanted_of(
    owned: Iterable[tuple[TaskId, str]],
    following: Mapping[str, Iterable[TaskId]],
    members: Iterable[str],
) -> dict[str, Wanted]:
    """What each is to hold, by who is to own and to follow which tasks."""
    own: dict[str, set[str]] = {}
    for task, owner in owned:
        own.setdefault(owner, set()).add(str(task))
    return {
        name: Wanted(
            owned=frozenset(own.get(name, ())),
            followed=frozenset(map(str, following.get(name, ()))),
        )
        for name in {*own, *following, *members}
    }


@dataclass(frozen=True, kw_only=True)
class Corrections:
    """What an instance is to be told, so that it holds what it is to."""

    release: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By task, the epoch that is over."""
    unfollow: tuple[str, ...] = ()
    follow: tuple[str, ...] = ()


def corrections(found: CopiesReply, wanted: Wanted) -> Corrections:
    """How what an instance holds differs from what it is to hold.

    Tasks that it is to own are left alone: they are on their way, from follower to owner.

    >>> copy = CopyStatus(task="0_1", state="following")
    >>> found = CopiesReply(copies=[copy], owned={"0_0": (1, 1)})
    >>> corrections(found, Wanted(followed=frozenset({"0_0"})))
    Corrections(release={'0_0': (1, 1)}, unfollow=('0_1',), follow=('0_0',))
    """
    followed = {copy.task for copy in found.copies if copy.state in _FOLLOWED}
    return Corrections(
        release={task: e for task, e in found.owned.items() if task not in wanted.owned},
        unfollow=tuple(sorted(followed - wanted.followed - wanted.owned)),
        follow=tuple(sorted(wanted.followed - followed)),
    )


def lag_of(copy: CopyStatus, changelogs: Iterable[tuple[str, int]], ends: Ends) -> int | None:
    """How much of a task's changelogs a copy lacks; None if that is not known.

    >>> resting = CopyStatus(task="0_0", state="at_rest", positions={"log": 7})
    >>> lag_of(resting, [("log", 0)], {("log", 0): 10})
    3
    """
    if copy.state == "failed":
        return None
    if copy.lag != UNKNOWN_LAG:
        return copy.lag
    lag = 0
    for topic, partition in changelogs:
        position, end = copy.positions.get(topic), ends.get((topic, partition))
        if position is None or end is None:
            return None
        lag += max(0, end - position)
    return lag


class CopyWatch:
    """Asks the instances, and has them follow what they are to. Any thread may call."""

    def __init__(
        self,
        coordinator: Coordinator,
        changelogs: Mapping[TaskId, list[tuple[str, int]]],
        *,
        ends_of: EndsOf,
        order_for: Callable[[TaskId, str], FollowOrder],
    ) -> None:
        self._coordinator = coordinator
        self._changelogs = changelogs
        self._ends_of = ends_of
        self._order_for = order_for
        self._wanted: Mapping[str, Wanted] = {}
        self._ends: Ends = {}
        self.ends_seen = EndsSeen()
        self._ends_due = 0.0
        self._heard: dict[str, tuple[str, CopiesReply]] = {}
        self._asked: set[str] = set()
        self._has_news = False
        # Not the driver's: whoever finds that an instance is gone closes its connection.
        self._clients = ClientCache()
        self._notes: list[str] = []
        self._told: dict[tuple[str, str], list[str]] = {}
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._stopping = False
        self._pool = ThreadPoolExecutor(_ASKED_AT_ONCE, thread_name_prefix="copies")
        self._thread = threading.Thread(target=self._run, name="copies", daemon=True)
        self._thread.start()

    def want(self, wanted: Mapping[str, Wanted]) -> None:
        """This is what each is to hold from now on; to be called before an owner is told so."""
        self._wanted = wanted
        self._wake.set()

    def has_heard(self, names: Iterable[str]) -> bool:
        """Whether all of these have said what they have, and changelogs where they end."""
        if self._changelogs and not self._ends:
            return False
        return all(self._latest(name) is not None for name in names)

    def new_lags(self) -> dict[str, dict[TaskId, int]] | None:
        """How much each instance lacks of the tasks that it has a copy of; None if none is new."""
        if not self._has_news:
            return None
        self._has_news = False
        found: dict[str, dict[TaskId, int]] = {}
        for name, copies in self._held().items():
            for copy in copies:
                task = TaskId.parse(copy.task)
                # What lies on a disk may be of an earlier program.
                lag = lag_of(copy, self._changelogs.get(task, ()), self._ends)
                if lag is not None and task in self._changelogs:
                    found.setdefault(name, {})[task] = lag
        return found

    def catching_up(self) -> set[tuple[str, TaskId]]:
        """The copies that are not followed yet."""
        return {
            (name, TaskId.parse(copy.task))
            for name, copies in self._held().items()
            for copy in copies
            if copy.state == "catching_up"
        }

    def positions(self) -> dict[str, dict[TaskId, int]]:
        """The next offsets of the copies that each instance has, those of a task added up."""
        return {
            name: {TaskId.parse(copy.task): sum(copy.positions.values()) for copy in copies}
            for name, copies in self._held().items()
        }

    def records(self) -> dict[TaskId, int]:
        """How long the changelogs of each task are."""
        ends = self._ends
        return {
            task: sum(ends.get(each, 0) for each in logs) for task, logs in self._changelogs.items()
        }

    def new_notes(self) -> list[str]:
        """What followers had to say since this was last asked."""
        with self._lock:
            notes, self._notes = self._notes, []
        return notes

    def close(self) -> None:
        """Ask nobody any more."""
        self._stopping = True
        self._wake.set()
        self._thread.join()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _held(self) -> dict[str, list[CopyStatus]]:
        """The copies of each instance that has said what it has."""
        replies = {name: self._latest(name) for name in list(self._heard)}
        return {name: reply.copies for name, reply in replies.items() if reply is not None}

    def _latest(self, name: str) -> CopiesReply | None:
        """What an instance said last, if it is still the same process."""
        member, known = self._coordinator.member(name), self._heard.get(name)
        if member is None or known is None or known[0] != member.member_id:
            return None
        return known[1]

    # The threads.

    def _run(self) -> None:
        while not self._stopping:
            self._turn()
            self._wake.wait(ASK_SECONDS)
            self._wake.clear()

    def _turn(self) -> None:
        names = set(self._coordinator.names()) - self._coordinator.away()
        # One alone can neither follow nor be compared with another.
        if len(names) > 1:
            self._ask_ends()
            for name in sorted(names - self._asked):
                self._asked.add(name)
                self._pool.submit(self._visit, name)

    def _ask_ends(self) -> None:
        now = time.monotonic()
        if not self._changelogs or now < self._ends_due:
            return
        self._ends_due = now + _ENDS_SECONDS
        try:
            self._ends = self._ends_of()
            self.ends_seen.note(now, self._ends)
        except KafkaError as error:
            _log.info("The ends of changelogs are not known: %s", error)

    def _visit(self, name: str) -> None:
        try:
            member = self._coordinator.member(name)
            if member is not None:
                reply = self._ask(member, "copies", CopiesReply(copies=[]), CopiesReply)
                self._heard[name] = (member.member_id, reply)
                self._has_news = True
                self._take_notes(name, reply)
                self._correct(member, reply)
        except InstanceError as error:
            _log.info("Instance %s does not say what it has: %s", name, error)
        except Exception:  # noqa: BLE001 - nobody waits for this thread
            _log.exception("Instance %s cannot be told what to follow", name)
        finally:
            self._asked.discard(name)

    def _correct(self, member: Member, reply: CopiesReply) -> None:
        # Read after the reply came: what the instance was told to own before is in it.
        wanted = self._wanted.get(member.name)
        if wanted is None:
            return
        told = corrections(reply, wanted)
        for task, epoch in told.release.items():
            self._ask(member, "release", ReleaseOrder(task=task, epoch=epoch), StatusReply)
        for task in told.unfollow:
            self._ask(member, "unfollow", UnfollowOrder(task=task), CopiesReply)
        for task in told.follow:
            order = self._order_for(TaskId.parse(task), member.name)
            self._ask(member, "follow", order, CopiesReply)

    def _ask(self, member: Member, action: str, message: Message, reply: type[M]) -> M:
        location = member.tcp_location or member.unix_location
        token = self._coordinator.token
        client = self._clients.get(
            location, token=token, timeout_seconds=_CALL_SECONDS, trust=self._coordinator.trust
        )
        try:
            return client.call(action, message, reply)
        except InstanceUnreachableError:
            self._clients.drop(location)
            raise

    def _take_notes(self, name: str, reply: CopiesReply) -> None:
        for copy in reply.copies:
            told = self._told.setdefault((name, copy.task), [])
            new = [note for note in copy.notes if note not in told]
            told += new
            with self._lock:
                self._notes += [f"Instance {name}: {note}" for note in new]
