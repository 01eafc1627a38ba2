"""A whole application whose state PostgreSQL keeps: its server and its instances have bad days."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import penstock as ps
from penstock.errors import ExternalStoreError
from penstock.observability.crash_points import EXTERNAL_POINTS, HOLD, write_whole
from tests.harness import Scene
from tests.in_process import Run, start_fails
from tests.postgres_server import PASSWORD, PostgresServer

pytestmark = pytest.mark.spark

VARIABLE = "PENSTOCK_TEST_DSN"
KEYS = 50


def counted(app: ps.Application, source: str, results: str) -> None:
    grouped = app.stream(source, key=bytes, value=bytes).group_by_key()
    counts = grouped.count("counts", kept_in=ps.PostgreSQL(dsn_variable=VARIABLE))
    counts.to_stream().to(results)


class Count(ps.Processor[bytes, bytes, bytes, int]):
    """Counts by hand, and looks at the whole store too."""

    def init(self, context: ps.ProcessorContext) -> None:
        super().init(context)
        self.counts = context.store("boxed")

    def process(self, record: ps.Record[bytes, bytes]) -> None:
        count = (self.counts.get(record.key) or 0) + 1
        self.counts.put(record.key, count)
        assert dict(self.counts.range(record.key, record.key)) == {record.key: count}
        self.context.forward(record.with_value(count))


def counted_by_hand(app: ps.Application, source: str, results: str) -> None:
    kept_in = ps.PostgreSQL(dsn_variable=VARIABLE, outbox=True)
    app.add_state_store(ps.key_value_store("boxed", key=bytes, value=int, kept_in=kept_in))
    stream = app.stream(source, key=bytes, value=bytes)
    stream.process(Count, stores=["boxed"], key=bytes, value=int).to(results)


class Boxed(Scene):
    """The topics of the same application's other half, whose outputs go through an outbox."""

    @property
    def source(self) -> str:
        return f"{self.id}-boxed"

    @property
    def results(self) -> str:
        return f"{self.id}-boxed-out"


def test_a_stopped_server_and_killed_instances_cost_no_record(
    kafka: str,
    spark: None,
    postgres: PostgresServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain = Scene(kafka, tmp_path, partitions=2).create_topics()
    boxed = Boxed(kafka, tmp_path, partitions=2, id=plain.id).create_topics()
    others = f"{plain.id}-others", f"{plain.id}-others-out"
    plain.create_topics(*others)
    dsn = postgres.create_database(plain.id)
    monkeypatch.setenv(VARIABLE, dsn)
    monkeypatch.setenv("PENSTOCK_CRASH_DIR", str(tmp_path))

    def all_three(app: ps.Application, source: str, results: str) -> None:
        counted(app, source, results)
        counted_by_hand(app, boxed.source, boxed.results)
        stream = app.stream(others[0], key=bytes, value=bytes)
        stream.group_by_key().count("others").to_stream().to(others[1])

    def is_done() -> bool:
        return all(each.committed() >= totals[each.source] for each in (plain, boxed))

    def wait(run: Run) -> None:
        run.wait_for(is_done, what=f"{totals} were committed")

    totals = {each.source: feed(each) for each in (plain, boxed)}
    with Run(plain, all_three) as run:
        wait(run)
        held = tmp_path / "external.in_transaction.held"
        write_whole(tmp_path / "external.in_transaction", HOLD)
        for scene in (plain, boxed):
            totals[scene.source] += feed(scene)
        run.wait_for(held.exists, what="a slice was being written")
        postgres.stop()
        held.unlink()
        plain.produce([(b"other", b"")] * 3, others[0])
        run.wait_for(lambda: plain.counts(others[1]) == {b"other": 3}, what="other tasks went on")
        run.wait_for(lambda: says(run, "does not answer"), what="a notice")
        postgres.start()
        wait(run)
        for point in EXTERNAL_POINTS:
            for scene in (plain, boxed):
                write_whole(tmp_path / point, "1")
                totals[scene.source] += feed(scene)
                run.wait_for(gone(tmp_path / point), what=f"the crash at {point}")
                wait(run)
    for scene, table in ((plain, "counts"), (boxed, "boxed")):
        expected = scene.expected()
        rows = postgres.query(dsn, f"SELECT key, value FROM {table}")
        assert {key: int.from_bytes(value, "big") for key, value in rows} == expected
        assert scene.counts() == expected
    every = {key: list(range(1, n + 1)) for key, n in expected.items()}
    assert boxed.sequences() == every
    # Outputs of a slice come again if it ended between them and the database.
    assert {key: sorted(set(seen)) for key, seen in plain.sequences().items()} == every
    assert not says(run, PASSWORD)


def feed(scene: Scene) -> int:
    return scene.produce((b"k%d" % (i % KEYS), b"") for i in range(4 * KEYS))


def gone(path: Path) -> Callable[[], bool]:
    return lambda: not path.exists()


def says(run: Run, text: str) -> bool:
    return any(text in notice for notice in run.notices)


def test_a_wrong_password_ends_the_start_and_is_not_shown(
    kafka: str,
    spark: None,
    postgres: PostgresServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene(kafka, tmp_path, partitions=2).create_topics()
    monkeypatch.setenv(VARIABLE, postgres.dsn(password="open-sesame"))
    error = start_fails(scene, counted)
    assert type(error) is ExternalStoreError
    assert "password authentication failed" in str(error)
    assert VARIABLE in error.hint
    assert "open-sesame" not in f"{error!r} {error}"
