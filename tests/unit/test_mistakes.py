"""What Java's compiler would refuse is refused when the topology is written, with its step."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial, wraps
from typing import Any

import pytest

import penstock as ps
from penstock.errors import SerdeMissingError, TopologyError
from penstock.testing import TopologyTestDriver

SECOND, NONE = timedelta(seconds=1), timedelta(0)
MINUTE = ps.tumbling(60 * SECOND, grace=NONE)
SESSION = ps.session(SECOND, grace=NONE)
NEAR = ps.join_window(SECOND, grace=NONE)
Build = Callable[[ps.Application, Any], object]


def stream(app: ps.Application, topic: str = "in", value: Any = str) -> Any:
    return app.stream(topic, key=str, value=value)


def table(app: ps.Application, topic: str = "rows") -> Any:
    return app.table(topic, key=str, value=str)


def grouped(app: ps.Application) -> Any:
    return stream(app).group_by_key()


def regrouped(app: ps.Application) -> Any:
    return table(app).group_by(lambda key, value: (key, value), key=str, value=str)


def two(one: Any, other: Any) -> Any:
    return one or other


# Each step with a function of the user's, and how many values that is given.
STEPS: list[tuple[str, int, Build]] = [
    ("predicate", 2, lambda app, f: stream(app).filter(f, name="odd")),
    ("predicate", 2, lambda app, f: stream(app).split(name="odd-").branch(f, name="odd")),
    ("mapper", 2, lambda app, f: stream(app).map(f, key=str, value=str, name="odd")),
    ("mapper", 1, lambda app, f: stream(app).map_values(f, value=str, name="odd")),
    ("mapper", 2, lambda a, f: stream(a).map_values(f, with_key=True, value=str, name="odd")),
    ("mapper", 2, lambda app, f: stream(app).flat_map(f, key=str, value=str, name="odd")),
    ("mapper", 1, lambda app, f: stream(app).flat_map_values(f, value=str, name="odd")),
    ("selector", 2, lambda app, f: stream(app).select_key(f, key=str, name="odd")),
    ("selector", 2, lambda app, f: stream(app).group_by(f, key=str)),
    ("action", 2, lambda app, f: stream(app).peek(f, name="odd")),
    ("action", 2, lambda app, f: stream(app).foreach(f, name="odd")),
    ("topic", 2, lambda app, f: stream(app).to(f, name="odd")),
    ("partitioner", 3, lambda app, f: stream(app).to("out", partitioner=f, name="odd")),
    ("timestamp", 3, lambda app, f: app.stream("in", key=str, value=str, timestamp=f)),
    ("reducer", 2, lambda app, f: grouped(app).reduce(f, "s")),
    ("aggregator", 3, lambda app, f: grouped(app).aggregate(str, f, "s", value=str)),
    ("initializer", 0, lambda a, f: grouped(a).aggregate(f, lambda k, v, s: s, "s", value=str)),
    ("reducer", 2, lambda app, f: grouped(app).windowed_by(MINUTE).reduce(f, "s")),
    (
        "merger",
        3,
        lambda app, f: (
            grouped(app)
            .windowed_by(SESSION)
            .aggregate(str, lambda k, v, s: s, "s", merger=f, value=str)
        ),
    ),
    ("aggregator", 3, lambda app, f: grouped(app).cogroup(f).aggregate(str, "s", value=str)),
    ("joiner", 2, lambda a, f: stream(a).join(stream(a, "b"), f, NEAR, value=str, name="odd")),
    ("joiner", 2, lambda a, f: stream(a).join(table(a), f, value=str, name="odd")),
    (
        "joiner",
        3,
        lambda a, f: stream(a).join(table(a), f, value=str, with_key=True, name="odd"),
    ),
    ("joiner", 2, lambda a, f: table(a).join(table(a, "b"), f, value=str, name="odd")),
    (
        "foreign_key",
        1,
        lambda a, f: table(a).join(table(a, "b"), two, foreign_key=f, value=str, name="odd"),
    ),
    (
        "selector",
        2,
        lambda a, f: stream(a).join(
            a.global_table("g", key=str, value=str), two, key_selector=f, value=str, name="odd"
        ),
    ),
    ("predicate", 2, lambda app, f: table(app).filter(f, name="odd")),
    ("mapper", 1, lambda app, f: table(app).map_values(f, value=str, name="odd")),
    ("mapper", 2, lambda app, f: table(app).group_by(f, key=str, value=str, name="odd")),
    ("subtractor", 2, lambda app, f: regrouped(app).reduce(two, f, "s")),
    (
        "subtractor",
        3,
        lambda app, f: regrouped(app).aggregate(str, lambda k, v, s: s, f, "s", value=str),
    ),
]
FUNCTIONS: list[Callable[..., Any]] = [
    lambda: "",
    lambda a: "",
    lambda a, b: "",
    lambda a, b, c: "",
    lambda a, b, c, d: "",
]


@pytest.mark.parametrize(("what", "count", "build"), STEPS)
def test_a_function_takes_as_many_values_as_its_step_has(
    what: str, count: int, build: Build
) -> None:
    for takes, function in enumerate(FUNCTIONS):
        app = ps.Application("mistaken")
        if takes == count:
            build(app, function)
            continue
        with pytest.raises(TopologyError, match=rf"The {what} of step .* takes \(.*\)\. Write it"):
            build(app, function)


class Account:
    """Can be called with two values, or with none."""

    def __init__(self, key: str = "", value: str = "") -> None:
        self.key = key

    def wants(self, key: str, value: str) -> bool:
        return key == self.key

    def __call__(self, key: str, value: str) -> bool:
        return self.wants(key, value)


@pytest.mark.parametrize(
    "function",
    [
        lambda *given: True,
        lambda key, value, more=3: True,
        lambda key, *, more=3, **rest: True,
        Account().wants,
        Account(),
        Account,
        str.startswith,
        max,
        two,
    ],
)
def test_every_way_to_write_a_function_of_two_values_is_taken(function: Any) -> None:
    app = ps.Application("well")
    fits = function is not Account and "rest" not in getattr(
        getattr(function, "__code__", None), "co_varnames", ()
    )
    if fits or function is Account:
        stream(app).filter(function)
    else:
        with pytest.raises(TopologyError, match="takes"):
            stream(app).filter(function)


def test_functions_of_columns_are_counted_too() -> None:
    one, pair = ps.batch(lambda values: values), ps.batch(lambda keys, values: values)
    app = ps.Application("columns")
    stream(app).map_values(one, value=str)
    stream(app).map_values(pair, value=str, with_key=True)
    stream(app).select_key(pair, key=str)
    with pytest.raises(TopologyError, match=r"step odd is called with 1 value \(value\)"):
        stream(app).map_values(pair, value=str, name="odd")
    with pytest.raises(TopologyError, match=r"step odd is called with 2 values \(key, value\)"):
        stream(app).filter(one, name="odd")
    with pytest.raises(TopologyError, match=r"is called with 2 values"):
        table(app).group_by(one, key=str, value=str)


SPANS: list[Callable[[Any], object]] = [
    lambda span: ps.tumbling(span, grace=NONE),
    lambda span: ps.tumbling(SECOND, grace=span),
    lambda span: ps.hopping(SECOND, advance=span, grace=NONE),
    lambda span: ps.sliding(span, grace=NONE),
    lambda span: ps.session(span, grace=NONE),
    lambda span: ps.join_window(span, grace=NONE),
    lambda span: ps.join_window(before=span, after=SECOND, grace=NONE),
    lambda span: ps.until_time_limit(span, ps.unbounded()),
    lambda span: ps.versioned_store("s", history_retention=span),
    lambda span: ps.versioned_store("s", history_retention=SECOND, segment_interval=span),
    lambda span: ps.window_store("s", key=str, value=str, retention=span, window=SECOND),
    lambda span: ps.window_store("s", key=str, value=str, retention=SECOND, window=span),
    lambda span: ps.session_store("s", key=str, value=str, retention=span),
    lambda span: (
        grouped(ps.Application("a")).windowed_by(MINUTE).count("s", retention=span)  # type: ignore[func-returns-value]
    ),
    lambda span: TopologyTestDriver(_any()).advance_wall_clock_time(span),
]


def _any() -> ps.Application:
    app = ps.Application("any")
    stream(app).to("out")
    return app


@pytest.mark.parametrize("span", [60, 0.5, "1 s"])
@pytest.mark.parametrize("use", SPANS)
def test_a_span_of_time_is_a_timedelta(use: Callable[[Any], object], span: Any) -> None:
    with pytest.raises(
        TopologyError, match=r"is .*, which is no span of time.*timedelta\(seconds="
    ):
        use(span)


def test_a_supplier_makes_a_new_processor_each_time() -> None:
    one = ps.Processor[str, str, str, str]()
    with pytest.raises(TopologyError, match=r"step same gives the same processor each time"):
        stream(ps.Application("same")).process(lambda: one, key=str, value=str, name="same")


def test_merged_streams_of_two_types_have_neither() -> None:
    app = ps.Application("merged")
    both = stream(app, "a").merge(stream(app, "b", int), name="both")
    with pytest.raises(
        SerdeMissingError, match=r"merge \(step both\) changed\. Say it there: value"
    ):
        both.to("out")
    both.map_values(str, value=str).to("texts")
    named = stream(app, "a").merge(stream(app, "b", int), value=bytes, name="named")
    named.to("bytes")
    # Serdes of one's own may be two for values of one type: the first is taken.
    texts = ps.serde(str.encode, bytes.decode, name="texts")
    app.stream("d", key=str, value=texts).merge(stream(app, "a")).to("out")
    # What nobody named on one side is what it is on the other.
    unknown = stream(app, "c").map_values(lambda value: value)
    unknown.merge(stream(app, "a")).to("out")
    stream(app, "a").merge(unknown).to("out")


@pytest.mark.parametrize("given", ["value > 1", 5, ["a", "b"]])
@pytest.mark.parametrize(("what", "build"), [(what, build) for what, _, build in STEPS])
def test_what_cannot_be_called_is_no_function(what: str, build: Build, given: Any) -> None:
    if what == "timestamp" or (what == "topic" and isinstance(given, str)):
        return  # That is a rule's name, or a topic's, and has errors of its own.
    with pytest.raises(TopologyError, match=rf"The {what} of step ") as caught:
        build(ps.Application("mistaken"), given)
    assert "rite " in caught.value.hint


@pytest.mark.parametrize(
    ("what", "build"),
    [
        (what, build)
        for what, _, build in STEPS
        if what not in ("partitioner", "timestamp", "foreign_key", "merger")
    ],
)
def test_a_function_that_a_step_needs_is_not_none(what: str, build: Build) -> None:
    # Of a global table, its selector says what the join is.
    said = rf"The {what} of (step|branch 1 of step) "
    said += "|key_selector" if what == "selector" else ""
    with pytest.raises(TopologyError, match=said):
        build(ps.Application("mistaken"), None)


def test_an_expression_and_a_first_value_are_told_how_to_be_written() -> None:
    app = ps.Application("mistaken")
    with pytest.raises(TopologyError, match=r"step odd .*Write ps\.expr\('value > 1'\)"):
        stream(app).filter("value > 1", name="odd")
    with pytest.raises(TopologyError, match=r"initializer .* is 0, .*a new one: lambda: 0"):
        grouped(app).aggregate(0, lambda key, value, total: total, "s", value=int)
    stream(app).filter(ps.expr("value > 'a'"), name="even").to("out")


PARTNERS: list[tuple[str, Callable[[ps.Application], object]]] = [
    (r"merge of step begin .* a table, .*to_stream\(\)", lambda a: _named(a).merge(table(a))),
    (r"merge of step begin is given str", lambda a: _named(a).merge("b")),
    (r"join of step begin is given KGroupedStream", lambda a: _named(a).join(grouped(a), two)),
    (
        r"step KTABLE.* is given a stream.*to_table\(\)",
        lambda a: table(a).join(stream(a), two, value=str),
    ),
    (
        r"step KTABLE.* is given a stream.*to_table\(\)",
        lambda a: table(a).left_join(stream(a), two, foreign_key=str, value=str),
    ),
    (
        r"step KTABLE.* is given a global table",
        lambda a: table(a).outer_join(a.global_table("g", key=str, value=str), two, value=str),
    ),
    (
        r"cogroup of step .* is given KStream.*group_by_key\(\)",
        lambda a: grouped(a).cogroup(two).cogroup(stream(a, "b"), two),
    ),
    (
        r"cogroup of step .* is given KGroupedTable",
        lambda a: grouped(a).cogroup(two).cogroup(regrouped(a), two),
    ),
    (
        r"suppress behind step KSTREAM.* is given timedelta.*until_time_limit",
        lambda a: grouped(a).count().suppress(SECOND),
    ),
]


def _named(app: ps.Application) -> Any:
    return app.stream("first", key=str, value=str, name="begin")


@pytest.mark.parametrize(("said", "build"), PARTNERS)
def test_a_step_is_given_what_it_can_meet(
    said: str, build: Callable[[ps.Application], object]
) -> None:
    with pytest.raises(TopologyError, match=said):
        build(ps.Application("mistaken"))


OPTIONS: list[tuple[str, Callable[[ps.Application], object]]] = [
    ("to_table behind step .* cachng=.*Write caching=", lambda a: stream(a).to_table(cachng=True)),
    ("filter behind step .* retention=", lambda a: table(a).filter(two, "s", retention=SECOND)),
    (
        "map_values behind step .* loging=.*Write logging=",
        lambda a: table(a).map_values(str, value=str, loging=False),
    ),
    (
        "transform_values behind step .* size=",
        lambda a: table(a).transform_values(ps.ValueTransformer, value=str, size=3),
    ),
    (
        "join behind step .* windows=",
        lambda a: table(a).join(table(a, "b"), two, value=str, windows=NEAR),
    ),
    (
        "foreign_key= has no outer form.*left_join",
        lambda a: table(a).outer_join(table(a, "b"), two, foreign_key=str, value=str),
    ),
    (
        "windows of step .* cannot be kept in the versioned store 's'",
        lambda a: (
            grouped(a).windowed_by(MINUTE).count(ps.versioned_store("s", history_retention=SECOND))
        ),
    ),
    ("store name 5 is no text .*'5'", lambda a: grouped(a).count(5)),
]


@pytest.mark.parametrize(("said", "build"), OPTIONS)
def test_an_option_that_would_have_no_effect_is_refused(
    said: str, build: Callable[[ps.Application], object]
) -> None:
    with pytest.raises(TopologyError, match=said):
        build(ps.Application("mistaken"))


def test_streams_of_two_applications_are_not_grouped_together() -> None:
    first = stream(ps.Application("one")).group_by_key()
    other = stream(ps.Application("two")).group_by_key()
    cogrouped = first.cogroup(lambda key, value, held: held + value)
    with pytest.raises(TopologyError, match="belong to different applications"):
        cogrouped.cogroup(other, lambda key, value, held: held + value)


@pytest.mark.parametrize("given", ["x + 1", 5, None])
def test_batch_marks_functions_alone(given: Any) -> None:
    with pytest.raises(TopologyError, match="cannot be called"):
        ps.batch(given)


@pytest.mark.parametrize(
    "suppression", [ps.until_window_closes, partial(ps.until_time_limit, SECOND)]
)
def test_a_buffer_is_no_number(suppression: Callable[..., Any]) -> None:
    with pytest.raises(TopologyError, match=r"The buffer of until_\w+ is 5"):
        suppression(5)


def test_a_decorator_may_give_what_its_function_needs() -> None:
    def with_limit(function: Callable[..., bool]) -> Callable[..., bool]:
        @wraps(function)
        def filled(*given: Any) -> bool:
            return function(*given, limit=1)

        return filled

    class Rules:
        @with_limit
        def is_long(self, key: str, value: str, *, limit: int) -> bool:
            return len(value) > limit

    app = ps.Application("rules")
    stream(app).filter(Rules().is_long).to("long")
    driver = TopologyTestDriver(app)
    driver.input_topic("in", key=str, value=str).pipe_all([("a", "x"), ("b", "yy")])
    assert driver.output_topic("long", key=str, value=str).read_pairs() == [("b", "yy")]
