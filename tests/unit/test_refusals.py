"""Goal: every operator refuses what cannot be run with the step's name and what to write instead.

One table of how each operator is called; each test puts something bad into every place of it.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

import pytest

import penstock as ps
from penstock.coordination.layout import lay_out
from penstock.errors import PartitionCountError, SerdeMissingError, TopologyError
from penstock.topology.cogrouped import CogroupedKStream, WindowedCogroupedKStream
from penstock.topology.grouped import KGroupedStream, KGroupedTable
from penstock.topology.processor import StoreBuilder
from penstock.topology.streams import BranchedKStream, KStream
from penstock.topology.tables import KTable
from penstock.topology.windowed import WindowedKStream

_SECOND = timedelta(seconds=1)
_DAY = timedelta(days=1)
_PATH = "../odd/name"
Begin = Callable[[Any], Any]


class Odd:
    """A type that no serde knows."""


class Same(ps.Processor[str, str, str, str]):
    """A processor that does nothing."""


class SameValue(ps.ValueTransformer[str, str, str]):
    """A transformer that does nothing."""

    def transform(self, key: str, value: str | None) -> str | None:
        del key
        return value


def _say(*_given: Any) -> Any:
    return None


async def _later(*_given: Any) -> Any:
    return None


async def _one_by_one(*_given: Any) -> Any:
    yield None


class AsyncCall:
    """An object whose call must be awaited."""

    async def __call__(self, *given: Any) -> Any:
        return given


def _stream(builder: Any) -> Any:
    return builder.stream("in", key=str, value=str, name="begin")


def _rekeyed(builder: Any) -> Any:
    """A stream that goes through a repartition topic where it is grouped or joined."""
    return _stream(builder).select_key(_say, key=str, name="rekey")


def _table(builder: Any) -> Any:
    return builder.table("in", key=str, value=str, name="begin")


def _versioned(builder: Any) -> Any:
    held = ps.versioned_store("versions", history_retention=_DAY)
    return builder.table("other", held, key=str, value=str, name="versions-of")


def _other_stream(builder: Any) -> Any:
    return builder.stream("other", key=str, value=str, name="other-begin")


def _other_table(builder: Any) -> Any:
    return builder.table("other", key=str, value=str, name="other-begin")


def _global(builder: Any) -> Any:
    return builder.global_table("other", key=str, value=str, name="other-begin")


def _grouped(builder: Any) -> Any:
    return _stream(builder).group_by_key()


def _grouped_anew(builder: Any) -> Any:
    return _rekeyed(builder).group_by_key(name="grouping")


def _windowed(windows: Any) -> Begin:
    return lambda builder: _grouped(builder).windowed_by(windows)


_TUMBLING = ps.tumbling(_SECOND, grace=_SECOND)
_SESSION = ps.session(_SECOND, grace=_SECOND)


def _grouped_table(builder: Any) -> Any:
    return _table(builder).group_by(_pair, key=str, value=str, name="groups")


def _pair(_key: str, _value: str) -> tuple[str, str]:
    return "", ""


def _other_grouped(builder: Any) -> Any:
    return _other_stream(builder).group_by_key()


def _cogrouped(builder: Any) -> Any:
    return _grouped(builder).cogroup(_say)


class Call(NamedTuple):
    """How an operator is called: on what, and with which arguments; functions of the builder are
    those that begin another stream or table."""

    begin: Begin
    operator: str
    given: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.begin.__name__.strip('_<>')}-{self.operator}-{'-'.join(self.given)}"

    def run(self, **changes: Any) -> Any:
        builder = ps.StreamsBuilder()
        builder.add_state_store(ps.key_value_store("held", key=str, value=str))
        made = {
            name: each.function(builder) if isinstance(each, Other) else each
            for name, each in {**self.given, **changes}.items()
        }
        result = getattr(self.begin(builder), self.operator)(**made)
        builder.build()
        return result


class Other(NamedTuple):
    """What an operator is given beside its own stream or table."""

    function: Begin


_JOIN = ps.join_window(_SECOND, grace=_SECOND)
_STORE: dict[str, Any] = {"name": "mine"}
_AGGREGATE: dict[str, Any] = {"initializer": str, "aggregator": _say, "value": str, "name": "mine"}
_TABLE: dict[str, Any] = {
    "topic": "in",
    "store": "kept",
    "key": str,
    "value": str,
    "timestamp": _say,
    "name": "mine",
}
_SINK: dict[str, Any] = {"key": str, "value": str, "partitioner": _say, "name": "mine"}
_JOINED: dict[str, Any] = {"joiner": _say, "value": str, "name": "mine"}
_TABLE_JOIN: dict[str, Any] = {"other": Other(_other_table), **_JOINED, "store": "kept"}
_FOREIGN: dict[str, Any] = {
    **_TABLE_JOIN,
    "foreign_key": _say,
    "partitioner": _say,
    "other_partitioner": _say,
}
_BUILTINS = ("sum", "min", "max", "average", "collect")

CALLS = [
    *(
        Call(_stream, each, {"predicate": _say, "name": "mine"})
        for each in ("filter", "filter_not")
    ),
    *(Call(_stream, each, {"action": _say, "name": "mine"}) for each in ("peek", "foreach")),
    Call(_stream, "split", {"name": "mine"}),
    Call(_stream, "map_values", {"mapper": _say, "value": str, "name": "mine"}),
    Call(_stream, "flat_map_values", {"mapper": _say, "value": str, "name": "mine"}),
    Call(_stream, "map", {"mapper": _say, "key": str, "value": str, "name": "mine"}),
    Call(_stream, "flat_map", {"mapper": _say, "key": str, "value": str, "name": "mine"}),
    Call(_stream, "select_key", {"selector": _say, "key": str, "name": "mine"}),
    Call(_stream, "group_by", {"selector": _say, "key": str, "name": "mine"}),
    Call(_stream, "group_by_key", {"name": "mine"}),
    Call(_stream, "to_table", {"store": "kept", "name": "mine"}),
    Call(_rekeyed, "to_table", {"store": "kept", "name": "mine"}),
    Call(_stream, "to", {"topic": _say, **_SINK}),
    Call(_stream, "to", {"topic": "out", **_SINK}),
    Call(_stream, "print", {"name": "mine"}),
    Call(
        _stream,
        "merge",
        {"other": Other(_other_stream), "key": str, "value": str, "name": "mine"},
    ),
    Call(_stream, "repartition", _SINK),
    Call(_rekeyed, "repartition", _SINK),
    Call(
        _stream,
        "process",
        {"supplier": Same, "stores": ("held",), "key": str, "value": str, "name": "mine"},
    ),
    Call(
        _stream,
        "process_values",
        {"supplier": Same, "stores": ("held",), "value": str, "name": "mine"},
    ),
    *(
        Call(begin, each, {"other": Other(_other_stream), **_JOINED, "windows": _JOIN})
        for each in ("join", "left_join", "outer_join")
        for begin in (_stream, _rekeyed)
    ),
    *(
        Call(_stream, each, {"other": Other(_other_table), **_JOINED})
        for each in ("join", "left_join")
    ),
    *(
        Call(_stream, each, {"other": Other(_versioned), **_JOINED, "grace": _SECOND})
        for each in ("join", "left_join")
    ),
    *(
        Call(_stream, each, {"other": Other(_global), **_JOINED, "key_selector": _say})
        for each in ("join", "left_join")
    ),
    Call(lambda b: _stream(b).split(name="s-"), "branch", {"predicate": _say, "name": "mine"}),
    Call(lambda b: _stream(b).split(name="s-"), "default_branch", {"name": "mine"}),
    *(
        Call(_table, each, {"predicate": _say, "store": "kept", "name": "mine"})
        for each in ("filter", "filter_not")
    ),
    Call(_table, "map_values", {"mapper": _say, "store": "kept", "value": str, "name": "mine"}),
    Call(
        _table,
        "transform_values",
        {"supplier": SameValue, "stores": ("held",), "store": "kept", "value": str, "name": "mine"},
    ),
    Call(_table, "group_by", {"mapper": _pair, "key": str, "value": str, "name": "mine"}),
    Call(
        _table,
        "suppress",
        {"suppression": ps.until_time_limit(_SECOND, ps.unbounded()), "name": "mine"},
    ),
    Call(_table, "to_stream", {"name": "mine"}),
    *(Call(_table, each, _TABLE_JOIN) for each in ("join", "left_join", "outer_join")),
    *(Call(_table, each, _FOREIGN) for each in ("join", "left_join")),
    *(Call(begin, "count", _STORE) for begin in (_grouped, _grouped_anew)),
    Call(_grouped, "reduce", {"reducer": _say, "name": "mine"}),
    *(Call(begin, "aggregate", _AGGREGATE) for begin in (_grouped, _grouped_anew)),
    *(Call(_grouped, each, _STORE) for each in _BUILTINS),
    Call(_grouped, "cogroup", {"aggregator": _say}),
    Call(_grouped_table, "count", _STORE),
    Call(_grouped_table, "reduce", {"adder": _say, "subtractor": _say, "name": "mine"}),
    Call(
        _grouped_table,
        "aggregate",
        {"initializer": str, "adder": _say, "subtractor": _say, "value": str, "name": "mine"},
    ),
    Call(_windowed(_TUMBLING), "count", {**_STORE, "retention": _DAY}),
    Call(_windowed(_TUMBLING), "reduce", {"reducer": _say, **_STORE, "retention": _DAY}),
    Call(_windowed(_TUMBLING), "aggregate", {**_AGGREGATE, "retention": _DAY}),
    Call(_windowed(_SESSION), "aggregate", {**_AGGREGATE, "merger": _say, "retention": _DAY}),
    *(Call(_windowed(_TUMBLING), each, {**_STORE, "retention": _DAY}) for each in _BUILTINS),
    Call(_cogrouped, "cogroup", {"grouped": Other(_other_grouped), "aggregator": _say}),
    Call(_cogrouped, "aggregate", {"initializer": str, "value": str, "name": "mine"}),
    Call(
        lambda b: _cogrouped(b).windowed_by(_SESSION),
        "aggregate",
        {"initializer": str, "merger": _say, "value": str, "name": "mine", "retention": _DAY},
    ),
    Call(
        lambda b: b,
        "stream",
        {"topic": "in", "key": str, "value": str, "timestamp": _say, "name": "mine"},
    ),
    Call(
        lambda b: b,
        "table",
        _TABLE,
    ),
    Call(
        lambda b: b,
        "global_table",
        _TABLE,
    ),
    Call(
        lambda b: b,
        "add_global_store",
        {
            "topic": "in",
            "store": ps.key_value_store("kept", key=str, value=str),
            "processor": Same,
            "key": str,
            "value": str,
            "name": "mine",
        },
    ),
]

_FUNCTIONS = {
    "predicate", "action", "mapper", "selector", "joiner", "key_selector", "foreign_key",
    "partitioner", "other_partitioner", "reducer", "aggregator", "initializer", "merger", "adder",
    "subtractor", "timestamp", "supplier", "processor",
}  # fmt: skip
_NAMES = {"name", "store", "topic"}
_TYPES = {"key", "value"}
_OTHERS = {
    "other", "grouped", "windows", "grace", "retention", "with_key", "stores", "suppression",
    "label", "partitions", "auto_offset_reset", "caching", "logging", "recover_from", "persistent",
    "max_entries", "kept_in", "options",
}  # fmt: skip
"""What can be wrong with them has its own tests."""


def _places(kinds: set[str]) -> list[Any]:
    return [
        pytest.param(call, name, id=f"{call}-{name}")
        for call in CALLS
        for name, given in call.given.items()
        if (_FUNCTIONS is kinds if name == "topic" and callable(given) else name in kinds)
    ]


def _names_a_step(error: TopologyError) -> bool:
    """Whether it says a step that the reader can find: one of the call, or the one before it."""
    operator = r"(count|reduce|aggregate|join|table|global) of (in|begin|groups|grouping)\b"
    named = rf"begin|other-begin|mine|rekey|s-|groups|[A-Z]+-[A-Z-]+-\d{{10}}|{operator}"
    return re.search(rf"\bstep ({named})", str(error)) is not None


@pytest.mark.parametrize("call", CALLS, ids=str)
def test_each_call_is_good_as_it_stands(call: Call) -> None:
    call.run()


@pytest.mark.parametrize(
    "bad",
    [_later, _one_by_one, AsyncCall(), functools.partial(_later, 1)],
    ids=["def", "generator", "call", "partial"],
)
@pytest.mark.parametrize(("call", "place"), _places(_FUNCTIONS))
def test_a_function_that_nobody_awaits(call: Call, place: str, bad: Any) -> None:
    with pytest.raises(TopologyError, match="is an async function") as caught:
        call.run(**{place: bad})
    assert _names_a_step(caught.value), str(caught.value)
    assert "Write it with def" in caught.value.hint


@pytest.mark.parametrize(("call", "place"), _places(_NAMES))
def test_a_name_with_a_path_in_it(call: Call, place: str) -> None:
    bad: Any = _PATH
    if isinstance(call.given[place], StoreBuilder):
        bad = ps.key_value_store(_PATH, key=str, value=str)
    with pytest.raises(TopologyError, match="cannot be used") as caught:
        call.run(**{place: bad})
    assert _names_a_step(caught.value), str(caught.value)
    assert "'odd-name'" in caught.value.hint, str(caught.value)
    assert repr(_PATH) in caught.value.message, str(caught.value)


def _read_by(begin: Begin, operator: str, function: Any) -> Any:
    def program(builder: Any) -> None:
        made = getattr(begin(builder), operator)(*function)
        getattr(made, "to_stream", lambda: made)().to("out", key=str)

    return program


def _odd(*_given: Any) -> Odd:
    return Odd()


def _odds(*_given: Any) -> list[Odd]:
    return []


def _odd_pair(*_given: Any) -> tuple[str, Odd]:
    return "", Odd()


def _odd_pairs(*_given: Any) -> list[tuple[str, Odd]]:
    return []


@pytest.mark.parametrize(
    "program",
    [
        _read_by(_stream, "map_values", [_odd]),
        _read_by(_stream, "flat_map_values", [_odds]),
        _read_by(_stream, "map", [_odd_pair]),
        _read_by(_stream, "flat_map", [_odd_pairs]),
        lambda b: _stream(b).select_key(_odd).group_by_key().count(),
        lambda b: _stream(b).group_by(_odd).count(),
        _read_by(_table, "map_values", [_odd]),
        lambda b: _table(b).map_values(_odd, "kept"),
        lambda b: _table(b).group_by(_odd_pair).count(),
        _read_by(_grouped, "aggregate", [Odd, _say]),
        _read_by(_grouped, "aggregate", [str, _odd]),
        _read_by(_windowed(_TUMBLING), "aggregate", [Odd, _say]),
        _read_by(_cogrouped, "aggregate", [Odd]),
        lambda b: _stream(b).join(_other_stream(b), _odd, _JOIN).to("out"),
        lambda b: _stream(b).join(_other_table(b), _odd).to("out"),
        lambda b: _table(b).join(_other_table(b), _odd).to_stream().to("out"),
        lambda b: _table(b).join(_other_table(b), _odd, "kept"),
        lambda b: _table(b).join(_other_table(b), _odd, foreign_key=_say),
    ],
)
def test_an_annotation_without_a_serde(program: Begin) -> None:
    """It is not asked to be annotated: it was, with a type that cannot be written."""
    with pytest.raises(SerdeMissingError, match=r"no serde for .*Odd") as caught:
        program(ps.StreamsBuilder())
    assert _names_a_step(caught.value), str(caught.value)
    assert re.search(r"(key|value)=ps.serde\(to_bytes, from_bytes\)", caught.value.hint)


@pytest.mark.parametrize("call", [each for each in CALLS if "retention" in each.given], ids=str)
def test_windows_that_are_kept_too_short(call: Call) -> None:
    with pytest.raises(TopologyError, match="0:00:01, and they can change for 0:00:02") as caught:
        call.run(retention=_SECOND)
    assert _names_a_step(caught.value), str(caught.value)
    assert "retention=timedelta(milliseconds=2000)" in caught.value.hint


@pytest.mark.parametrize(
    "program",
    [
        lambda b: _stream(b).join(_other_stream(b), _say, _JOIN, value=str),
        lambda b: _stream(b).left_join(_other_table(b), _say, value=str),
        lambda b: _table(b).outer_join(_other_table(b), _say, value=str),
        lambda b: _cogrouped(b).cogroup(_other_grouped(b), _say).aggregate(str, value=str),
    ],
)
def test_topics_of_other_widths(program: Begin) -> None:
    builder = ps.StreamsBuilder()
    program(builder)
    with pytest.raises(PartitionCountError, match=r"'in' has 2 .* 'other' has 3") as caught:
        lay_out(builder.build(), "app", {"in": 2, "other": 3})
    assert re.search(r"\bstep [A-Z-]+(JOIN|MERGE|AGGREGATE)[A-Z]*-\d{10}", str(caught.value)), str(
        caught.value
    )
    assert "repartition()" in caught.value.hint


@pytest.mark.parametrize(("call", "place"), _places(_TYPES))
def test_a_type_without_a_serde(call: Call, place: str) -> None:
    with pytest.raises(TopologyError, match=r"no serde for .*Odd") as caught:
        call.run(**{place: Odd})
    assert _names_a_step(caught.value), str(caught.value)
    assert "ps.serde" in caught.value.hint


def test_no_operator_and_no_place_is_missing() -> None:
    known = {(call.operator, name) for call in CALLS for name in call.given}
    kinds = (KStream, KTable, BranchedKStream, KGroupedStream, KGroupedTable, WindowedKStream)
    for kind in (*kinds, CogroupedKStream, WindowedCogroupedKStream, ps.StreamsBuilder):
        for operator, method in inspect.getmembers(kind, callable):
            if operator.startswith("_") or operator in {
                "build",
                "add_state_store",
                "windowed_by",
                "emit_on_window_close",
                "no_default_branch",
            }:
                continue
            for name in inspect.signature(method).parameters:
                place = f"{kind.__name__}.{operator}({name})"
                if name == "self" or name in _OTHERS:
                    continue
                if name == "supplier" and (operator, name) not in known:
                    continue  # Here it names what opens a store.
                assert name in _FUNCTIONS | _NAMES | _TYPES, place
                assert (operator, name) in known, place


@pytest.mark.parametrize("option", ["processing_exception_handler", "production_exception_handler"])
def test_a_handler_that_nobody_awaits(option: str) -> None:
    app = ps.Application("app", **{option: _later})
    _stream(app).to("out")
    with pytest.raises(TopologyError, match=f"The {option} is an async function"):
        app.build()


def test_a_store_that_is_added_under_a_path() -> None:
    store = ps.key_value_store(_PATH, key=str, value=str)
    with pytest.raises(TopologyError, match="step add_state_store") as caught:
        ps.StreamsBuilder().add_state_store(store)
    assert "'odd-name'" in caught.value.hint
