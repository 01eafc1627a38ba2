"""Stores as tables: which keys are asked for, what a snapshot holds, and what columns it makes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    StringStartsWith,
)

from penstock.errors import ConfigError, DeserializationError, PenstockError, SnapshotError
from penstock.pipeline.store_source import chosen, pushed, table_of
from penstock.pipeline.store_tables import (
    KeyFilter,
    SnapshotTable,
    StoreShape,
    matching,
    question_for,
    typed,
)
from penstock.serdes import Serde, serde_of
from tests.snapshot_stores import write_snapshot

TEXT, NUMBER, BYTES = serde_of(str), serde_of(int), serde_of(bytes)
KEY = ("key",)


def shape(kind: Any = "key_value", key: Serde[Any] = TEXT) -> StoreShape:
    return StoreShape(name="s", kind=kind, partitions=(0,), key=key, value=NUMBER)


@pytest.mark.parametrize(
    ("filters", "serde", "wanted"),
    [
        ([EqualTo(KEY, "a")], TEXT, KeyFilter(keys=("a",))),
        ([EqualTo(KEY, 7)], NUMBER, KeyFilter(keys=(7,))),
        ([EqualTo(KEY, None)], TEXT, KeyFilter()),
        ([EqualTo(("value",), "a")], TEXT, KeyFilter()),
        ([EqualTo(("key", "ward"), "a")], TEXT, KeyFilter()),
        ([In(KEY, ("a", "b", None, "a"))], TEXT, KeyFilter(keys=("a", "b"))),
        ([In(KEY, ("a", "b")), EqualTo(KEY, "b")], TEXT, KeyFilter(keys=("b",))),
        ([EqualTo(KEY, bytearray(b"a"))], BYTES, KeyFilter(keys=(b"a",))),
        # Equal to 0.0 is -0.0, which has other bytes.
        ([EqualTo(KEY, 0.0)], serde_of(float), KeyFilter()),
        ([GreaterThan(KEY, "b"), LessThan(KEY, "d")], TEXT, KeyFilter(lower="b", upper="d")),
        ([GreaterThan(KEY, "b"), GreaterThanOrEqual(KEY, "c")], TEXT, KeyFilter(lower="c")),
        ([GreaterThan(KEY, "")], TEXT, KeyFilter(lower="")),
        ([LessThan(KEY, bytearray(b"b"))], BYTES, KeyFilter(upper=b"b")),
        # Negative numbers lie behind the others.
        ([GreaterThan(KEY, 7)], NUMBER, KeyFilter()),
        ([StringStartsWith(KEY, "a")], TEXT, KeyFilter(prefix="a")),
    ],
)
def test_filters_on_the_key_are_pushed_down(
    filters: list[Filter], serde: Serde[Any], wanted: KeyFilter
) -> None:
    assert pushed(filters, serde) == wanted


@pytest.mark.parametrize(
    ("option", "asked", "read"), [("k1", "k11", "k11"), ("k1", "k", "k1"), ("k1", "k2", "k1")]
)
def test_a_filter_never_reads_what_an_option_leaves_out(option: str, asked: str, read: str) -> None:
    # What is read beyond the filter, Spark drops.
    wanted = chosen({"prefix": option}, TEXT)
    assert pushed([StringStartsWith(KEY, asked)], TEXT, wanted) == KeyFilter(prefix=read)


@pytest.mark.parametrize(
    ("options", "serde", "wanted"),
    [
        ({}, TEXT, KeyFilter()),
        ({"keys": '["a", "b"]'}, TEXT, KeyFilter(keys=("a", "b"))),
        ({"keys": "[7, -1]"}, NUMBER, KeyFilter(keys=(7, -1))),
        ({"keys": '["a"]'}, BYTES, KeyFilter(keys=(b"a",))),
        ({"keys": '["a", "b", "a"]'}, TEXT, KeyFilter(keys=("a", "b"))),
        ({"lower": 'a"b', "upper": "c"}, TEXT, KeyFilter(lower='a"b', upper="c")),
        ({"prefix": "a"}, TEXT, KeyFilter(prefix="a")),
    ],
)
def test_keys_are_chosen_by_options(
    options: dict[str, str], serde: Serde[Any], wanted: KeyFilter
) -> None:
    assert chosen(options, serde) == wanted


@pytest.mark.parametrize(
    ("options", "serde"),
    [
        ({"keys": "a"}, TEXT),
        ({"keys": "[1]"}, TEXT),
        ({"keys": '["a"]'}, NUMBER),
        ({"keys": "[1.5]"}, serde_of(float)),
        ({"lower": "1"}, NUMBER),
        ({"keys": "[]", "lower": "a"}, TEXT),
    ],
)
def test_keys_that_cannot_be_are_refused(options: dict[str, str], serde: Serde[Any]) -> None:
    with pytest.raises(ConfigError):
        chosen(options, serde)


@pytest.mark.parametrize(
    ("kind", "wanted", "asked"),
    [
        ("key_value", KeyFilter(), "all"),
        ("key_value", KeyFilter(keys=("a",)), "get"),
        ("key_value", KeyFilter(lower="a"), "range"),
        ("key_value", KeyFilter(prefix="a"), "prefix"),
        ("window", KeyFilter(), "all"),
        ("window", KeyFilter(keys=("a",)), "fetch"),
        ("session", KeyFilter(prefix="a"), "fetch_range"),
        ("versioned", KeyFilter(keys=("a",)), "get"),
        ("versioned", KeyFilter(lower="a"), "all"),
    ],
)
def test_each_kind_of_store_is_asked_what_it_answers(
    kind: Any, wanted: KeyFilter, asked: str
) -> None:
    assert question_for(shape(kind), 3, wanted).kind == asked
    assert question_for(shape(kind), 3, wanted).partition == 3


def rows(table: SnapshotTable, wanted: KeyFilter | None = None) -> list[dict[str, Any]]:
    found = table.shape()
    return [
        row
        for partition in found.partitions
        for raw in table.read(found, partition, wanted or KeyFilter())
        for batch in typed(raw, found, partition)
        for row in batch.to_pylist()
    ]


def moment(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


@pytest.fixture
def counts(tmp_path: Path) -> SnapshotTable:
    for partition in range(2):
        entries = [(f"k{n}", n, 1000 + n) for n in range(partition, 50, 2)]
        write_snapshot(tmp_path, "clinic", "counts", partition, entries)
    return SnapshotTable(
        location=tmp_path.as_uri(), application_id="clinic", store="counts", key=TEXT, value=NUMBER
    )


def test_a_snapshot_has_a_row_for_each_key(counts: SnapshotTable) -> None:
    found = rows(counts)
    assert {row["key"]: row["value"] for row in found} == {f"k{n}": n for n in range(50)}
    assert found[0] == {"partition": 0, "key": "k0", "value": 0, "timestamp": moment(1000)}
    assert {row["partition"] for row in found} == {0, 1}


@pytest.fixture
def history(tmp_path: Path) -> dict[str, str]:
    """Two partitions, copied at different times; the second of them once less."""
    for time in (1_000, 2_000, 3_000):
        for partition in range(2):
            if (time, partition) != (2_000, 1):
                entries = [(f"k{partition}", time, 1), (f"other{time}", 0, 1)]
                write_snapshot(
                    tmp_path,
                    "clinic",
                    "counts",
                    partition,
                    entries,
                    written_ms=time + partition,
                    keep=5,
                )
    return {
        "application": "clinic",
        "store": "counts",
        "snapshot": tmp_path.as_uri(),
        "key": "string",
        "value": "long",
    }


@pytest.mark.parametrize(
    ("options", "values"),
    [
        ({}, {"k0": 3_000, "k1": 3_000}),
        ({"snapshot_number": "1"}, {"k0": 2_000, "k1": 1_000}),
        ({"snapshot_time": "2999"}, {"k0": 2_000, "k1": 1_000}),
        ({"snapshot_time": "3000"}, {"k0": 3_000, "k1": 1_000}),
        ({"snapshot_time": "1970-01-01T01:00:03.001+01:00"}, {"k0": 3_000, "k1": 3_000}),
        ({"snapshot_time": "2001", "snapshot_number": "0"}, {"k0": 2_000, "k1": 1_000}),
    ],
)
def test_an_earlier_snapshot_is_read_by_number_or_time(
    history: dict[str, str], options: dict[str, str], values: dict[str, int]
) -> None:
    found = {row["key"]: row["value"] for row in rows(table_of({**history, **options}))}
    assert {key: found[key] for key in ("k0", "k1")} == values
    # What was written later is not in it.
    times = {int(key[5:]) for key in found if key.startswith("other")}
    assert times == set(values.values())


def test_the_newest_snapshot_is_read_whatever_became_of_others(
    history: dict[str, str], tmp_path: Path
) -> None:
    for path in tmp_path.rglob("manifest-*.json"):
        path.write_text("no manifest")
    assert {row["value"] for row in rows(table_of(history))} == {0, 3_000}
    with pytest.raises(SnapshotError, match="manifest cannot be read"):
        table_of({**history, "snapshot_number": "1"}).shape()


@pytest.mark.parametrize("options", [{"snapshot_number": "2"}, {"snapshot_time": "1000"}])
def test_a_snapshot_that_is_not_kept_is_told_before_anything_is_read(
    history: dict[str, str], options: dict[str, str]
) -> None:
    with pytest.raises(SnapshotError, match=r"partition 1 that is so old.*snapshot_keep"):
        table_of({**history, **options}).shape()


@pytest.mark.parametrize(
    ("wanted", "keys"),
    [
        (KeyFilter(keys=("k7", "none")), {"k7"}),
        (KeyFilter(lower="k48"), {"k48", "k49"} | {f"k{n}" for n in range(5, 10)}),
        (KeyFilter(lower="k1", upper="k11"), {"k1", "k10", "k11"}),
        (KeyFilter(prefix="k4"), {"k4"} | {f"k{n}" for n in range(40, 50)}),
    ],
)
def test_a_snapshot_is_asked_for_some_keys(
    counts: SnapshotTable, wanted: KeyFilter, keys: set[str]
) -> None:
    assert {row["key"] for row in rows(counts, wanted)} == keys


def test_windows_and_sessions_have_their_times(tmp_path: Path) -> None:
    minute = 60_000
    for kind in ("window", "session"):
        entries = [("ann", n, 5, n * minute, n * minute + 7) for n in range(3)]
        write_snapshot(tmp_path, "clinic", kind, 0, entries, kind=kind)
    table = SnapshotTable(
        location=tmp_path.as_uri(),
        application_id="clinic",
        store="window",
        key=TEXT,
        value=NUMBER,
        window_ms=minute,
    )
    [_, second, _] = rows(table)
    assert (second["key"], second["value"]) == ("ann", 1)
    assert (second["window_start"], second["window_end"]) == (moment(minute), moment(2 * minute))
    sessions = SnapshotTable(
        location=tmp_path.as_uri(), application_id="clinic", store="session", key=TEXT, value=NUMBER
    )
    assert [row["window_end"] for row in rows(sessions, KeyFilter(keys=("ann",)))] == [
        moment(n * minute + 7) for n in range(3)
    ]


@pytest.mark.parametrize("kind", ["window", "session"])
def test_what_a_store_finds_no_more_is_not_in_its_snapshot(tmp_path: Path, kind: Any) -> None:
    minute = 60_000
    entries = [("ann", n, 5, n * minute, n * minute + 7) for n in range(4)]
    write_snapshot(tmp_path, "clinic", "pulses", 0, entries, kind=kind)
    table = SnapshotTable(
        location=tmp_path.as_uri(), application_id="clinic", store="pulses", key=TEXT, value=NUMBER
    )
    assert [row["value"] for row in rows(table)] == [0, 1, 2, 3]
    kept = replace(table, retention_ms=minute + minute // 2)
    for wanted in (KeyFilter(), KeyFilter(keys=("ann",))):
        assert [row["value"] for row in rows(kept, wanted)] == [2, 3]


def test_only_what_is_wanted_stays() -> None:
    batch = pa.record_batch({"key": ["a", "ab", "b", "c"], "value": [1, 2, 3, 4]})

    def kept(**wanted: Any) -> list[str]:
        keys: list[str] = matching(batch, KeyFilter(**wanted)).column("key").to_pylist()
        return keys

    assert kept() == ["a", "ab", "b", "c"]
    assert kept(keys=("c", "a")) == ["a", "c"]
    assert kept(lower="ab", upper="b") == ["ab", "b"]
    assert kept(prefix="a", lower="ab") == ["ab"]
    numbers = pa.record_batch({"key": [1, 2]})
    assert matching(numbers, KeyFilter(keys=(2,))).column("key").to_pylist() == [2]


@dataclass(frozen=True)
class Bed:
    """A value with parts."""

    ward: str
    number: int


def test_values_of_a_dataclass_are_structs() -> None:
    raw = pa.table(
        {
            "key": [b"a"],
            "value": [serde_of(Bed).serialize(Bed("A", 1))],
            "timestamp": [1],
            "start": pa.nulls(1, pa.int64()),
            "end": pa.nulls(1, pa.int64()),
        }
    )
    beds = StoreShape(name="s", kind="key_value", partitions=(0,), key=TEXT, value=serde_of(Bed))
    [batch] = typed(raw, beds, 0)
    assert batch.to_pylist()[0]["value"] == {"ward": "A", "number": 1}
    wrong = StoreShape(name="s", kind="key_value", partitions=(0,), key=NUMBER, value=BYTES)
    with pytest.raises(DeserializationError, match="option key="):
        list(typed(raw, wrong, 0))


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    options = {"application": "a", "store": "s", "snapshot": tmp_path.as_uri()}
    with pytest.raises(SnapshotError, match="no snapshot of the store 's'"):
        table_of(options).shape()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"store": "s"},
        {"store": "../s", "application": "a", "snapshot": "file:///x"},
        {"store": "s", "application": "../a", "snapshot": "file:///x"},
        {"store": "s", "application": "a", "snapshott": "file:///x"},
        {"store": "s", "url": "http://127.0.0.1:1"},
        {"store": "s", "url": "http://127.0.0.1:1", "token_file": "/nowhere"},
        {"store": "s", "url": "http://127.0.0.1:1", "token": "t", "stale": "perhaps"},
        {"store": "s", "application": "a", "program": "nowhere:app"},
        {"store": "s", "application": "a", "snapshot": "file:///x", "snapshot_number": "-1"},
        {"store": "s", "application": "a", "snapshot": "file:///x", "snapshot_time": "noon"},
        {"store": "s", "application": "a", "snapshot": "file:///x", "snapshot_time": "2026-01-01"},
        {"store": "s", "application": "a", "url": "http://127.0.0.1:1", "snapshot_number": "1"},
    ],
)
def test_options_that_cannot_work_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(PenstockError):
        table_of(options)


def test_a_token_is_not_shown() -> None:
    table = table_of({"store": "s", "url": "http://127.0.0.1:1", "token": "planted"})
    assert "planted" not in repr(table)
    with pytest.raises(ConfigError) as told:
        table_of({"store": "s", "tokn": "planted"})
    assert "planted" not in str(told.value)
