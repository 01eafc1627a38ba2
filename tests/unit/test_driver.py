"""The test driver: what goes in, what comes out, and that mistakes are named."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta

import pytest

import penstock as ps
from penstock.errors import (
    DeserializationError,
    PenstockError,
    TopicMissingError,
    TopologyError,
    UserFunctionError,
)
from penstock.testing import TestRecord, TopologyTestDriver

SECOND = timedelta(seconds=1)


def word_count() -> ps.Application:
    app = ps.Application("words-app")
    words = app.stream("lines", key=str, value=str).filter(lambda key, word: word != "skip")
    words.group_by(lambda key, word: word, key=str).count("counts").to_stream().to("totals")
    return app


def test_records_run_through_repartition_topics_and_stores() -> None:
    driver = TopologyTestDriver(word_count())
    lines = driver.input_topic("lines", key=str, value=str, advance=timedelta(milliseconds=5))
    totals = driver.output_topic("totals", key=str, value=int)
    lines.pipe("k", "a", headers=(("h", b"1"),))
    lines.pipe_all([("k", "b"), ("k", "skip"), ("k", "a")])
    assert totals.read() == TestRecord("a", 1, 0, (("h", b"1"),))
    assert totals.read_all() == [TestRecord("b", 1, 5), TestRecord("a", 2, 15)]
    again = driver.output_topic("words-app-counts-repartition", key=str, value=str)
    assert again.read_pairs() == [("a", "a"), ("b", "b"), ("a", "a")]
    store = driver.store("counts")
    assert dict(store) == {"a": 2, "b": 1}
    assert store.timestamp("a") == 15
    assert "c" not in store


def test_a_topic_that_is_written_and_read_again_goes_round() -> None:
    builder = ps.StreamsBuilder()
    builder.stream("one", key=str, value=int).map_values(lambda v: v + 1, value=int).to("two")
    builder.stream("two", key=str, value=int).map_values(lambda v: v * 10, value=int).to("three")
    driver = TopologyTestDriver(builder.build())
    driver.input_topic("one", key=str, value=int).pipe("k", 4)
    assert driver.output_topic("two", key=str, value=int).read_pairs() == [("k", 5)]
    assert driver.output_topic("three", key=str, value=int).read_pairs() == [("k", 50)]


def test_records_that_go_round_take_turns_by_the_times_that_their_sources_take() -> None:
    app = ps.Application("test")
    source = app.stream("in", key=str, value=str)
    source.to("late")
    source.to("early")

    def later(_: str, value: str, time: int) -> int:
        return -1 if value == "none" else time + 100

    late = app.stream("late", key=str, value=str, timestamp=later)
    late.merge(app.stream("early", key=str, value=str)).map_values(str.upper, value=str).to("out")
    driver = TopologyTestDriver(app)
    for value in ("a", "none"):
        driver.input_topic("in", key=str, value=str).pipe("k", value, timestamp=5)
    rows = driver.output_topic("out", key=str, value=str).read_all()
    assert [(row.value, row.timestamp) for row in rows] == [("A", 5), ("A", 105), ("NONE", 5)]
    assert driver.dropped == {"negative_timestamp": 1}


def test_a_global_table_has_a_row_before_what_is_written_with_it_goes_on() -> None:
    app = ps.Application("test")
    source = app.stream("in", key=str, value=str)
    source.to("rows")
    rows = app.global_table("rows", "held", key=str, value=str)
    again = source.repartition(name="again")
    again.join(rows, lambda value, row: value + row, value=str, key_selector=lambda key, _: key).to(
        "out"
    )
    driver = TopologyTestDriver(app)
    driver.input_topic("in", key=str, value=str).pipe_all([("k", "a"), ("k", "b")])
    assert driver.output_topic("out", key=str, value=str).read_pairs() == [("k", "aa"), ("k", "bb")]


class Teller(ps.Processor[str, str, str, str]):
    """Tells what it has seen whenever a second has passed."""

    def init(self, context: ps.ProcessorContext[str, str]) -> None:
        self._context = context
        context.schedule(timedelta(seconds=1), "wall_clock_time", self.tell)

    def tell(self, now: int) -> None:
        self._context.forward(ps.Record("told", str(now), 0))

    def process(self, record: ps.Record[str, str]) -> None:
        self._context.forward(record.with_value(record.value + "+"))


def test_all_timers_that_are_due_are_called_before_what_they_wrote_goes_on() -> None:
    app = ps.Application("test")
    first = app.stream("in", key=str, value=str).process(Teller, key=str, value=str)
    second = first.repartition(name="again").process(Teller, key=str, value=str)
    second.to("out")
    driver = TopologyTestDriver(app)
    driver.advance_wall_clock_time(timedelta(seconds=1))
    pairs = driver.output_topic("out", key=str, value=str).read_pairs()
    assert pairs == [("told", "1000"), ("told", "1000+")]


def test_an_aggregator_that_returns_none_deletes() -> None:
    app = ps.Application("stays")

    def stay(patient: str, event: str, events: list[str]) -> list[str] | None:
        return None if event == "out" else [*events, event]

    stream = app.stream("events", key=str, value=str)
    table = stream.group_by_key().aggregate(list, stay, "stays", value=list[str])
    table.to_stream().to("stays-out")
    driver = TopologyTestDriver(app)
    events = driver.input_topic("events", key=str, value=str)
    events.pipe_all([("ann", "in"), ("bob", "in"), ("ann", "out")])
    assert driver.output_topic("stays-out", key=str, value=list[str]).read_pairs() == [
        ("ann", ["in"]),
        ("bob", ["in"]),
        ("ann", None),
    ]
    assert dict(driver.store("stays")) == {"bob": ["in"]}


def test_a_table_holds_the_latest_values_and_forgets_the_deleted() -> None:
    app = ps.Application("tables")
    patients = app.table("patients", "names", key=str, value=str)
    patients.filter(lambda _k, name: name != "").to_stream().to("named")
    driver = TopologyTestDriver(app)
    topic = driver.input_topic("patients", key=str, value=str)
    topic.pipe_all([("1", "ann"), ("2", ""), ("1", "anna"), (None, "x"), ("2", None), ("1", "")])
    named = driver.output_topic("named", key=str, value=str).read_pairs()
    assert named == [("1", "ann"), ("1", "anna"), ("1", None)]
    assert dict(driver.store("names")) == {"1": ""}
    assert driver.dropped == {"null_key": 1}


def test_a_branch_takes_what_no_earlier_one_took() -> None:
    app = ps.Application("branches")
    seen: list[int] = []
    numbers = app.stream("in", key=str, value=int)
    branches = numbers.split(name="is-").branch(lambda _k, v: v > 10, name="large")
    ends = branches.branch(lambda _k, v: v > 5, name="middle").default_branch(name="small")
    assert list(ends) == ["is-large", "is-middle", "is-small"]
    for name, branch in ends.items():
        branch.to(name)
    numbers.foreach(lambda _k, v: seen.append(v))
    driver = TopologyTestDriver(app)
    driver.input_topic("in", key=str, value=int).pipe_all([("k", v) for v in (11, 3, 6, 12)])
    found = {
        name: [v for _, v in driver.output_topic(name, key=str, value=int).read_pairs()]
        for name in ends
    }
    assert found == {"is-large": [11, 12], "is-middle": [6], "is-small": [3]}
    assert seen == [11, 3, 6, 12]


def test_one_record_becomes_several_or_none() -> None:
    app = ps.Application("flat")

    def words(line: str) -> list[str]:
        return line.split()

    def sized(key: str, word: str) -> list[tuple[str, int]]:
        return [(word, len(word))] if word != "skip" else []

    app.stream("in", key=str, value=str).flat_map_values(words).flat_map(sized).to("out")
    driver = TopologyTestDriver(app)
    driver.input_topic("in", key=str, value=str).pipe_all([("k", "a skip bb"), ("k", "")])
    assert driver.output_topic("out", key=str, value=int).read_pairs() == [("a", 1), ("bb", 2)]


def test_a_flat_map_that_gives_no_pairs_is_named() -> None:
    app = ps.Application("flat")
    stream = app.stream("in", key=str, value=str)
    stream.flat_map(lambda k, v: [v], key=str, value=str, name="wrong").to("out")  # type: ignore[list-item]
    driver = TopologyTestDriver(app)
    with pytest.raises(UserFunctionError, match="step wrong returned str, not a pair"):
        driver.input_topic("in", key=str, value=str).pipe("k", "word")


def test_a_value_that_a_table_cannot_hold_is_named() -> None:
    app = ps.Application("wrong")
    stream = app.stream("in", key=str, value=str).map_values(lambda v: v, value=int)  # type: ignore[arg-type,return-value]
    stream.to_table("numbers", name="keep")
    driver = TopologyTestDriver(app)
    with pytest.raises(UserFunctionError, match="Step keep got a value that its serde 'long'"):
        driver.input_topic("in", key=str, value=str).pipe("k", "word")


def test_records_without_a_key_are_dropped_and_counted() -> None:
    app = ps.Application("nulls")
    app.stream("in", key=str, value=str).group_by_key().count("counts").to_stream().to("out")
    driver = TopologyTestDriver(app)
    driver.input_topic("in", key=str, value=str).pipe_all([(None, "x"), ("k", None), ("k", "x")])
    assert driver.dropped == {"null_key": 1, "null_value": 1}
    assert driver.output_topic("out", key=str, value=int).read_pairs() == [("k", 1)]


def test_what_raises_leaves_no_trace() -> None:
    app = ps.Application("raises")
    stream = app.stream("in", key=str, value=int).map_values(lambda v: 10 // v, value=int)
    stream.group_by_key().count("counts").to_stream().to("out")
    driver = TopologyTestDriver(app)
    numbers = driver.input_topic("in", key=str, value=int)
    numbers.pipe("k", 5)
    with pytest.raises(UserFunctionError, match="ZeroDivisionError"):
        numbers.pipe("k", 0)
    with pytest.raises(DeserializationError):
        driver.input_topic("in", key=str, value=bytes).pipe("k", b"no long")
    numbers.pipe("k", 2)
    assert dict(driver.store("counts")) == {"k": 2}


def test_mistakes_are_named() -> None:
    driver = TopologyTestDriver(word_count())
    with pytest.raises(TopicMissingError, match="Did you mean 'lines'"):
        driver.input_topic("line", key=str, value=str)
    with pytest.raises(TopicMissingError, match="It has: "):
        driver.output_topic("zzz", key=str, value=str)
    with pytest.raises(TopologyError, match="There are: counts"):
        driver.store("count")
    with pytest.raises(PenstockError, match="Nothing more was written"):
        driver.output_topic("totals", key=str, value=int).read()


def test_neither_spark_nor_rocksdb_is_loaded() -> None:
    program = (
        "import sys; from penstock.testing import TopologyTestDriver; "
        "sys.exit(any(name in sys.modules for name in ('pyspark', 'py4j', 'rocksdict')))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_a_value_transformer_looks_into_stores_and_sees_deletions() -> None:
    class Changes(ps.ValueTransformer[str, str, str]):
        def transform(self, key: str, value: str | None) -> str | None:
            seen = self.context.store("seen")
            count = (seen.get(key) or 0) + 1
            seen.put(key, count)
            return f"{value} {count}"

    app = ps.Application("transformed")
    app.add_state_store(ps.key_value_store("seen", key=str, value=int))
    table = app.table("in", "rows", key=str, value=str)
    table.transform_values(Changes, stores=["seen"], value=str).to_stream().to("out")
    driver = TopologyTestDriver(app)
    driver.input_topic("in", key=str, value=str).pipe_all([("a", "x"), ("a", "y"), ("a", None)])
    out = driver.output_topic("out", key=str, value=str).read_pairs()
    assert out == [("a", "x 1"), ("a", "y 2"), ("a", "None 3")]


def test_a_processor_looks_into_a_global_table() -> None:
    class Named(ps.Processor[str, str, str, str]):
        def process(self, record: ps.Record[str, str]) -> None:
            names = self.context.store("names")
            self.context.forward(record.with_value(names.get(record.value)))

    app = ps.Application("names")
    app.global_table("names", "names", key=str, value=str)
    numbers = app.stream("in", key=str, value=str)
    numbers.process(Named, stores=["names"], key=str, value=str).to("out")
    driver = TopologyTestDriver(app)
    driver.input_topic("names", key=str, value=str).pipe("1", "one")
    driver.input_topic("in", key=str, value=str).pipe("k", "1")
    assert driver.output_topic("out", key=str, value=str).read_pairs() == [("k", "one")]


def test_a_stream_joined_with_its_own_count_meets_each_new_count() -> None:
    app = ps.Application("own-count")
    words = app.stream("in", key=str, value=str)
    counts = words.group_by_key().count("counts", caching=False)
    words.join(counts, lambda word, count: f"{word}{count}", value=str).to("out")
    driver = TopologyTestDriver(app)
    driver.input_topic("in", key=str, value=str).pipe_all([("k", "a"), ("k", "b"), ("k", "c")])
    out = driver.output_topic("out", key=str, value=str).read_pairs()
    assert out == [("k", "a1"), ("k", "b2"), ("k", "c3")]


class Loudest(ps.Processor[str, str, str, str]):
    """Keeps of each key the longest word, in capitals."""

    def process(self, record: ps.Record[str, str]) -> None:
        words = self.context.store("words")
        if len(record.value) > len(words.get(record.key) or ""):
            words.put(record.key, record.value.upper())


def test_a_global_store_is_kept_by_a_processor_and_read_by_others() -> None:
    class Looking(ps.Processor[str, str, str, str]):
        def process(self, record: ps.Record[str, str]) -> None:
            words = self.context.store("words")
            with pytest.raises(TopologyError, match="words"):
                words.put(record.key, "")
            self.context.forward(record.with_value(words.get(record.key)))

    app = ps.Application("words")
    store = ps.key_value_store("words", key=str, value=str)
    table = app.add_global_store("said", store, Loudest)
    stream = app.stream("in", key=str, value=str)
    stream.process(Looking, stores=["words"], key=str, value=str).to("seen")
    stream.join(
        table, lambda value, word: f"{value} {word}", key_selector=lambda key, value: key, value=str
    ).to("joined")
    driver = TopologyTestDriver(app)
    said = driver.input_topic("said", key=str, value=str)
    said.pipe_all([("a", "long"), ("a", "lo"), ("b", "x"), ("a", "longer")])
    driver.input_topic("in", key=str, value=str).pipe("a", "is")
    assert dict(driver.store("words")) == {"a": "LONGER", "b": "X"}
    assert driver.output_topic("seen", key=str, value=str).read_pairs() == [("a", "LONGER")]
    assert driver.output_topic("joined", key=str, value=str).read_pairs() == [("a", "is LONGER")]


def test_a_global_store_has_no_timers_and_no_windows() -> None:
    class Ticking(ps.Processor[str, str, str, str]):
        def init(self, context: ps.ProcessorContext) -> None:
            context.schedule(timedelta(seconds=1), "wall_clock_time", print)

    app = ps.Application("words")
    app.add_global_store("said", ps.key_value_store("words", key=str, value=str), Ticking)
    driver = TopologyTestDriver(app)
    with pytest.raises(TopologyError, match="schedules a call"):
        driver.input_topic("said", key=str, value=str).pipe("a", "b")
    windows = ps.window_store(
        "windows", key=str, value=str, retention=timedelta(hours=1), window=timedelta(minutes=1)
    )
    with pytest.raises(TopologyError, match="not a plain key-value store"):
        app.add_global_store("other", windows, Ticking)


class Reference:
    """A key that does not know when it is equal to another."""

    def __init__(self, name: str) -> None:
        self.name = name


@pytest.mark.parametrize(("method", "missing"), [("join", [None]), ("left_join", ["2z?", "2?"])])
def test_whether_a_foreign_key_is_another_its_bytes_say(method: str, missing: list[str]) -> None:
    app = ps.Application("test", statestore_cache_max_bytes=0)
    references = ps.serde(lambda key: key.name.encode(), lambda data: Reference(data.decode()))
    left = app.table("l", key=str, value=str)
    right = app.table("r", key=references, value=str)
    joined = getattr(left, method)(
        right,
        lambda value, other: value + (other or "?"),
        foreign_key=lambda value: Reference(value[0]),
        value=str,
    )
    joined.to_stream().to("out")
    driver = TopologyTestDriver(app)
    lefts = driver.input_topic("l", key=str, value=str)
    lefts.pipe_all([("a", "1x"), ("a", "1y")])
    driver.input_topic("r", key=references, value=str).pipe(Reference("1"), "R")
    lefts.pipe_all([("a", "1z"), ("a", "2z"), ("a", "2")])
    rows = driver.output_topic("out", key=str, value=str).read_pairs()
    waiting = ["1x?", "1y?"] if method == "left_join" else []
    assert [value for _, value in rows] == [*waiting, "1yR", "1zR", *missing]


def test_rows_without_a_foreign_key_are_counted_as_kafka_streams_counts_them() -> None:
    def dropped(*values: str | None) -> dict[str, int]:
        app = ps.Application("refer")
        orders = app.table("orders", key=str, value=str, name="orders")
        people = app.table("people", key=str, value=str, name="people")
        referred = {"foreign_key": lambda order: order or None, "value": str, "name": "refer"}
        orders.join(people, lambda order, person: order + person, **referred).to_stream().to("out")
        driver = TopologyTestDriver(app)
        for value in values:
            driver.input_topic("orders", key=str, value=str).pipe("1", value)
        return dict(driver.dropped)

    # One that no longer refers to anything is told to whom it referred.
    assert dropped("ann", "") == dropped("ann", None) == dropped(None) == {}
    assert dropped("") == dropped("", "ann") == {"null_foreign_key": 1}
    assert dropped("", "") == dropped("", None) == {"null_foreign_key": 2}


@pytest.mark.parametrize(
    ("windows", "times", "starts"),
    [
        (ps.tumbling(60 * SECOND, grace=5 * SECOND), [0, 60, 120, 180, 240], [0, 60, 120]),
        (ps.tumbling(60 * SECOND, grace=5 * SECOND), [30, 120, 210, 300], [0, 120, 180]),
        (
            ps.hopping(10 * SECOND, advance=5 * SECOND, grace=0 * SECOND),
            [0, 3, 100, 200, 300],
            [0, 95, 100, 195, 200],
        ),
    ],
)
def test_a_record_that_comes_long_after_a_window_still_brings_its_result(
    windows: ps.TimeWindows, times: list[int], starts: list[int]
) -> None:
    # As Kafka Streams 4.1.1 does with its cache, which is the default.
    app = ps.Application("quiet")
    counts = app.stream("in", key=str, value=str).group_by_key().windowed_by(windows)
    final = counts.emit_on_window_close().count("counts").to_stream()
    final.map(lambda window, n: (str(window.start // 1000), n), key=str, value=int).to("out")
    driver = TopologyTestDriver(app)
    for time in times:
        driver.input_topic("in", key=str, value=str).pipe("k", "v", timestamp=time * 1000)
    told = [int(row.key) for row in driver.output_topic("out", key=str, value=int).read_all()]
    assert told == starts
