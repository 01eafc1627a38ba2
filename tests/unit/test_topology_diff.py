"""What a change of the program does to the state that an earlier one left."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest

import penstock as ps
from penstock.config import Config
from penstock.driver.last_run import refuse_change
from penstock.errors import TopologyChangedError, TopologyError
from penstock.serdes import serde_of
from penstock.topology import StreamsBuilder, Topology
from penstock.topology.diff import Difference, diff
from penstock.topology.manifest import TopologyManifest, manifest_of
from penstock.topology.succession import keep_names, succeed

Program = Callable[[StreamsBuilder], object]


def built(program: Program) -> Topology:
    builder = StreamsBuilder()
    program(builder)
    return builder.build()


def manifest(program: Program, widths: dict[str, int] | None = None) -> TopologyManifest:
    return manifest_of(built(program), "app", widths)


def differences(old: Program, new: Program) -> list[Difference]:
    return diff(manifest(old), manifest(new))


def kinds(found: list[Difference]) -> list[tuple[str, str, str]]:
    return [(each.severity, each.kind, each.name) for each in found]


def words(b: StreamsBuilder, value: Any = str) -> ps.KStream[Any, Any]:
    return b.stream("in", key=str, value=value)


def counted(b: StreamsBuilder) -> None:
    words(b).group_by_key().count("counts").to_stream().to("out")


def regrouped(b: StreamsBuilder, name: str | None = None, store: str = "counts") -> None:
    words(b).group_by(lambda k, v: v, key=str, name=name).count(store).to_stream().to("out")


def windowed(b: StreamsBuilder, minutes: int = 1, retention: int = 10, name: str = "rates") -> None:
    windows = ps.tumbling(timedelta(minutes=minutes), grace=timedelta(0))
    kept = timedelta(minutes=retention)
    words(b).group_by_key().windowed_by(windows).count(name, retention=kept)


def test_a_manifest_is_json_and_comes_back() -> None:
    made = manifest(regrouped, {"from-in": 4, "counts": 4})
    assert TopologyManifest.decode(made.encode()) == made
    [[repartition]] = (each.repartitions for each in made.sub_topologies if each.repartitions)
    [(_, counts)] = made.stores.values()
    assert msgspec.json.decode(made.encode()) == {
        "application_id": "app",
        "sub_topologies": [
            {
                "name": "from-in",
                "sources": ["in"],
                "repartitions": [],
                "stores": [],
                "partitions": 4,
            },
            {
                "name": "counts",
                "sources": [],
                "repartitions": [
                    {
                        "topic": "app-counts-repartition",
                        "key": "string",
                        "value": "string",
                        "window_ms": None,
                        "origins": ["in"],
                        "made_by": repartition.made_by,
                    }
                ],
                "stores": [
                    {
                        "name": "counts",
                        "kind": "key_value",
                        "key": "string",
                        "value": "long",
                        "window_ms": None,
                        "retention_ms": None,
                        "changelog": "app-counts-changelog",
                        "windows": None,
                        "waits_for": None,
                        "max_entries": 0,
                        "kept_in": "",
                        "origins": ["in"],
                        "made_by": counts.made_by,
                    }
                ],
                "partitions": 4,
            },
        ],
        "global_tables": {},
        "global_facts": {},
        "retired": [],
        "topic_settings": {},
        "version": 1,
    }


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"version": 1}', b'{"version": 2}'])
def test_what_is_no_manifest_is_named(data: bytes) -> None:
    with pytest.raises(TopologyError):
        TopologyManifest.decode(data)


def test_equal_programs_do_not_differ() -> None:
    for program in (counted, regrouped, windowed):
        assert differences(program, program) == []


def test_a_stateless_step_is_no_difference() -> None:
    def longer(b: StreamsBuilder) -> None:
        stream = words(b).filter(lambda k, v: True).map_values(lambda v: v, value=str)
        stream.group_by_key().count("counts").to_stream().to("elsewhere")

    assert differences(counted, longer) == []


def test_a_renamed_store_leaves_its_state_behind() -> None:
    def renamed(b: StreamsBuilder) -> None:
        words(b).group_by_key().count("totals").to_stream().to("out")

    gone, new = differences(counted, renamed)
    assert kinds([gone, new]) == [
        ("orphans", "store_removed", "counts"),
        ("harmless", "store_added", "totals"),
    ]
    assert "'totals' is new and of the same kind" in gone.change
    assert "app-counts-changelog" in gone.change
    assert "give the store its old name 'counts'" in gone.advice


def test_a_store_of_another_kind_or_type_would_be_misread() -> None:
    assert kinds(differences(counted, lambda b: windowed(b, name="counts"))) == [
        ("misreads", "store_kind_changed", "counts")
    ]

    def latest(b: StreamsBuilder) -> None:
        words(b).group_by_key().reduce(lambda a, v: v, "counts")

    [found] = differences(counted, latest)
    assert kinds([found]) == [("misreads", "store_serde_changed", "counts")]
    assert "values of store 'counts' were written as long and would be read as string" in (
        found.change
    )


def test_the_parts_of_a_serde_count() -> None:
    def lists(b: StreamsBuilder, inner: Any) -> None:
        b.table("in", "t", key=str, value=ps.ListSerde(serde_of(inner)))

    [found] = differences(lambda b: lists(b, str), lambda b: lists(b, int))
    assert "list<string> and would be read as list<long>" in found.change


def test_windows_may_be_kept_longer_and_nothing_else() -> None:
    assert kinds(differences(windowed, lambda b: windowed(b, retention=20))) == [
        ("harmless", "retention_changed", "rates")
    ]
    assert kinds(differences(windowed, lambda b: windowed(b, retention=5))) == [
        ("orphans", "retention_changed", "rates")
    ]
    assert kinds(differences(windowed, lambda b: windowed(b, minutes=2))) == [
        ("misreads", "window_size_changed", "rates")
    ]


def test_windows_without_an_end_can_be_named() -> None:
    def endless(b: StreamsBuilder) -> None:
        words(b).group_by_key().windowed_by(ps.unlimited()).count("rates")

    assert "unlimited" in differences(windowed, endless)[0].change


def test_the_window_of_a_join_may_change() -> None:
    def joined(b: StreamsBuilder, seconds: int) -> None:
        windows = ps.join_window(timedelta(seconds=seconds), grace=timedelta(minutes=1))
        other = b.stream("other", key=str, value=str)
        words(b).join(other, lambda x, y: x + y, windows, value=str, name="pair").to("out")

    found = differences(lambda b: joined(b, 5), lambda b: joined(b, 10))
    assert {(each.severity, each.kind) for each in found} == {("harmless", "retention_changed")}


def test_records_in_a_renamed_repartition_topic_would_be_lost() -> None:
    found = differences(
        lambda b: regrouped(b, name="by-word"), lambda b: regrouped(b, name="by-token")
    )
    assert kinds(found) == [
        ("orphans", "repartition_removed", "app-by-word-repartition"),
        ("harmless", "store_moved", "counts"),
        ("harmless", "repartition_added", "app-by-token-repartition"),
    ]
    assert "name='by-word'" in found[0].advice


def test_records_in_a_repartition_topic_of_another_type_would_be_misread() -> None:
    def numbers(b: StreamsBuilder) -> None:
        words(b, int).group_by(lambda k, v: k, key=str).count("counts").to_stream().to("out")

    assert kinds(differences(regrouped, numbers)) == [
        ("misreads", "repartition_serde_changed", "app-counts-repartition")
    ]


def test_topics_come_and_go_freely() -> None:
    def other(b: StreamsBuilder) -> None:
        stream = b.stream(["in", "more"], key=str, value=str)
        stream.group_by_key().count("counts").to_stream().to("out")

    assert kinds(differences(counted, other)) == [("harmless", "source_added", "more")]
    assert kinds(differences(other, counted)) == [("harmless", "source_removed", "more")]


def test_a_global_table_is_in_its_topic() -> None:
    def known(b: StreamsBuilder) -> None:
        counted(b)
        b.global_table("names", "names", key=str, value=str)

    assert kinds(differences(counted, known)) == [("harmless", "global_table_added", "names")]
    assert kinds(differences(known, counted)) == [("harmless", "global_table_removed", "names")]


def test_a_global_store_that_means_something_else_is_filled_anew() -> None:
    class Keeps(ps.Processor[str, Any, Any, Any]):
        def process(self, record: ps.Record[str, Any]) -> None:
            self.context.store("names").put(record.key, record.value)

    def table(value: Any) -> Program:
        return lambda b: b.global_table("names", "names", key=str, value=value)

    def store(value: Any) -> Program:
        kept = ps.key_value_store("names", key=str, value=value)
        return lambda b: b.add_global_store("names", kept, Keeps)

    changed = ("harmless", "global_table_changed", "names")
    [serde] = differences(store(int), store(str))
    assert kinds([serde]) == [changed]
    assert "values of global table 'names' were long and are string" in serde.change
    assert "anew" in serde.advice
    [filled] = differences(table(int), store(int))
    assert kinds([filled]) == [changed]
    assert "filled by code now" in filled.change
    [plain] = differences(table(int), table(str))
    assert kinds([plain]) == [changed]
    assert "the topic's own" in plain.advice
    assert differences(store(int), store(int)) == []


def test_a_manifest_that_knows_less_is_read() -> None:
    now = manifest(lambda b: b.global_table("names", "names", key=str, value=str))
    told = json.loads(now.encode())
    del told["global_facts"], told["topic_settings"]
    older = TopologyManifest.decode(json.dumps(told).encode())
    assert older.global_tables == {"names": "names"}
    assert diff(older, now) == []


def test_a_changelog_that_stops_or_begins_is_told() -> None:
    def unlogged(b: StreamsBuilder) -> None:
        words(b).group_by_key().count("counts", logging=False).to_stream().to("out")

    [stops], [begins] = differences(counted, unlogged), differences(unlogged, counted)
    assert kinds([stops, begins]) == [("orphans", "logging_changed", "counts")] * 2
    assert "Say logging=True as before" in stops.advice
    assert "Say logging=False as before" in begins.advice


def test_a_store_that_is_fed_from_elsewhere_keeps_its_content() -> None:
    found = differences(counted, regrouped)
    assert ("harmless", "store_moved", "counts") in kinds(found)


def test_a_store_of_other_width_would_be_misread() -> None:
    old, new = manifest(counted, {"counts": 4}), manifest(counted, {"counts": 8})
    assert kinds(diff(old, new)) == [("misreads", "store_width_changed", "counts")]
    # Only one is known: there is nothing to compare.
    assert diff(old, manifest(counted)) == []


def test_a_store_that_comes_back_would_lack_what_was_processed_since() -> None:
    def removed(b: StreamsBuilder) -> None:
        words(b).to("out")

    between = succeed(manifest(counted), manifest(removed))
    assert between.retired == ("counts",)
    [found] = diff(between, manifest(counted))
    assert kinds([found]) == [("misreads", "store_returned", "counts")]
    assert "delete the topic 'app-counts-changelog'" in found.advice
    assert succeed(between, manifest(counted)).retired == ()
    assert succeed(between, manifest(removed)).retired == ("counts",)
    assert succeed(None, manifest(counted)).retired == ()


def test_a_start_is_refused_with_all_reasons_unless_allowed() -> None:
    def other(b: StreamsBuilder) -> None:
        regrouped(b, name="by-token", store="totals")

    old, new = manifest(regrouped), manifest(other)
    with pytest.raises(TopologyChangedError) as refused:
        refuse_change(old, new, Config())
    text = str(refused.value)
    assert "application 'app'" in text
    assert text.count("\n  - orphans: ") == 2
    assert "Store 'counts' is gone" in text
    assert "'app-counts-repartition' is gone" in text
    assert "allow_topology_change=True" in text
    refuse_change(old, new, Config(allow_topology_change=True))
    refuse_change(None, new, Config())
    refuse_change(old, old, Config())


def test_widths_alone_are_left_to_the_look_at_topics() -> None:
    old, new = manifest(counted, {"counts": 4}), manifest(counted, {"counts": 8})
    refuse_change(old, new, Config())


def names_after(old: Program, new: Program) -> list[str]:
    return [sub.name for sub in keep_names(built(new), manifest(old)).sub_topologies]


def test_a_store_before_the_first_does_not_rename_what_is_durable() -> None:
    def more(b: StreamsBuilder) -> None:
        stream = words(b)
        stream.to_table("a-latest")
        stream.group_by_key().count("counts").to_stream().to("out")

    assert [sub.name for sub in built(more).sub_topologies] == ["a-latest"]
    assert names_after(counted, more) == ["counts"]
    # And its absence later does not either.
    renamed = manifest_of(keep_names(built(more), manifest(counted)), "app")
    assert [sub.name for sub in keep_names(built(counted), renamed).sub_topologies] == ["counts"]


def test_a_first_store_does_not_rename_a_stateless_sub_topology() -> None:
    assert names_after(lambda b: words(b).to("out"), counted) == ["from-in"]


def test_a_divided_sub_topology_goes_on_under_its_name_once() -> None:
    def together(b: StreamsBuilder) -> None:
        stream = words(b)
        stream.group_by_key().count("counts")
        stream.group_by_key().reduce(lambda a, v: v, "latest")

    def apart(b: StreamsBuilder) -> None:
        stream = words(b)
        stream.group_by(lambda k, v: v, key=str).reduce(lambda a, v: v, "latest")
        stream.group_by_key().count("counts")

    assert [sub.name for sub in built(apart).sub_topologies] == ["counts", "latest"]
    assert names_after(together, apart) == ["counts", "latest"]
    assert names_after(apart, together) == ["counts"]


def test_a_kept_name_is_not_given_twice() -> None:
    def first(b: StreamsBuilder) -> None:
        stream = words(b)
        stream.group_by_key().count("x")
        stream.group_by_key().reduce(lambda a, v: v, "y")

    def second(b: StreamsBuilder) -> None:
        words(b).group_by_key().reduce(lambda a, v: v, "y")
        b.stream("other", key=str, value=str).group_by_key().count("z")

    def third(b: StreamsBuilder) -> None:
        second(b)
        b.stream("third", key=str, value=str).group_by_key().count("x")

    kept = manifest_of(keep_names(built(second), manifest(first)), "app")
    assert [sub.name for sub in kept.sub_topologies] == ["x", "z"]
    assert [sub.name for sub in keep_names(built(third), kept).sub_topologies] == ["x", "z", "x-2"]


def suppressed(b: StreamsBuilder, value: Any = str) -> None:
    table = b.table("in", "rows", key=str, value=str)
    calm = ps.until_time_limit(timedelta(minutes=1), ps.unbounded())
    table.map_values(len, value=value).suppress(calm, name="calm").to_stream().to("out")


def waiting(b: StreamsBuilder, key: Any = str, value: Any = str) -> None:
    held = ps.versioned_store("rows", history_retention=timedelta(hours=1))
    table = b.table("rows", held, key=key, value=str)
    stream = b.stream("in", key=key, value=value)
    joined = stream.join(table, lambda one, two: two, value=str, grace=_MINUTE, name="j")
    joined.to("out")


_MINUTE = timedelta(minutes=1)


@pytest.mark.parametrize(
    ("old", "new", "store", "was", "now"),
    [
        (suppressed, lambda b: suppressed(b, int), "calm-store", "string", "long"),
        (waiting, lambda b: waiting(b, value=int), "j-Buffer", "string, string", "string, long"),
    ],
)
def test_what_is_held_back_is_not_read_as_another_type(
    old: Program, new: Program, store: str, was: str, now: str
) -> None:
    [found] = differences(old, new)
    assert kinds([found]) == [("misreads", "store_serde_changed", store)]
    assert f"were written as buffer<{was}> and would be read as buffer<{now}>" in found.change
    assert differences(old, old) == []
    with pytest.raises(TopologyChangedError, match=store):
        refuse_change(manifest(old), manifest(new), Config())


@pytest.mark.parametrize("program", [suppressed, waiting])
def test_a_buffer_of_an_earlier_version_told_nothing_of_its_types(program: Program) -> None:
    now = manifest(program)
    text = re.sub(rb'"value":"buffer<[^"]*>"', b'"value":"bytes"', now.encode())
    assert text != now.encode()
    assert diff(TopologyManifest.decode(text), now) == []
    # What was bytes to the user and is a buffer now, or the other way round, is told.
    assert kinds(diff(now, TopologyManifest.decode(text)))[0][1] == "store_serde_changed"
