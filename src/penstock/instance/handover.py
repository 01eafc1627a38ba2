"""What a task's last owner left beside the group's offsets, and what the next one will find."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from penstock.changelog.clients import LogClients
from penstock.changelog.commit_record import (
    DRIVER_KEY,
    DRIVER_PARTITION,
    ChangelogEnd,
    CommitRecord,
    DriverRecord,
    InputTopic,
)
from penstock.changelog.offset_metadata import UNKNOWN_TIME, OffsetMetadata
from penstock.changelog.reading import read_committed
from penstock.errors import FencedError, PartitionCountError, TopicMismatchError
from penstock.instance.clients import GroupOffsets, SharedClients
from penstock.instance.protocol import CommitHeader, Positions, TakeOrder
from penstock.processors import STREAM_TIME

Times = dict[tuple[str, int], int]
"""The latest timestamp read of each input partition, for whoever takes over."""
Closes = Mapping[str, Collection[str]]
"""By store: where in the operators' metadata it stands up to when its windows were given out."""


def input_logs(order: TakeOrder, clients: SharedClients) -> dict[tuple[str, int], tuple[int, int]]:
    """The start and the last stable offset of each input partition."""
    return {
        (each.topic, each.partition): clients.stable_range(each.topic, each.partition)
        for each in order.inputs
    }


def resets(order: TakeOrder, clients: SharedClients) -> Positions:
    """Where the task starts with inputs that it has no position for."""
    logs = input_logs(order, clients)
    result: Positions = {}
    for each in order.inputs:
        start, end = logs[each.topic, each.partition]
        result.setdefault(each.topic, {})[each.partition] = (
            start if each.reset == "earliest" else end
        )
    return result


def operators_metadata(closes: Closes, group: GroupOffsets) -> dict[str, str]:
    """What the group's last owner wrote beside its offsets, in our operators' words."""
    result: dict[str, str] = {}
    time = max((each.time for each in group.metadata.values()), default=UNKNOWN_TIME)
    if time != UNKNOWN_TIME:
        result[STREAM_TIME] = str(time)
    for each in group.metadata.values():
        for store, closed in each.kept.items():
            for name in closes.get(store, ()):
                result[name] = str(max(closed, int(result.get(name, closed))))
    return result


def offsets_metadata(
    closes: Closes, record: CommitRecord, times: Times
) -> dict[tuple[str, int], str]:
    """What is written beside the group's offsets, as Kafka Streams would."""
    said = record.metadata
    closed = {
        store: max(int(said.get(name, UNKNOWN_TIME)) for name in names)
        for store, names in closes.items()
    }
    kept = {store: at for store, at in closed.items() if at != UNKNOWN_TIME}
    return {
        (topic, partition): OffsetMetadata(
            time=times.get((topic, partition), UNKNOWN_TIME), kept=kept
        ).encode()
        for topic, partitions in record.position.items()
        for partition in partitions
    }


def next_record(
    order: TakeOrder,
    header: CommitHeader,
    previous: Positions,
    changelogs: dict[str, ChangelogEnd],
) -> CommitRecord:
    """Where the task stands after a commit."""
    inputs = {
        each.topic: InputTopic(id=each.topic_id, partitions=each.partitions)
        for each in order.inputs
    }
    return CommitRecord(
        n=header.n,
        epoch=order.epoch,
        position=header.end,
        previous=previous,
        inputs=inputs,
        changelogs=changelogs,
        metadata=header.metadata,
    )


def later(times: Times, read: Positions) -> Times:
    """The times after more records were read."""
    result = dict(times)
    for topic, partitions in read.items():
        for partition, time in partitions.items():
            result[topic, partition] = max(time, result.get((topic, partition), UNKNOWN_TIME))
    return result


def changelog_ends(
    logs: Mapping[str, str], partition: int, clients: SharedClients
) -> dict[str, int]:
    """The offset of the last record in each store's changelog.

    To be read after the changes are acknowledged and before the transaction ends: nobody else can
    have written by then, unless this transaction fails.
    """
    return {store: clients.high_watermark(log, partition) - 1 for store, log in logs.items()}


def check_owner(order: TakeOrder, record: CommitRecord) -> None:
    """Make sure that no newer owner has committed."""
    if tuple(record.epoch) > tuple(order.epoch):
        raise FencedError(
            "A newer owner has committed to this task",
            where={"task": order.task, "epoch": order.epoch, "newer": tuple(record.epoch)},
        )


def check_driver(
    order: TakeOrder, logs: LogClients, *, commits: str, stop: Callable[[], bool]
) -> None:
    """Make sure that no newer driver was written down; to be called with the task's producer.

    One that is written down later gives the task to an owner that fences this one. The last commit
    says nothing of one that was there before: its owner may have had nothing to commit.
    """
    messages = read_committed(logs, commits, DRIVER_PARTITION, stop=stop)
    data = [message.value() for message in messages if message.key() == DRIVER_KEY][-1:]
    newest = max((DriverRecord.decode(each).generation for each in data if each), default=0)
    if newest > order.epoch[0]:
        raise FencedError(
            "A newer driver has taken over",
            where={"task": order.task, "epoch": order.epoch, "newer": newest},
        )


def check_inputs(order: TakeOrder, record: CommitRecord) -> None:
    """Make sure that the inputs are those that the last commit was made from."""
    for each in order.inputs:
        known = record.inputs.get(each.topic)
        if known is None:
            continue
        where = {"topic": each.topic, "task": order.task}
        if known.partitions != each.partitions:
            raise PartitionCountError(
                f"The topic has {each.partitions} partitions; the state was made with "
                f"{known.partitions}",
                where=where,
                hint="Keys now go to other partitions, so the state no longer fits. Use a new "
                "application id, or give the topic its old number of partitions",
            )
        if known.id != each.topic_id:
            raise TopicMismatchError(
                "The topic was deleted and made anew since the state was made",
                where=where,
                hint="Its offsets mean other records now. Use a new application id, or reset "
                "the application",
            )
