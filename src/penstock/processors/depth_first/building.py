"""From the frozen steps of a sub-topology to steps that run."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from penstock.errors import TopologyError
from penstock.processors.depth_first.edges import EdgeCounter
from penstock.processors.depth_first.folding import aggregate, fold_of, table_aggregate, worked_as
from penstock.processors.depth_first.foreign_keys import (
    AnswerRow,
    AnswerSubscription,
    Register,
    Resolve,
    Subscribe,
)
from penstock.processors.depth_first.global_joins import GlobalJoin
from penstock.processors.depth_first.global_rows import GlobalLookups, UserGlobalRows
from penstock.processors.depth_first.guarding import guarded
from penstock.processors.depth_first.handed_out import HandedOut, LastPuts
from penstock.processors.depth_first.joins import (
    JoinTimes,
    JoinWindow,
    StreamJoin,
    TableJoin,
    TableMerge,
    Unmatched,
)
from penstock.processors.depth_first.lru import LruState
from penstock.processors.depth_first.process import HostedTransformer, Process
from penstock.processors.depth_first.punctuators import Punctuator, Timers, timer_memory
from penstock.processors.depth_first.record import Record, Shared
from penstock.processors.depth_first.shaped import Shapes
from penstock.processors.depth_first.state import (
    KeyValueState,
    Row,
    SessionState,
    TimedState,
    WindowState,
)
from penstock.processors.depth_first.steps import (
    DropNullKey,
    Filter,
    FlatMapValues,
    Map,
    MapColumns,
    MapValues,
    Pass,
    Peek,
    SelectKey,
    Split,
    Step,
    ToStream,
    Value,
    View,
)
from penstock.processors.depth_first.suppress import Suppress
from penstock.processors.depth_first.table_lookup import StreamTableJoin, Waiting, WaitingJoin
from penstock.processors.depth_first.tables import (
    StoredStep,
    Table,
    TableSelect,
    TableStore,
    TableTransform,
    TableTransformValues,
    Unstored,
)
from penstock.processors.depth_first.user_stores import (
    UserGlobalStore,
    UserKeyValueStore,
    UserSessionStore,
    UserWindowStore,
)
from penstock.processors.depth_first.versioned import (
    UserVersionedStore,
    VersionedState,
    VersionedTable,
)
from penstock.processors.depth_first.window_store import WindowStore
from penstock.processors.depth_first.windows import (
    SessionAggregate,
    SlidingWindowAggregate,
    TimeWindowAggregate,
    WindowStep,
    window_memory,
)
from penstock.processors.records import Limits, ScanReader
from penstock.topology import (
    AggregateNode,
    AnswerRowNode,
    AnswerSubscriptionNode,
    BranchNode,
    ColumnFunction,
    DropNullKeyNode,
    FilterNode,
    FlatMapNode,
    FlatMapValuesNode,
    ForeachNode,
    GlobalJoinNode,
    JoinWindowNode,
    LatestNode,
    MapNode,
    MapValuesNode,
    MergeNode,
    Node,
    PeekNode,
    ProcessNode,
    RegisterNode,
    ResolveNode,
    SelectKeyNode,
    SessionWindows,
    SinkNode,
    SlidingWindows,
    SourceNode,
    SplitNode,
    StoreSpec,
    StreamJoinNode,
    StreamTableJoinNode,
    SubscribeNode,
    SubTopology,
    SuppressNode,
    TableAggregateNode,
    TableFilterNode,
    TableJoinNode,
    TableMapValuesNode,
    TableMergeNode,
    TableSelectNode,
    TableTransformValuesNode,
    TimeWindows,
    ToStreamNode,
    WindowAggregateNode,
)

_WINDOW_STEPS: dict[type, type[WindowStep[Any]]] = {
    TimeWindows: TimeWindowAggregate,
    SlidingWindows: SlidingWindowAggregate,
    SessionWindows: SessionAggregate,
}


class _Late:
    """A table's view by name: the step that gives it may not be made yet."""

    def __init__(self, steps: dict[str, Any], name: str) -> None:
        self._steps = steps
        self._name = name

    def get(self, key: Any, *, sent: bool = False) -> Value | None:
        found: Value | None = self._steps[self._name].get(key, sent=sent)
        return found

    def get_as_of(self, key: Any, time: int) -> Value | None:
        found: Value | None = self._steps[self._name].get_as_of(key, time)
        return found


class Builder:
    """Makes the steps of one run, and the stores that they use."""

    def __init__(
        self,
        sub_topology: SubTopology,
        shared: Shared,
        reader: ScanReader,
        rows: list[Row],
        *,
        limits: Limits,
        application_id: str,
        partition: int,
    ) -> None:
        self._application_id = application_id
        # What fills a global store runs on every instance, and in no task.
        self._partition = -1 if sub_topology.is_global else partition
        number = -1 if sub_topology.is_global else sub_topology.number
        self._task_id = f"{number}_{self._partition}"
        self.processes: list[Process] = []
        self.edges = EdgeCounter(shared.meter)
        self.timers = Timers()
        self._sub = sub_topology
        self._shared = self.shared = shared
        self._reader = reader
        self._rows = rows
        self._limits = limits
        cached = sum(store.caching for store in sub_topology.stores)
        self._cache_bytes = limits.cache_max_bytes // max(cached, 1)
        self._join_times: dict[str, JoinTimes] = {}
        self._puts = LastPuts()
        self._unmatched: dict[str, Unmatched] = {}
        self._tables: dict[str, Table] = {}
        self._window_stores: dict[str, WindowStore] = {}
        self._globals = GlobalLookups(shared, limits.on_bad_record, self._key_value)
        self.steps: dict[str, Step] = {}
        self.states: dict[str, KeyValueState | TimedState | VersionedState] = {}
        self.waiting: list[Waiting] = []
        self.shapes = Shapes(shared, reader, rows, self.states)
        self.finishers: list[Callable[[], None]] = []
        self.flushers: list[Callable[[], None]] = []

    def build(self, sinks: Callable[[Node], Step | None]) -> None:
        """Make every step and connect them; `sinks` makes those that write topics."""
        for node in self._sub.nodes:
            self.steps[node.name] = sinks(node) or self._step(node)
        for node in self._sub.nodes:
            step = self.steps[node.name]
            entries = [self._entry(node.name, child) for child in node.children]
            step.connect(entries)
            if isinstance(step, Process):
                step.named_children = dict(zip(node.children, entries, strict=True))
        for process in self.processes:
            process.start()

    def _entry(self, parent: str, name: str) -> Callable[[Record], None]:
        step = self.steps[name]
        is_sink = isinstance(self._sub.by_name[name], SinkNode)
        writing = self._limits.on_production_error if is_sink else None
        process = self.edges.watched(parent, name, step.process)
        handler = self._limits.on_processing_error
        return guarded(self._shared, name, process, handler, of_unwritable=writing)

    def punctuate(self, punctuator: Punctuator, now: int) -> None:
        """Run a punctuator; where a record may fail, it may."""
        handler = self._limits.on_processing_error
        step = punctuator.step
        assert isinstance(step, Process)
        guarded(self._shared, step.name, partial(step.punctuate, punctuator), handler)(now)

    def _step(self, node: Node) -> Step:
        made = self._stateless(node) or self._table(node) or self._join(node)
        if made is None:
            raise TopologyError(
                f"The step {node.name} is of an unknown kind, {type(node).__name__}"
            )
        return made

    def _stateless(self, node: Node) -> Step | None:
        name, shared = node.name, self._shared
        match node:
            case SourceNode() | MergeNode() | BranchNode():
                return Pass(name, shared)
            case DropNullKeyNode():
                return Pass(name, shared) if node.keeps else DropNullKey(name, shared)
            case FilterNode():
                return Filter(name, shared, node.predicate, negate=node.negate)
            case PeekNode() | ForeachNode():
                return Peek(name, shared, node.action)
            case MapValuesNode():
                return MapValues(name, shared, node.mapper, with_key=node.with_key)
            case FlatMapValuesNode():
                return FlatMapValues(name, shared, node.mapper, with_key=node.with_key)
            case MapNode():
                return _map(shared, node)
            case FlatMapNode():
                return Map(name, shared, node.mapper)
            case SelectKeyNode():
                return SelectKey(name, shared, node.selector)
            case SplitNode():
                branches = (self._sub.by_name[child] for child in node.children)
                predicates = [b.predicate for b in branches if isinstance(b, BranchNode)]
                return Split(name, shared, predicates)
            case ToStreamNode():
                return ToStream(name, shared)
        return None

    def _table(self, node: Node) -> Step | None:
        match node:
            case WindowAggregateNode():
                return self._window_aggregate(node)
            case TableAggregateNode():
                return self._stored(node, table_aggregate(self._shared, node))
            case AggregateNode():
                return self._stored(node, aggregate(self._shared, node, self._sub))
            case TableFilterNode():
                predicate, negate = node.predicate, node.negate
                return self._transform(
                    node,
                    node.parent,
                    lambda key, value: value if bool(predicate(key, value)) != negate else None,
                )
            case TableMapValuesNode():
                mapper = node.mapper
                if node.with_key or isinstance(mapper, ColumnFunction):
                    return self._transform(node, node.parent, mapper)
                return self._transform(node, node.parent, lambda _, value: mapper(value))
            case LatestNode():
                return Unstored(node.name, self._shared)
            case TableTransformValuesNode():
                return self._transform_values(node)
            case TableSelectNode():
                return TableSelect(self._shared, node)
            case SuppressNode():
                state = self._key_value(node.store)
                step = Suppress(self._shared, node, parent=self._view(node.parent), state=state)
                self.finishers.append(step.finish)
                return step
        return None

    def _join(self, node: Node) -> Step | None:
        shared = self._shared
        match node:
            case StreamTableJoinNode():
                return self._table_lookup(node)
            case TableJoinNode():
                return TableJoin(
                    shared,
                    node,
                    here=self._view(node.parent),
                    other=self._view(node.other),
                    sends_old=node.sends_old,
                    knows_old=self._has_cache(node.children[0]),
                )
            case TableMergeNode():
                merge = TableMerge(
                    node.name, shared, self._view(node.left), sends_old=node.sends_old
                )
                if node.store is not None:
                    merge.attach(self._table_store(merge, node, node.store))
                return merge
            case JoinWindowNode():
                spec = self._sub.store(node.store)
                keep = JoinWindow(node.name, shared, spec, self._windows(node.store))
                self.finishers.append(keep.finish)
                return keep
            case StreamJoinNode():
                return self._stream_join(node)
            case GlobalJoinNode():
                return GlobalJoin(shared, node, self._globals.rows(node.table))
            case ProcessNode():
                return self._process(node)
        return self._foreign_key(node)

    def _table_lookup(self, node: StreamTableJoinNode) -> Step:
        table = self._view(node.table)
        if node.buffer is None:
            return StreamTableJoin(self._shared, node, table)
        versions = self._versioned(node.reads[0])
        waiting = Waiting(self._shared, node, self._key_value(node.buffer), versions)
        self.waiting.append(waiting)
        self.finishers.append(waiting.finish)
        return WaitingJoin(self._shared, node, table, waiting)

    def _process(self, node: ProcessNode) -> Process:
        handed = HandedOut(node.name, self._puts) if self._limits.watches_values else None
        stores = {name: self._user_store(name, handed) for name in node.reads}
        for spec in node.global_stores:
            held = UserGlobalRows(self._shared, node.name, self._globals.rows(spec))
            stores[spec.name] = UserGlobalStore(spec.name, node.name, held)
        step = Process(
            self._shared,
            node,
            application_id=self._application_id,
            task_id=self._task_id,
            partition=self._partition,
            stores=stores,
            timers=self.timers,
            memory=timer_memory(node.name, self._sub),
            handed=handed,
        )
        self.processes.append(step)
        self.finishers.append(step.finish)
        return step

    def _user_store(self, name: str, handed: HandedOut | None) -> object:
        spec = self._sub.store(name)
        if spec.shape is not None:
            return self.shapes.store(spec)
        if spec.kind == "key_value":
            return UserKeyValueStore(self._shared, spec, self._key_value(name), handed)
        if spec.kind == "versioned":
            return UserVersionedStore(self._shared, spec, self._versioned(name), handed)
        kind = UserSessionStore if spec.kind == "session" else UserWindowStore
        store = kind(self._shared, spec, self._timed(name), handed)
        self.finishers.append(store.finish)
        return store

    def _foreign_key(self, node: Node) -> Step | None:
        shared = self._shared
        match node:
            case SubscribeNode():
                return Subscribe(shared, node)
            case AnswerRowNode():
                return AnswerRow(
                    shared, node, self._sub.store(node.store), self._key_value(node.store)
                )
            case RegisterNode():
                return Register(
                    shared, node, self._sub.store(node.store), self._key_value(node.store)
                )
            case AnswerSubscriptionNode():
                return AnswerSubscription(shared, node, self._view(node.table))
            case ResolveNode():
                return Resolve(shared, node, self._view(node.table))
        return None

    def _stream_join(self, node: StreamJoinNode) -> Step:
        name = min(node.own_store, node.other_store)
        if name not in self._join_times:
            self._join_times[name] = JoinTimes(self._shared, f"{name}:join")
            self.finishers.append(self._join_times[name].finish)
        return StreamJoin(
            self._shared,
            node,
            other_spec=self._sub.store(node.other_store),
            other=self._windows(node.other_store),
            times=self._join_times[name],
            unmatched=self._unmatched_of(node.unmatched),
        )

    def _unmatched_of(self, store: str | None) -> Unmatched | None:
        """One object for both sides of a join: each must know what the other adds and removes."""
        if store is not None and store not in self._unmatched:
            spec, state = self._sub.store(store), self._key_value(store)
            self._unmatched[store] = Unmatched(self._shared, spec, state)
        return None if store is None else self._unmatched[store]

    def _stored(self, node: AggregateNode, step: StoredStep) -> Step:
        step.attach(self._table_store(step, node, node.store))
        return step

    def _transform(
        self,
        node: TableFilterNode | TableMapValuesNode,
        parent: str,
        compute: Callable[[Any, Any], Any],
    ) -> Step:
        step = TableTransform(
            node.name,
            self._shared,
            compute,
            parent=self._view(parent),
            sends_old=node.sends_old,
            skips_nothing=isinstance(node, TableFilterNode) and not node.versioned,
        )
        if node.store is not None:
            step.attach(self._table_store(step, node, node.store))
        return step

    def _transform_values(self, node: TableTransformValuesNode) -> Step:
        # It lives as a processor does, and has the same context; only records pass it by.
        host = self._process(
            ProcessNode(
                name=node.name,
                reads=node.connected,
                supplier=lambda: HostedTransformer(node.supplier()),
                fixed_key=True,
            )
        )
        assert isinstance(host.processor, HostedTransformer)
        step = TableTransformValues(
            node.name,
            self._shared,
            host.watched(host.processor.transformer.transform),
            parent=self._view(node.parent),
            sends_old=node.sends_old,
            skips_nothing=False,
        )
        if node.store is not None:
            step.attach(self._table_store(step, node, node.store))
        return step

    def _window_aggregate(self, node: WindowAggregateNode) -> Step:
        kind = _WINDOW_STEPS[type(node.windows)]
        step: WindowStep[Any] = kind(
            node.name,
            self._shared,
            fold_of(node, self._sub),
            node.windows,
            at_close=node.emit == "close",
            memory=window_memory(self._sub, node),
        )
        step.attach(self._window_store(step, node))
        self.finishers.append(step.finish)
        return step

    def _window_store(self, step: Step, node: WindowAggregateNode) -> WindowStore:
        if node.store in self._window_stores:
            return self._window_stores[node.store]
        store = self._window_stores[node.store] = WindowStore(
            step,
            self._sub.store(node.store),
            self._timed(node.store),
            cache_bytes=self._cache_bytes,
            sends_old=node.sends_old,
            worked_as=worked_as(node, self._sub.store(node.store)),
            forwards=node.emit == "update",
        )
        self.flushers.append(store.flush)
        return store

    def _table_store(self, step: Step, node: Node, store: str) -> Table:
        # Streams that are grouped together share one store, and all their steps one child.
        if store not in self._tables:
            self._tables[store] = self._new_table_store(step, node, self._sub.store(store))
        return self._tables[store]

    def _new_table_store(self, step: Step, node: Node, spec: StoreSpec) -> Table:
        if spec.kind == "versioned":
            versions = self._versioned(spec.name)
            return VersionedTable(step, spec, versions, sends_old=node.sends_old)
        table = TableStore(
            step,
            spec,
            self._key_value(spec.name),
            cache_bytes=self._cache_bytes,
            sends_old=node.sends_old,
            worked_as=worked_as(node, spec),
        )
        self.flushers.append(table.flush)
        return table

    def _has_cache(self, name: str) -> bool:
        """Whether a step's own store knows what each row was when it was passed on."""
        store = getattr(self._sub.by_name[name], "store", None)
        return store is not None and self._sub.store(store).caching and self._cache_bytes > 0

    def _view(self, name: str) -> View:
        return _Late(self.steps, name)

    def _key_value(self, name: str) -> KeyValueState:
        state = self.states.get(name)
        if state is None:
            state = self.states[name] = self._new_key_value(name)
        assert isinstance(state, KeyValueState)
        return state

    def _new_key_value(self, name: str) -> KeyValueState:
        spec = next((each for each in self._sub.stores if each.name == name), None)
        if spec is None or spec.recency is None:
            return KeyValueState(name, self._reader, self._rows)
        recency = KeyValueState(spec.recency.name, self._reader, self._rows)
        state = LruState(spec, self._reader, self._rows, recency)
        self.finishers.append(state.finish)
        return state

    def _versioned(self, name: str) -> VersionedState:
        state = self.states.get(name)
        if state is None:
            state = VersionedState(self._sub.store(name), self._shared, self._reader, self._rows)
            self.states[name] = state
            self.finishers.append(state.finish)
        assert isinstance(state, VersionedState)
        return state

    def _windows(self, name: str) -> WindowState:
        state = self._timed(name)
        assert isinstance(state, WindowState)
        return state

    def _timed(self, name: str) -> TimedState:
        state = self.states.get(name)
        if state is None:
            state = self.states[name] = _timed_state(
                self._sub.store(name), self._reader, self._rows
            )
        assert isinstance(state, TimedState)
        return state


def _map(shared: Shared, node: MapNode) -> Step:
    mapper = node.mapper
    if isinstance(mapper, ColumnFunction):
        return MapColumns(node.name, shared, mapper)
    return Map(node.name, shared, lambda key, value: [mapper(key, value)])


def _timed_state(spec: StoreSpec, reader: ScanReader, rows: list[Row]) -> TimedState:
    kind = SessionState if spec.kind == "session" else WindowState
    return kind(spec, reader, rows)
