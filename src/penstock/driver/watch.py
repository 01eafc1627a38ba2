"""Are the topics still what the state was made from, and do they hold our positions?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from penstock.changelog.restore import recreated
from penstock.changelog.topic_admin import TopicAdmin
from penstock.changelog.topics import ExistingTopic
from penstock.coordination.ids import Position, Range, TaskId
from penstock.coordination.planning import TaskView
from penstock.coordination.tasks import TaskBook
from penstock.driver.inputs import InputLogs
from penstock.driver.internal_topics import deleted
from penstock.driver.setup import Prepared
from penstock.errors import (
    InputLostError,
    KafkaError,
    PartitionCountError,
    PositionLostError,
    TopicMismatchError,
)
from penstock.topology.patterns import matching

WATCH_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True)
class Jump:
    """A task whose position is no longer in the log, and where it goes on instead."""

    task: TaskId
    ranges: tuple[Range, ...]


class InputsChangedError(Exception):
    """Other topics match a pattern now than when the driver started; it is to start anew."""


class InputWatch:
    """Looks at topics and logs every few seconds, and purges repartition topics."""

    def __init__(
        self,
        prepared: Prepared,
        admin: TopicAdmin,
        inputs: InputLogs,
        *,
        notice: Callable[[str], None],
    ) -> None:
        self._notice = notice
        self._prepared = prepared
        self._admin = admin
        self._inputs = inputs
        self._due = 0.0
        self._purge_due = 0.0

    def check(self, now: float, book: TaskBook, ends: Mapping[tuple[str, int], int]) -> list[Jump]:
        """What must be jumped over; raises when a topic is not what it was."""
        if now < self._due:
            return []
        self._due = now + WATCH_SECONDS
        self._check_topics()
        starts = self._inputs.starts()
        self._purge(now, book)
        jumps = []
        for view in book.views():
            ranges = _gaps(view.position, starts, ends, self._prepared)
            if ranges and view.until:
                raise _lost_on_the_way(view, ranges[0])
            if ranges:
                jumps.append(Jump(task=view.task, ranges=ranges))
        return jumps

    def _check_topics(self) -> None:
        self._check_patterns()
        names = {topic for topic, _ in self._prepared.inputs}
        # Instances see for themselves that a global table's topic has changed, and rebuild it; all
        # that they cannot do without is the topic.
        tables = {table.topic for table in self._prepared.global_tables}
        changelogs = set(self._prepared.layout.changelogs)
        internal = self._prepared.settings.topics
        present = self._admin.describe(names | tables | changelogs | internal)
        for name in sorted(changelogs):
            _check_changelog(name, self._prepared.topics[name], present.get(name))
        for name in sorted(internal & present.keys()):
            for text in self._prepared.settings.note(present[name]):
                self._notice(text)
        found = {name: topic for name, topic in present.items() if name in names | tables}
        if set(found) != names | tables:
            self._admin.require(names | tables)
        for name, topic in found.items():
            if name not in names:
                continue
            known = self._prepared.topics[name]
            if topic.partitions != known.partitions:
                raise PartitionCountError(
                    f"The topic has {topic.partitions} partitions now; the application started "
                    f"with {known.partitions}",
                    where={"topic": name},
                    hint="Keys now go to other partitions, so the state no longer fits. Use a new "
                    "application id, or give the topic its old number of partitions",
                )
            if topic.id != known.id:
                raise TopicMismatchError(
                    "The topic was deleted and made anew while the application ran",
                    where={"topic": name},
                    hint="Its offsets mean other records now. Use a new application id, or reset "
                    "the application",
                )

    def _check_patterns(self) -> None:
        prepared = self._prepared
        if not prepared.patterns:
            return
        now = matching(prepared.patterns, self._admin.names(), prepared.application_id)
        gone, new = prepared.matched - now, set(self._admin.describe(now - prepared.matched))
        if gone or new:
            changes = [f"{name} is new" for name in sorted(new)]
            changes += [f"{name} is gone" for name in sorted(gone)]
            raise InputsChangedError(
                f"The topics that match a pattern have changed: {', '.join(changes)}. "
                "The application starts over them anew"
            )

    def _purge(self, now: float, book: TaskBook) -> None:
        """Repartition topics are emptied up to what is committed, and not further."""
        if now < self._purge_due:
            return
        interval = self._prepared.config.repartition_purge_interval.total_seconds()
        self._purge_due = now + interval
        internal = self._prepared.layout.repartitions
        before = {
            (topic, partition): offset
            for entry in book.entries.values()
            for topic, partitions in entry.position.items()
            if topic in internal
            for partition, offset in partitions.items()
            if offset > 0
        }
        try:
            self._admin.delete_records(before)
        except KafkaError:
            # Nothing depends on it but disk space; the next round does it.
            self._purge_due = now + WATCH_SECONDS


def _lost_on_the_way(view: TaskView, gap: Range) -> InputLostError:
    return InputLostError(
        "Records were deleted before a task that reads its input again came to them: "
        f"{gap.start} to {gap.end - 1}",
        where={"task": view.task, "topic": gap.topic, "partition": gap.partition},
        hint="Let the topic keep its records, or the store a changelog; to start afresh, reset the "
        "application or use another id",
    )


def _check_changelog(name: str, known: ExistingTopic, found: ExistingTopic | None) -> None:
    """What is written to a changelog that is gone, or another one by now, restores nothing."""
    if found is None:
        raise deleted(name, changelog=True)
    if found.id != known.id:
        raise recreated(name, f"its id is {found.id}, and was {known.id} when we started")
    if found.partitions != known.partitions:
        raise PartitionCountError(
            f"The changelog has {found.partitions} partitions now, and {known.partitions} are "
            "the store's",
            where={"topic": name},
            hint="The next start would refuse it. Start afresh: delete the application's internal "
            "topics, consumer group and state directory, or use another id",
        )


def _gaps(
    position: Position,
    starts: Mapping[tuple[str, int], int],
    ends: Mapping[tuple[str, int], int],
    prepared: Prepared,
) -> tuple[Range, ...]:
    gaps = []
    for topic, partitions in position.items():
        for partition, offset in partitions.items():
            start, end = starts[topic, partition], ends[topic, partition]
            if offset > end:
                raise PositionLostError(
                    f"The log ends at {end}, before the task's position {offset}",
                    where={"topic": topic, "partition": partition, "offset": offset},
                    hint="The topic lost records; reset the application, or restore the topic",
                )
            if offset < start:
                reset = prepared.layout.reset(topic, prepared.config.auto_offset_reset)
                gaps.append(Range(topic, partition, offset, end if reset == "latest" else start))
    return tuple(gaps)
