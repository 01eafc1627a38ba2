"""What Java's compiler would refuse is refused when the topology is written, with its step."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
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
