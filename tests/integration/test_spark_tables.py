"""Stores as tables in Spark SQL: live over HTTP, and as they were in a snapshot."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameReader, SparkSession

from penstock.cli import demo_queries, main
from penstock.config import Config
from penstock.pipeline import tables
from penstock.pipeline.tables import first_rows
from penstock.queries.driver_file import DriverFile, write_driver_file
from penstock.queries.listening import Listening
from penstock.queries.server import HttpServer
from tests.harness import Scene
from tests.in_process import Run
from tests.snapshot_stores import write_snapshot
from tests.unit.queries_in_memory import InMemoryQueries
from tests.unit.test_docs_snippets import ROOT, snippets
from tests.unit.test_queries_server import served

APPLICATION = "clinic"
PAGE = ROOT / "docs" / "spark-sql.md"


@pytest.fixture
def session(spark: None) -> SparkSession:
    found = SparkSession.getActiveSession()
    assert found is not None
    return found


@pytest.fixture(scope="module")
def queries() -> InMemoryQueries:
    return InMemoryQueries()


@pytest.fixture(scope="module")
def listening() -> Listening:
    return Listening.of(Config(http_listen="127.0.0.1:0"))


@pytest.fixture(scope="module")
def server(queries: InMemoryQueries, listening: Listening) -> Iterator[HttpServer]:
    with served(queries, listening) as made:
        yield made


@pytest.fixture
def reader(
    session: SparkSession, server: HttpServer, listening: Listening, tmp_path: Path
) -> DataFrameReader:
    """Finds the application as another session of the same user would."""
    facts = DriverFile(application_id=APPLICATION, process=1, url=server.url, token=listening.token)
    write_driver_file(tmp_path, facts)
    options = {"application": APPLICATION, "state_dir": str(tmp_path)}
    return session.read.format("penstock").options(**options)


def pairs(frame: DataFrame) -> set[tuple[object, ...]]:
    return {tuple(row) for row in frame.select("key", "value").collect()}


def test_a_store_of_a_running_application_is_a_table(
    reader: DataFrameReader, session: SparkSession, queries: InMemoryQueries
) -> None:
    counts = reader.option("store", "counts").load()
    assert counts.schema.simpleString() == (
        "struct<partition:int,key:string,value:bigint,timestamp:timestamp>"
    )
    names = session.createDataFrame([("a", "Ann"), ("c", "Cem"), ("z", "Zoe")], ["key", "name"])
    joined = names.join(counts, "key").select("name", "value").orderBy("name")
    assert [tuple(row) for row in joined.collect()] == [("Ann", 0), ("Cem", 2)]
    # Where the session pushes filters down, a table may be used again, and twice in a query.
    session.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        twice = counts.where("key = 'b'").unionAll(counts.where("key >= 'e'"))
        assert pairs(twice) == {("b", 1), ("e", 4), ("f", 5)}
        assert counts.count() == 6
        queries.asked.clear()
        fresh = reader.option("store", "counts").option("pushdown", "true").load()
        assert pairs(fresh.where("key IN ('b', 'd', 'none') AND value > 1")) == {("d", 3)}
        assert {question.kind for _, question, *_ in queries.asked} == {"get"}
    finally:
        session.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_the_tables_on_the_page_can_be_read(
    session: SparkSession,
    server: HttpServer,
    listening: Listening,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    facts = DriverFile(application_id=APPLICATION, process=1, url=server.url, token=listening.token)
    write_driver_file(tmp_path, facts)
    minute = ("ann", 72, 61_000, 60_000, 120_000)
    write_snapshot(tmp_path, "patient-monitoring", "pulse-counts", 0, [minute], kind="window")
    patients = session.createDataFrame([("e", "Eve"), ("f", "Fay"), ("a", "Ann")], ["key", "name"])
    names = {"spark": session, "patients": patients}
    live, snapshot = [each.code for each in snippets(PAGE)]
    # What the page's names stand for here.
    for shown, here in {
        "patient-monitoring": APPLICATION,
        '.option("store", "pulse-counts")': f'.option("store", "counts")'
        f'.option("state_dir", {str(tmp_path)!r})',
        "value > 100": "value >= 4",
    }.items():
        assert shown in live
        live = live.replace(shown, here)
    exec(compile(live, str(PAGE), "exec"), names)
    printed = capsys.readouterr().out
    assert all(name in printed for name in ("Eve", "Fay"))
    assert "Ann" not in printed
    for shown, here in {
        "s3://ward/snapshots": tmp_path.as_uri(),
        "monitoring:app": "penstock.examples.patient_monitoring:app",
    }.items():
        assert shown in snapshot
        snapshot = snapshot.replace(f'"{shown}"', f'"{here}"')
    assert pairs(eval(compile(snapshot.strip(), str(PAGE), "eval"), names)) == {("ann", 72)}


def test_the_demo_asks_by_command_over_http_and_by_spark_sql(
    session: SparkSession,
    server: HttpServer,
    listening: Listening,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def run_here(words: list[str], **_: Any) -> Any:
        """The command, without a process of its own."""
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), pytest.raises(SystemExit):
            main(words[words.index("query") :])
        return SimpleNamespace(stdout=printed.getvalue())

    def rows_here(sql: str, **which: Any) -> list[dict[str, Any]]:
        """The rows of a table like it; another test reads a store by `first_rows`."""
        assert which == {"application": APPLICATION, "store": "rates", "state_dir": tmp_path}
        frame = session.createDataFrame([("a", 60), ("a", 61), ("b", 70)], ["key", "value"])
        return [row.asDict() for row in session.sql(sql, store=frame).collect()]

    facts = DriverFile(application_id=APPLICATION, process=1, url=server.url, token=listening.token)
    write_driver_file(tmp_path, facts)
    monkeypatch.setattr(demo_queries, "_STORE", "rates")
    monkeypatch.setattr(demo_queries.subprocess, "run", run_here)
    monkeypatch.setattr(tables, "first_rows", rows_here)
    told: list[str] = []
    demo_queries.DemoQueries(APPLICATION, tmp_path, told.append).ask("a")
    command, http, sql = told
    assert command.startswith("Asked by command: penstock query rates a ")
    assert command.splitlines()[1].endswith(" = 60")
    assert http.startswith("Asked over HTTP: GET /v1/stores/rates/windows/a")
    assert '"value":60' in http
    assert sql.startswith("Asked by Spark SQL: SELECT ")
    assert sql.splitlines()[1:] == ["    b: 70", "    a: 61"]


def test_windows_have_a_start_and_an_end(
    session: SparkSession, server: HttpServer, listening: Listening
) -> None:
    reader = session.read.format("penstock").options(url=server.url, token=listening.token)
    rates = reader.option("store", "rates").load().where("key = 'a'")
    plans = rates._jdf.queryExecution().toString()
    assert "rates" in plans or "penstock" in plans
    assert listening.token not in plans
    columns = ["unix_millis(window_start)", "unix_millis(window_end)", "value"]
    found = rates.selectExpr(*columns).orderBy("value").collect()
    assert [tuple(row) for row in found] == [(0, 60_000, 60), (60_000, 120_000, 61)]


def test_an_application_is_found_and_read_while_it_runs(
    spark: None, kafka: str, tmp_path: Path
) -> None:
    scene = Scene(kafka, tmp_path, partitions=3).create_topics()
    total = scene.produce([(b"k%d" % (n % 20), b"v") for n in range(200)])
    with Run(scene) as run:
        run.wait_committed(total)
        which = {"application": scene.application_id, "store": "counts"}
        rows = first_rows("SELECT * FROM {store}", **which, state_dir=scene.state_dir)
        found = {bytes(row["key"]): row["value"] for row in rows}
    assert found == scene.expected()


def test_a_snapshot_is_a_table(session: SparkSession, tmp_path: Path) -> None:
    for partition in range(3):
        entries = [(f"k{n}", n, 1000) for n in range(partition, 300, 3)]
        write_snapshot(tmp_path, APPLICATION, "counts", partition, entries)
    frame = (
        session.read.format("penstock")
        .options(application=APPLICATION, store="counts", snapshot=tmp_path.as_uri())
        .options(key="string", value="long", pushdown="true")
        .load()
    )
    assert frame.rdd.getNumPartitions() == 3
    [total] = frame.selectExpr("count(*)", "sum(value)", "count(DISTINCT partition)").collect()
    assert tuple(total) == (300, 299 * 150, 3)
    assert pairs(frame.where("key = 'k7'")) == {("k7", 7)}
    assert frame.count() == 300


def test_what_is_wrong_is_said_in_our_words(reader: DataFrameReader) -> None:
    with pytest.raises(PySparkException, match="There is no store 'nothing'"):
        reader.option("store", "nothing").load()
