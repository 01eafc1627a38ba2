"""Stores that a database keeps: who is ahead, what is refused, what is never shown."""

from __future__ import annotations

import sys
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

import penstock as ps
from penstock.coordination.commits import Standing
from penstock.coordination.kept import Ahead, go_on, who_is_ahead
from penstock.errors import ExternalStoreError, TopologyError
from penstock.instance.external import ExternalStores
from penstock.instance.protocol import DatabaseOrder, StoreOrder, TakeOrder
from penstock.testing import TopologyTestDriver

KEEPER = ps.PostgreSQL(dsn_variable="TEST_DSN")
SECRET = "postgresql://user:open-sesame@host/database"


@pytest.mark.parametrize(
    ("kept", "kept_epoch", "recorded", "epoch", "expected"),
    [
        (0, (0, 0), 0, (1, 1), "level"),
        (5, (1, 1), 5, (1, 2), "level"),
        (5, (1, 2), 5, (1, 2), "level"),
        # A crash between the database and the record.
        (1, (1, 1), 0, (1, 2), "database"),
        (6, (1, 1), 5, (2, 1), "database"),
        # An owner that comes too late, by whatever it reads of Kafka meanwhile.
        (5, (1, 3), 5, (1, 2), "fenced"),
        (6, (2, 1), 5, (1, 9), "fenced"),
        (9, (1, 3), 5, (1, 2), "fenced"),
        # No crash explains these.
        (4, (1, 1), 5, (2, 1), "database_behind"),
        (0, (0, 0), 5, (2, 1), "database_behind"),
        (7, (1, 1), 5, (2, 1), "kafka_behind"),
        (900, (7, 3), 0, (1, 1), "kafka_behind"),
    ],
)
def test_who_is_ahead(
    kept: int,
    kept_epoch: tuple[int, int],
    recorded: int,
    epoch: tuple[int, int],
    expected: Ahead,
) -> None:
    found = who_is_ahead(kept=kept, kept_epoch=kept_epoch, recorded=recorded, epoch=epoch)
    assert found == expected


@pytest.mark.parametrize("moved", [False, True])
def test_a_task_goes_on_where_its_database_is_unless_someone_moved_the_group(moved: bool) -> None:
    standing = Standing(position={"a": {0: 3}}, moved_by_group=moved, group_is_stale=False)
    assert go_on(standing, {"a": {0: 9}}).position == {"a": {0: 3 if moved else 9}}


def refused(app: ps.Application) -> str:
    with pytest.raises(TopologyError) as caught:
        app.build()
    return str(caught.value)


def test_a_changelog_beside_the_database_is_refused_by_its_step_under_exactly_once() -> None:
    app = ps.Application("a")
    grouped = app.stream("in", key=str, value=int).group_by_key()
    grouped.count("counts", kept_in=KEEPER)
    grouped.sum("sums")
    said = refused(app)
    assert "KSTREAM-REDUCE-0000000002" in said
    assert "'sums'" in said
    assert "kept_in=" in said
    assert ".repartition()" in said
    assert "at_least_once" in said


def test_a_changelog_beside_the_database_may_be_under_at_least_once_without_an_outbox() -> None:
    for outbox in (False, True):
        app = ps.Application("a", processing_guarantee="at_least_once")
        grouped = app.stream("in", key=str, value=int).group_by_key()
        grouped.count("counts", kept_in=ps.PostgreSQL(dsn_variable="D", outbox=outbox))
        grouped.sum("sums")
        if outbox:
            assert "at_least_once" not in refused(app)
        else:
            app.build()


def test_a_repartition_makes_two_tasks_of_them() -> None:
    app = ps.Application("a")
    stream = app.stream("in", key=str, value=int)
    stream.group_by_key().count("counts", kept_in=KEEPER)
    stream.repartition(name="again").group_by_key().sum("sums")
    kept, logged = sorted(app.build().stores, key=lambda store: store.name)
    assert (kept.logging, logged.logging) == (False, True)


@pytest.mark.parametrize(
    ("other", "what"),
    [
        (ps.PostgreSQL(dsn_variable="OTHER"), "same transaction"),
        (ps.PostgreSQL(dsn_variable="TEST_DSN", outbox=True), "same transaction"),
        (ps.PostgreSQL(dsn_variable="TEST_DSN", table="counts"), "same table"),
    ],
)
def test_two_stores_of_a_task_are_in_one_database_and_two_tables(
    other: ps.PostgreSQL, what: str
) -> None:
    app = ps.Application("a")
    grouped = app.stream("in", key=str, value=int).group_by_key()
    grouped.count("counts", kept_in=KEEPER)
    grouped.sum("sums", kept_in=other)
    assert what in refused(app)


def test_a_task_that_would_read_its_input_again_is_refused() -> None:
    app = ps.Application("a")
    grouped = app.stream("in", key=str, value=int).group_by_key()
    grouped.count("counts", kept_in=KEEPER)
    grouped.sum("sums", logging=False, recover_from="input")
    assert "counted twice" in refused(app)


def test_what_a_database_does_not_do_is_refused_at_once() -> None:
    grouped = ps.Application("a").stream("in", key=str, value=int).group_by_key()
    with pytest.raises(TopologyError, match="no changelog to be set up"):
        grouped.count("counts", kept_in=KEEPER, logging={"segment.bytes": "1"})
    with pytest.raises(TopologyError, match="both in PostgreSQL and opened by"):
        grouped.count("counts", kept_in=KEEPER, supplier="stores:mine")
    with pytest.raises(TopologyError, match="forgets no key"):
        grouped.count("counts", kept_in=KEEPER, max_entries=3)
    with pytest.raises(TopologyError, match="cannot be the name of a table"):
        grouped.count("c" * 64, kept_in=KEEPER)
    versions = ps.versioned_store("versions", history_retention=timedelta(days=1))
    with pytest.raises(TopologyError, match="is a versioned store"):
        grouped.count(versions, kept_in=KEEPER)


def test_a_connection_string_in_the_program_is_refused_and_not_repeated() -> None:
    with pytest.raises(TopologyError, match="environment variable") as caught:
        ps.PostgreSQL(dsn_variable=SECRET)
    assert "open-sesame" not in str(caught.value)


def order() -> TakeOrder:
    database = DatabaseOrder(dsn_variable="TEST_DSN", table=["counts"])
    return TakeOrder(
        task="0_0",
        name="counts-0",
        epoch=(1, 1),
        first_taking=True,
        inputs=[],
        stores=[StoreOrder(name="counts", database=database)],
        commits_partition=1,
    )


@pytest.mark.parametrize(
    ("held", "what"), [("", "is not set"), ("open sesame", "is not a connection string")]
)
def test_a_variable_without_a_connection_string_is_named(
    monkeypatch: pytest.MonkeyPatch, held: str, what: str
) -> None:
    monkeypatch.setenv("TEST_DSN", held)
    stores = ExternalStores(order(), "app", timeout_seconds=2)
    with pytest.raises(ExternalStoreError, match=f"TEST_DSN.*{what}") as caught:
        stores.open(None)
    assert "sesame" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_missing_psycopg_is_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "penstock.stores.postgres", None)
    with pytest.raises(ExternalStoreError, match=r"penstock\[postgres\]"):
        ExternalStores(order(), "app", timeout_seconds=2).open(None)


def test_the_test_driver_needs_no_database() -> None:
    app = ps.Application("a")
    app.table("in", "names", key=str, value=str, kept_in=KEEPER).to_stream().to("out")
    driver = TopologyTestDriver(app)
    driver.input_topic("in", key=str, value=str).pipe_all([("k", "v")])
    assert dict(driver.store("names")) == {"k": "v"}


def test_a_key_that_an_index_does_not_take_is_told_with_what_to_do() -> None:
    from psycopg.errors import ProgramLimitExceeded

    from penstock.stores.postgres import Database

    database = Database("TEST_DSN", timeout_seconds=10)
    database._connection = cast(Any, SimpleNamespace(closed=False))
    said = 'index row size 2816 exceeds btree version 4 maximum 2704 for index "balances_pkey"'
    found = database._error(ProgramLimitExceeded(said))
    assert type(found) is ExternalStoreError
    assert f"key is too long for PostgreSQL's index: {said}" in found.message
    assert "shorter key" in found.hint


def test_a_server_that_says_nothing_is_given_up() -> None:
    from penstock.stores.postgres import SilentServerError, patient

    def asking() -> Any:
        heard = []
        while len(heard) < 3:
            if ready := (yield "read"):
                heard.append(ready)
        return heard

    now = 0.0
    waiting = patient(asking(), 10.0, lambda: now)
    assert next(waiting) == "read"
    for moment, ready in [(9.0, 0), (9.5, 1), (19.0, 0), (19.2, 2), (29.0, 0)]:
        now = moment
        assert waiting.send(ready) == "read"
    with pytest.raises(StopIteration) as ended:
        waiting.send(3)
    assert ended.value.value == [1, 2, 3]
    now, waiting = 0.0, patient(asking(), 10.0, lambda: now)
    next(waiting)
    now = 10.5
    with pytest.raises(SilentServerError, match="nothing for 10 seconds"):
        waiting.send(0)
