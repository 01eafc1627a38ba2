"""The owners of tasks: the lost are replaced, those who take a task are asked how far they are."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

from penstock.coordination.assignment import AssignmentOptions
from penstock.coordination.assignors import load_assignor
from penstock.coordination.beginnings import Beginnings
from penstock.coordination.flips import Flips
from penstock.coordination.ids import Epoch, TaskId
from penstock.coordination.members import Change
from penstock.coordination.placements import Following, Lags, Placements, Present, lags_to_take
from penstock.coordination.planning import Slice
from penstock.coordination.rebalances import Rebalances, moving_owners, new_moves
from penstock.coordination.tasks import Entry, TaskBook
from penstock.driver.copies import CopyWatch, wanted_of
from penstock.driver.events import (
    CopiesChanged,
    Listener,
    Rebalanced,
    RestoreEvent,
    Totals,
    give_notice,
)
from penstock.driver.getting_ready import GettingReady
from penstock.driver.parts import DriverParts
from penstock.driver.questions import Answer, StatusQuestions
from penstock.driver.restores import RestoreBook
from penstock.errors import (
    FencedError,
    InstanceError,
    InstanceUnreachableError,
    KafkaError,
    PenstockError,
    StateDirectoryError,
)
from penstock.instance.protocol import (
    UNKNOWN_LAG,
    ReleaseOrder,
    RestoreStatus,
    StatusReply,
    TaskStatus,
    error_of,
)
from penstock.queries.routing import Holders

_log = logging.getLogger("penstock.driver")

_STATUS_SECONDS = 0.005
"""An instance answers when there is something new, or after a while."""
_UNREACHED_SECONDS = 0.02
"""How soon again anybody is asked after one that could not be."""
_HEAR_SECONDS = 2.0
"""How long a decision waits for what instances have to say, if no task waits for an owner."""
_RETRY_SECONDS = 0.5
_RETRY_DOUBLINGS = 4
"""How often the time between two tries to have a task taken doubles: up to 8 seconds."""


class TaskOwners:
    """Sees to it that every task has an owner that serves it."""

    def __init__(
        self,
        parts: DriverParts,
        book: TaskBook,
        commits: Mapping[str, int],
        *,
        listener: Listener,
        totals: Totals,
        copies: CopyWatch,
        commit_nothing: Callable[[Slice], None],
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        """`wake` is called when there is something new to be heard."""
        self._parts = parts
        self._book = book
        self._commits = commits
        self._listener = listener
        self._totals = totals
        self._commit_nothing = commit_nothing
        self._status_due = 0.0
        self._questions = StatusQuestions(parts.coordinator.status, wake=wake)
        self._restores = RestoreBook()
        why = "the inputs changed" if totals.rebalances else "of the first start"
        self._rebalances = Rebalances(book.entries, why=why)
        config = parts.prepared.config
        self._eager = config.rebalance_protocol == "eager"
        self._placements = Placements(
            parts.prepared.task_facts(),
            load_assignor(config.task_assignor),
            AssignmentOptions.of(config),
            probing_seconds=config.probing_rebalance_interval.total_seconds(),
        )
        self._pending: dict[TaskId, str] = {}
        """Tasks that are to go to another owner, once no job works on them."""
        self._getting_ready = GettingReady(book, self._questions, parts.coordinator)
        self.flips = Flips(book)
        self._beginnings = Beginnings()
        self._patience: float | None = None
        self._lags: Lags = {}
        self._lags_to_take: Lags = {}
        self._told_copies: CopiesChanged | None = None
        self.holders: Mapping[TaskId, Holders] = {}
        """Who holds what, for other threads: it is replaced, and never changed."""
        self._copies = copies

    @property
    def are_settled(self) -> bool:
        """Whether every task has an owner that serves it, or did since it got it."""
        return self._rebalances.is_settled

    def hear_members(self) -> None:
        """Take note of instances that came or went, and start others in the place of the lost."""
        changes = self._parts.coordinator.changes()
        for change in changes:
            match change.kind:
                case "joined":
                    self._rebalances.note(f"instance {change.name} joined")
                    self._placements.change()
                case "returned" | "resumed":
                    self._come_back(change)
                case "left" | "lost":
                    self._lose(change)
        if changes:
            lost = [change.name for change in changes if change.kind == "lost"]
            left = [change.name for change in changes if change.kind == "left"]
            self._parts.monitor.instances(len(self._members()), lost=lost, left=left)
        self._parts.coordinator.restart_children(others_take_over=bool(self._members()))
        if any(change.kind in ("left", "lost") for change in changes):
            self._parts.visit_executors()

    def assign_tasks(self) -> None:
        """Decide who holds what, if something changed, and move what can move now."""
        self._hear_copies()
        now = time.monotonic()
        why = self._placements.why_due(now, self._lags_to_take)
        # With nobody there it stays due, until somebody is.
        if why is not None and self._members() and self._is_known_enough(now):
            if why:
                self._rebalances.note(why)
            self._decide(now)
        if self._beginnings.are_due(replacing=self._is_replacing(), now=now):
            self._want()
        self._flip(now)

    def _hear_copies(self) -> None:
        for note in self._copies.new_notes():
            self._notice(note)
        lags = self._copies.new_lags()
        if lags is not None:
            self._lags = lags
            self._lags_to_take = lags_to_take(
                lags,
                self._copies.catching_up(),
                self._copies.records(),
                acceptable=self._parts.prepared.config.acceptable_recovery_lag,
            )
            news = CopiesChanged(lags=lags, positions=self._copies.positions())
            if news != self._told_copies:
                self._told_copies = news
                self._listener(news)

    def _is_known_enough(self, now: float) -> bool:
        """Whether it is known who has what. Tasks that nobody serves do not wait for it.

        At the first start they do, a little: nothing was served before either.
        """
        names = self._members()
        failing = self._rebalances.has_begun and bool(self._rebalances.unowned)
        if len(names) < 2 or failing or self._copies.has_heard(names):
            self._patience = None
            return True
        if self._patience is None:
            self._patience = now + _HEAR_SECONDS
        return now > self._patience

    def _is_replacing(self) -> bool:
        """Whether somebody is to come who may have copies, or has come and is not reckoned with."""
        return self._parts.coordinator.awaits_children() or self._placements.has_changed

    def _members(self) -> set[str]:
        """Those who can be given tasks."""
        return set(self._parts.coordinator.names()) - self._parts.coordinator.away()

    def _decide(self, now: float) -> None:
        owners = self._book.owners
        members = {name: self._parts.coordinator.member(name) for name in self._members()}
        present = Present(
            members={name: each.tags if each else {} for name, each in members.items()},
            capacities={name: each.capacity for name, each in members.items() if each},
            owners=owners,
            lags=self._lags_to_take,
            records=self._copies.records(),
        )
        answer = self._placements.decide(now, present)
        # What was decided before and waits for the end of a slice is no rebalance again.
        rebalance = self._rebalances.move(
            new_moves(answer.moves, self._pending, owners), number=self._totals.rebalances + 1
        )
        to_move = moving_owners(answer.moves, owners)
        for task in self._pending.keys() - to_move.keys():
            if self._book.entries[task].state != "taking":
                self._rebalances.served(task)  # It stays after all.
        self._pending = to_move
        if self._eager and any(move.role == "active" for move in answer.moves):
            self._pending = answer.owners
            self._rebalances.stop(answer.owners)
        if rebalance is None:
            self._want()
            return
        self._totals.rebalances += 1
        _log.info("%s", rebalance)
        self._listener(Rebalanced(rebalance=rebalance))
        if self._eager:
            if not self._pending:
                self._want()  # Only copies move.
            return
        given = {
            move.task: move.target
            for move in rebalance.active_moves
            if move.task not in self._pending
        }
        followed = self._beginnings.followed(given, self._lags, self._copies.catching_up())
        self.flips.begin(followed, now)
        self._give(given)

    def _flip(self, now: float) -> None:
        """Give tasks that are to move to their new owners, between two of their slices."""
        due = self._pending.keys() if self._eager else self._getting_ready.done(self._pending, now)
        self._book.hold(due)
        running = {each for each in due if self._book.entries[each].state == "running"}
        if self._eager:
            # The world stops: nobody takes a task before all have been given up.
            if due and not running:
                self._release_pending()
                self._flip_now(list(due))
            return
        self._flip_now(sorted(due - running))

    def _flip_now(self, tasks: list[TaskId]) -> None:
        if tasks:
            self.flips.begin(tasks, time.monotonic())
            self._give({task: self._pending.pop(task) for task in tasks})

    def _release_pending(self) -> None:
        away = self._parts.coordinator.away()
        for task, owner in self._book.owners.items():
            if owner in away or task not in self._pending:
                continue
            order = ReleaseOrder(task=str(task), epoch=self._book.entries[task].epoch)
            try:
                self._parts.coordinator.call(owner, "release", order, StatusReply)
            except InstanceError as error:
                _log.info("Task %s: %s", task, error)
                self._parts.coordinator.doubt(owner, error)

    def _want(self) -> None:
        """Say who is to hold what."""
        following = self._beginnings.may_follow(
            self._placements.following,
            replacing=self._is_replacing(),
            now=time.monotonic(),
        )
        # A follower that is about to take a task is not to drop it in between.
        owned = [*self._book.owners.items(), *self._pending.items()]
        self._copies.want(wanted_of(owned, following, self._members()))
        self.holders = _holders(self._book.entries, self._placements.following)

    def _lose(self, change: Change) -> None:
        lost = self._book.lose_owner(change.name)
        self._rebalances.lose(change.name, lost)
        self._placements.lose(change.name)
        self.holders = _holders(self._book.entries, self._placements.following)
        self._pending = {
            task: target
            for task, target in self._pending.items()
            if task not in lost and target != change.name
        }
        self._suspend_restores(change.name, lost)
        how = "left" if change.kind == "left" else "was lost"
        self._rebalances.note(f"instance {change.name} {how}")
        self._notice(_loss(change, lost))

    def _come_back(self, change: Change) -> None:
        """A static member is here again: no rebalance, unless others came or went meanwhile."""
        member = self._parts.coordinator.member(change.name)
        capacity, tags = (member.capacity, member.tags) if member else (1, {})
        if self._placements.come_back(change.name, capacity=capacity, tags=tags):
            self._rebalances.note(f"instance {change.name} is back")
        if change.kind == "returned":  # With a process that holds nothing yet.
            tasks = [task for task, owner in self._book.owners.items() if owner == change.name]
            self._suspend_restores(change.name, tasks)
            self._notice(f"Instance {change.name} is back in time, and keeps {_listed(tasks)}")
            self._give(dict.fromkeys(tasks, change.name))

    def _suspend_restores(self, name: str, tasks: list[TaskId]) -> None:
        for whose in (name, *map(str, tasks)):
            self._tell_restores(self._restores.lose(whose))

    def _give(self, owners: Mapping[TaskId, str]) -> None:
        for task, owner in owners.items():
            self._book.own(task, owner).notes_told = 0
        # Before they are told: what they hold is compared with this.
        self._want()
        for task, owner in owners.items():
            self._have_taken(task, owner)

    def _have_taken(self, task: TaskId, owner: str) -> None:
        entry = self._book.entries[task]
        order = self._parts.prepared.take_order(
            task,
            epoch=entry.epoch,
            first_taking=not entry.is_ours,
            commits_partition=self._commits[entry.name],
            peers=self._parts.coordinator.peers(owner),
        )
        self._questions.order(owner, order)

    def ask(self) -> bool:
        """Ask those who take tasks how far they are, and take in what those said who were asked.

        Whether anything was said.
        """
        now = time.monotonic()
        self._doubt_silent(now)
        # Who has answered may be asked again at once.
        has_news = self._hear_answers()
        awaited = self._awaited()
        owners = {entry.owner for entry in awaited} | self._questions.ordered
        if owners and now >= self._status_due:
            self._status_due = now + _STATUS_SECONDS
            for owner in sorted(owners - self._parts.coordinator.away()):
                own = {entry.task: entry.epoch for entry in awaited if entry.owner == owner}
                self._questions.ask(owner, own)
        return self._hear_answers() or has_news

    def _hear_answers(self) -> bool:
        answers = self._questions.answers()
        for answer in answers:
            self._take_in(answer)
        return bool(answers)

    def _doubt_silent(self, now: float) -> None:
        for owner in set(self._book.owners.values()):
            if self._parts.coordinator.is_silent(owner):
                self._book.doubt_owner(owner, due=now)

    def _take_in(self, answer: Answer) -> None:
        reply = answer.reply
        if isinstance(reply, InstanceUnreachableError):
            self._parts.coordinator.doubt(answer.owner, reply)
            self._status_due = time.monotonic() + _UNREACHED_SECONDS
            return
        if isinstance(reply, InstanceError):
            raise reply
        self._give_again(answer, reply)
        self._tell_restores(self._restores.hear(answer.owner, None, reply.tables))
        for status in reply.tasks:
            entry = self._book.entries[TaskId.parse(status.task)]
            if answer.about.get(entry.task) == entry.epoch:
                self._hear(answer.owner, status)

    def _give_again(self, answer: Answer, reply: StatusReply) -> None:
        """Repeat the orders that were lost on their way."""
        held = {status.task: Epoch(*status.epoch) for status in reply.tasks}
        for entry in self._awaited():
            epoch = answer.about.get(entry.task)
            is_same = entry.owner == answer.owner and entry.epoch == epoch
            if is_same and held.get(str(entry.task), Epoch(0, 0)) < entry.epoch:
                self._give({entry.task: answer.owner})

    def _awaited(self) -> list[Entry]:
        """The tasks that have an owner and are not known to be served by it."""
        return [
            entry
            for entry in self._book.entries.values()
            if entry.owner and self._is_awaited(entry)
        ]

    def _is_awaited(self, entry: Entry) -> bool:
        # One that moved while a job ran for it may have been committed by its old owner, and does
        # not look as if it were being taken.
        # One that waits to move has an owner that serves it.
        moves = self._rebalances.is_moving(entry.task) and entry.task not in self._pending
        return entry.state == "taking" or moves

    def _hear(self, owner: str, status: TaskStatus) -> None:
        entry = self._book.entries[TaskId.parse(status.task)]
        if entry.owner != owner or entry.epoch != tuple(status.epoch):
            return
        self._tell_restores(self._restores.hear(status.task, status.epoch, status.restores))
        for note in status.notes[entry.notes_told :]:
            self._notice(note)
        entry.notes_told = len(status.notes)
        awaited = self._is_awaited(entry)
        if status.state == "running" and entry.task not in self._pending:
            self._rebalances.served(entry.task)
        if status.state == "running" and entry.state == "taking":
            self._book.serving(
                entry.task,
                Epoch(*status.epoch),
                status.position,
                status.n,
                status.metadata,
                until=status.until,
            )
            if status.group_is_stale:
                self._write_group_again(entry, status)
        elif status.state == "failed" and awaited and entry.state != "running":
            self._take_again(entry, status)

    def _write_group_again(self, entry: Entry, status: TaskStatus) -> None:
        """Tools see the lag through the group; a task without new records would not write it."""
        if self._parts.prepared.config.exactly_once:
            self._commit_nothing(Slice(task=entry.task, ranges=()))
        else:
            self._parts.lease.write_group(status.position)

    def _take_again(self, entry: Entry, status: TaskStatus) -> None:
        """A task could not be taken: try again what may go away, raise the rest."""
        assert status.fault is not None
        error = error_of(status.fault)
        if _awaits_others(error, entry, self._parts):
            return
        if not (type(error) in (KafkaError, FencedError) or "unreachable" in error.code):
            raise error
        if time.monotonic() >= entry.due:
            self._notice(f"Task {entry.task} is taken again: {error}")
            entry.due = time.monotonic() + _RETRY_SECONDS * 2**entry.failed_takes
            entry.failed_takes = min(entry.failed_takes + 1, _RETRY_DOUBLINGS)
            self._give({entry.task: entry.owner})

    def copies(self) -> dict[TaskId, list[tuple[str, bool, int]]]:
        """By task, who is to follow it, whether to warm up, and what it lacks (-1: not known)."""
        return _copies(self._placements, self._lags)

    def restores_of(self, task: TaskId) -> list[RestoreStatus]:
        """The restores of a task that are under way."""
        return self._restores.open(str(task))

    def close(self) -> None:
        """Nobody is asked any more: restores that are under way count as suspended."""
        self._copies.close()
        self._questions.close()
        self._tell_restores(self._restores.lose_all())

    def _tell_restores(self, events: list[RestoreEvent]) -> None:
        for event in events:
            self._parts.hear_restore(event)

    def _notice(self, text: str) -> None:
        give_notice(self._listener, text)


def _awaits_others(error: PenstockError, entry: Entry, parts: DriverParts) -> bool:
    """Whether a task that could not be taken is not to be given again yet."""
    if isinstance(error, StateDirectoryError):
        # An operator's instance leaves by itself over this, so that its tasks go to others.
        member = parts.coordinator.member(entry.owner)
        return member is None or member.by_operator
    if isinstance(error, FencedError):
        # It may be another driver's owner that fenced this one, and would be fenced in turn, again
        # and again, until Kafka tells this driver that it was replaced.
        entry.fenced_at = entry.fenced_at or time.monotonic()
        return not parts.lease.holds_since(entry.fenced_at)
    return False


def _copies(placements: Placements, lags: Lags) -> dict[TaskId, list[tuple[str, bool, int]]]:
    found: dict[TaskId, list[tuple[str, bool, int]]] = {}
    for name, tasks in list(placements.following.items()):
        for task in tasks:
            lag = lags.get(name, {}).get(task, UNKNOWN_LAG)
            found.setdefault(task, []).append((name, (name, task) in placements.warming, lag))
    return found


def _loss(change: Change, tasks: list[TaskId]) -> str:
    """What is told of an instance that is no more, and had these tasks."""
    name, listed = change.name, _listed(tasks)
    has_left = change.kind == "left"
    if not tasks:
        return f"Instance {name} {'has left' if has_left else 'is lost'}; it had no tasks"
    if has_left:
        return f"Instance {name} has left; others take over {listed}"
    return f"Instance {name} is lost, and with it {listed}; others take over"


def _listed(tasks: list[TaskId]) -> str:
    return ", ".join(map(str, tasks)) or "no tasks"


def _holders(entries: Mapping[TaskId, Entry], following: Following) -> dict[TaskId, Holders]:
    followers: dict[TaskId, list[str]] = {}
    for name, tasks in sorted(following.items()):
        for task in tasks:
            followers.setdefault(task, []).append(name)
    return {
        task: Holders(
            owner=entry.owner,
            epoch=entry.epoch,
            followers=tuple(n for n in followers.get(task, ()) if n != entry.owner),
        )
        for task, entry in entries.items()
    }
