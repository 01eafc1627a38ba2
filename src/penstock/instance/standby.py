"""Tasks that an instance follows, so that it can take them at once: standbys and warm-ups.

A followed task has its stores open, under the task's lock as an owner would, and committed records
of their changelogs are applied as they come. It is first brought to the ends of its changelogs as
in a restore, a few tasks at a time; from then on one thread with one consumer follows them all.

What befalls one followed task, a damaged store or a changelog that lost records, is that task's
affair: its stores are made anew where they can be, and someone is told.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from confluent_kafka import Consumer, IsolationLevel, KafkaException, Message, TopicPartition

from penstock.changelog.commit_record import CommitRecord
from penstock.changelog.kafka_failures import kafka_error
from penstock.changelog.reading import LATEST, come, never, read_last, told_offsets
from penstock.changelog.restore import apply_messages, is_too_old
from penstock.changelog.topics import commits_name
from penstock.coordination.ids import TaskId
from penstock.errors import ChangelogError, KafkaError, PenstockError, StoreDamagedError
from penstock.instance.pace import Pace
from penstock.instance.protocol import UNKNOWN_LAG, CopyState, CopyStatus, FollowOrder
from penstock.instance.restores import Restores
from penstock.instance.state import TaskStores
from penstock.instance.task import TaskEnvironment
from penstock.observability.crash_points import crash_point
from penstock.observability.time_of_day import wall_clock_ms

_log = logging.getLogger("penstock.instance")

CATCH_UPS_AT_ONCE = 4
"""How many tasks are brought to the ends of their changelogs at the same time."""
BATCH_RECORDS = 5_000
WATCH_SECONDS = 5.0
"""How often it is asked where the changelogs end."""
_POLL_SECONDS = 0.05
_HURRIED_SECONDS = 5.0
_TAIL_SECONDS = 0.15
"""How long an owner waits for what its follower has not read yet. It is on its way; a consumer of
its own, to read it with, costs a tenth of a second."""
_TAIL_PAUSE_SECONDS = 0.002
_LOOK_SECONDS = 0.5
_FLUSH_WAIT_SECONDS = 1.0
"""For what came of a changelog to be applied: a batch."""
_RETRY_SECONDS = 0.5
_RETRY_DOUBLINGS = 6
_LASTING_MIN = timedelta(minutes=5)
"""A changelog that is written all the time is seldom read to its very end."""


class Followed:
    """One task that is followed. Its stores are used by one thread at a time, under its lock."""

    def __init__(self, order: FollowOrder, environment: TaskEnvironment, pace: Pace) -> None:
        self.order = order
        self._pace = pace
        self.partition = TaskId.parse(order.task).partition
        self.round = 0
        """How often it has caught up and begun to be followed."""
        self.state: CopyState = "catching_up"
        self.retry_at = 0.0
        self._hurried_until = 0.0
        self._environment = environment
        self._stores = environment.stores(order)
        self._stores_by_topic = self._stores.logged
        self._positions: dict[str, int] = {}
        self._ends: dict[str, int] = {}
        self._begun_ms = 0
        """When it was last caught up, and began to be followed."""
        self._failures = 0
        self._notes: list[str] = []
        self._lock = threading.Lock()
        self._stopping = threading.Event()

    def hurry(self) -> None:
        """It is about to be handed over: each moment that it lags behind counts, for a while."""
        self._hurried_until = time.monotonic() + _HURRIED_SECONDS

    @property
    def is_hurried(self) -> bool:
        """Whether it is to be brought on as soon as something comes."""
        return time.monotonic() < self._hurried_until

    @property
    def positions(self) -> dict[str, int]:
        """The next offset of each changelog that is followed now; none if that is not so."""
        return dict(self._positions) if self.state == "following" else {}

    @property
    def stores(self) -> TaskStores:
        """What it keeps on disk."""
        return self._stores

    def catch_up(self) -> None:
        """Open the stores and bring them to the ends of their changelogs; never raises."""
        with self._lock, self._failing():
            if self._stopping.is_set():
                return
            self.state = self._stores.meter.became("catching_up")
            record = self._record()
            if record is not None and record.until:
                raise ChangelogError("The task reads its input again: its changelogs are not whole")
            self._stores.open(record)
            crash_point("follow.before_catching_up")
            began_ms = wall_clock_ms()
            self._tell(self._stores.catch_up(self._pace.stop_check(self._stopping)))
            if self._stores.lost:
                raise ChangelogError(self._stores.lost)
            if not self._stopping.is_set():
                self._begin(began_ms)

    def apply(self, topic: str, messages: list[Message], of_round: int) -> None:
        """Apply what came of one of its changelogs in that round; never raises."""
        with self._lock, self._failing():
            # It may have failed and caught up since they came: it is further then.
            if self.state != "following" or self.round != of_round or self._stopping.is_set():
                return
            store = self._stores_by_topic[topic]
            self._check_age(store, topic)
            try:
                began = time.perf_counter()
                applied = apply_messages(
                    self._stores.get(store),
                    messages,
                    topic=topic,
                    partition=self.partition,
                    writing=self._stores.steady(store).changing,
                )
                self._stores.meter.restored(len(messages), time.perf_counter() - began)
            except StoreDamagedError as error:
                self._wipe(store, error)
                raise
            if applied.truncated:
                # It is known by the next restore what the changelog lacks, and what to do.
                raise ChangelogError(f"{topic} no longer holds what store {store} needs next")
            if applied.position is not None:
                self._positions[topic] = applied.position
                self._failures = 0
            if applied.at_end:
                self._stores.whole_at[store] = wall_clock_ms()

    def note_whole(self, ends: Mapping[tuple[str, int], int], asked_ms: int) -> None:
        """Some changelogs ended there at that moment: what was read to there was whole then."""
        if self.state != "following" or not self._lock.acquire(blocking=False):
            return
        try:
            for topic, at in self._positions.items():
                if at >= ends.get((topic, self.partition), at + 1):
                    self._stores.whole_at[self._stores_by_topic[topic]] = asked_ms
        finally:
            self._lock.release()

    def end_at(self, topic: str, end: int) -> None:
        """A changelog is known to end there now."""
        self._ends[topic] = end

    def flush(self) -> None:
        """Make what was applied durable, and export how far that is; never raises.

        Who asks must not wait for a copy that catches up: for hours.
        """
        if self.state != "following" or not self._lock.acquire(timeout=_FLUSH_WAIT_SECONDS):
            return
        try:
            with self._failing():
                if self.state == "following":
                    self._flush()
        finally:
            self._lock.release()

    def _flush(self) -> None:
        try:
            self._stores.flush(caught_up_at=self._stores.whole_at)
        except StoreDamagedError as error:
            for store in self._stores_by_topic.values():
                # A user's store need not say its name: then all are made anew.
                if error.where.get("store", store) == store:
                    self._wipe(store, error)
            raise

    def await_tail(self, stop: Callable[[], bool]) -> None:
        """Wait a moment for all that its changelogs hold now to be applied; never raises.

        Nobody writes to them meanwhile: whoever asks has fenced the last owner.
        """
        self.hurry()
        deadline = time.monotonic() + _TAIL_SECONDS
        where = [(topic, self.partition) for topic in self.positions]
        if not where:
            return
        try:
            clients = self._environment.clients.logs
            ends = told_offsets(clients, where, LATEST, IsolationLevel.READ_UNCOMMITTED)
        except KafkaError:
            return  # Whoever takes the task asks in earnest.
        while self._lacks(ends) and not stop() and time.monotonic() < deadline:
            self._stopping.wait(_TAIL_PAUSE_SECONDS)

    def _lacks(self, ends: Mapping[tuple[str, int], int]) -> bool:
        at = self.positions
        return any(at.get(topic, end) < end for (topic, _), end in ends.items())

    def stop(self) -> None:
        """Have what is under way, or still to come, end early; does not wait for it."""
        self._stopping.set()

    def give_up(self) -> TaskStores | None:
        """Follow no longer; the open stores, if they can be used as they are, else None.

        Returns when nobody uses them any more. Whoever gets them closes them.
        """
        self.stop()
        with self._lock:
            return self._give_up()

    def _give_up(self) -> TaskStores | None:
        if self.state == "following":
            self.state = "at_rest"
            # Who takes the stores judges by that whether they have missed deletions.
            for store, at in self._stores.whole_at.items():
                with contextlib.suppress(PenstockError):
                    self._stores.get(store).set_caught_up_at(at)
            self._stores.read_to = {
                store: self._positions[topic] for topic, store in self._stores_by_topic.items()
            }
            self._stores.meter.promote()
            # Its owner tells of its own restores only.
            self._stores.restores = Restores(self._stores.meter)
            return self._stores
        # What was restored stays on the disk, and is opened again as after any cut.
        self._close()
        return None

    def close(self) -> None:
        """Follow no longer; flush and close the stores. Twice does nothing, but waits for the
        first.
        """
        self.stop()
        with self._lock:
            stores = self._give_up()
            if stores is not None:
                with contextlib.suppress(PenstockError):
                    stores.close()

    def lag_of(self, topic: str) -> int:
        """How many offsets one of its changelogs has behind what was read, as far as is known."""
        end = self._ends.get(topic)
        return UNKNOWN_LAG if end is None else max(0, end - self._positions.get(topic, 0))

    def status(self) -> CopyStatus:
        """How far it is."""
        positions = self._positions if self.state == "following" else self._restored()
        lag = UNKNOWN_LAG
        if positions.keys() == self._stores_by_topic.keys() == self._ends.keys():
            lag = sum(max(0, self._ends[topic] - at) for topic, at in positions.items())
        return CopyStatus(
            task=self.order.task,
            state=self.state,
            positions=dict(positions),
            lag=lag,
            notes=list(self._notes),
        )

    def _restored(self) -> dict[str, int]:
        """How far each changelog was read by the restore that is under way."""
        found: dict[str, int] = {}
        for each in self._stores.restores.latest():
            # A restore that has ended read markers too, which are no records. Its last fetch, or
            # the copy that it began with, may have had more than it was to read: what follows must
            # not be applied twice, or stores would go back for a moment.
            ended_at = each.end if each.state == "ended" else 0
            found[each.topic] = max(ended_at, each.start, each.offset + 1)
            self._ends[each.topic] = max(each.end, self._ends.get(each.topic, 0))
        return found

    def _record(self) -> CommitRecord | None:
        environment = self._environment
        data = read_last(
            environment.clients.logs,
            commits_name(environment.application_id),
            self.order.commits_partition,
            stop=self._stopping.is_set,
        )
        return None if data is None else CommitRecord.decode(data)

    def _begin(self, whole_at_ms: int) -> None:
        positions = self._restored()
        self._stores.whole_at.update(dict.fromkeys(self._stores_by_topic.values(), whole_at_ms))
        self._positions = {topic: positions[topic] for topic in self._stores_by_topic}
        self._begun_ms = wall_clock_ms()
        self.round += 1
        self.state = self._stores.meter.became("following")

    def _check_age(self, store: str, topic: str) -> None:
        """Raise if brokers were out of reach for so long that deletions may be gone by now."""
        now_ms = wall_clock_ms()
        # A clock that was set back says nothing of a copy that is followed.
        whole_at = min(self._stores.whole_at.get(store, now_ms), now_ms)
        lasting = timedelta(milliseconds=self._stores.order(store).tombstones_ms)
        lasting = max(lasting, _LASTING_MIN)
        if whole_at < self._begun_ms and is_too_old(
            whole_at, now_ms=self._begun_ms, lasting=lasting
        ):
            # To catch up took as long. That was told, and would take as long again.
            whole_at = min(self._begun_ms, now_ms)
        if is_too_old(whole_at, now_ms=now_ms, lasting=lasting):
            # The next restore sees to it.
            raise ChangelogError(f"{topic} may have forgotten deletions that store {store} missed")

    def _wipe(self, store: str, error: StoreDamagedError) -> None:
        self._tell([f"{error.summary}: {self._stores.remedy(store)}"])
        self._stores.wipe(store)

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        """Whatever is raised ends in a note and another try, and stops nobody else."""
        try:
            yield
        except PenstockError as error:
            # Kafka may not answer for a while; a damaged store was told of when it was wiped.
            passing = isinstance(error, KafkaError) and not isinstance(error, ChangelogError)
            self._fail(error.summary, quiet=passing or isinstance(error, StoreDamagedError))
        except Exception as error:  # noqa: BLE001 - the thread follows other tasks too
            _log.exception("Task %s cannot be followed", self.order.task)
            self._fail(f"{type(error).__name__}: {error}", quiet=False)

    def _fail(self, why: str, *, quiet: bool) -> None:
        self._close()
        if self._stopping.is_set():
            return
        _log.warning("Task %s is not followed for a while: %s", self.order.task, why)
        if not quiet:
            self._tell([f"Task {self.order.task} is followed again in a while: {why}"])
        self.retry_at = time.monotonic() + _RETRY_SECONDS * 2**self._failures
        self._failures = min(self._failures + 1, _RETRY_DOUBLINGS)
        self.state = self._stores.meter.became("failed")

    def _close(self) -> None:
        with contextlib.suppress(PenstockError):
            self._stores.close()

    def _tell(self, notes: Iterable[str]) -> None:
        # What fails for the same reason again and again is told once.
        self._notes += [note for note in notes if note not in self._notes]


_Followings = dict[tuple[str, int], tuple[Followed, int]]
"""By changelog partition, who follows it, and in which round."""


class Standbys:
    """All tasks that an instance follows; any thread may call."""

    def __init__(self, environment: TaskEnvironment, pace: Pace) -> None:
        self._environment = environment
        self._pace = pace
        self._followed: dict[str, Followed] = {}
        self._leaving: list[Followed] = []
        """Tasks that are followed no longer, until their stores are closed."""
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._pool = ThreadPoolExecutor(CATCH_UPS_AT_ONCE, thread_name_prefix="catch-up")
        # Not behind catch-ups, of which each may last for hours.
        self._closing = ThreadPoolExecutor(CATCH_UPS_AT_ONCE, thread_name_prefix="unfollow")
        self._thread: threading.Thread | None = None
        self._watch_due = 0.0

    def tasks(self) -> list[str]:
        """The tasks that are followed, or on their way to be."""
        with self._lock:
            return list(self._followed)

    def status(self) -> list[CopyStatus]:
        """How far each is."""
        return [each.status() for each in self.all()]

    def get(self, task: str) -> Followed | None:
        """The task of that name, if it is followed."""
        with self._lock:
            return self._followed.get(task)

    def all(self) -> list[Followed]:
        """All that are followed, or on their way to be."""
        with self._lock:
            return list(self._followed.values())

    def stores(self) -> list[tuple[str, TaskStores]]:
        """The state and the stores of each."""
        with self._lock:
            return [(each.state, each.stores) for each in self._followed.values()]

    def follow(self, order: FollowOrder) -> None:
        """Begin to follow a task, unless it is followed already."""
        with self._lock:
            if order.task in self._followed or self._stopping.is_set():
                return
            followed = self._followed[order.task] = Followed(order, self._environment, self._pace)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="standbys", daemon=True)
                self._thread.start()
            self._pool.submit(followed.catch_up)

    def unfollow(self, task: str) -> None:
        """Follow a task no longer; what it has is flushed and closed in time."""
        with self._lock:
            if task not in self._followed or self._stopping.is_set():
                return
            followed = self._followed.pop(task)
            self._leaving.append(followed)
            followed.stop()
            self._closing.submit(self._let_go, followed)

    def _let_go(self, followed: Followed) -> None:
        followed.close()
        with self._lock:
            self._leaving.remove(followed)

    def hurry(self, task: str) -> None:
        """A task is about to be handed over."""
        followed = self.get(task)
        if followed is not None:
            followed.hurry()

    def uses(self, task: str) -> bool:
        """Whether the task's directory is used here: it is followed, or was until now."""
        with self._lock:
            return task in self._followed or any(each.order.task == task for each in self._leaving)

    def hand_over(self, task: str, stop: Callable[[], bool] = never) -> TaskStores | None:
        """Follow a task no longer, soon; its open stores, for the one who is to own it."""
        going_on = self.get(task)
        if going_on is not None:
            going_on.await_tail(stop)
        with self._lock:
            leaving = [each for each in self._leaving if each.order.task == task]
            followed = self._followed.pop(task, None)
        for each in leaving:
            # Its stores may take long to be flushed. Who only tried their lock would give up, and
            # the application with it.
            each.close()
        return None if followed is None else followed.give_up()

    def flush(self) -> None:
        """Make what was applied durable."""
        with self._lock:
            followed = list(self._followed.values())
        for each in followed:
            each.flush()

    def close(self) -> None:
        """Follow nothing any more."""
        self._stopping.set()
        with self._lock:
            followed = list(self._followed.values())
            self._followed.clear()
        # First all, then one by one: a catch-up that is queued before its close would run in full.
        for each in followed:
            each.stop()
        for each in followed:
            self._pool.submit(each.close)
        self._pool.shutdown()
        self._closing.shutdown()
        if self._thread is not None:
            self._thread.join()

    # The thread.

    def _run(self) -> None:
        consumer: Consumer | None = None
        while not self._stopping.is_set():
            try:
                consumer = consumer or self._environment.clients.logs.consumer()
                _Following(consumer).keep_up(self._round)
            except (KafkaException, PenstockError) as error:
                _log.warning("Changelogs cannot be followed for a while: %s", error)
                if consumer is not None:
                    consumer.close()
                consumer = None
                self._stopping.wait(_RETRY_SECONDS)
        if consumer is not None:
            consumer.close()

    def _round(self) -> _Followings | None:
        """What is to be followed now; None if nothing is to be any more."""
        if self._stopping.is_set():
            return None
        with self._lock:
            followed = list(self._followed.values())
        now = time.monotonic()
        for each in followed:
            if each.state == "failed" and now >= each.retry_at:
                each.state = "catching_up"
                with contextlib.suppress(RuntimeError):
                    self._pool.submit(each.catch_up)
        wanted = {
            (topic, each.partition): (each, each.round)
            for each in followed
            for topic in each.positions
        }
        if wanted and now >= self._watch_due:
            self._watch(followed, wanted)
            self._watch_due = time.monotonic() + WATCH_SECONDS
        return wanted

    def _watch(self, followed: Iterable[Followed], logs: Iterable[tuple[str, int]]) -> None:
        """A quiet changelog tells nothing: whether all of it was read is asked now and then."""
        asked_ms = wall_clock_ms()
        # Those whose brokers do not answer are as old as they were.
        with contextlib.suppress(KafkaError):
            clients = self._environment.clients.logs
            ends = told_offsets(clients, logs, LATEST, IsolationLevel.READ_COMMITTED)
            for each in followed:
                each.note_whole(ends, asked_ms)


class _Following:
    """One consumer that reads all the changelogs that are followed."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._assigned: _Followings = {}
        self._known: set[str] = set()

    def keep_up(self, wanted: Callable[[], _Followings | None]) -> None:
        """Apply what comes until there is nothing to be followed any more."""
        while (now := wanted()) is not None:
            self.turn(now)

    def turn(self, wanted: _Followings) -> None:
        """Apply what comes of these now."""
        self._assign(wanted)
        hurried = any(followed.is_hurried for followed, _ in wanted.values())
        if hurried:
            messages = come(self._consumer, BATCH_RECORDS, _POLL_SECONDS)
        else:
            messages = self._consumer.consume(BATCH_RECORDS, _POLL_SECONDS)
        for where, told in _by_partition(messages).items():
            if where in self._assigned:
                followed, of_round = self._assigned[where]
                followed.apply(where[0], told, of_round)
        self._note_ends()

    def _assign(self, wanted: _Followings) -> None:
        gone = [each for each, who in self._assigned.items() if wanted.get(each) != who]
        if gone:
            self._consumer.incremental_unassign([TopicPartition(*each) for each in gone])
        new = {each: who for each, who in wanted.items() if self._assigned.get(each) != who}
        starts = [
            TopicPartition(*each, followed.positions.get(each[0], 0))
            for each, (followed, _) in new.items()
        ]
        if starts:
            self._look_for({topic for topic, _ in new})
            self._consumer.incremental_assign(starts)
        self._assigned = wanted

    def _look_for(self, topics: set[str]) -> None:
        """Have the client find leaders that it does not know; else it may not ask for a while."""
        for topic in sorted(topics - self._known):
            with contextlib.suppress(KafkaException):
                self._consumer.list_topics(topic, timeout=_LOOK_SECONDS)
        self._known |= topics

    def _note_ends(self) -> None:
        for (topic, partition), (followed, _) in self._assigned.items():
            # What the broker said with the last fetch: no question of its own.
            known = self._consumer.get_watermark_offsets(
                TopicPartition(topic, partition), cached=True
            )
            if known[1] >= 0:
                followed.end_at(topic, known[1])


def _by_partition(messages: list[Message]) -> dict[tuple[str, int], list[Message]]:
    found: dict[tuple[str, int], list[Message]] = {}
    for message in messages:
        topic, partition = message.topic(), message.partition()
        if topic is None or partition is None:
            error = message.error()
            assert error is not None
            raise kafka_error(error, doing="let changelogs be followed")
        found.setdefault((topic, partition), []).append(message)
    return found
