"""Goal: code that fills a global store does on an instance what the test driver shows: the handler
is asked if it fails; and a copy that was filled otherwise is filled anew.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import cloudpickle

import penstock as ps
from penstock.changelog.topics import ExistingTopic
from penstock.config import Config
from penstock.driver.setup import _global_tables
from penstock.errors import UserFunctionError
from penstock.instance.global_processing import GlobalProgram, programs_of
from penstock.instance.global_tables import GlobalTable
from penstock.instance.protocol import GlobalOrder
from penstock.instance.restores import Restores
from penstock.pipeline.jobs import pickle_programs
from penstock.stores.directory import StateDirectory, TaskDirectory
from penstock.stores.memory import MemoryStore
from penstock.testing import TopologyTestDriver
from tests.unit.slices import Sent


class Shares(ps.Processor[str, int, Any, Any]):
    """Keeps the share of each key, which fails on nought."""

    def process(self, record: ps.Record[str, int]) -> None:
        """Take a record."""
        self.context.store("shares").put(record.key, 10 // record.value)


def number(value: int) -> bytes:
    return value.to_bytes(8, "big", signed=True)


SENT: list[Any] = [Sent(0, b"a", number(0)), Sent(1, b"b", number(2))]


def builder(value: Any = int) -> ps.StreamsBuilder:
    made = ps.StreamsBuilder()
    store = ps.key_value_store("shares", key=str, value=value)
    made.add_global_store("in", store, Shares, value=int)
    return made


def application(handler: Any) -> ps.Application:
    app = ps.Application(
        "app", processing_exception_handler=handler, errors_dead_letter_queue_topic_name="dead"
    )
    app.add_global_store("in", ps.key_value_store("shares", key=str, value=int), Shares)
    app.stream("other", key=str, value=str).to("out")
    return app


def on_instance(app: ps.Application) -> GlobalProgram:
    """What an instance runs that was told of the program as instances are."""
    topology, config = app.build(), app.config
    (order,) = _global_tables(topology, config)
    told = pickle_programs(topology.global_tables, config.processing_exception_handler)
    programs = programs_of(*cloudpickle.loads(told))
    return GlobalProgram(
        programs.subs["shares"],
        "app",
        skips_undecodable=order.skips_undecodable,
        on_processing_error=order.on_processing_error or programs.handler,
        dead_letter_topic=order.dead_letter_topic or None,
    )


def continues(failure: Any) -> str:
    assert isinstance(failure.error, ZeroDivisionError)
    return "continue"


@pytest.mark.parametrize(
    "handler", ["continue", "dead_letter", continues, lambda failure: "dead_letter"]
)
def test_a_record_on_which_code_fails_is_dropped_in_both(
    handler: Any, caplog: pytest.LogCaptureFixture
) -> None:
    app = application(handler)
    driver = TopologyTestDriver(app)
    driver.input_topic("in", key=str, value=int).pipe_all([("a", 0), ("b", 2)])
    assert dict(driver.store("shares")) == {"b": 5}
    assert driver.dropped == {"failed": 1}
    assert len(driver.output_topic("dead", key=bytes, value=bytes)) == 0
    made = on_instance(app).changes(SENT, MemoryStore("shares"))
    assert made == [(b"b", number(50) + number(5))]
    assert "shares: records were dropped: {'failed': 1}" in caplog.text


def test_what_is_dropped_is_told_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    [now] = moments = [0.0]
    [sub] = programs_of(application("continue").build().global_tables).subs.values()
    program = GlobalProgram(
        sub,
        "app",
        skips_undecodable=False,
        on_processing_error="continue",
        clock=lambda: moments[-1],
    )
    for moment in (now, now + 1, now + 59, now + 60):
        moments.append(moment)
        program.changes(SENT, MemoryStore("shares"))
    told = [record.getMessage().rpartition(": {")[2] for record in caplog.records]
    assert told == ["'failed': 1}", "'failed': 3}"]


@pytest.mark.parametrize("handler", ["fail", lambda failure: "fail"])
def test_a_record_on_which_code_fails_ends_it_in_both(handler: Any) -> None:
    app = application(handler)
    with pytest.raises(UserFunctionError, match="ZeroDivisionError"):
        TopologyTestDriver(app).input_topic("in", key=str, value=int).pipe("a", 0)
    with pytest.raises(UserFunctionError, match="ZeroDivisionError"):
        on_instance(app).changes(SENT, MemoryStore("shares"))


def program(value: Any) -> GlobalProgram:
    subs = programs_of(builder(value).build().global_tables).subs
    return GlobalProgram(subs["shares"], "app", skips_undecodable=False)


def table(directory: TaskDirectory, program: GlobalProgram | None) -> GlobalTable:
    logs: Any = SimpleNamespace(config=Config(), admin=object())
    order = GlobalOrder(store="shares", topic="in", is_processed=program is not None)
    return GlobalTable(order, "app", directory, logs, restores=Restores(), program=program)


Fills = Callable[[], GlobalProgram | None]
TOPIC = ExistingTopic("in", "id-1", 1)


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        (lambda: program(int), lambda: program(int), ""),
        (lambda: None, lambda: None, ""),
        (lambda: program(int), lambda: program(str), "string: long -> string: string"),
        (lambda: None, lambda: program(int), "the topic's bytes"),
        (lambda: program(int), lambda: None, "than it is now (the topic's bytes)"),
    ],
)
def test_a_copy_that_was_filled_otherwise_is_filled_anew(
    tmp_path: Path, before: Fills, after: Fills, why: str
) -> None:
    with StateDirectory.open(tmp_path, "app") as state:
        directory = state.lock_global()
        first = table(directory, before())
        first._open(TOPIC).apply_read([(b"a", number(50) + number(5))], {0: 1})
        first.close()
        second = table(directory, after())
        positions = second._open(TOPIC).positions()
        second.close()
        directory.unlock()
    notes = second.new_notes()
    assert positions == ({} if why else {0: 1})
    assert len(notes) == bool(why)
    assert all(why in note for note in notes)
