"""Users' processors: the context they work in, their stores and their punctuators."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

from penstock.errors import TopologyError
from penstock.processors.depth_first.handed_out import HandedOut
from penstock.processors.depth_first.punctuators import Punctuator, Schedule, Timers
from penstock.processors.depth_first.record import Context, Record, Shared
from penstock.processors.depth_first.steps import Step
from penstock.processors.depth_first.user_metrics import UserMetrics
from penstock.processors.depth_first.user_stores import (
    UserKeyValueStore,
    UserSessionStore,
    UserWindowStore,
)
from penstock.processors.depth_first.versioned import UserVersionedStore
from penstock.topology import ProcessNode
from penstock.topology.callables import check_processor
from penstock.topology.processor import (
    Cancellable,
    Processor,
    ProcessorContext,
    PunctuationType,
    RecordMetadata,
    ValueTransformer,
)
from penstock.topology.processor import Record as UserRecord


class Process(Step):
    """A user's processor as a step."""

    def __init__(
        self,
        shared: Shared,
        node: ProcessNode,
        *,
        application_id: str,
        task_id: str,
        partition: int,
        stores: dict[str, Any],
        timers: Timers,
        memory: str,
        handed: HandedOut | None = None,
    ) -> None:
        super().__init__(node.name, shared)
        self._node = node
        self._stores = stores
        self._handed = handed
        self.application_id = application_id
        self.task_id = task_id
        self.partition = partition
        self.metrics = UserMetrics(node.name, shared.meter)
        self.named_children: dict[str, Callable[[Record], None]] = {}
        self.current_call: Punctuator | None = None
        self._current: Record | None = None
        self._is_starting = False
        self.processor: Processor[Any, Any, Any, Any] = self.call(node.supplier)
        check_processor(self.processor, node.name)
        owner = getattr(self.processor, "transformer", self.processor)
        self._schedule = Schedule(self, owner, timers, memory=memory)

    def start(self) -> None:
        """Run the processor's `init`, once all steps are connected."""
        self._is_starting = True
        self.call(self.processor.init, UserContext(self))
        self._is_starting = False
        self._schedule.take_up()
        if self._handed is not None:
            self._handed.check()

    def process(self, record: Record) -> None:
        before, self._current = self._current, record
        shared, outer = self.shared, self.shared.given_time
        shared.given_time = record.timestamp
        given = UserRecord(record.key, record.value, record.timestamp, record.headers)
        if self._handed is not None:
            self._handed.forget()
        try:
            self.call(self.processor.process, given)
        finally:
            self._current = before
            shared.given_time = outer
        if self._handed is not None:
            self._handed.check()

    def punctuate(self, punctuator: Punctuator, now: int) -> None:
        """Run a punctuator that is due, in a context that has a time and no input record."""
        punctuator.pass_by(now)
        self.shared.context = Context("", -1, -1, now, ())
        if self._handed is not None:
            self._handed.forget()
        self.current_call = punctuator
        try:
            self.call(punctuator.action, now)
        finally:
            self.current_call = None
        if self._handed is not None:
            self._handed.check()

    def watched(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, of this processor's, after each call of which its values are looked at."""
        handed = self._handed
        if handed is None:
            return function

        def call(*arguments: Any) -> Any:
            result = function(*arguments)
            handed.check()
            return result

        return call

    @property
    def names_keys(self) -> bool:
        """Whether the processor says which keys it will read."""
        own = getattr(self.processor, "keys_to_read", None)
        return own is not None and getattr(own, "__func__", own) is not Processor.keys_to_read

    def keys_to_read(self, pairs: Iterable[tuple[Any, Any]]) -> dict[str, list[Any]]:
        """What the processor says it will read for these records: the bytes of keys; with times, of
        windows and sessions."""
        wanted: dict[str, list[Any]] = {}
        for key, value in pairs:
            for store, keys in self.processor.keys_to_read(key, value).items():
                held = self._stores.get(store)
                if isinstance(held, UserKeyValueStore | UserVersionedStore):
                    wanted.setdefault(store, []).extend(map(held.key_bytes, keys))
                elif isinstance(held, UserWindowStore | UserSessionStore):
                    wanted.setdefault(store, []).extend(held.question(*each) for each in keys)
                elif held is not None and hasattr(held, "bytes_to_read"):
                    wanted.setdefault(store, []).extend(held.bytes_to_read(keys))
        return wanted

    def finish(self) -> None:
        """Close the processor."""
        if self._handed is not None:
            self._handed.forget()
        self.call(self.processor.close)
        if self._handed is not None:
            self._handed.check_all()
        self.metrics.finish()
        self._schedule.finish()

    # What the processor sees of it: `ProcessorContext`.

    @property
    def record_metadata(self) -> RecordMetadata | None:
        """The input record's coordinates; None in a punctuator."""
        context = self.shared.context
        if context.offset < 0:
            return None
        return RecordMetadata(context.topic, context.partition, context.offset)

    @property
    def current_stream_time_ms(self) -> int:
        """The latest timestamp that the task has seen."""
        return self.shared.stream_time

    @property
    def current_system_time_ms(self) -> int:
        """The wall clock, as the slice began."""
        return self.shared.now_ms

    def forward_user(self, record: UserRecord[Any, Any], to: str | None) -> None:
        """Pass a user's record on."""
        if self._node.fixed_key:
            self._check_fixed_key(record)
        if record.timestamp < 0:
            raise TopologyError(
                f"The processor of step {self.name} forwards a record of time {record.timestamp}",
                hint="Times are milliseconds since the epoch, 0 or more",
            )
        made = Record(record.key, record.value, record.timestamp, record.headers)
        if to is None:
            self.forward(made)
            return
        child = self.named_children.get(to)
        if child is None:
            known = ", ".join(self.named_children) or "none"
            raise TopologyError(
                f"The step {self.name} has no child {to!r}", hint=f"Its children are: {known}"
            )
        child(made)

    def _check_fixed_key(self, record: UserRecord[Any, Any]) -> None:
        """Raise `TopologyError` for a record that has not the key of the one at hand."""
        if isinstance(self.processor, HostedTransformer):
            raise TopologyError(
                f"The transformer of step {self.name} forwards a record",
                hint="Let transform return the row's value; what makes records of its own is "
                "to_stream().process(...)",
            )
        if self._current is None:
            raise TopologyError(
                f"The processor of step {self.name} forwards a record while none is processed, and "
                "process_values(...) leaves keys as they came",
                hint="Use process(...), whose punctuators may forward any record",
            )
        key = self._current.key
        if record.key is not key and record.key != key:
            raise TopologyError(
                f"The processor of step {self.name} changed a record's key",
                hint="Use process(...), which may, instead of process_values(...)",
            )

    def store(self, name: str) -> Any:
        """A connected store."""
        if name not in self._stores:
            known = ", ".join(self._stores) or "none"
            raise TopologyError(
                f"The store {name!r} is not connected to step {self.name}",
                hint=f"Name it in stores=[...]; connected are: {known}",
            )
        return self._stores[name]

    def schedule(
        self, interval: timedelta, kind: PunctuationType, action: Callable[[int], object]
    ) -> Punctuator:
        """Call `action(time)` every `interval`."""
        if self.partition < 0:
            raise TopologyError(
                f"The processor {self.name} of a global store schedules a call",
                hint="It is only run for the records of its topic; schedule it in another one",
            )
        return self._schedule.add(interval, kind, action, in_init=self._is_starting)

    def commit(self) -> None:
        """Every slice is committed anyway."""


class HostedTransformer(Processor[Any, Any, Any, Any]):
    """A value transformer in a processor's place: it begins and ends as one."""

    def __init__(self, transformer: ValueTransformer[Any, Any, Any]) -> None:
        self.transformer = transformer

    def init(self, context: ProcessorContext) -> None:
        self.transformer.init(context)

    def close(self) -> None:
        self.transformer.close()


class UserContext:
    """What a processor gets: the step, without what is not its business."""

    def __init__(self, step: Process) -> None:
        self._step = step
        self.schedule = step.schedule
        self.store = step.store
        self.commit = step.commit
        self.application_id = step.application_id
        self.task_id = step.task_id
        self.partition = step.partition
        self.metrics = step.metrics

    @property
    def record_metadata(self) -> RecordMetadata | None:
        """The input record's coordinates; None in a punctuator."""
        return self._step.record_metadata

    @property
    def current_stream_time_ms(self) -> int:
        """The latest timestamp that the task has seen."""
        return self._step.current_stream_time_ms

    @property
    def current_system_time_ms(self) -> int:
        """The wall clock, as the slice began."""
        return self._step.current_system_time_ms

    @property
    def current_call(self) -> Cancellable | None:
        """The scheduled call that runs; None while a record is processed."""
        return self._step.current_call

    def forward(self, record: UserRecord[Any, Any], to: str | None = None) -> None:
        """Pass a record on."""
        self._step.forward_user(record, to)
