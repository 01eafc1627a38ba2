"""Records that waited beyond their slice, and fail when they are let go."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

import penstock as ps
from penstock.errors import UserFunctionError
from penstock.processors.depth_first.record import Context
from penstock.processors.depth_first.suppress import Buffered, read_buffered
from penstock.testing import TopologyTestDriver

DEAD = "dead"
SECOND = timedelta(seconds=1)
PREFIX = "__streams.errors."


def application(**options: Any) -> ps.Application:
    return ps.Application("waiting", errors_dead_letter_queue_topic_name=DEAD, **options)


def no_bad(value: str | None) -> str:
    if value and "bad" in value:
        raise ValueError(value)
    return value or ""


def letters(driver: TopologyTestDriver) -> list[tuple[Any, Any, int, dict[str, str]]]:
    """Key, value, time and headers of each dead letter."""
    return [
        (
            each.key,
            each.value,
            each.timestamp,
            {name.removeprefix(PREFIX): (data or b"").decode() for name, data in each.headers},
        )
        for each in driver.output_topic(DEAD, key=str, value=str).read_all()
    ]


def held_back(app: ps.Application) -> None:
    table = app.table("in", "rows", key=str, value=str)
    calm = table.suppress(ps.until_time_limit(SECOND, ps.unbounded()), name="calm")
    calm.map_values(no_bad, value=str, name="failing").to_stream().to("out")


def held_back_twice(app: ps.Application) -> None:
    table = app.table("in", "rows", key=str, value=str)
    calm = table.suppress(ps.until_time_limit(SECOND, ps.unbounded()), name="calm")
    again = calm.map_values(lambda value: value, "kept", value=str)
    calmer = again.suppress(ps.until_time_limit(SECOND, ps.unbounded()), name="calmer")
    calmer.to_stream().map_values(no_bad, value=str, name="failing").to("out")


def waiting_for_a_row(app: ps.Application) -> None:
    rows = ps.versioned_store("rows", history_retention=60 * SECOND)
    table = app.table("rows", rows, key=str, value=str)
    stream = app.stream("in", key=str, value=str)
    stream.left_join(
        table, lambda value, _: no_bad(value), value=str, grace=SECOND, name="failing"
    ).to("out")


@pytest.mark.parametrize("cache", [0, 1_000_000])
@pytest.mark.parametrize("build", [held_back, held_back_twice, waiting_for_a_row])
def test_a_dead_letter_of_what_waited_is_the_input_record(build: Any, cache: int) -> None:
    """As in Kafka Streams, whose buffer has it in memory; here also after a restart."""
    app = application(processing_exception_handler="dead_letter", statestore_cache_max_bytes=cache)
    build(app)
    driver = TopologyTestDriver(app)
    topic = driver.input_topic("in", key=str, value=str)
    topic.pipe("a", "bad", timestamp=5, headers=(("trace", b"7"),))
    for number in range(1, 5):
        topic.pipe("b", f"good {number}", timestamp=10_000 * number)
    [(key, value, time, headers)] = letters(driver)
    assert (key, value, time) == ("a", "bad", 5)
    assert (headers["topic"], headers["partition"], headers["offset"]) == ("in", "0", "0")
    assert headers["trace"] == "7"
    assert driver.dropped == {"failed": 1}
    assert len(driver.output_topic("out", key=str, value=str)) > 0


def test_the_input_record_waits_only_where_it_may_become_a_dead_letter() -> None:
    sizes = []
    for options in ({}, {"errors_dead_letter_queue_topic_name": DEAD}):
        app = ps.Application("waiting", **options)  # type: ignore[arg-type]
        held_back(app)
        driver = TopologyTestDriver(app)
        driver.input_topic("in", key=str, value=str).pipe("key", "value", timestamp=5)
        sizes.append(len(dict(driver.store("calm-store"))["key"]))
    assert sizes[1] - sizes[0] == 4 + len("key") + 4 + len("value") + 8


@pytest.mark.parametrize("raw", [None, (b"k", b"v"), (None, b"v"), (b"k", None), (b"", b"")])
def test_bytes_of_what_waits_come_back(raw: Any) -> None:
    context = Context("in", 3, 7, 11, (("a", b"1"), ("b", None)), raw)
    held = Buffered(17, b"prior", None, b"new", context)
    data = held.serialize()
    assert data[-8:] == (17).to_bytes(8, "big")
    # What Java reads is the same, whatever follows.
    plain = Buffered(17, b"prior", None, b"new", Context("in", 3, 7, 11, context.headers))
    assert data.startswith(plain.serialize())
    read = read_buffered(data)
    assert read[:4] == held[:4]
    assert read.context.raw == raw
    assert (read.context.topic, read.context.offset, read.context.headers) == (
        "in",
        7,
        context.headers,
    )


def joined(app: ps.Application, *, value: Any = str) -> None:
    left = app.stream("left", key=str, value=str).map_values(lambda each: each, value=value)
    right = app.stream("right", key=str, value=str)
    windows = ps.join_window(SECOND, grace=timedelta(0))

    def join(one: Any, two: Any) -> str:
        return f"{no_bad(one)}/{two}"

    left.outer_join(right, join, windows, value=str, name="pair").to("out")


def pipe(driver: TopologyTestDriver, *values: str) -> None:
    topic = driver.input_topic("left", key=str, value=str)
    for number, value in enumerate(values):
        topic.pipe(f"k{number}", value, timestamp=5_000 * number)


def test_a_record_without_a_partner_that_fails_takes_no_other_with_it() -> None:
    """In Kafka Streams it stays, and every record from then on is dropped."""
    seen: list[ps.RecordFailure] = []

    def decide(failure: ps.RecordFailure) -> str:
        seen.append(failure)
        return "dead_letter"

    app = application(processing_exception_handler=decide)
    joined(app)
    driver = TopologyTestDriver(app)
    pipe(driver, "bad", "one", "two")
    driver.input_topic("right", key=str, value=str).pipe("k2", "TWO", timestamp=10_000)
    driver.input_topic("right", key=str, value=str).pipe("k3", "THREE", timestamp=90_000)
    assert driver.output_topic("out", key=str, value=str).read_pairs() == [
        ("k1", "one/None"),
        ("k2", "two/TWO"),
    ]
    [failure] = seen
    assert failure.record == ps.Record("k0", "bad", 0)
    assert (failure.topic, failure.partition, failure.offset) == ("", -1, -1)
    [(key, value, time, headers)] = letters(driver)
    assert (key, value, time, headers["exception"]) == ("k0", "bad", 0, "ValueError")
    assert driver.dropped == {"failed": 1}


UNREADABLE = ps.serde(
    msgspec.json.encode,
    lambda data: 1 / 0 if b"bad" in data else msgspec.json.decode(data),
    name="unreadable",
)


@pytest.mark.parametrize("handler", ["fail", "continue", "dead_letter"])
def test_what_waits_for_a_partner_and_cannot_be_read_is_for_the_handler(handler: str) -> None:
    app = application(processing_exception_handler=handler)
    joined(app, value=UNREADABLE)
    driver = TopologyTestDriver(app)
    if handler == "fail":
        with pytest.raises(UserFunctionError, match="cannot read what the store") as caught:
            pipe(driver, "a bad one", "good", "better")
        assert caught.value.where["store"] == "pair-outer-shared-join-store"
        assert caught.value.where["step"] == "pair-outer-this-join"
        return
    pipe(driver, "a bad one", "good", "better")
    assert driver.output_topic("out", key=str, value=str).read_pairs() == [("k1", "good/None")]
    assert driver.dropped == {"failed": 1}
    assert [each[0] for each in letters(driver)] == (["k0"] if handler == "dead_letter" else [])


def test_a_record_that_joins_those_that_wait_reads_them_too() -> None:
    """Several of one key and time wait in one entry."""
    app = application(processing_exception_handler="continue")
    joined(app, value=UNREADABLE)
    driver = TopologyTestDriver(app)
    topic = driver.input_topic("left", key=str, value=str)
    topic.pipe("k", "a bad one", timestamp=0)
    topic.pipe("k", "good", timestamp=0)
    assert driver.dropped == {"failed": 1}
