"""Bugs that are planted to see whether the simulation finds them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import IsolationLevel, TopicPartition
from msgspec import structs

from penstock.changelog import reading
from penstock.changelog.restore import RestoreOutcome, RestoreResult
from penstock.coordination import commits
from penstock.coordination.flips import Preparations
from penstock.coordination.ids import Epoch
from penstock.coordination.members import Members
from penstock.coordination.tasks import Entry, TaskBook
from penstock.driver import copies
from penstock.driver.lease import DriverLease
from penstock.driver.owners import TaskOwners
from penstock.driver.questions import Answer
from penstock.instance import process, standing, state, task
from penstock.instance.process import Lease
from penstock.instance.protocol import Reply, StatusReply
from penstock.instance.standby import Followed
from penstock.instance.state import TaskStores
from penstock.instance.task import OpenTask
from penstock.instance.writer import Writer, WriteUnknownError
from tests.simulation.broker import SimConsumer, SimMessage, SimProducer
from tests.simulation.drivers import SimInputs
from tests.simulation.instances import InstanceProcess, SimClients

Mutant = Callable[[pytest.MonkeyPatch], None]


def _a_used_number_is_applied_again(patch: pytest.MonkeyPatch) -> None:
    """A slice that ran twice is committed twice."""
    original = OpenTask._refusal
    patch.setattr(standing, "judge", lambda **_: "apply")

    def refusal(self: OpenTask, epoch: Any, n: int) -> Reply | None:
        return original(self, epoch, self._standing.n + 1)

    patch.setattr(OpenTask, "_refusal", refusal)


def _the_epoch_is_not_checked(patch: pytest.MonkeyPatch) -> None:
    """A worker that was told of another owner is served."""
    original = OpenTask._refusal

    def refusal(self: OpenTask, epoch: Any, n: int) -> Reply | None:
        return original(self, self.order.epoch, n)

    patch.setattr(OpenTask, "_refusal", refusal)


def _the_lease_is_not_checked(patch: pytest.MonkeyPatch) -> None:
    """An instance whose driver is silent goes on answering."""
    patch.setattr(InstanceProcess, "lease_holds", lambda self: True)


def _the_group_counts_and_not_the_record(patch: pytest.MonkeyPatch) -> None:
    """A task whose group offsets Kafka forgot begins anew."""

    def settle(**given: Any) -> commits.Standing:
        return commits.settle(**{**given, "recorded": None})

    patch.setattr(standing, "settle", settle)


def _the_number_is_not_counted_up(patch: pytest.MonkeyPatch) -> None:
    """A commit record bears the number of the one before it."""
    original = task.next_record

    def next_record(*given: Any) -> Any:
        record = original(*given)
        return structs.replace(record, n=max(record.n - 1, 1))

    patch.setattr(task, "next_record", next_record)


def _changelogs_are_read_uncommitted(patch: pytest.MonkeyPatch) -> None:
    """Standbys and restores apply what was aborted, or is not decided."""

    def consume(self: SimConsumer, count: int, timeout: float) -> list[SimMessage]:
        log = self._world.broker.log(self._where)
        found = [
            SimMessage(self._where, offset, log.entries[offset])
            for offset in range(self._next, log.end)
            if not log.entries[offset].is_marker
        ]
        self._next = log.end
        return [*found, SimMessage(self._where, self._next, None)]

    patch.setattr(SimConsumer, "consume", consume)


def _a_task_is_given_away_under_its_old_epoch(patch: pytest.MonkeyPatch) -> None:
    """The next owner cannot be told from the last."""
    original = TaskBook.own

    def own(self: TaskBook, task_id: Any, owner: str) -> Entry:
        before = self.entries[task_id].epoch
        entry = original(self, task_id, owner)
        entry.epoch = before if before != Epoch(0, 0) else entry.epoch
        return entry

    patch.setattr(TaskBook, "own", own)


def _a_new_driver_keeps_the_generation(patch: pytest.MonkeyPatch) -> None:
    """Two drivers give out the same epochs."""
    original = DriverLease.acquire

    def acquire(self: DriverLease) -> None:
        original(self)
        generation = max(self.record.generation - 1, 1)
        self.record = structs.replace(self.record, generation=generation)

    patch.setattr(DriverLease, "acquire", acquire)


def _an_unknown_outcome_is_taken_for_a_failure(patch: pytest.MonkeyPatch) -> None:
    """The task goes on with the same producer, from where it stood."""
    original = OpenTask._lost

    def lost(self: OpenTask, error: Any) -> Reply:
        if isinstance(error, WriteUnknownError):
            return Reply(status="lost", reason=str(error))
        return original(self, error)

    patch.setattr(OpenTask, "_lost", lost)


def _an_unknown_outcome_is_taken_for_a_success(patch: pytest.MonkeyPatch) -> None:
    """What may not be in Kafka is written to the store, and told as committed."""
    original = Writer.commit

    def commit(self: Writer, *given: Any) -> None:
        try:
            original(self, *given)
        except WriteUnknownError:
            return

    patch.setattr(Writer, "commit", commit)


def _taking_a_task_fences_nobody(patch: pytest.MonkeyPatch) -> None:
    """The last owner and the next write with the same right."""

    def init(self: SimProducer, timeout: float) -> None:
        known = self._broker.ids.get(self._id)
        self._epoch = self._broker.init(self._id) if known is None else known.epoch

    patch.setattr(SimProducer, "init_transactions", init)


def _the_offset_is_written_before_the_data(patch: pytest.MonkeyPatch) -> None:
    """A crash in between leaves a store that says it holds what it lacks."""

    def apply(self: TaskStores, name: str, changes: list[Any], offset: int | None) -> None:
        store = self.get(name)
        store.apply((), offset=offset)
        state.crash_point("commit.mid_store_write")
        store.apply(changes, offset=None)

    patch.setattr(TaskStores, "apply", apply)


def _open_transactions_are_not_waited_for(patch: pytest.MonkeyPatch) -> None:
    """A changelog is restored up to where it is stable, not to its end."""

    def wait_stable(clients: Any, partitions: Any, **_: Any) -> Any:
        committed = IsolationLevel.READ_COMMITTED
        found = reading.log_offsets(clients, partitions, "latest", committed)  # type: ignore[arg-type]
        return {where: reading.LogRange(0, end) for where, end in found.items()}

    patch.setattr(reading, "wait_stable", wait_stable)
    patch.setattr(state, "wait_stable", wait_stable)


def _the_groups_offsets_are_read_too_early(patch: pytest.MonkeyPatch) -> None:
    """A transaction that will move them is not waited for."""
    original = SimClients.group_offsets

    def group_offsets(self: SimClients, inputs: Any) -> Any:
        broker = self.world.broker
        undecided, broker.undecided = broker.undecided, {}
        found = original(self, inputs)
        broker.undecided = undecided
        return found

    patch.setattr(SimClients, "group_offsets", group_offsets)


def _a_lost_order_is_not_given_again(patch: pytest.MonkeyPatch) -> None:
    """An owner that holds the task under an older epoch is taken for one that takes it."""

    def give_again(self: TaskOwners, answer: Answer, reply: StatusReply) -> None:
        held = {status.task for status in reply.tasks}
        for entry in self._awaited():
            same = answer.about.get(entry.task) == entry.epoch and entry.owner == answer.owner
            if same and str(entry.task) not in held:
                self._give({entry.task: answer.owner})

    patch.setattr(TaskOwners, "_give_again", give_again)


def _a_failed_take_is_left_at_that(patch: pytest.MonkeyPatch) -> None:
    """A task that could not be taken once is never taken."""
    patch.setattr(TaskOwners, "_take_again", lambda self, entry, status: None)


def _an_aborted_transaction_stays_open(patch: pytest.MonkeyPatch) -> None:
    """What a dead worker sent is committed with the next slice."""
    patch.setattr(Writer, "abort", lambda self: None)


def _what_is_on_the_disk_is_thought_to_be_all(patch: pytest.MonkeyPatch) -> None:
    """The tail of the changelog is not applied to a store that is there."""
    original = state.restore

    def restore(store: Any, **given: Any) -> RestoreResult:
        if store.offset() is not None:
            return RestoreResult(RestoreOutcome.COMPLETE, 0, 0)
        return original(store, **given)

    patch.setattr(state, "restore", restore)


def _a_late_owner_is_let_in(patch: pytest.MonkeyPatch) -> None:
    """Nobody looks whether a newer owner has committed."""
    patch.setattr(task, "check_owner", lambda order, record: None)


def _outputs_are_repeated(patch: pytest.MonkeyPatch) -> None:
    """A task that reads its input again gives out again what it gave out."""
    patch.setattr(task, "not_yet_written", lambda batch, header, order: batch)


def _silent_members_are_never_lost(patch: pytest.MonkeyPatch) -> None:
    """The tasks of one that is gone wait for ever."""
    patch.setattr(Members, "expire", lambda self, now: [])


def _slices_reach_into_open_transactions(patch: pytest.MonkeyPatch) -> None:
    """Ranges end at the high watermark: what is committed there later is never read."""

    def ends(self: SimInputs) -> dict[tuple[str, int], int]:
        wheres = [(self._topic, partition) for partition in range(self._partitions)]
        return {where: self._world.broker.log(where).end for where in wheres}

    patch.setattr(SimInputs, "ends", ends)


def _positions_are_not_in_the_transaction(patch: pytest.MonkeyPatch) -> None:
    """The group's offsets are written at once, whatever becomes of the commit."""
    original = SimProducer.send_offsets_to_transaction

    def send(self: SimProducer, offsets: list[Any], *given: Any) -> None:
        original(self, offsets, *given)
        for each in offsets:
            self._broker.group[each.topic, each.partition] = each.offset

    patch.setattr(SimProducer, "send_offsets_to_transaction", send)


def _a_move_of_the_group_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Only the first owner under a driver looks whether another program moved the group."""
    patch.setattr(Entry, "is_ours", property(lambda self: self.found_n is not None))


def _an_old_owners_word_counts_for_the_new_one(patch: pytest.MonkeyPatch) -> None:
    """A job that ends after its task moved says where the task stands."""
    patch.setattr(TaskBook, "has_moved", lambda self, task: False)


def _a_copy_goes_back_where_it_caught_up_with_more(patch: pytest.MonkeyPatch) -> None:
    """What the last fetch of a catch-up had beyond its end is applied again, from the oldest on."""
    original = Followed._restored

    def restored(self: Followed) -> dict[str, int]:
        found = original(self)
        return found | {
            each.topic: each.end for each in self._stores.restores.latest() if each.state == "ended"
        }

    patch.setattr(Followed, "_restored", restored)


def _a_copy_that_takes_over_is_thought_to_be_whole(patch: pytest.MonkeyPatch) -> None:
    """What the changelog has beyond it is not applied."""
    original = Followed.give_up

    def give_up(self: Followed) -> TaskStores | None:
        stores = original(self)
        if stores is not None:
            clients: Any = self._environment.clients
            stores.read_to = {
                store: clients.high_watermark(topic, self.partition)
                for topic, store in stores.logged.items()
            }
        return stores

    patch.setattr(Followed, "give_up", give_up)


def _nobody_is_told_to_release_a_task(patch: pytest.MonkeyPatch) -> None:
    """The last owner of a task that moved keeps it, and what would follow it cannot."""
    original = copies.corrections

    def corrections(*given: Any) -> copies.Corrections:
        return replace(original(*given), release={})

    patch.setattr(copies, "corrections", corrections)


def _a_lease_counts_from_when_its_answer_is_read(patch: pytest.MonkeyPatch) -> None:
    """Whoever is stopped between the two serves what others have by now."""
    original = Lease.renew
    patch.setattr(Lease, "renew", lambda self, asked_at: original(self, process.time.monotonic()))


def _a_copy_that_came_early_is_thought_to_be_whole(patch: pytest.MonkeyPatch) -> None:
    """What was written since it was made is not applied."""
    original = TaskStores._use_early

    def use_early(self: TaskStores, order: Any, log: Any) -> list[str]:
        notes = original(self, order, log)
        if notes and order.name in self._open:
            self.get(order.name).apply((), offset=log.end - 1)
        return notes

    patch.setattr(TaskStores, "_use_early", use_early)


def _who_gets_ready_fences_the_owner(patch: pytest.MonkeyPatch) -> None:
    """The next owner's producer has the last one's right while that one works."""
    original = Writer.connect

    def connect(self: Writer, topic: str) -> None:
        original(self, topic)
        self._producer.init_transactions(1.0)

    patch.setattr(Writer, "connect", connect)


def _who_did_not_get_ready_is_not_told_again(patch: pytest.MonkeyPatch) -> None:
    """A task never moves to one that could not be reached for a moment."""
    patch.setattr(Preparations, "miss", lambda self, task, owner, now: None)


def _what_a_consumer_read_before_counts(patch: pytest.MonkeyPatch) -> None:
    """Of what one that is lent again gives, some is another task's."""

    def read(clients: Any, topic: str, number: int, part: Any, **_: Any) -> Any:
        position = part.start
        if position < part.end:
            with clients.lent_consumer(topic) as consumer:
                consumer.assign([TopicPartition(topic, number, position)])
                while position < part.end:
                    for message in reading.come(consumer, 100, 0.1):
                        position = reading.position_after(message)
                        if message.error() is None:
                            yield message

    patch.setattr(reading, "_read", read)


MUTANTS: dict[str, Mutant] = {
    name.removeprefix("_"): mutant
    for name, mutant in list(globals().items())
    if callable(mutant) and (getattr(mutant, "__annotations__", {}).get("patch") is not None)
}
