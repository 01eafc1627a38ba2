"""Goal: a slice computed by columns equals record-by-record processing for all chunks and caches.

Method: random records and state go through both, in chunks cut at random, joined in batches of
random size, with the cache off, tight and ample.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.processors import RecordRun, SliceResult
from penstock.processors import full_cache as full_cache_module
from penstock.processors import slice_run as slice_run_module
from tests.unit.slices import DictState, Row, build, changes, outputs, records, run


def _forget_small(_: bytes, value: int, total: int) -> int | None:
    return None if (total + value) % 5 == 0 else total + value


def _two_branches(stream: Any) -> None:
    stream.filter(lambda _k, v: v is not None and v % 2 == 0).to("even")
    grouped = stream.group_by_key()
    table = grouped.count("counts").to_stream()
    table.to("out")
    table.filter(lambda _k, n: n > 1).to("many")
    grouped.reduce(lambda a, v: a + v, "sums").to_stream().to("out")
    stream.to("copy")


def _chain_of_stores(stream: Any) -> None:
    first = stream.group_by_key().aggregate(int, _forget_small, "first").to_stream()
    first.to("first-out")
    first.group_by_key().count("second").to_stream().to("second-out")


def _many(value: int | None) -> list[int | None]:
    """None, one or several, nulls among them."""
    return [value, None, 7][: abs(value or 0)]


def _flat(stream: Any) -> None:
    """Several rows of one record meet in one topic, by ways of different lengths."""
    flat = stream.flat_map_values(_many, value=int)
    flat.to("out")
    flat.filter(lambda _k, v: v is not None).to("out")
    pairs = flat.flat_map(lambda k, v: [(k, v), (b"a", 1)], key=bytes, value=int)
    pairs.to("out")
    flat.group_by_key().count("counts").to_stream().to("out")
    stream.to("out")


def _split(stream: Any) -> None:
    branches = stream.split(name="by-").branch(lambda _k, v: v is None, name="null")
    branches = branches.branch(lambda _k, v: v % 2 == 0).default_branch()
    branches["by-null"].to("out")
    branches["by-2"].group_by_key().count("even").to_stream().to("out")
    branches["by-0"].flat_map_values(_many, value=int).to("out")
    some = stream.split().branch(lambda _k, v: v == 3, name="-three").no_default_branch()
    for branch in some.values():
        branch.to("out")


def _tables(stream: Any) -> None:
    table = stream.group_by_key().aggregate(int, _forget_small, "sums")
    table.filter(lambda _k, v: v % 2 == 0).to_stream().to("out")
    table.filter_not(lambda _k, v: v > 2).map_values(str, value=str).to_stream().to("texts")
    table.map_values(lambda v: v % 3, value=int).filter(lambda _k, v: v == 1).to_stream().to("out")
    changes = table.to_stream()
    changes.to("out")
    # Behind a table with old values, a store of its own: a stream's records have none.
    changes.group_by_key().count("changes").to_stream().to("out")


def _latest(stream: Any) -> None:
    table = stream.to_table("latest")
    table.to_stream().to("out")
    table.filter(lambda _k, v: v > 0).to_stream().to("out")
    stream.to_table("uncached", caching=False).to_stream().to("out")


TOPOLOGIES: dict[str, Any] = {
    "count": lambda s: s.group_by_key().count("counts").to_stream().to("out"),
    "uncached": lambda s: s.group_by_key().count("c", caching=False).to_stream().to("out"),
    "reduce": lambda s: s.group_by_key().reduce(lambda a, v: a + v, "sums").to_stream().to("out"),
    "aggregate": lambda s: (
        s.group_by_key().aggregate(int, _forget_small, "sums").to_stream().to("out")
    ),
    "text": lambda s: (
        s.map_values(str, value=str)
        .group_by_key()
        .reduce(lambda a, v: (a + v)[-4:], "texts")
        .to_stream()
        .to("out")
    ),
    "json": lambda s: (
        s.group_by_key()
        .aggregate(list, lambda _k, v, seen: [*seen, v][-3:], "lists", value=list[int])
        .to_stream()
        .map_values(len, value=int)
        .to("out")
    ),
    "rekeyed": lambda s: (
        s.map(lambda k, v: (v, k), key=int, value=bytes)
        .group_by_key(name="by-value")
        .count("counts")
    ),
    "branches": _two_branches,
    "chain": _chain_of_stores,
    "flat": _flat,
    "split": _split,
    "tables": _tables,
    "latest": _latest,
}

keys = st.one_of(st.none(), st.sampled_from([b"", b"a", b"bb", b"ccc", b"d" * 30]))
values = st.one_of(st.none(), st.integers(-3, 3).map(lambda n: n.to_bytes(8, "big", signed=True)))
headers = st.one_of(
    st.none(), st.lists(st.tuples(st.sampled_from("hi"), st.binary(max_size=3)), max_size=2)
)


def _rows(headers: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(st.tuples(st.integers(-1, 20), keys, values, headers), max_size=40)


rows = st.one_of(_rows(st.none()), _rows(headers))


@pytest.mark.parametrize("name", TOPOLOGIES)
@settings(max_examples=60, deadline=None)
@given(
    rows=rows,
    cuts=st.lists(st.integers(0, 30), max_size=4),
    batch_rows=st.sampled_from([1, 3, 1000]),
    cache=st.sampled_from([0, 1, 120, 200, 300, 500, 1_000_000]),
    known=st.booleans(),
    entries_min=st.sampled_from([1, 64]),
)
def test_columns_equal_depth_first_processing(
    name: str,
    rows: Any,
    cuts: list[int],
    batch_rows: int,
    cache: int,
    known: bool,
    entries_min: int,
) -> None:
    sub = build(TOPOLOGIES[name], value=int).sub_topologies[0]
    data = [Row(i + 7, ts, k, v, h) for i, (ts, k, v, h) in enumerate(rows)]
    stored = {
        spec.name: {
            spec.key_serde.serialize(key): (
                spec.value_serde.serialize(_sample(spec.value_serde.name)),
                9,
            )
            for key in ([1, 2] if spec.key_serde.name == "long" else [b"a", b"bb"])
        }
        for spec in sub.stores
        if known
    }
    edges = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    chunks = [records(data[a:b]) for a, b in pairwise(edges)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slice_run_module, "BATCH_ROWS", batch_rows)
        patch.setattr(full_cache_module, "ENTRIES_MIN", entries_min)
        result = run(sub, chunks, state=DictState(stored), cache_max_bytes=cache)

    reference = run(
        sub, [records(data)], state=DictState(stored), cache_max_bytes=cache, kind=RecordRun
    )
    for spec in sub.stores:
        assert _of_store(result, spec.name) == _of_store(reference, spec.name)
    assert [_plain(row) for row in outputs(result)] == [_plain(row) for row in outputs(reference)]
    assert dict(result.dropped) == dict(reference.dropped)


def _of_store(result: SliceResult, store: str) -> list[tuple[Any, ...]]:
    return [row for row in changes(result) if row[0] == store]


def _sample(serde: str) -> Any:
    return {"long": 3, "string": "x" * 60, "json": [1, 2]}[serde]


def _plain(row: tuple[Any, ...]) -> tuple[Any, ...]:
    # No headers and an empty list of headers are the same to Kafka.
    return (*row[:-1], row[-1] or None)
