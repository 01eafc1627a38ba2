"""Changes of a program that leave names and types alone, and would misread state all the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import penstock as ps
from penstock.config import Config
from penstock.driver.last_run import refuse_change
from penstock.errors import TopologyChangedError
from penstock.topology import StreamsBuilder
from penstock.topology.diff import Difference, diff
from penstock.topology.manifest import TopologyManifest, manifest_of
from penstock.topology.windows import Windows

Program = Callable[[StreamsBuilder], object]
SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
NO_GRACE = timedelta(0)


def manifest(program: Program) -> TopologyManifest:
    builder = StreamsBuilder()
    program(builder)
    return manifest_of(builder.build(), "app")


def differences(old: Program, new: Program) -> list[Difference]:
    return diff(manifest(old), manifest(new))


def kinds(found: list[Difference]) -> list[tuple[str, str, str]]:
    return [(each.severity, each.kind, each.name) for each in found]


def stream(b: StreamsBuilder, topic: str = "in") -> ps.KStream[Any, Any]:
    return b.stream(topic, key=str, value=str)


def windowed(windows: Windows, *, retention: timedelta = HOUR) -> Program:
    return lambda b: stream(b).group_by_key().windowed_by(windows).count("c", retention=retention)


TUMBLING = ps.tumbling(MINUTE, grace=NO_GRACE)
SLIDING = ps.sliding(MINUTE, grace=NO_GRACE)
HALVES = ps.hopping(MINUTE, advance=30 * SECOND, grace=NO_GRACE)
THIRDS = ps.hopping(MINUTE, advance=20 * SECOND, grace=NO_GRACE)


@pytest.mark.parametrize("other", [TUMBLING, HALVES])
def test_windows_that_slide_are_not_taken_for_others_of_their_size(other: Windows) -> None:
    for old, new in ((other, SLIDING), (SLIDING, other)):
        [found] = differences(windowed(old), windowed(new))
        assert kinds([found]) == [("misreads", "window_kind_changed", "c")]
        assert "slide with records" in found.change
        assert "another name" in found.advice
        with pytest.raises(TopologyChangedError, match="slide with records"):
            refuse_change(manifest(windowed(old)), manifest(windowed(new)), Config())


def test_windows_may_begin_more_often_but_none_may_be_left_half_filled() -> None:
    changed = ("window_starts_changed", "c")
    for old, new, severity in (
        (TUMBLING, HALVES, "harmless"),
        (TUMBLING, THIRDS, "harmless"),
        (HALVES, TUMBLING, "orphans"),
        (HALVES, THIRDS, "orphans"),
    ):
        [found] = differences(windowed(old), windowed(new))
        assert kinds([found]) == [(severity, *changed)]


def test_an_unlimited_window_that_begins_elsewhere_leaves_the_old_one_behind() -> None:
    def endless(start: int) -> Program:
        windows = ps.unlimited(start=start)
        return lambda b: stream(b).group_by_key().windowed_by(windows).count("c")

    [found] = differences(endless(0), endless(60_000))
    assert kinds([found]) == [("orphans", "window_starts_changed", "c")]
    assert "from 60000 ms on" in found.change
    assert differences(endless(60_000), endless(60_000)) == []


def test_cogrouped_windows_are_told_apart_too() -> None:
    def cogrouped(windows: Windows) -> Program:
        def program(b: StreamsBuilder) -> None:
            groups = stream(b).group_by_key().cogroup(lambda key, value, total: total + 1)
            groups.windowed_by(windows).aggregate(int, "c", value=int, retention=HOUR)

        return program

    [found] = differences(cogrouped(TUMBLING), cogrouped(SLIDING))
    assert found.kind == "window_kind_changed"


def test_the_gap_of_sessions_may_change() -> None:
    """Sessions that there are stay what they are: a record that touches two makes them one."""

    def sessions(gap: timedelta) -> Program:
        return windowed(ps.session(gap, grace=NO_GRACE))

    assert differences(sessions(MINUTE), sessions(2 * MINUTE)) == []


def test_grace_and_the_moment_of_emitting_may_change() -> None:
    def late(grace: timedelta, *, final: bool) -> Program:
        def program(b: StreamsBuilder) -> None:
            windows = stream(b).group_by_key().windowed_by(ps.tumbling(MINUTE, grace=grace))
            (windows.emit_on_window_close() if final else windows).count("c", retention=HOUR)

        return program

    assert differences(late(NO_GRACE, final=False), late(MINUTE, final=True)) == []


def suppressed(suppression: Any, windows: Windows = TUMBLING, store: str = "c") -> Program:
    def program(b: StreamsBuilder) -> None:
        table = stream(b).group_by_key().windowed_by(windows).count(store, retention=HOUR)
        table.suppress(suppression, name="calm").to_stream().to("out")

    return program


LIMIT = ps.until_time_limit(MINUTE, ps.unbounded())


def test_what_waits_by_one_clock_is_not_let_go_by_another() -> None:
    final = ps.until_window_closes()
    [found] = differences(suppressed(LIMIT), suppressed(final))
    assert kinds([found]) == [("misreads", "waiting_changed", "calm-store")]
    assert "the time of its record and would be let go by the end of its window" in found.change
    assert kinds(differences(suppressed(final), suppressed(LIMIT))) == [
        ("misreads", "waiting_changed", "calm-store")
    ]
    longer = ps.until_time_limit(HOUR, ps.max_records(7))
    assert differences(suppressed(LIMIT), suppressed(longer)) == []


def test_windows_that_wait_or_are_rows_keep_their_size() -> None:
    longer = ps.tumbling(2 * MINUTE, grace=NO_GRACE)
    found = differences(suppressed(LIMIT), suppressed(LIMIT, longer, store="d"))
    assert ("misreads", "window_size_changed", "calm-store") in kinds(found)

    def kept(windows: Windows, store: str) -> Program:
        def program(b: StreamsBuilder) -> None:
            table = stream(b).group_by_key().windowed_by(windows).count(store)
            table.map_values(lambda count: count + 1, "rows", value=int)

        return program

    found = differences(kept(TUMBLING, "c"), kept(longer, "d"))
    assert ("misreads", "window_size_changed", "rows") in kinds(found)


def test_windows_on_their_way_through_a_topic_keep_their_size() -> None:
    def sent(windows: Windows, store: str) -> Program:
        def program(b: StreamsBuilder) -> None:
            table = stream(b).group_by_key().windowed_by(windows).count(store)
            table.to_stream().repartition(name="again").to("out")

        return program

    longer = ps.tumbling(2 * MINUTE, grace=NO_GRACE)
    found = differences(sent(TUMBLING, "c"), sent(longer, "d"))
    assert ("misreads", "repartition_windows_changed", "app-again-repartition") in kinds(found)


def joined(left: str, right: str, how: str = "join") -> Program:
    def program(b: StreamsBuilder) -> None:
        one, two = stream(b, left), stream(b, right)
        windows = ps.join_window(MINUTE, grace=NO_GRACE)
        join = getattr(one, how)(two, lambda x, y: f"{x}{y}", windows, value=str, name="pair")
        join.to("out")

    return program


@pytest.mark.parametrize("how", ["join", "left_join", "outer_join"])
def test_the_sides_of_a_join_of_streams_are_not_exchanged(how: str) -> None:
    found = differences(joined("a", "b", how), joined("b", "a", how))
    assert {each.kind for each in found} == {"store_exchanged"}
    assert {each.severity for each in found} == {"misreads"}
    assert len(found) == 2
    assert "was made of" in found[0].change
    # A topic that was not read before may be an old one under another name.
    assert differences(joined("a", "b", how), joined("a2", "b", how)) != []
    renamed = differences(joined("a", "b", how), joined("a2", "b", how))
    assert {each.severity for each in renamed} == {"harmless"}


def referring(left: str, right: str) -> Program:
    def program(b: StreamsBuilder) -> None:
        tables = {each: b.table(each, f"t-{each}", key=str, value=str) for each in ("a", "b")}
        join = tables[left].join(
            tables[right],
            lambda x, y: f"{x}{y}",
            foreign_key=lambda value: value,
            value=str,
            name="refers",
        )
        join.to_stream().to("out")

    return program


def test_the_sides_of_a_foreign_key_join_are_not_exchanged() -> None:
    found = differences(referring("a", "b"), referring("b", "a"))
    assert ("misreads", "repartition_exchanged") in {(e.severity, e.kind) for e in found}
    with pytest.raises(TopologyChangedError, match="was read before for something else"):
        refuse_change(manifest(referring("a", "b")), manifest(referring("b", "a")), Config())


def counting(**stores: str) -> Program:
    def program(b: StreamsBuilder) -> None:
        for topic, store in stores.items():
            stream(b, topic).group_by_key().count(store)

    return program


def test_stores_do_not_exchange_their_names() -> None:
    found = differences(counting(a="x", b="y"), counting(a="y", b="x"))
    assert sorted(kinds(found)) == [
        ("misreads", "store_exchanged", "x"),
        ("misreads", "store_exchanged", "y"),
    ]
    # More topics, fewer topics and a detour through a repartition topic are no exchange.
    assert all(
        each.severity == "harmless" for each in differences(counting(a="x"), counting(b="x"))
    )

    def again(b: StreamsBuilder) -> None:
        both = b.stream(["a", "b"], key=str, value=str)
        both.repartition(name="r").group_by_key().count("x")

    assert "store_exchanged" not in {e.kind for e in differences(counting(a="x"), again)}


def test_a_store_that_kept_every_key_does_not_forget_them_unasked() -> None:
    def kept(entries: int | None) -> Program:
        return lambda b: stream(b).group_by_key().count("c", max_entries=entries)

    found = differences(kept(None), kept(10))
    assert kinds(found) == [
        ("orphans", "store_limit_changed", "c"),
        ("harmless", "store_added", "c-recency"),
    ]
    assert "10 at most" in found[0].change
    assert "store_limit_changed" not in {e.kind for e in differences(kept(10), kept(None))}
    assert differences(kept(10), kept(5)) == []


def test_a_table_of_a_database_is_not_left_behind_unasked() -> None:
    def kept(table: str | None, *, logging: bool = True) -> Program:
        place = None if table is None else ps.PostgreSQL(dsn_variable="DSN", table=table)
        store = ps.key_value_store("c", key=str, value=str, logging=logging, kept_in=place)

        def program(b: StreamsBuilder) -> None:
            b.add_state_store(store)
            stream(b).process(ps.Processor, stores=["c"], key=str, value=str).to("out")

        return program

    for old, new, told in (
        (kept("one"), kept("two"), "the table 'one' and would be in the table 'two'"),
        (kept("one"), kept(None, logging=False), "the table 'one' and would be in the instances"),
        (kept(None), kept("one"), "the instances and would be in the table 'one'"),
    ):
        [found] = differences(old, new)
        assert kinds([found]) == [("orphans", "store_place_changed", "c")]
        assert told in found.change
    assert differences(kept("one"), kept("one")) == []


def is_long(key: str, value: str) -> bool:
    return len(value) > 10


def is_short(key: str, value: str) -> bool:
    return len(value) < 10


def is_text(key: str, value: str) -> bool:
    return value.isalpha()


def unnamed(*predicates: Callable[[str, str], bool]) -> Program:
    """Counts that nobody named, of one topic: they differ in a number alone."""

    def program(b: StreamsBuilder) -> None:
        for predicate in predicates:
            stream(b).filter(predicate).group_by_key().count()

    return program


def test_a_step_before_its_like_does_not_take_over_its_state() -> None:
    found = differences(unnamed(is_long), unnamed(is_short, is_long))
    assert kinds(found) == [
        ("misreads", "store_renumbered", "in-count"),
        ("harmless", "store_added", "in-count-2"),
    ]
    assert "what was 'in-count' before is 'in-count-2'" in found[0].change
    assert "in the one that was 'in-count' before say so" in found[0].advice


def test_steps_that_are_alike_do_not_exchange_their_state() -> None:
    found = differences(unnamed(is_long, is_short), unnamed(is_short, is_long))
    assert {(each.kind, each.name) for each in found} == {
        ("store_renumbered", "in-count"),
        ("store_renumbered", "in-count-2"),
    }
    # As it is told to be: then nothing is taken over.

    def named(b: StreamsBuilder) -> None:
        stream(b).filter(is_short).group_by_key().count("short")
        stream(b).filter(is_long).group_by_key().count("in-count")

    assert {each.severity for each in differences(unnamed(is_long), named)} == {"harmless"}
    found = differences(unnamed(is_long, is_short), unnamed(is_short))
    assert kinds(found)[0] == ("misreads", "store_renumbered", "in-count")
    assert "it is what 'in-count-2' was" in found[0].change


def test_a_function_that_is_changed_is_yours_to_think_of() -> None:
    assert differences(unnamed(is_long), unnamed(is_short)) == []
    assert differences(unnamed(is_long, is_short), unnamed(is_long, is_text)) == []
    # Two that do the same cannot be told apart, and need not be.
    assert differences(unnamed(is_long, is_long), unnamed(is_short, is_long)) == []
    added = differences(unnamed(is_long), unnamed(is_long, is_short))
    assert kinds(added) == [("harmless", "store_added", "in-count-2")]


def limited(limit: int) -> Callable[[str, str], bool]:
    return lambda key, value: len(value) > limit


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (limited(1), limited(2)),
        (ps.expr("length(value) > 1"), ps.expr("length(value) > 2")),
        (ps.batch(lambda keys, values: values), ps.batch(lambda keys, values: keys)),
        (str.__eq__, str.__ne__),
    ],
)
def test_what_a_function_does_is_known_however_it_is_written(one: Any, other: Any) -> None:
    found = differences(unnamed(one, other), unnamed(other, one))
    assert {each.kind for each in found} == {"store_renumbered"}
    assert differences(unnamed(one, other), unnamed(one, other)) == []


def test_records_that_wait_are_not_given_to_a_step_of_the_same_number() -> None:
    def regrouped(*predicates: Callable[[str, str], bool]) -> Program:
        def program(b: StreamsBuilder) -> None:
            table = b.table("rows", "rows", key=str, value=str)
            for predicate in predicates:
                kept = stream(b).filter(predicate).select_key(lambda key, value: value, key=str)
                kept.join(table, lambda value, row: row, value=str).to("out")

        return program

    found = differences(regrouped(is_long), regrouped(is_short, is_long))
    assert "repartition_renumbered" in {each.kind for each in found}


class Threshold:
    """A predicate that nobody can print."""

    def __call__(self, key: str, value: str) -> bool:
        return True

    def __repr__(self) -> str:
        raise RuntimeError


def test_an_object_in_place_of_a_function_is_known_by_its_class() -> None:
    one, other = unnamed(Threshold(), is_long), unnamed(is_long, Threshold())
    assert {each.kind for each in differences(one, other)} == {"store_renumbered"}
    assert differences(one, unnamed(Threshold(), is_long)) == []


def test_built_in_aggregations_are_told_apart() -> None:
    def folded(*kinds: str) -> Program:
        def program(b: StreamsBuilder) -> None:
            for kind in kinds:
                getattr(b.stream("in", key=str, value=int).group_by_key(), kind)()

        return program

    found = differences(folded("min", "max"), folded("max", "min"))
    assert {each.kind for each in found} == {"store_renumbered"}


def test_a_function_that_holds_itself_has_a_fingerprint_too() -> None:
    def again(key: str, value: str) -> bool:
        return len(value) > 3 or again(key, value + key)

    assert differences(unnamed(again, is_long), unnamed(again, is_long)) == []


PROGRAMS = [
    windowed(TUMBLING),
    windowed(SLIDING),
    suppressed(LIMIT),
    joined("a", "b", "outer_join"),
    referring("a", "b"),
    counting(a="x", b="y"),
    unnamed(is_long, is_short),
]
NEW = ("windows", "waits_for", "max_entries", "kept_in", "origins", "made_by")


@pytest.mark.parametrize("program", PROGRAMS)
def test_what_an_earlier_version_did_not_write_is_no_difference(program: Program) -> None:
    now = manifest(program)
    assert diff(now, now) == []
    assert TopologyManifest.decode(now.encode()) == now
    told = json.loads(now.encode())
    for sub in told["sub_topologies"]:
        for store in sub["stores"]:
            for field in NEW:
                del store[field]
            if store["kind"] == "key_value":
                del store["window_ms"]
        for topic in sub["repartitions"]:
            del topic["window_ms"], topic["origins"], topic["made_by"]
    assert diff(TopologyManifest.decode(json.dumps(told).encode()), now) == []
