"""Starting an application over: other positions, and no state. Kafka Streams' reset tool.

What belongs to the application is its `Extent`: from its program, or by what it left in Kafka.

1. Look: nobody is at work, and where the input begins, ends, and the group stands.
2. Lock the state on this machine, and delete the consumer group, which Kafka refuses while it has
   members: until here nothing was changed.
3. Remove the state.
4. Delete the internal topics.
5. Make them anew, empty, so that the next start finds state that fits its positions.
6. Write the group's new positions.

One that is cut off is run again. An application that starts before that finds no positions in the
group: it goes on from its commit record, or reads its input from where `auto_offset_reset` says.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaException,
    TopicPartition,
)
from confluent_kafka import KafkaError as NativeError
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]  # not re-exported

from penstock.changelog.clients import LogClients
from penstock.changelog.kafka_failures import kafka_error
from penstock.changelog.reading import EARLIEST, LATEST, log_offsets
from penstock.changelog.topic_admin import TopicAdmin
from penstock.changelog.topics import commits_name
from penstock.config import Config
from penstock.coordination.resets import Input, Target, new_positions
from penstock.driver.lease import DriverLease
from penstock.errors import GroupInUseError, KafkaError
from penstock.stores.directory import LOCK_FILE, METADATA_FILE, FileLock

_GONE_TIMEOUT = timedelta(seconds=30)
_PAUSE_SECONDS = 0.1
_ASK_SECONDS = 30.0
LAST_STEP = 6


def untold(step: int, what: str) -> None:
    """Tell nobody which step begins."""


@dataclass(frozen=True, kw_only=True)
class ResetPlan:
    """What a reset changes."""

    application_id: str
    positions: Mapping[Input, int]
    standing: Mapping[Input, int]
    """Where the group stands, where it does."""
    topics: tuple[str, ...]
    directories: tuple[Path, ...]
    notes: tuple[str, ...] = ()
    """What whoever looks at it should know."""


@dataclass(frozen=True, kw_only=True)
class Extent:
    """What belongs to an application."""

    inputs: frozenset[str]
    """The topics that others write and it reads."""
    internal: frozenset[str]
    """Its own topics, as far as they exist."""
    make_anew: Callable[[], None]
    """Creates its own topics, once they are deleted."""
    notes: tuple[str, ...] = ()


class Reset:
    """A reset of one application, which must not run."""

    def __init__(
        self,
        application_id: str,
        extent: Extent,
        config: Config,
        logs: LogClients,
        admin: TopicAdmin,
    ) -> None:
        self._application_id = application_id
        self._extent = extent
        self._config = config
        self._logs = logs
        self._admin = admin

    def plan(self, target: Target) -> ResetPlan:
        """Step 1: what would be done; nothing is changed.

        Raises `GroupInUseError` and `AnotherDriverError` while somebody is at work.
        """
        lease = DriverLease(self._application_id, self._config, self._logs)
        # Without a commits topic there was no driver, or nobody knows of one.
        if commits_name(self._application_id) in self._extent.internal:
            lease.check_free()
        else:
            lease.check_group()
        inputs = self._inputs()
        stable = IsolationLevel.READ_COMMITTED
        starts = log_offsets(self._logs, inputs, EARLIEST, stable)
        ends = log_offsets(self._logs, inputs, LATEST, stable)
        standing = self._logs.committed(inputs)
        at_time: dict[Input, int] = {}
        if target.kind == "time":
            at_time = log_offsets(
                self._logs, inputs, OffsetSpec.for_timestamp(target.number), stable
            )
        ranges = {each: (starts[each], ends[each]) for each in inputs}
        return ResetPlan(
            application_id=self._application_id,
            positions=new_positions(target, ranges, group=standing, at_time=at_time),
            standing=standing,
            topics=tuple(sorted(self._extent.internal)),
            directories=tuple(state_directories(self._config.state_dir, self._application_id)),
            notes=self._extent.notes,
        )

    def carry_out(self, plan: ResetPlan, begins: Callable[[int, str], None] = untold) -> None:
        """Steps 2 to 6. Raises `StateLockedError`, `GroupInUseError` before anything is changed.

        `begins` hears each step before it is done.
        """
        begins(2, "Deleting the consumer group")
        with locked(plan.directories):
            self._delete_group()
            begins(3, "Removing the state on this machine")
            _remove(plan.directories)
        begins(4, "Deleting internal topics")
        self._delete_topics(plan.topics)
        begins(5, "Making them anew")
        self._extent.make_anew()
        begins(LAST_STEP, "Writing the new positions")
        self._write_group(plan.positions)

    def _inputs(self) -> list[Input]:
        found = self._admin.require(self._extent.inputs)
        return sorted((name, p) for name, topic in found.items() for p in range(topic.partitions))

    def _delete_group(self) -> None:
        future = self._logs.admin.delete_consumer_groups(
            [self._application_id], request_timeout=_ASK_SECONDS
        )[self._application_id]
        try:
            future.result()
        except KafkaException as error:
            code = error.args[0].code()
            if code == NativeError.NON_EMPTY_GROUP:
                raise GroupInUseError(
                    f"The consumer group {self._application_id!r} still has members",
                    hint="Wait for the session timeout of a process that was killed, and try again",
                ) from error
            if code != NativeError.GROUP_ID_NOT_FOUND:
                raise kafka_error(
                    error, doing="delete the group", where={"group": self._application_id}
                ) from error

    def _delete_topics(self, names: Iterable[str]) -> None:
        wanted = list(names)
        if not wanted:
            return
        futures = self._logs.admin.delete_topics(wanted, request_timeout=_ASK_SECONDS)
        for name, future in futures.items():
            try:
                future.result()
            except KafkaException as error:
                if error.args[0].code() != NativeError.UNKNOWN_TOPIC_OR_PART:
                    raise KafkaError(
                        f"A topic was not deleted: {error}", where={"topic": name}
                    ) from error
        deadline = time.monotonic() + _GONE_TIMEOUT.total_seconds()
        while self._admin.describe(wanted):
            if time.monotonic() > deadline:
                raise KafkaError(
                    "Deleted topics are still there", hint="Check the brokers, and reset again"
                )
            time.sleep(_PAUSE_SECONDS)

    def _write_group(self, positions: Mapping[Input, int]) -> None:
        offsets = [TopicPartition(topic, p, offset) for (topic, p), offset in positions.items()]
        wanted = [ConsumerGroupTopicPartitions(self._application_id, offsets)]
        futures = self._logs.admin.alter_consumer_group_offsets(
            wanted, request_timeout=_ASK_SECONDS
        )
        try:
            futures[self._application_id].result()
        except KafkaException as error:
            raise KafkaError(
                f"The new positions were not written: {error}", hint="Run the reset again"
            ) from error


def state_directories(state_dir: Path, application_id: str) -> list[Path]:
    """The application's directories on this machine: of one instance, or of several beside it."""
    if not state_dir.is_dir():
        return []
    places = [state_dir, *sorted(each for each in state_dir.iterdir() if each.is_dir())]
    found = (place / application_id for place in places)
    return [each for each in found if (each / METADATA_FILE).is_file()]


def remove_state(directories: Iterable[Path]) -> None:
    """Remove an application's state, once nobody holds any of it."""
    found = list(directories)
    with locked(found):
        _remove(found)


@contextlib.contextmanager
def locked(directories: Iterable[Path]) -> Iterator[None]:
    """Keep instances out of these directories; `StateLockedError` names who is in one."""
    with contextlib.ExitStack() as stack:
        for each in directories:
            stack.callback(FileLock.acquire(each / LOCK_FILE).release)
        yield


def _remove(directories: Iterable[Path]) -> None:
    for each in directories:
        shutil.rmtree(each)
