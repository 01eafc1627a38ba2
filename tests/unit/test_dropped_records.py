"""Every reason for which a record is dropped is counted, and its record is kept if one asks.

Goal: nothing leaves the stream without a trace. Method: a little topology for each reason, and the
record that it drops, byte for byte, among the dead letters.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import penstock as ps
from penstock.testing import TopologyTestDriver

DEAD = "dead-letters"
_SECOND, _NONE = timedelta(seconds=1), timedelta(0)
_JOIN = ps.join_window(_SECOND, grace=_NONE)
Sent = tuple[str, str | None, str | None, int]


def _stream(app: ps.Application, topic: str = "in") -> ps.KStream[str, str]:
    return app.stream(topic, key=str, value=str)


def _table(app: ps.Application, topic: str = "rows") -> ps.KTable[str, str]:
    return app.table(topic, key=str, value=str)


def _windows(app: ps.Application, windows: Any) -> None:
    _stream(app).group_by_key().windowed_by(windows).count("counts")


def _pair(left: Any, right: Any) -> str:
    return f"{left},{right}"


def _versions(app: ps.Application) -> ps.KTable[str, str]:
    kept = ps.versioned_store("versions", history_retention=_SECOND)
    return app.table("rows", kept, key=str, value=str)


class Keeps(ps.Processor[str, str, str, str]):
    """Puts every value into a store of windows."""

    def process(self, record: ps.Record[str, str]) -> None:
        """Put it at its time."""
        store: Any = self.context.store("kept")
        store.put(record.key, record.value, record.timestamp)


def _kept(app: ps.Application) -> None:
    windows = ps.window_store(
        "kept", window=_SECOND, retention=_SECOND, key=str, value=str, persistent=False
    )
    app.add_state_store(windows)
    _stream(app).process(Keeps, stores=["kept"], key=str, value=str)


class Dropped(NamedTuple):
    """A topology, the records before, the one that it drops, and why."""

    reason: str
    what: str
    build: Callable[[ps.Application], object]
    last: Sent
    before: tuple[Sent, ...] = ()


_NOW: tuple[Sent, ...] = (("in", "k", "v", 100_000),)
_LATE: Sent = ("in", "k", "late", 5)
CASES = [
    Dropped(
        "late", "tumbling", lambda a: _windows(a, ps.tumbling(_SECOND, grace=_NONE)), _LATE, _NOW
    ),
    Dropped(
        "late", "sliding", lambda a: _windows(a, ps.sliding(_SECOND, grace=_NONE)), _LATE, _NOW
    ),
    Dropped(
        "late", "session", lambda a: _windows(a, ps.session(_SECOND, grace=_NONE)), _LATE, _NOW
    ),
    Dropped(
        "null_key",
        "session",
        lambda a: _windows(a, ps.session(_SECOND, grace=_NONE)),
        ("in", None, "v", 5),
    ),
    Dropped(
        "null_value",
        "sliding",
        lambda a: _windows(a, ps.sliding(_SECOND, grace=_NONE)),
        ("in", "k", None, 5),
    ),
    Dropped(
        "null_key", "count", lambda a: _stream(a).group_by_key().count("c"), ("in", None, "v", 5)
    ),
    Dropped(
        "null_value", "count", lambda a: _stream(a).group_by_key().count("c"), ("in", "k", None, 5)
    ),
    Dropped("null_key", "table", lambda a: _table(a).to_stream().to("out"), ("rows", None, "v", 5)),
    Dropped(
        "null_key",
        "streams",
        lambda a: _stream(a).join(_stream(a, "other"), _pair, _JOIN).to("out"),
        ("other", None, "v", 5),
    ),
    Dropped(
        "null_value",
        "lookup",
        lambda a: _stream(a).left_join(_table(a), _pair).to("out"),
        ("in", "k", None, 5),
    ),
    Dropped(
        "null_value",
        "global lookup",
        lambda a: (
            _stream(a)
            .join(
                a.global_table("rows", key=str, value=str),
                _pair,
                key_selector=lambda key, _value: key,
            )
            .to("out")
        ),
        ("in", "k", None, 5),
    ),
    Dropped(
        "null_foreign_key",
        "foreign key",
        lambda a: _table(a).join(_table(a, "others"), _pair, "joined", foreign_key=_nothing),
        ("rows", "k", "v", 5),
    ),
    Dropped(
        "out_of_order",
        "versions",
        lambda a: _versions(a).join(_table(a, "others"), _pair, "joined"),
        ("rows", "k", "old", 9_500),
        (("rows", "k", "v", 10_000),),
    ),
    Dropped(
        "expired",
        "versions",
        lambda a: _versions(a).to_stream().to("out"),
        ("rows", "k", "old", 5),
        (("rows", "k", "v", 10_000),),
    ),
    Dropped("expired", "a processor's windows", _kept, _LATE, _NOW),
    Dropped(
        "null_key_to_repartition",
        "repartition",
        lambda a: _stream(a).repartition(name="again").to("out"),
        ("in", None, "v", 5),
    ),
    Dropped(
        "no_partition",
        "partitioner",
        lambda a: _stream(a).to("out", partitioner=lambda _key, _value, _count: set()),
        ("in", "k", "v", 5),
    ),
]


def _nothing(_value: str) -> str | None:
    return None


@pytest.mark.parametrize("asked", [True, False])
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.reason}-{case.what}")
def test_what_is_dropped_is_counted_and_kept_if_asked(case: Dropped, asked: bool) -> None:
    app = ps.Application(
        "dropped", errors_dead_letter_queue_topic_name=DEAD, dead_letter_dropped_records=asked
    )
    case.build(app)
    driver = TopologyTestDriver(app)
    for topic, key, value, time in (*case.before, case.last):
        driver.input_topic(topic, key=str, value=str).pipe(key, value, timestamp=time)
    assert driver.dropped == {case.reason: 1}
    letters = driver.output_topic(DEAD, key=str, value=str).read_all() if asked else []
    told = [
        (each.key, each.value, each.timestamp, dict(each.headers)["__streams.errors.message"])
        for each in letters
    ]
    _, key, value, time = case.last
    assert told == ([(key, value, time, case.reason.encode())] if asked else [])


def test_no_reason_is_missing() -> None:
    """But for answers that come too late for their row: the conformance cases count those."""
    root = Path(ps.__file__).parent / "processors"
    written = "".join(path.read_text() for path in root.rglob("*.py"))
    reasons = set(re.findall(r'\.drop\("(\w+)"', written)) - {"stale_foreign_key_answer"}
    assert reasons <= {case.reason for case in CASES}, reasons


HANDLERS = ("deserialization", "processing", "production")


@pytest.mark.parametrize("outcome", ["fail", "continue", "dead_letter"])
@pytest.mark.parametrize("kind", HANDLERS)
def test_each_handler_has_each_outcome(kind: str, outcome: str) -> None:
    """The others stay at `fail`, and are not asked."""
    option: dict[str, Any] = {f"{kind}_exception_handler": outcome}
    app = ps.Application("outcomes", errors_dead_letter_queue_topic_name=DEAD, **option)
    numbers = app.stream("in", key=str, value=int, name="numbers")
    numbers.map_values(lambda value: 10 // value, value=int, name="divided").to("out")
    # One whose serde cannot write it.
    numbers.map_values(lambda value: "x" if value == 3 else value, value=int).to("written")
    driver = TopologyTestDriver(app)
    topic = driver.input_topic("in", key=str, value=bytes)
    bad = {"deserialization": b"short", "processing": bytes(8), "production": b"\0" * 7 + b"\3"}
    good = b"\0" * 7 + b"\5"
    topic.pipe("a", good, timestamp=1)
    headers = (("trace", b"7"),)
    if outcome == "fail":
        with pytest.raises(ps.PenstockError):
            topic.pipe("b", bad[kind], timestamp=2, headers=headers)
        return
    topic.pipe("b", bad[kind], timestamp=2, headers=headers)
    topic.pipe("c", good, timestamp=3)
    told = driver.output_topic("out", key=str, value=int).read_pairs()
    assert [key for key, _ in told] == (["a", "b", "c"] if kind == "production" else ["a", "c"])
    assert driver.dropped == {"undecodable" if kind == "deserialization" else "failed": 1}
    letters = driver.output_topic(DEAD, key=bytes, value=bytes).read_all()
    if outcome == "continue":
        assert letters == []
        return
    [letter] = letters
    # The input record, byte for byte, with what it had and why it is here.
    assert (letter.key, letter.value, letter.timestamp) == (b"b", bad[kind], 2)
    names = [name for name, _ in letter.headers]
    said = ("exception", "message", "stacktrace", "topic", "partition", "offset")
    assert names == ["trace", *(f"__streams.errors.{each}" for each in said)]
    found = dict(letter.headers)
    where = [found[f"__streams.errors.{each}"] for each in ("topic", "partition", "offset")]
    assert where == [b"in", b"0", b"1"]
