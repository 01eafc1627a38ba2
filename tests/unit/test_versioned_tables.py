"""Versioned tables: what processors and joins see of them, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.errors import TopologyError
from penstock.instance.open_stores import shaped
from penstock.instance.protocol import StoreOrder
from penstock.processors import Entry, Limits, SliceResult, start_slice
from penstock.stores.contract import KeyValueStore, VersionedStore, pages, stored_value, version_key
from penstock.stores.memory import MemoryStore
from penstock.stores.versioned import VersionsStore
from penstock.testing import TopologyTestDriver
from penstock.topology import VALID_TO_UNDEFINED, StoreBuilder, StreamsBuilder, SubTopology
from penstock.topology.diff import diff
from penstock.topology.manifest import manifest_of
from tests.unit.slices import Row, changes, records

RETENTION = 300_000
HISTORY = timedelta(milliseconds=RETENTION)
LATEST = VALID_TO_UNDEFINED


def versions(name: str = "prices", **options: Any) -> StoreBuilder:
    return ps.versioned_store(name, history_retention=HISTORY, **options)


def ms(count: int) -> timedelta:
    return timedelta(milliseconds=count)


# The store in a processor's hands.

Action = Callable[[Any], object]


def in_a_processor(*actions: Action) -> tuple[list[Any], TopologyTestDriver]:
    """What a processor gets from its store, one action with each record."""
    results: list[Any] = []
    left = list(actions)

    class Uses(ps.Processor[str, str, str, str]):
        def process(self, record: ps.Record[str, str]) -> None:
            results.append(left.pop(0)(self.context.store("prices")))

    app = ps.Application("app")
    app.add_state_store(versions(key=str, value=str, segment_interval=ms(100_000)))
    app.stream("in", key=str, value=str).process(Uses, stores=["prices"])
    driver = TopologyTestDriver(app)
    for number in range(len(actions)):
        driver.input_topic("in", key=str, value=str).pipe("x", "x", timestamp=number)
    return results, driver


def test_a_put_says_until_when_it_is_valid() -> None:
    puts = [("v", 10), ("v2", 8), ("v1", 9), ("v4", 6), (None, 7), ("w", 10), ("z", 12)]
    results, driver = in_a_processor(
        *(lambda store, put=put: store.put("k", *put) for put in puts),
        lambda store: [store.get("k", as_of_timestamp=time) for time in (5, 6, 7, 8, 9, 10, 99)],
        lambda store: store.get("k"),
        lambda store: store.get("other"),
    )
    record = ps.VersionedRecord
    assert results[:7] == [LATEST, 10, 10, 8, 8, LATEST, LATEST]
    was = [None, record("v4", 6, 7), None, record("v2", 8, 9), record("v1", 9, 10)]
    assert results[7:] == [[*was, record("w", 10, 12), record("z", 12)], record("z", 12), None]
    assert driver.store("prices").as_of("k", 9) == record("v1", 9, 10)
    assert dict(driver.store("prices")) == {"k": "z"}


def test_a_deletion_is_a_version_and_returns_what_was() -> None:
    results, driver = in_a_processor(
        lambda store: store.put("k", "v1", 1),
        lambda store: store.delete("k", 10),
        lambda store: store.get("k"),
        lambda store: store.get("k", 9),
        lambda store: store.put("k", "v0", 0),
        lambda store: store.put("k", "v2", 11),
        lambda store: store.delete("k", 5),
        lambda store: store.get("k", 5),
    )
    assert results == [
        LATEST,
        ps.VersionedRecord("v1", 1),
        None,
        ps.VersionedRecord("v1", 1, 10),
        1,
        LATEST,
        ps.VersionedRecord("v1", 1, 10),
        None,
    ]
    assert driver.store("prices")["k"] == "v2"


def test_what_is_past_the_history_is_dropped_and_no_longer_found() -> None:
    results, driver = in_a_processor(
        lambda store: store.put("old", "old", 1),
        lambda store: store.put("alone", "still", 1),
        lambda store: store.put("old", "new", RETENTION + 12),
        lambda store: [store.put("late", "x", 11), store.delete("old", 11)],
        lambda store: store.put("late", "x", 12),
        lambda store: [store.get("old", 11), store.get("alone", 11), store.get("old", 12)],
    )
    assert results[3:5] == [[None, None], LATEST]
    assert results[5] == [
        None,
        ps.VersionedRecord("still", 1),
        ps.VersionedRecord("old", 1, RETENTION + 12),
    ]
    assert driver.dropped["expired"] == 2
    view = driver.store("prices")
    assert view.as_of("old", 11) is None
    assert view.as_of("alone", 11) == ps.VersionedRecord("still", 1)


S, R = 100_000, RETENTION
# What is known of Kafka Streams' store: `key:value@time=until` for a put (- is no value or no end,
# x says that it came too late), `key@time=value` or `key@time=value[from,to]` for what it was then.
KNOWN = {
    "in order": "k:v@10=- k:v2@11=- k@=v2[11,-] k@10=v[10,11] k@11=v2[11,-] k@12=v2[11,-]",
    "deletions in order": "k:-@10=- k:-@11=- k@=- k@10=- k@11=- k@12=-",
    "late": "k:v@10=- k:v2@8=10 k:v1@9=10 k:v4@6=8 k@=v[10,-] k@10=v[10,-] k@9=v1[9,10]"
    " k@8=v2[8,9] k@7=v4[6,8]",
    "late behind a deletion": "k:-@10=- k:v2@8=10 k:v1@9=10 k:v4@6=8 k@=- k@10=- k@9=v1[9,10]"
    " k@8=v2[8,9] k@7=v4[6,8]",
    "late deletions": "k:v@10=- k:-@8=10 k:-@9=10 k:-@6=8 k:v5@5=6 k:v3@7=8 k:-@4=5 k@=v[10,-]"
    " k@9=- k@8=- k@7=v3[7,8] k@6=- k@5=v5[5,6] k@4=-",
    "of one time": "k:x@10=- k:b@10=- k@=b[10,-] k:-@10=- k@=- k:-@10=- k@=- k:b@10=- k@=b[10,-]"
    " k@9=-",
    "around a segment": f"k:vp20@{S + 20}=- k:vp10@{S + 10}={S + 20} k:vn10@{S - 10}={S + 10}"
    f" k:vn2@{S - 2}={S + 10} k:vn1@{S - 1}={S + 10} k:vp1@{S + 1}={S + 10} k@=vp20[{S + 20},-]"
    f" k@{S + 15}=vp10[{S + 10},{S + 20}] k@{S + 5}=vp1[{S + 1},{S + 10}]"
    f" k@{S}=vn1[{S - 1},{S + 1}] k@{S - 1}=vn1[{S - 1},{S + 1}] k@{S - 2}=vn2[{S - 2},{S - 1}]"
    f" k@{S - 5}=vn10[{S - 10},{S - 2}]",
    "at the end of the history": f"k:v@{R + 10}=- one:v1@10=- two:v2@9=x one@=v1[10,-] two@=-",
    "as of": f"k:v@1=- ko:old@1=- ko:new@{R + 12}=- k@10=v[1,-] ko@10=-",
    "empty": "k:@10=- k@=[10,-] k:-@11=- k@=- k@10=[10,11]",
}


@pytest.mark.parametrize("name", KNOWN)
def test_the_known_versions(name: str) -> None:
    """Each word is a record, and so a slice of its own: the next one reads what was stored."""
    written = KNOWN[name].split()
    results, _ = in_a_processor(*(partial(_done, word.rpartition("=")[0]) for word in written))
    assert results == written


def _done(word: str, store: Any) -> str:
    """A put or a read, with what it said."""
    rest, _, time = word.rpartition("@")
    key, is_put, value = rest.partition(":")
    if is_put:
        until = store.put(key, None if value == "-" else value, int(time))
        return f"{word}={'x' if until is None else '-' if until == LATEST else until}"
    found = store.get(key, int(time)) if time else store.get(key)
    if found is None:
        return f"{word}=-"
    until = "-" if found.valid_to is None else found.valid_to
    return f"{word}={found.value}[{found.timestamp},{until}]"


def test_the_known_versions_of_a_time() -> None:
    store = VersionsStore(MemoryStore("prices"), retention_ms=RETENTION, segment_ms=100_000)
    puts = ((30, b"v1"), (25, b"v2"), (20, None), (15, None), (10, b"v3"), (5, b"v4"))
    for offset, (before, value) in enumerate(puts):
        stored = None if value is None else stored_value(S - before, value)
        store.apply([(version_key(b"k", S - before), stored)], offset=offset)
    for first, last, known in (
        (30, 5, [b"v1", b"v2", b"v3", b"v4"]),
        (24, 11, [b"v2"]),
        (11, 4, [b"v3", b"v4"]),
        (31, 21, [b"v1", b"v2"]),
        (15, 10, [b"v3"]),
        (19, 16, []),
    ):
        found = [data[8:] for _, data in store.versions(b"k", S - first, S - last)]
        assert [value for value in found if value] == known


# Slices of any size, over the stores of an instance.


class Instance:
    """The stores of one sub-topology as an instance holds them, and answers about them."""

    def __init__(self, sub: SubTopology) -> None:
        self.specs = {spec.name: spec for spec in sub.stores}
        self.stores = {spec.name: self._store(spec.name) for spec in sub.stores}

    def _store(self, name: str) -> KeyValueStore:
        spec = self.specs[name]
        order = StoreOrder(
            name=name,
            kind=spec.kind,
            retention_ms=spec.retention_ms or 0,
            segment_ms=spec.segment_ms if spec.kind == "versioned" else 0,
        )
        return shaped(MemoryStore(name), order)

    def get_many(self, store: str, keys: pa.BinaryArray) -> pa.BinaryArray:
        return pa.array(self.stores[store].get_many(keys.to_pylist()), pa.binary())

    def fetch_many(
        self, store: str, questions: Sequence[tuple[bytes, int, int]]
    ) -> list[list[Entry]]:
        held = self.stores[store]
        assert isinstance(held, VersionedStore)
        return [list(held.versions(*each)) for each in questions]

    def range_many(
        self, store: str, ranges: Sequence[tuple[bytes | None, bytes | None]]
    ) -> list[list[Entry]]:
        held = self.stores[store]
        return [list(pages(held, 10, lower=lower, upper=upper)) for lower, upper in ranges]

    def fetch_times(self, store: str, first: int, last: int) -> list[Entry]:
        raise NotImplementedError

    def apply(self, result: SliceResult) -> None:
        for store, key, value, time in changes(result):
            name = version_key(key, time) if self.specs[store].kind == "versioned" else key
            stored = None if value is None else stored_value(time, value)
            self.stores[store].apply([(name, stored)], offset=None)


class Remembers(ps.Processor[str, str, str, str]):
    """Says what its store of versions says of each record's key a while ago."""

    def process(self, record: ps.Record[str, str]) -> None:
        store = self.context.store("seen")
        put = store.put(record.key, record.value, record.timestamp)
        was = store.get(record.key, record.timestamp - 5)
        self.context.forward(record.with_value(f"{put} {was} {store.get(record.key)}"))


def program(builder: StreamsBuilder) -> None:
    stream = builder.stream("in", key=str, value=str)
    rows = stream.filter(lambda key, value: value is None or "t" in value)
    table = rows.to_table(ps.versioned_store("held", history_retention=ms(30)))
    changed = table.map_values(lambda value: None if value == "t1" else f"<{value}>", value=str)
    changed.to_stream().to("changes")
    joined = stream.filter(lambda key, value: value is not None and "t" not in value)
    joined.left_join(table, lambda a, b: f"{a}{b}", value=str, grace=ms(7), name="wait").to("out")
    joined.join(changed, lambda a, b: f"{a}{b}", value=str).to("now")
    counts = joined.group_by_key().count(ps.versioned_store("counts", history_retention=ms(20)))
    counts.filter(lambda key, count: count % 2 == 0).to_stream().to("counted")
    builder.add_state_store(
        ps.versioned_store("seen", history_retention=ms(30), key=str, value=str, persistent=False)
    )
    stream.process(Remembers, stores=["seen"], key=str, value=str).to("seen")


OUTPUTS = ("changes", "out", "now", "counted", "seen")
ROWS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "aa"]),
        st.none() | st.sampled_from(["t1", "t2", "t3", "s1", "s2", "s3"]),
        st.integers(0, 60) | st.integers(0, 200),
    ),
    max_size=40,
)


@settings(max_examples=150, deadline=None)
@given(rows=ROWS, size=st.integers(1, 12))
def test_slices_of_any_size_give_what_the_driver_gives(
    rows: list[tuple[str, str | None, int]], size: int
) -> None:
    builder = StreamsBuilder()
    program(builder)
    topology = builder.build()
    driver = TopologyTestDriver(topology)
    for key, value, time in rows:
        driver.input_topic("in", key=str, value=str).pipe(key, value, timestamp=time)
    [sub] = topology.sub_topologies
    instance, metadata, found = Instance(sub), {}, []
    for start in range(0, len(rows), size):
        run = start_slice(
            sub,
            application_id="app",
            state=instance,
            limits=Limits(cache_max_bytes=0, partition_counts=dict.fromkeys(OUTPUTS, 1)),
            metadata=metadata,
            partition=0,
            now_ms=0,
        )
        run.process(
            records(
                Row(number, time, key.encode(), None if value is None else value.encode())
                for number, (key, value, time) in enumerate(rows[start : start + size], start)
            )
        )
        result = run.finish()
        instance.apply(result)
        metadata = dict(result.metadata)
        found += result.outputs.to_pylist()
    for topic in OUTPUTS:
        expected = driver.output_topic(topic, key=bytes, value=bytes).read_all()
        assert [
            (row["key"], row["value"], row["timestamp"]) for row in found if row["topic"] == topic
        ] == [(row.key, row.value, row.timestamp) for row in expected], topic


# What waits.


def waiting(kind: str, grace: int) -> TopologyTestDriver:
    app = ps.Application("app")
    table = app.table("rows", versions("held"), key=str, value=str)
    stream = app.stream("in", key=str, value=str)
    join = getattr(stream, kind)
    join(table, lambda a, b: f"{a}{b}", value=str, grace=ms(grace), name="wait").to("out")
    return TopologyTestDriver(app)


def test_a_record_waits_for_rows_that_come_late() -> None:
    driver = waiting("join", 10)
    stream, rows = (driver.input_topic(each, key=str, value=str) for each in ("in", "rows"))
    out = driver.output_topic("out", key=str, value=str)
    stream.pipe("k", "a", timestamp=20)
    rows.pipe("k", "1", timestamp=19)
    rows.pipe("k", "2", timestamp=21)
    assert out.read_pairs() == []
    assert len(driver.store("wait-Buffer")) == 1
    stream.pipe("other", "b", timestamp=30)
    assert out.read_all()[0].value == "a1"
    assert len(driver.store("wait-Buffer")) == 1
    stream.pipe("k", "late", timestamp=19)
    assert out.read_pairs() == [("k", "late1")]


def test_a_record_without_a_key_meets_nothing_and_does_not_wait() -> None:
    driver = waiting("left_join", 10)
    driver.input_topic("in", key=str, value=str).pipe(None, "a", timestamp=5)
    assert driver.output_topic("out", key=str, value=str).read_pairs() == [(None, "aNone")]


# What is refused.


def refused(write: Callable[[StreamsBuilder], object]) -> str:
    with pytest.raises(TopologyError) as error:
        write(StreamsBuilder())
    return error.value.message


def table(builder: StreamsBuilder, store: Any = "plain", topic: str = "rows") -> Any:
    return builder.table(topic, store, key=str, value=str)


def stream(builder: StreamsBuilder) -> Any:
    return builder.stream("in", key=str, value=str)


def test_a_join_waits_only_for_a_table_that_remembers_long_enough() -> None:
    def join(b: StreamsBuilder, other: Any, grace: timedelta = HISTORY) -> object:
        return stream(b).join(other, lambda a, b: a, value=str, grace=grace)

    assert "keeps no versions" in refused(lambda b: join(b, table(b)))
    assert "keeps versions for 0:05:00" in refused(
        lambda b: join(b, table(b, versions()), HISTORY + ms(1))
    )
    assert "negative" in refused(lambda b: join(b, table(b, versions()), ms(-1)))
    assert "keeps no versions" in refused(
        lambda b: join(b, table(b, versions()).map_values(str, "mapped", value=str))
    )
    assert "keeps no versions" in refused(
        lambda b: join(
            b, table(b, versions()).join(table(b, versions("x"), "x"), lambda a, _: a, value=str)
        )
    )
    builder = StreamsBuilder()
    join(builder, table(builder, versions()).filter(lambda key, value: True))
    builder.build()


def test_only_a_join_with_a_table_has_a_grace_of_its_own() -> None:
    within = ps.join_window(ms(5), grace=ms(5))

    def join(b: StreamsBuilder) -> object:
        other = b.stream("other", key=str, value=str)
        return stream(b).join(other, lambda a, b: a, within, value=str, grace=ms(1))

    assert "grace of its own" in refused(join)


def test_versions_are_not_suppressed_not_global_and_not_limited() -> None:
    calm = ps.until_time_limit(ms(5), ps.unbounded())
    assert "cannot be suppressed" in refused(lambda b: table(b, versions()).suppress(calm))
    inherited = refused(lambda b: table(b, versions()).map_values(str).suppress(calm))
    assert "cannot be suppressed" in inherited
    assert "global table" in refused(
        lambda b: b.global_table("g", versions(), key=str, value=str)  # type: ignore[arg-type]
    )
    assert "limited size" in refused(
        lambda b: stream(b).group_by_key().count(versions(), max_entries=5)
    )
    window = ps.window_store("w", key=str, value=str, retention=HISTORY, window=HISTORY)
    assert "window store 'w'" in refused(lambda b: table(b, window))
    assert "not said" in refused(lambda b: b.add_state_store(versions()))
    for options in ({"history_retention": ms(-1)}, {"segment_interval": ms(0)}):
        with pytest.raises(TopologyError):
            ps.versioned_store("x", **{"history_retention": HISTORY, **options})


def test_a_plain_store_does_not_become_a_versioned_one() -> None:
    def manifest(store: Any) -> Any:
        builder = StreamsBuilder()
        table(builder, store).to_stream().to("out")
        return manifest_of(builder.build(), "app", None)

    [found] = diff(manifest("prices"), manifest(versions()))
    assert (found.kind, found.severity) == ("store_kind_changed", "misreads")
    longer = ps.versioned_store("prices", history_retention=2 * HISTORY)
    [found] = diff(manifest(versions()), manifest(longer))
    assert found.severity == "harmless"
    assert "raise min.compaction.lag.ms of 'app-prices-changelog'" in found.advice
    [found] = diff(manifest(longer), manifest(versions()))
    assert found.severity == "orphans"
    assert "kept versions for" in found.change


def test_settings_of_a_versioned_store_come_from_both_places() -> None:
    builder = StreamsBuilder()
    table(builder, versions(logging={"segment.bytes": "1"}, persistent=False))
    builder.table("x", versions("off", logging=False), key=str, value=str)
    plain, off = (sub.stores[0] for sub in builder.build().sub_topologies)
    assert (plain.kind, plain.caching, plain.persistent) == ("versioned", False, False)
    assert plain.changelog_config == {"segment.bytes": "1"}
    assert (plain.logging, off.logging) == (True, False)
    assert (plain.retention_ms, plain.segment_ms) == (300_000, 60_000)
