"""A case's topology in Penstock's words, and its answer from Penstock's own test driver.

oracle/Program.java and oracle/Oracle.java do the same with Kafka Streams.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any

import penstock as ps
from penstock.errors import PenstockError
from penstock.processors.records import UNKEYED
from penstock.testing import TopologyTestDriver
from penstock.testing.stores import StoreView
from tests.conformance import functions as words
from tests.conformance.cases import LONG_MAX, Case, Step
from tests.conformance.processor_words import (
    PICKY,
    TIMES,
    Keeper,
    chosen,
    failing,
    make_worker,
    partitioned,
)

Answer = dict[str, Any]


class UnsupportedError(Exception):
    """Penstock has no such operator, or not with these options."""

    def __init__(self, operator: str, reason: str) -> None:
        super().__init__(f"{operator}: {reason}")
        self.operator = operator


class _Transformer(ps.ValueTransformer[Any, Any, str]):
    """A word's function, as `transform_values` wants it."""

    def __init__(self, word: str) -> None:
        self._transform = words.keyed_value(word)

    def transform(self, key: Any, value: Any) -> str | None:
        return self._transform(key, value)


@dataclass(frozen=True)
class _Flow:
    """What a step gave; `span` is the size of the windows of a windowed key."""

    node: Any
    key: str = "text"  # text, time, session
    longs: bool = False
    span: int = 0
    table: bool = False

    @property
    def value(self) -> type:
        return int if self.longs else str


def run(case: Case) -> Answer:
    """What Penstock gives, in the oracle's shape. Raises `UnsupportedError`."""
    try:
        program = _Program(case)
        driver = TopologyTestDriver(program.app)
    except PenstockError as error:
        return {"error": str(error), "at": -1}
    answer: Answer = {"outputs": []}
    for number, (topic, key, value, time) in enumerate(case.records):
        try:
            if not topic:
                driver.advance_wall_clock_time(_ms(time))
            else:
                driver.input_topic(topic, key=str, value=str).pipe(
                    key, value, timestamp=time, headers=case.headers(number)
                )
        except Exception as error:  # noqa: BLE001 - whatever it is, it is part of the answer
            return {**answer, "error": f"{type(error).__name__}: {error}", "at": number}
        answer["outputs"].append(_drained(driver, program.sinks, marked=case.marked))
    # What has no key to be repartitioned by Kafka Streams leaves out without counting it.
    answer["dropped"] = driver.dropped.total() - driver.dropped[UNKEYED]
    answer["stores"] = {name: _contents(driver, name, program, case) for name in program.stores}
    return answer


def application(case: Case, application_id: str = "conformance") -> ps.Application:
    """The case's topology as an application. Raises `UnsupportedError`."""
    app = ps.Application(application_id, **options_of(case))
    build(case, app)
    return app


def build(case: Case, app: ps.Application) -> None:
    """Add the case's topology to an application. Raises `UnsupportedError`."""
    _Program(case, app)


def options_of(case: Case) -> dict[str, Any]:
    handlers = {f"{kind}_exception_handler": "continue" for kind in case.handles}
    kept = {"dsl_store": "memory"} if case.memory else {}
    return {"statestore_cache_max_bytes": case.cache, **kept, **handlers}


def _drained(
    driver: TopologyTestDriver, sinks: dict[str, _Flow], *, marked: bool
) -> dict[str, list[Any]]:
    caused = {}
    for topic, flow in sinks.items():
        # As bytes: what stands in the topic is part of the answer.
        rows = driver.output_topic(topic, key=bytes, value=bytes).read_all()
        if rows:
            caused[topic] = [
                [_key(flow, r.key), _value(flow, r.value), r.timestamp]
                + ([",".join(value.decode() for _, value in r.headers)] if marked else [])
                for r in rows
            ]
    return caused


def _key(flow: _Flow, data: bytes | None) -> Any:
    if data is None:
        return None
    if flow.key == "time":
        (start,) = struct.unpack(">q", data[-8:])
        return [data[:-8].decode(), start, min(start + flow.span, LONG_MAX)]
    if flow.key == "session":
        end, start = struct.unpack(">qq", data[-16:])
        return [data[:-16].decode(), start, end]
    return data.decode()


def _value(flow: _Flow, data: bytes | None) -> str | None:
    if data is None:
        return None
    return str(struct.unpack(">q", data)[0]) if flow.longs else data.decode()


def _contents(
    driver: TopologyTestDriver, name: str, program: _Program, case: Case
) -> list[list[Any]]:
    view = driver.store(name)
    rows: list[list[Any]] = []
    if program.stores[name] == "versioned":
        return _history(view, case)
    for key in view:
        shown = list(key) if isinstance(key, tuple) else key
        row = [shown, words.text(view[key])]
        untimed = program.stores[name] in ("session", "unlogged", "plain_window")
        rows.append(row if untimed else [*row, view.timestamp(key)])
    return rows


def _history(view: StoreView[Any, Any], case: Case) -> list[list[Any]]:
    """What each key that may be in a versioned store is, and was at some times.

    Kafka Streams cannot walk through such a store, so the keys are guessed.
    """
    rows: list[list[Any]] = []
    for key in dict.fromkeys([*(record[1] for record in case.records), *words.GUESSED_KEYS]):
        if key is None:
            continue
        if key in view:
            rows.append([key, words.text(view[key]), view.timestamp(key)])
        then = [(time, view.as_of(key, time)) for time in _some_times(case)]
        rows += [[f"{key}@{t}", words.text(row.value), row.timestamp] for t, row in then if row]
    return rows


def _some_times(case: Case) -> list[int]:
    return sorted({record[3] for record in case.records})[::3]


class _Program:
    """Builds the steps one after the other."""

    def __init__(self, case: Case, app: ps.Application | None = None) -> None:
        self.app = ps.Application("conformance", **options_of(case)) if app is None else app
        self._input: Any = PICKY if "deserialization" in case.handles else str
        self.sinks: dict[str, _Flow] = {}
        # key_value, window, session, versioned; of processors also plain, plain_window, unlogged
        self.stores: dict[str, str] = {}
        self._flows: dict[str, _Flow] = {}
        for step in case.steps:
            try:
                self._build(step)
            except (AttributeError, TypeError, NotImplementedError) as error:
                raise UnsupportedError(_operator(step), str(error)) from error

    def _build(self, step: Step) -> None:
        builders: dict[str, Callable[[Step], _Flow | None]] = {
            "stream": self._stream,
            "table": self._table,
            "global_table": self._global_table,
            "filter": self._filter,
            "filter_not": self._filter,
            "map_values": self._map_values,
            "transform_values": self._transform_values,
            "map": self._map,
            "flat_map": self._flat_map,
            "flat_map_values": self._flat_map_values,
            "select_key": self._select_key,
            "merge": self._merge,
            "branch": self._branch,
            "repartition": self._repartition,
            "to": self._to,
            "to_table": self._to_table,
            "to_stream": self._to_stream,
            "group_by_key": self._group_by_key,
            "group_by": self._group_by,
            "count": self._aggregate,
            "reduce": self._aggregate,
            "aggregate": self._aggregate,
            "cogroup": self._cogroup,
            "suppress": self._suppress,
            "join": self._join,
            "add_store": self._add_store,
            "global_store": self._global_store,
            "process": self._process,
            "process_values": self._process,
        }
        flow = builders[step["op"]](step)
        if flow is not None:
            self._flows[step["id"]] = flow

    def _from(self, step: Step) -> _Flow:
        return self._flows[step["from"]]

    def _kept(self, step: Step, kind: str = "key_value") -> dict[str, Any]:
        """The options of a step's store; its name goes first, not here."""
        if "store" in step:
            self.stores[step["store"]] = "versioned" if "versioned" in step else kind
        options: dict[str, Any] = {} if step.get("caching", True) else {"caching": False}
        options |= {"max_entries": step["lru"]} if "lru" in step else {}
        return options if "retention" not in step else {**options, "retention": _retention(step)}

    # Sources

    def _stream(self, step: Step) -> _Flow:
        topics = step["topics"]
        given = topics[0] if len(topics) == 1 else topics
        return _Flow(self.app.stream(given, **self._read_as(step)))

    def _table(self, step: Step) -> _Flow:
        options = self._kept(step)
        node = self.app.table(step["topic"], _store(step), **self._read_as(step), **options)
        return _Flow(node, table=True)

    def _read_as(self, step: Step) -> dict[str, Any]:
        times = {"timestamp": TIMES[step["time"]]} if "time" in step else {}
        return {"key": self._input, "value": self._input, **times}

    def _global_table(self, step: Step) -> _Flow:
        options = self._kept(step)
        app: Any = self.app
        return _Flow(app.global_table(step["topic"], step["store"], key=str, value=str, **options))

    # Stateless steps

    def _filter(self, step: Step) -> _Flow:
        flow = self._from(step)
        operator = getattr(flow.node, step["op"])
        predicate = failing(step, words.PREDICATES[step["f"]], 1)
        if "store" not in step:
            return replace(flow, node=operator(predicate, **_named(step)))
        return replace(flow, node=operator(predicate, _store(step), **self._kept(step)))

    def _map_values(self, step: Step) -> _Flow:
        flow = self._from(step)
        options: dict[str, Any] = {}
        if "store" in step:
            options = {"store": _store(step), **self._kept(step)}
        mapper: Any = failing(step, words.VALUES[step["f"]], 0)
        if "with_key" in step:
            mapper = failing(step, words.keyed_value(step["f"]), 1)
            options["with_key"] = True
        node = flow.node.map_values(mapper, value=str, **options)
        return replace(flow, node=node, longs=False)

    def _transform_values(self, step: Step) -> _Flow:
        flow = self._from(step)
        options: dict[str, Any] = {}
        if "store" in step:
            options = {"store": _store(step), **self._kept(step)}
        supplier = partial(_Transformer, step["f"])
        node = flow.node.transform_values(supplier, value=str, **options)
        return replace(flow, node=node, longs=False)

    def _map(self, step: Step) -> _Flow:
        mapper = failing(step, words.PAIRS[step["f"]], 1)
        node = self._from(step).node.map(mapper, key=str, value=str)
        return _Flow(node)

    def _flat_map(self, step: Step) -> _Flow:
        mapper = failing(step, words.FLAT_PAIRS[step["f"]], 1)
        node = self._from(step).node.flat_map(mapper, key=str, value=str)
        return _Flow(node)

    def _flat_map_values(self, step: Step) -> _Flow:
        flow = self._from(step)
        if "with_key" in step:
            mapper = words.keyed_values(step["f"])
            node = flow.node.flat_map_values(mapper, with_key=True, value=str)
        else:
            node = flow.node.flat_map_values(words.FLAT_VALUES[step["f"]], value=str)
        return replace(flow, node=node, longs=False)

    def _select_key(self, step: Step) -> _Flow:
        flow = self._from(step)
        node = flow.node.select_key(failing(step, words.KEYS[step["f"]], 1), key=str)
        return replace(flow, node=node, key="text")

    def _merge(self, step: Step) -> _Flow:
        flow = self._from(step)
        return replace(flow, node=flow.node.merge(self._flows[step["with"]].node))

    def _branch(self, step: Step) -> None:
        flow = self._from(step)
        split = flow.node.split(name=step["name"] + "-")
        for number, word in enumerate(step["f"]):
            split = split.branch(words.PREDICATES[word], name=f"b{number}")
        parts = split.default_branch(name="rest")
        names = [f"{step['name']}-b{number}" for number in range(len(step["f"]))]
        names.append(f"{step['name']}-rest")
        for name, given in zip(names, step["ids"], strict=True):
            self._flows[given] = replace(flow, node=parts[name])

    def _repartition(self, step: Step) -> _Flow:
        flow = self._from(step)
        node = flow.node.repartition(name=step["name"], **_partitioner(step))
        return replace(flow, node=node)

    def _to(self, step: Step) -> None:
        flow = self._from(step)
        topics = step.get("topics", [step.get("topic")])
        flow.node.to(_topic_of(step) if "topics" in step else topics[0], **_partitioner(step))
        self.sinks |= dict.fromkeys(topics, flow)

    def _to_table(self, step: Step) -> _Flow:
        flow = self._from(step)
        options = self._kept(step)
        node = flow.node.to_table(_store(step), name=step["name"], **options)
        return replace(flow, node=node, table=True)

    def _to_stream(self, step: Step) -> _Flow:
        flow = self._from(step)
        return replace(flow, node=flow.node.to_stream(), table=False)

    # Groups

    def _group_by_key(self, step: Step) -> _Flow:
        flow = self._from(step)
        return replace(flow, node=flow.node.group_by_key(**_named(step)))

    def _group_by(self, step: Step) -> _Flow:
        flow = self._from(step)
        if flow.table:
            pairs = words.PAIRS[step["f"]]
            node = flow.node.group_by(pairs, key=str, value=str, **_named(step))
            return _Flow(node, table=True)
        selector = failing(step, words.KEYS[step["f"]], 1)
        node = flow.node.group_by(selector, key=str, **_named(step))
        return replace(flow, node=node, key="text")

    def _aggregate(self, step: Step) -> _Flow:
        flow, window = self._from(step), step.get("window")
        if flow.table:
            return self._aggregate_table(step, flow)
        node, key, span = flow.node, flow.key, flow.span
        if window is not None:
            span = window["size"]
            key = "session" if window["kind"] == "session" else "time"
            node = node.windowed_by(_windows(window))
            node = node.emit_on_window_close() if window.get("emit") == "close" else node
        options = self._kept(step, _store_kind(window))
        longs = step["op"] == "count" or (step["op"] == "reduce" and flow.longs)
        result = _Flow(None, key=key, longs=longs, span=span, table=True)
        if step["op"] == "count":
            return replace(result, node=node.count(_store(step), **options))
        if step["op"] == "reduce":
            fold = failing(step, words.FOLDS[step["f"]], 1)
            return replace(result, node=node.reduce(fold, _store(step), **options))
        options |= {"merger": _merged} if _store_kind(window) == "session" else {}
        folded = node.aggregate(
            _initial, _failing_aggregator(step), _store(step), value=str, **options
        )
        return replace(result, node=folded)

    def _aggregate_table(self, step: Step, flow: _Flow) -> _Flow:
        options = self._kept(step)
        if step["op"] == "count":
            return _Flow(flow.node.count(_store(step), **options), longs=True, table=True)
        if step["op"] == "reduce":
            add, take = words.FOLDS[step["f"]], words.FOLDS[step["g"]]
            return _Flow(flow.node.reduce(add, take, _store(step), **options), table=True)
        folds = _failing_aggregator(step), _aggregator(step["g"])
        node = flow.node.aggregate(_initial, *folds, _store(step), value=str, **options)
        return _Flow(node, table=True)

    def _cogroup(self, step: Step) -> _Flow:
        grouped: Any = None
        for origin, word in zip(step["from"], step["f"], strict=True):
            node, fold = self._flows[origin].node, _aggregator(word)
            grouped = node.cogroup(fold) if grouped is None else grouped.cogroup(node, fold)
        window = step.get("window")
        options = self._kept(step, _store_kind(window))
        if window is None:
            first = self._flows[step["from"][0]]
            node = grouped.aggregate(_initial, _store(step), value=str, **options)
            return _Flow(node, key=first.key, span=first.span, table=True)
        session = window["kind"] == "session"
        options |= {"merger": _merged} if session else {}
        windowed = grouped.windowed_by(_windows(window))
        node = windowed.aggregate(_initial, step["store"], value=str, **options)
        return _Flow(node, key="session" if session else "time", span=window["size"], table=True)

    # Tables and joins

    def _suppress(self, step: Step) -> _Flow:
        flow = self._from(step)
        buffer = _buffer(step.get("buffer"))
        if step["until"] == "window_closes":
            rule = _of("until_window_closes")(buffer)
        else:
            rule = _of("until_time_limit")(_ms(step["limit"]), buffer)
        return replace(flow, node=flow.node.suppress(rule, name=step["name"]))

    def _join(self, step: Step) -> _Flow:
        left, right = self._from(step), self._flows[step["with"]]
        method = {"inner": "join", "left": "left_join", "outer": "outer_join"}[step["kind"]]
        join, joiner = getattr(left.node, method), _joiner(step)
        options: dict[str, Any] = {"name": step["name"]}
        options |= {"with_key": True} if "with_key" in step else {}
        if "window" in step:
            window = {side: _ms(step["window"][side]) for side in ("before", "after", "grace")}
            node = join(right.node, joiner, _of("join_window")(**window), value=str, **options)
        elif "select" in step:
            selector = words.KEYS[step["select"]]
            del options["name"]
            node = join(right.node, joiner, key_selector=selector, value=str, **options)
        elif not left.table:
            if "grace" in step:
                options["grace"] = _ms(step["grace"])
            node = join(right.node, joiner, value=str, **options)
        else:
            if "foreign_key" in step:
                options["foreign_key"] = _foreign_key(step)
            options |= self._kept(step)
            node = join(right.node, joiner, store=_store(step), value=str, **options)
        return replace(left, node=node, longs=False)

    # Processors

    def _add_store(self, step: Step) -> None:
        shown = {"lru": "plain", "timestamped": "key_value", "window": "plain_window"}
        self.stores[step["store"]] = shown.get(step["kind"], step["kind"])
        self.app.add_state_store(_builder(step))

    def _global_store(self, step: Step) -> None:
        name = step["store"]
        self.stores[name] = "unlogged"
        store = ps.key_value_store(name, key=str, value=str, persistent=False)
        self.app.add_global_store(step["topic"], store, partial(Keeper, name))

    def _process(self, step: Step) -> _Flow:
        flow = self._from(step)
        stores = [step[name] for name in ("store", "reads") if name in step]
        options: dict[str, Any] = {"stores": stores, "value": str, "name": step["name"]}
        supplier = partial(make_worker, step)
        if step["op"] == "process_values":
            return replace(flow, node=flow.node.process_values(supplier, **options), longs=False)
        return _Flow(flow.node.process(supplier, key=str, **options))


def _joiner(step: Step) -> Callable[..., str | None]:
    joiner: Callable[..., str | None] = failing(step, words.JOINERS[step["f"]], 0)
    if "with_key" not in step:
        return joiner
    if "foreign_key" in step:
        # Kafka Streams gives the key to the foreign key's function alone.
        return lambda _key, left, right: joiner(left, right)
    return failing(step, words.keyed_joiner(step["f"]), 1)


def _foreign_key(step: Step) -> Callable[..., str | None]:
    word = step["foreign_key"]
    return words.keyed_foreign_key(word) if "with_key" in step else words.FOREIGN_KEYS[word]


def _operator(step: Step) -> str:
    """What the step is called in a list of what is missing."""
    window = step.get("window")
    if step["op"] == "join":
        kind = next(
            (kind for kind in ("window", "select", "foreign_key") if kind in step), "tables"
        )
        return f"join ({kind})"
    return step["op"] if window is None else f"{step['op']} ({window['kind']})"


def _of(name: str) -> Any:
    """A name of the package, looked up late: it may not be there yet."""
    return getattr(ps, name)


def _store(step: Step) -> Any:
    """How a step is kept: nowhere in particular, in a store of that name, or in a versioned one."""
    if "versioned" not in step:
        return step.get("store")
    return ps.versioned_store(step["store"], history_retention=_ms(step["versioned"]))


def _builder(step: Step) -> Any:
    """What makes a store of processors."""
    options: dict[str, Any] = {"key": str, "value": str}
    retention = {"retention": _ms(step.get("retention", 0))}
    match step["kind"]:
        case "lru":
            return ps.lru_store(step["store"], max_entries=step["entries"], **options)
        case "versioned":
            kept = _ms(step["retention"])
            return ps.versioned_store(step["store"], history_retention=kept, **options)
    options["persistent"] = step["persistent"]
    match step["kind"]:
        case "plain":
            return ps.key_value_store(step["store"], **options)
        case "timestamped":
            return ps.timestamped_key_value_store(step["store"], **options)
        case "window":
            return ps.window_store(step["store"], window=_ms(step["size"]), **retention, **options)
    return ps.session_store(step["store"], **retention, **options)


def _ms(milliseconds: int) -> timedelta:
    return timedelta(milliseconds=milliseconds)


def _retention(step: Step) -> timedelta:
    return _ms(step["retention"])


def _named(step: Step) -> dict[str, str]:
    return {"name": step["name"]} if "name" in step else {}


def _initial() -> str:
    return words.INITIAL


def _aggregator(word: str) -> Callable[[Any, Any, Any], str | None]:
    return lambda _key, value, total: words.FOLDS[word](total, value)


def _failing_aggregator(step: Step) -> Callable[[Any, Any, Any], str | None]:
    return failing(step, _aggregator(step["f"]), 1)


def _topic_of(step: Step) -> Callable[[Any, Any], str]:
    topics, word = step["topics"], step["f"]
    return lambda key, value: topics[chosen(word, key, value, len(topics))]


def _partitioner(step: Step) -> dict[str, Any]:
    if "partitioner" not in step:
        return {}
    word = step["partitioner"]
    return {"partitioner": lambda key, value, count: partitioned(word, value)}


def _merged(_key: Any, left: Any, right: Any) -> str:
    return words.merge(left, right)


def _store_kind(window: Step | None) -> str:
    if window is None:
        return "key_value"
    return "session" if window["kind"] == "session" else "window"


def _windows(window: Step) -> Any:
    if window["kind"] == "unlimited":
        return _of("unlimited")(start=window["start"])
    size, grace = _ms(window["size"]), _ms(window["grace"])
    if window["kind"] == "hopping":
        return _of("hopping")(size, advance=_ms(window["advance"]), grace=grace)
    return _of(window["kind"])(size, grace=grace)


def _buffer(buffer: Step | None) -> Any:
    if buffer is None:
        return _of("unbounded")()
    if "max_records" in buffer:
        limited = _of("max_records")(buffer["max_records"])
        if "max_bytes" in buffer:
            limited = limited.with_max_bytes(buffer["max_bytes"])
    else:
        limited = _of("max_bytes")(buffer["max_bytes"])
    return (
        limited.emit_early_when_full()
        if buffer["full"] == "emit"
        else limited.shut_down_when_full()
    )
