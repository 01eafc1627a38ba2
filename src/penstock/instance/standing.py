"""Where a task stands, and whether a commit goes on from there."""

from __future__ import annotations

from dataclasses import dataclass, field

from msgspec import structs

from penstock.changelog.commit_record import CommitRecord
from penstock.coordination.commits import judge, settle
from penstock.coordination.kept import go_on
from penstock.coordination.recovery import Recovery, passes
from penstock.instance.clients import SharedClients
from penstock.instance.handover import Times, operators_metadata, resets
from penstock.instance.protocol import CommitHeader, Positions, Reply, TakeOrder
from penstock.instance.recovery import recovery_of


@dataclass
class Standing:
    """Where the task stands: its last commit's number, and its position."""

    n: int = 0
    position: Positions = field(default_factory=dict)
    record: CommitRecord | None = None
    group_is_stale: bool = False
    metadata: dict[str, str] = field(default_factory=dict)
    times: Times = field(default_factory=dict)
    is_owed: bool = False
    """Whether a database has the last commit, and Kafka lacks its record."""
    recovery: Recovery = field(default_factory=Recovery)

    def after(self, record: CommitRecord, times: Times) -> Standing:
        """Where it stands after a commit."""
        return Standing(
            record.n,
            record.position,
            record,
            metadata=record.metadata,
            times=times,
            recovery=self.recovery.after(record.position),
        )

    def reply(self) -> Reply:
        """What it says to a commit that it has."""
        return Reply(status="done", n=self.n, position=self.position, metadata=self.metadata)


def judged(standing: Standing, header: CommitHeader) -> Reply | None:
    """Why a commit is not applied, or None."""
    verdict = judge(n=header.n, start=header.start, last=standing.n, position=standing.position)
    if verdict == "apply" and not passes(header.end, standing.recovery.until):
        return None
    stale = f"planned as {header.n} from {header.start}"
    reply = standing.reply()
    return reply if verdict == "done" else structs.replace(reply, status="refused", reason=stale)


def settled(
    order: TakeOrder,
    clients: SharedClients,
    *,
    record: CommitRecord | None,
    kept: CommitRecord | None,
    exactly_once: bool,
) -> tuple[Standing, list[str]]:
    """Where a task goes on, by its last commit record, the one that a database kept if that is
    ahead, and the group; and what is to be told about it."""
    inputs = [(each.topic, each.partition) for each in order.inputs]
    group = clients.group_offsets(inputs)
    notes = []
    standing = settle(
        recorded=record.position if record else None,
        previous=record.previous if record else None,
        group=group.position,
        resets=resets(order, clients),
        # One that reads its input again does not stand where the group says: nobody moved it.
        first_taking=order.first_taking and not (record and record.until),
        exactly_once=exactly_once,
    )
    if standing.moved_by_group:
        assert record is not None
        notes.append(
            f"The consumer group was moved by someone else: task {order.task} goes on at "
            f"{standing.position} instead of {record.position}"
        )
    if kept is not None:
        standing = go_on(standing, kept.position)
        record = structs.replace(kept, position=standing.position)
    # Whoever moved the group went back or forth in time too: what the operators had seen by
    # the last commit says nothing of the records that come now.
    known = record is not None and not standing.moved_by_group
    found = Standing(
        n=record.n if record else 0,
        position=standing.position,
        record=record,
        group_is_stale=standing.group_is_stale,
        metadata=record.metadata if record and known else operators_metadata(order.closes, group),
        times={input_: each.time for input_, each in group.metadata.items()},
        recovery=recovery_of(record, standing.position),
        is_owed=kept is not None,
    )
    return found, notes
