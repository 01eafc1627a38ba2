"""Goal: the parts of a slice's result that people and other programs see are as promised."""

from __future__ import annotations

import json
import pickle
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.errors import (
    DeserializationError,
    TopicMissingError,
    TopologyError,
    UserFunctionError,
)
from penstock.instance.protocol import error_of, fault_of
from penstock.processors import (
    ColumnNeeds,
    Limits,
    SliceRun,
    needed_columns,
    partitions_of,
)
from penstock.processors.partitioner import murmur2, partition_of
from penstock.serdes import serde_of
from tests.unit.slices import DictState, Row, build, changes, outputs, records, run

long = serde_of(int).serialize


def _sub(write: Any, **serdes: Any) -> Any:
    return build(write, **serdes).sub_topologies[0]


def _count(s: Any) -> None:
    s.group_by_key().count("counts").to_stream().to("out")


def test_a_count_goes_on_from_the_store_with_the_later_timestamp() -> None:
    state = DictState({"counts": {b"a": (long(5), 100)}})
    rows = [Row(0, 7, b"a", b"x"), Row(1, 9, b"b", b"x"), Row(2, 8, b"b", b"x")]
    result = run(_sub(_count), [records(rows)], state=state)
    assert changes(result) == [("counts", b"a", long(6), 100), ("counts", b"b", long(2), 9)]
    assert outputs(result) == [
        ("out", b"a", long(6), 100, None),
        ("out", b"b", long(2), 9, None),
    ]


def test_state_is_read_once_per_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.processors.slice_run.BATCH_ROWS", 1)
    state = DictState()
    chunks = [records([Row(i, 1, key, b"x")]) for i, key in enumerate([b"a", b"b", b"a", b"c"])]
    run(_sub(_count), chunks, state=state)
    assert state.asked == [("counts", [b"a"]), ("counts", [b"b"]), ("counts", [b"c"])]


def test_without_cache_every_record_has_its_change_and_output() -> None:
    rows = [Row(i, 10 - i, b"a", b"x") for i in range(3)]
    result = run(_sub(_count), [records(rows)], cache_max_bytes=0)
    assert [row[2:] for row in changes(result)] == [(long(n), 10) for n in (1, 2, 3)]
    assert len(outputs(result)) == 3


def test_records_without_key_value_or_time_are_dropped_and_counted() -> None:
    rows = [
        Row(0, 1, None, b"x"),
        Row(1, 1, b"a", None),
        Row(2, 1, None, None),
        Row(3, -1, b"a", b"x"),
        Row(4, 1, b"a", b"x"),
    ]
    result = run(_sub(_count), [records(rows)])
    assert dict(result.dropped) == {"null_key": 2, "null_value": 1, "negative_timestamp": 1}
    assert changes(result) == [("counts", b"a", long(1), 1)]


def test_headers_of_the_last_write_go_on() -> None:
    rows = [Row(0, 1, b"a", b"x", [("h", b"1")]), Row(1, 2, b"a", b"x", [("h", b"2")])]
    result = run(_sub(_count), [records(rows[:1]), records(rows[1:])])
    assert outputs(result) == [("out", b"a", long(2), 2, [("h", b"2")])]


def test_an_aggregator_that_returns_none_deletes() -> None:
    def until_three(_key: bytes, value: int, total: int) -> int | None:
        return None if total + value >= 3 else total + value

    sub = _sub(
        lambda s: s.group_by_key().aggregate(int, until_three, "sums").to_stream().to("out"),
        value=int,
    )
    rows = [Row(i, 10 + i, b"a", long(1)) for i in range(3)]
    off = run(sub, [records(rows)], cache_max_bytes=0)
    assert [row[2:] for row in changes(off)] == [(long(1), 10), (long(2), 11), (None, 12)]
    # Within one cache the key came and went: nobody ever saw it.
    assert changes(run(sub, [records(rows)])) == []
    known = DictState({"sums": {b"a": (long(2), 50)}})
    result = run(sub, [records(rows[:1])], state=known)
    assert changes(result) == [("sums", b"a", None, 10)]
    assert outputs(result) == [("out", b"a", None, 10, None)]


def test_a_value_changed_in_place_changes_nothing_that_was_written() -> None:
    def add(_key: bytes, value: int, seen: list[int]) -> list[int]:
        seen.append(value)
        return seen

    sub = _sub(
        lambda s: s.group_by_key().aggregate(list, add, "l").to_stream().to("out"), value=int
    )
    rows = [Row(i, 1, b"a", long(i)) for i in range(3)]
    result = run(sub, [records(rows)], cache_max_bytes=0)
    assert [row[2] for row in changes(result)] == [b"[0]", b"[0,1]", b"[0,1,2]"]


def test_a_change_in_place_by_peek_is_seen_downstream() -> None:
    sub = _sub(lambda s: s.peek(lambda _k, v: v.update(seen=1)).to("out"), value=dict)
    result = run(sub, [records([Row(0, 1, b"a", b"{}")])])
    assert outputs(result)[0][2] == b'{"seen":1}'


def test_rows_of_a_repartition_topic_are_partitioned_by_their_new_key() -> None:
    topology = build(lambda s: s.group_by(lambda _k, v: v, key=str).count("n"), value=str)
    rows = [Row(0, 1, None, b"21"), Row(1, 2, None, b"abc"), Row(2, 2, None, None)]
    result = run(topology.sub_topologies[0], [records(rows)], partitions=1000)
    assert result.outputs.column("partition").to_pylist() == [340, 107]
    assert [row[:3] for row in outputs(result)] == [
        ("app-n-repartition", b"21", b"21"),
        ("app-n-repartition", b"abc", b"abc"),
    ]
    assert result.dropped == {"null_key_to_repartition": 1}
    second = run(topology.sub_topologies[1], [records(rows[:0], "app-n-repartition")])
    assert (second.changes.num_rows, second.outputs.num_rows) == (0, 0)


def _explode(_key: object, value: str) -> bool:
    if value == "bad":
        raise KeyError("no such ward")
    return True


@pytest.mark.parametrize(
    "write",
    [
        lambda s: s.filter(_explode, name="step").to("out"),
        lambda s: s.peek(_explode, name="step").to("out"),
        lambda s: s.select_key(_explode, key=bool, name="step").to("out"),
        lambda s: s.map_values(lambda v: _explode(0, v), value=bool, name="step").to("out"),
    ],
)
def test_an_exception_of_a_function_names_record_and_line(write: Any) -> None:
    rows = [Row(40 + i, 1, b"a", value) for i, value in enumerate([b"ok", b"bad", b"ok"])]
    with pytest.raises(UserFunctionError) as caught:
        run(_sub(write, value=str), [records(rows)])
    error = caught.value
    line = next(
        number
        for number, text in enumerate(Path(__file__).read_text().splitlines(), 1)
        if 'raise KeyError("no such ward")' in text
    )
    record = {"topic": "in", "partition": 0, "offset": 41, "step": "step"}
    assert error.where == record | {"file": "test_processors.py", "line": line}
    assert error.message == "The function of step step raised KeyError: 'no such ward'"
    assert len(str(error).splitlines()) == 1
    assert 'raise KeyError("no such ward")' in error.details
    assert "call_each" not in error.details
    came = pickle.loads(pickle.dumps(error))
    assert (str(came), came.details) == (str(error), error.details)
    assert error.details in "".join(traceback.format_exception(came))
    told = error_of(fault_of(error))
    assert (type(told), told.details, told.__notes__) == (
        UserFunctionError,
        error.details,
        [error.details],
    )


def test_what_a_package_raised_is_told_with_the_line_that_called_it() -> None:
    def parse(value: str) -> object:
        return json.loads(value)

    sub = _sub(lambda s: s.map_values(parse, value=str, name="step").to("out"), value=str)
    with pytest.raises(UserFunctionError, match="raised JSONDecodeError: Expecting") as caught:
        run(sub, [records([Row(3, 1, b"a", b"{\n")])])
    assert caught.value.where["file"] == "test_processors.py"
    assert caught.value.where["line"] == parse.__code__.co_firstlineno + 1


@pytest.mark.parametrize("cache", [0, 10_000])
@pytest.mark.parametrize("kind", [str, list])
@pytest.mark.parametrize("operator", ["reduce", "aggregate"])
def test_an_exception_of_an_aggregator_names_the_record(
    cache: int, kind: Any, operator: str
) -> None:
    def fails(*arguments: Any) -> Any:
        raise ZeroDivisionError("in the third")

    def write(s: Any) -> None:
        grouped = s.group_by_key()
        if operator == "reduce":
            grouped.reduce(fails, "r")
        else:
            grouped.aggregate(kind, lambda _k, v, old: fails() if v == value[1] else old, "r")

    value = {str: ["0", "1"], list: [[0], [1]]}[kind]
    data = [serde_of(kind).serialize(each) for each in value]
    rows = [Row(7, 1, b"a", data[0]), Row(8, 1, b"b", data[0]), Row(9, 1, b"a", data[1])]
    with pytest.raises(UserFunctionError, match="in the third") as caught:
        run(_sub(write, value=kind), [records(rows)], cache_max_bytes=cache)
    assert caught.value.where["offset"] == 9


def test_a_value_that_the_serde_refuses_names_the_record() -> None:
    sub = _sub(lambda s: s.map_values(lambda v: 1 if v == b"1" else "one", value=int).to("out"))
    rows = [Row(3, 1, b"a", b"1"), Row(4, 1, b"a", b"2")]
    with pytest.raises(UserFunctionError, match="expected int, got str") as caught:
        run(sub, [records(rows)])
    assert caught.value.where["offset"] == 4


def test_a_map_that_returns_no_pair_is_told() -> None:
    sub = _sub(lambda s: s.map(lambda _k, v: v, key=bytes, value=bytes).to("out"))
    with pytest.raises(UserFunctionError, match="returned bytes, not a pair"):
        run(sub, [records([Row(3, 1, b"a", b"1")])])


def test_an_undecodable_record_stops_or_is_counted() -> None:
    sub = _sub(lambda s: s.to("out"), key=str, value=int)
    rows = [
        Row(0, 1, b"a", long(1)),
        Row(1, 1, b"a", b"short"),
        Row(2, 1, b"\xff", long(1)),
        Row(3, -1, b"\xff", b"short"),
        Row(4, 1, b"b", long(2)),
    ]
    with pytest.raises(DeserializationError) as caught:
        run(sub, [records(rows)])
    assert caught.value.where["offset"] == 1
    result = run(sub, [records(rows)], on_bad_record="continue")
    assert [row[1] for row in outputs(result)] == [b"a", b"b"]
    assert dict(result.dropped) == {"undecodable": 3}


def test_bad_json_is_noticed_even_if_nobody_looks_at_it() -> None:
    sub = _sub(_count, value=dict)
    with pytest.raises(DeserializationError, match="as json"):
        run(sub, [records([Row(0, 1, b"a", b"{")])])


@pytest.mark.parametrize(
    ("write", "value", "needs"),
    [
        (_count, bytes, ColumnNeeds(value=False, headers=True)),
        (_count, str, ColumnNeeds(value=True, headers=True)),
        (lambda s: s.group_by_key().count("n"), bytes, ColumnNeeds(value=False, headers=False)),
        (lambda s: s.to("out"), bytes, ColumnNeeds(value=True, headers=True)),
        (
            lambda s: s.filter(lambda _k, _v: True).group_by_key().count("n"),
            bytes,
            ColumnNeeds(value=True, headers=False),
        ),
        (
            lambda s: s.group_by_key().reduce(lambda a, _v: a, "n"),
            bytes,
            ColumnNeeds(value=True, headers=False),
        ),
    ],
)
def test_needed_columns(write: Any, value: Any, needs: ColumnNeeds) -> None:
    assert needed_columns(_sub(write, value=value)) == needs


def test_unknown_topics_are_refused() -> None:
    sub = _sub(_count)
    with pytest.raises(TopologyError, match="does not read topic 'other'"):
        run(sub, [records([Row(0, 1, b"a", b"x")], "other")])
    with pytest.raises(TopicMissingError, match="topic out"):
        SliceRun(
            sub,
            application_id="app",
            state=DictState(),
            limits=Limits(cache_max_bytes=0, partition_counts={}),
        )


# What Java's Utils.murmur2 of kafka-clients 4.1.1 returns.
MURMUR2 = [
    (b"", 275646681),
    (b"21", -973932308),
    (b"foobar", -790332482),
    (b"a-little-bit-long-string", -985981536),
    (b"a-little-bit-longer-string", -1486304829),
    (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
    (b"abc", 479470107),
    (bytes.fromhex("99"), 1288378381),
    (bytes.fromhex("1834"), -1042682160),
    (bytes.fromhex("5a94c9"), -313141582),
    (bytes.fromhex("390b7702"), 612225306),
    (bytes.fromhex("09d32a595d"), 99467382),
    (bytes.fromhex("41f4b3e59247"), -1134459280),
    (bytes.fromhex("05194bb55dcab3"), -1772457477),
    (bytes.fromhex("0016175aa147e1f3"), 1440785583),
    (bytes.fromhex("e98ee81edf7fae40bf"), 731806385),
]


@pytest.mark.parametrize("skip", [0, 1, 5])
def test_murmur2_is_javas(skip: int) -> None:
    keys = pa.array([key for key, _ in MURMUR2], pa.binary())[skip:]
    assert murmur2(keys).astype(np.int32).tolist() == [value for _, value in MURMUR2[skip:]]
    alone = [partition_of(key, 1_000) for key, _ in MURMUR2[skip:]]
    assert alone == partitions_of(keys, 1_000).tolist()
    # Many are computed at once.
    many = pa.concat_arrays([keys] * 9)
    assert alone * 9 == partitions_of(many, 1_000).tolist()


@pytest.mark.parametrize("times", [1, 50])
def test_partitions_of_same_length_keys_and_nulls(times: int) -> None:
    keys = pa.array([b"21", None, b"21"] * times, pa.binary())
    assert partitions_of(keys, 1000).tolist() == [340, -1, 340] * times
    assert partitions_of(keys[:0], 4).tolist() == []
    empty = pa.array([b"", b""] * times, pa.binary())
    assert partitions_of(empty, 1000).tolist() == [681, 681] * times
