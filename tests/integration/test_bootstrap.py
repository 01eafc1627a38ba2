"""A store is filled from history, and the stream goes on exactly behind it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer, TopicPartition
from pyspark.sql import SparkSession

import penstock as ps
from penstock.cli import main
from penstock.config import Config
from penstock.errors import AnotherDriverError, BootstrapError, BootstrapUnfinishedError
from penstock.observability.crash_points import write_whole
from penstock.pipeline.history import History
from penstock.serdes.windowed import split_session_key
from tests.application_process import count
from tests.harness import Scene
from tests.in_process import Run, Topology, start_fails

pytestmark = pytest.mark.usefixtures("spark")

PROGRAM = """
import sys
import penstock as ps
app = ps.Application({id!r}, bootstrap_servers={servers!r}, state_dir={state!r})
stream = app.stream({source!r}, key=bytes, value=bytes)
stream.group_by_key().count("counts").to_stream().to({results!r})
"""


@pytest.fixture
def scene(kafka: str, tmp_path: Path) -> Scene:
    return Scene(kafka, tmp_path, partitions=3).create_topics()


def application(scene: Scene, topology: Topology = count) -> ps.Application:
    return Run(scene, topology).app


def parquet(scene: Scene, counts: dict[bytes, int], *, time_ms: int = 1_000) -> str:
    """Rows of keys and counts; each key has an older row too."""
    path = scene.directory / "history.parquet"
    table = pa.table(
        {
            "patient": pa.array([*counts, *counts], pa.binary()),
            "visits": pa.array([*([-1] * len(counts)), *counts.values()], pa.int64()),
            "at": pa.array([*([time_ms - 1] * len(counts)), *([time_ms] * len(counts))]),
        }
    )
    pq.write_table(table, path)
    return f"parquet:{path}"


COLUMNS: dict[str, Any] = {"key": "patient", "value": "visits", "timestamp": "at"}


def events(keys: range) -> list[tuple[bytes, bytes]]:
    return [(f"k{n}".encode(), b"") for n in keys]


def test_counts_go_on_from_ten_thousand_keys_of_parquet(scene: Scene) -> None:
    history = Counter({f"k{n}".encode(): n % 90 + 1 for n in range(10_000)})
    # What is in the topic before the offsets is in the history already.
    scene.produce(events(range(500)))
    result = application(scene).bootstrap(
        "counts", parquet(scene, history), **COLUMNS, offsets="latest"
    )
    assert result.entries == 10_000
    assert scene.counts(scene.changelog) == history
    assert {row.timestamp for row in scene.read(scene.changelog)} == {1_000}
    assert scene.committed() == 500

    sent = scene.produce(events(range(9_000, 11_000)))
    with Run(scene) as run:
        run.wait_committed(500 + sent)
    expected = history + Counter(key for key, _ in events(range(9_000, 11_000)))
    assert scene.counts(scene.changelog) == expected
    assert scene.counts() == {key: expected[key] for key, _ in events(range(9_000, 11_000))}
    # Without the disk, and a second bootstrap of what has run by now is refused.
    error = refused(scene, "counts", parquet(scene, history), **COLUMNS)
    assert "--replace" in error.hint


def refused(
    scene: Scene, store: str, history: Any, *, topology: Topology = count, **options: Any
) -> BootstrapError:
    with pytest.raises(BootstrapError) as caught:
        application(scene, topology).bootstrap(store, history, **options)
    return caught.value


def test_rows_that_do_not_fit_change_nothing_and_what_is_replaced_is_gone(scene: Scene) -> None:
    changes: list[tuple[dict[str, Any], str]] = [
        ({"key": "patients"}, "no column 'patients'"),
        ({"value": "patient", "key": "visits"}, "is of type bigint"),
        ({"offsets": {("topic", 0): 1}}, "no input"),
        ({"offsets": "9999-01-01T00:00:00Z", "timestamp": None}, "several rows"),
    ]
    for change, text in changes:
        error = refused(scene, "counts", parquet(scene, {b"k1": 1}), **{**COLUMNS, **change})
        assert text in str(error)
    sent = scene.produce(events(range(40)))
    with Run(scene) as run:
        run.wait_committed(sent)
    assert scene.counts() == {key: 1 for key, _ in events(range(40))}
    # A disk still has what is replaced now, of which the changelog has lost a part.
    admin = scene.admin
    for policy in ("compact,delete", "compact"):
        scene.set_config(scene.changelog, {"cleanup.policy": policy})
        if policy != "compact":
            lost = [TopicPartition(scene.changelog, partition, 5) for partition in range(3)]
            for future in admin.delete_records(lost).values():
                future.result()
    history = {b"k1": 7, b"new": 3}
    application(scene).bootstrap("counts", parquet(scene, history), **COLUMNS, replace=True)
    sent += scene.produce([*events(range(40)), (b"new", b"")])
    with Run(scene) as run:
        run.wait_committed(sent)
    last = {row.key: row.value for row in scene.read(scene.changelog)}
    held = {key: int.from_bytes(value, "big") for key, value in last.items() if value is not None}
    ones = {key: 1 for key, _ in events(range(40))}
    assert held == {**ones, b"k1": 8, b"new": 4}


def test_an_old_topic_is_history_and_its_last_record_counts(scene: Scene) -> None:
    old = f"{scene.id}-old"
    scene.create_topics(old)

    def number(value: int) -> bytes:
        return value.to_bytes(8, "big")

    scene.produce([(f"k{n}".encode(), number(n + 1)) for n in range(300)], old)
    scene.produce([(b"k0", number(9)), (b"k1", None)], old)
    # Three of what is in the input already are in the history: the rest is read.
    sent = scene.produce(events(range(40)))
    offsets = {(scene.source, partition): partition for partition in range(3)}
    application(scene).bootstrap("counts", f"topic:{old}", offsets=offsets)
    before = {f"k{n}".encode(): n + 1 for n in range(300)} | {b"k0": 9, b"k1": 0}
    read = [row.key for row in scene.read(scene.source) if row.offset >= row.partition]
    assert (len(read), scene.committed()) == (sent - 3, 3)
    with Run(scene) as run:
        run.wait_committed(sent)
    assert scene.counts() == {key: before[key] + 1 for key in read if key is not None}


def test_the_stream_goes_on_at_a_time_and_what_waits_within_it_is_in_the_history(
    scene: Scene,
) -> None:
    def rekeyed(app: ps.Application, source: str, results: str) -> None:
        stream = app.stream(source, key=bytes, value=bytes)
        grouped = stream.group_by(lambda key, _: key, key=bytes, name="by-key")
        grouped.count("counts").to_stream().to(results)

    now = datetime.now(UTC).replace(microsecond=0)
    # One that does not say where it is one is of UTC, wherever this runs.
    moment = now.replace(tzinfo=None)
    at_ms = int(now.timestamp() * 1000)
    produce_at(scene, at_ms - 1, range(30))
    produce_at(scene, at_ms, range(10, 20))
    between = f"{scene.application_id}-by-key-repartition"
    scene.create_topics(between)
    scene.set_config(between, {"retention.ms": "-1"})
    scene.produce(events(range(15)), between)
    history = parquet(scene, {key: 5 for key, _ in events(range(30))})
    result = application(scene, rekeyed).bootstrap("counts", history, **COLUMNS, offsets=moment)
    assert sum(result.position[scene.source].values()) == 30
    with Run(scene, rekeyed) as run:
        run.wait_committed(40)
        run.wait_for(lambda: len(scene.read(scene.results)) >= 10, what="all was counted")
    assert scene.counts() == {key: 6 for key, _ in events(range(10, 20))}


def produce_at(scene: Scene, time_ms: int, keys: range) -> None:
    """Events of one time, each where Kafka's partitioner puts its key."""
    producer = Producer({"bootstrap.servers": scene.bootstrap, "partitioner": "murmur2_random"})
    for key, value in events(keys):
        producer.produce(scene.source, value, key, timestamp=time_ms)
    assert producer.flush(30) == 0


def test_windows_have_their_start_in_a_column(scene: Scene) -> None:
    def windowed(app: ps.Application, source: str, results: str) -> None:
        windows = ps.tumbling(timedelta(hours=1), grace=timedelta(0))
        stream = app.stream(source, key=bytes, value=bytes)
        stream.group_by_key().windowed_by(windows).count("counts").to_stream().to(results)

    sent = scene.produce([(b"a", b"")])
    [row] = scene.read(scene.source)
    start = row.timestamp // 3_600_000 * 3_600_000
    path = scene.directory / "windows.parquet"
    columns = {"key": pa.array([b"a"]), "value": [41], "start": [start], "at": [row.timestamp]}
    pq.write_table(pa.table(columns), path)
    history = f"parquet:{path}"
    assert "--window-start" in refused(scene, "counts", history, topology=windowed).hint
    application(scene, windowed).bootstrap(
        "counts", history, timestamp="at", window_start="start", offsets="earliest"
    )
    with Run(scene, windowed) as run:
        run.wait_committed(sent)
    assert list(scene.counts().values()) == [42]


def sessions(app: ps.Application, source: str, results: str) -> None:
    windows = ps.session(timedelta(minutes=10), grace=timedelta(hours=1))
    stream = app.stream(source, key=bytes, value=bytes)
    stream.group_by_key().windowed_by(windows).count("counts").to_stream().to(results)


def session() -> SparkSession:
    found = SparkSession.getActiveSession()
    assert found is not None
    return found


@pytest.mark.parametrize("place", ["table:nowhere", "parquet:/nowhere"])
def test_a_place_that_spark_cannot_read_is_named(place: str) -> None:
    with pytest.raises(BootstrapError, match=f"Spark cannot read {place}"):
        History(session(), Config(), "app").read(place, {})


@pytest.fixture
def table(scene: Scene) -> Iterator[Callable[[dict[str, Any]], str]]:
    """Makes a table of Spark's catalog out of columns."""
    name = f"history_{scene.id}"

    def make(columns: dict[str, Any]) -> str:
        path = scene.directory / "table"
        path.mkdir()
        pq.write_table(pa.table(columns), path / "rows.parquet")
        session().sql(f"CREATE TABLE {name} USING parquet LOCATION '{path}'")
        return f"table:{name}"

    yield make
    session().sql(f"DROP TABLE IF EXISTS {name}")


def test_sessions_of_a_table_go_on_under_at_least_once(
    scene: Scene, table: Callable[[dict[str, Any]], str]
) -> None:
    # Before the offsets: it is in the history already.
    scene.produce([(b"open", b"")])
    now = scene.read(scene.source)[0].timestamp
    minute = 60_000
    history = table(
        {
            "key": pa.array([b"open", b"open", b"over"], pa.binary()),
            "value": [41, 7, 5],
            "start": [now - 5 * minute, now - 50 * minute, now - 50 * minute],
            "end": [now - minute, now - 40 * minute, now - 40 * minute],
        }
    )
    at_least_once = {"processing_guarantee": "at_least_once"}
    result = Run(scene, sessions, **at_least_once).app.bootstrap(
        "counts", history, timestamp="end", window_start="start", window_end="end", offsets="latest"
    )
    assert result.entries == 3
    sent = 1 + scene.produce([(b"open", b""), (b"over", b"")])
    with Run(scene, sessions, **at_least_once) as run:
        run.wait_committed(sent)
    last = {row.key or b"": row.value for row in scene.read(scene.changelog)}
    held = {split_session_key(key): value for key, value in last.items() if value is not None}
    counts = {
        (key, (start - now) // minute): int.from_bytes(value, "big")
        for (key, start, _), value in held.items()
    }
    # One session grew, in the place of the old one; where it was long over there is a new one.
    grown = {(b"open", -5): 42, (b"over", 0): 1}
    assert counts == {(b"open", -50): 7, (b"over", -50): 5, **grown}


def program_of(scene: Scene) -> Path:
    program = scene.directory / "program.py"
    text = PROGRAM.format(
        id=scene.application_id,
        servers=scene.bootstrap,
        state=str(scene.state_dir),
        source=scene.source,
        results=scene.results,
    )
    program.write_text(text)
    return program


def test_a_bootstrap_that_died_is_never_taken_for_whole(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    history = {f"k{n}".encode(): 5 for n in range(1000)}
    words = ["bootstrap", str(program_of(scene)), "--store", "counts", "--json"]
    words += ["--from", parquet(scene, history)]
    words += ["--key", "patient", "--value", "visits", "--timestamp", "at"]
    # A worker dies, and Spark runs its part again; then, all but done, the driver.
    crash = scene.directory / "crash"
    crash.mkdir()
    points = [crash / "bootstrap.after_chunk", crash / "bootstrap.before_finish"]
    for point in points:
        write_whole(point, "1")
    died = subprocess.run(
        [sys.executable, "-m", "penstock.cli", *words],
        env={**os.environ, "PENSTOCK_CRASH_DIR": str(crash)},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert died.returncode == -9, died.stderr
    assert not any(point.exists() for point in points)
    error = start_fails(scene)
    assert isinstance(error, BootstrapUnfinishedError)
    assert "penstock bootstrap" in error.hint
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert not ended.value.code
    answer = json.loads(capsys.readouterr().out)
    assert answer["ok"]
    assert answer["data"]["entries"] == 1000
    # A part that ran twice was written twice; the state is the same.
    assert scene.counts(scene.changelog) == history
    sent = scene.produce(events(range(10)))
    with Run(scene) as run:
        run.wait_committed(sent)
        with pytest.raises(AnotherDriverError):
            application(scene).bootstrap("counts", parquet(scene, history), **COLUMNS)
    assert scene.counts() == {key: 6 for key, _ in events(range(10))}


def test_two_stores_of_one_task_are_filled_to_one_position(scene: Scene) -> None:
    def two(app: ps.Application, source: str, results: str) -> None:
        grouped = app.stream(source, key=bytes, value=bytes).group_by_key()
        grouped.count("counts").to_stream().to(results)
        grouped.count("again")

    scene.produce(events(range(30)))
    history = parquet(scene, {b"a": 1})
    app = application(scene, two)
    result = app.bootstrap("counts", history, **COLUMNS, offsets="latest")
    assert result.empty_stores == ("again",)
    error = refused(scene, "again", history, topology=two, **COLUMNS, offsets="earliest")
    assert "keep counts" in str(error)
    again = app.bootstrap("again", history, **COLUMNS)
    assert again.position == result.position
