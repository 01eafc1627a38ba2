"""Stores that users bring, on a real broker: failing ones, and two on the whole stack."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import pytest

import penstock as ps
from penstock.cli import main
from penstock.errors import CustomStoreError, TopologyError
from penstock.examples.catalogue import find_example
from penstock.examples.visit_sketch import CountMinSketch, Estimates
from penstock.instance.task import OpenTask
from penstock.observability.crash_points import write_whole
from penstock.stores.contract import Change, stored_value
from penstock.stores.rocksdb import RocksDBStore
from penstock.testing import TopologyTestDriver
from tests.harness import Scene, wait_until
from tests.in_process import Run, start_fails
from tests.integration.test_task import World, ask, commit, read


class Flaky(RocksDBStore):
    """Fails as often as it is told to, by method."""

    fails: ClassVar[Counter[str]] = Counter()

    def __init__(self, name: str, directory: Path) -> None:
        super().__init__(name, directory)

    def _fail(self, method: str) -> None:
        if self.fails[method] > 0:
            self.fails[method] -= 1
            raise OSError(f"{method} fails")

    def get_many(self, keys: Any) -> list[bytes | None]:
        self._fail("get_many")
        return super().get_many(keys)

    def apply(self, changes: Any, *, offset: int | None) -> None:
        half: list[Change] = list(changes)
        super().apply(half[: len(half) // 2], offset=None)
        self._fail("apply")
        super().apply(half, offset=offset)

    def flush(self) -> None:
        self._fail("flush")
        super().flush()

    def close(self) -> None:
        super().close()
        self._fail("close")


@pytest.fixture
def world(kafka: str, tmp_path: Path) -> Iterator[World]:
    Flaky.fails.clear()
    world = World(kafka, tmp_path)
    yield world
    world.close()


FLAKY = f"{__name__}:Flaky"
ROWS = [(b"a", b"1", 7), (b"b", b"2", 8)]


def wait_running(task: OpenTask) -> None:
    wait_until(lambda: task.status().state == "running", what="the task is running again")


def test_what_cannot_be_had_is_refused_by_name(world: World) -> None:
    for supplier in ("no_such_module:Store", "builtins:print"):
        task = world.try_to_take(world.store_order(supplier=supplier))
        fault = task.status().fault
        assert fault is not None
        assert (fault.kind, fault.where["supplier"]) == ("CustomStoreError", supplier)
        assert fault.where["task"] == "0_0"
        task.close()


def test_a_task_whose_store_fails_is_taken_again_and_loses_nothing(world: World) -> None:
    world.produce(9)
    task = world.take(world.store_order(supplier=FLAKY))
    assert commit(task, ROWS, to=1, metadata={}).status == "ok"

    def reads() -> str:
        return str(read(task, "get", (b"a",))[-1].status)

    def commits() -> str:
        return commit(task, [(b"a", b"9", 9)], to=2, metadata={}).status

    def flushes() -> str:
        task.flush()
        return "lost"

    calls: dict[str, Callable[[], str]] = {"get_many": reads, "apply": commits, "flush": flushes}
    for number, (method, call) in enumerate(calls.items(), start=1):
        Flaky.fails.update({method: 1, "close": 1})
        assert call() == "lost"
        wait_running(task)
        # Each failure stands alone: a commit came through in between.
        assert commit(task, [(b"c", b"%d" % number, 9)], to=2 + number, metadata={}).status == "ok"
        note = task.status().notes[-1]
        assert f"The method {method} of the store counts raised OSError" in note
        assert "task 0_0" in note
    # What was committed before the store failed is there: its changelog has it.
    assert ask(task, "get", (b"a",), (b"b",), (b"c",)) == [
        (stored_value(9, b"9"),),
        (stored_value(8, b"2"),),
        (stored_value(9, b"3"),),
    ]
    Flaky.fails.update({"flush": 1, "close": 1})
    task.close()


def test_a_store_that_goes_on_failing_stops_its_task_with_its_name(world: World) -> None:
    world.produce(2)
    task = world.take(world.store_order(supplier=FLAKY))
    assert commit(task, ROWS, to=1, metadata={}).status == "ok"
    Flaky.fails["get_many"] = 100
    for _ in range(3):
        wait_until(lambda: task.status().state in ("running", "failed"), what="it settled")
        assert read(task, "get", (b"a",))[-1].status == "lost"
    fault = task.status().fault
    assert fault is not None
    assert fault.kind == "CustomStoreError"
    assert {"store": "counts", "task": "0_0", "method": "get_many"}.items() <= fault.where.items()
    task.close()


# The whole stack.

SUPPLIER = "tests.integration.documented_store:SqliteStore"


class Sketch(CountMinSketch):
    """Small enough that pages meet in its cells."""

    def __init__(self, store: ps.SliceStore) -> None:
        super().__init__(store, depth=2, width=64, chunk=16)


def visits(app: ps.Application, source: str, results: str) -> None:
    pages = app.stream(source, key=str, value=str)
    app.add_state_store(ps.custom_store("visits", Sketch))
    pages.process_values(Estimates, stores=["visits"], value=int).to(results)
    pages.group_by_key().count("counts", supplier=SUPPLIER).to_stream().to(f"{results}-exact")


def refused(made_of: str) -> Callable[[ps.Application, str, str], None]:
    def topology(app: ps.Application, source: str, results: str) -> None:
        app.add_state_store(ps.custom_store("visits", made_of))
        pages = app.stream(source, key=str, value=str)
        pages.process_values(Estimates, stores=["visits"], value=int).to(results)

    return topology


def lacking(app: ps.Application, source: str, results: str) -> None:
    counts = app.stream(source, key=str, value=str).group_by_key()
    counts.count("counts", supplier="builtins:print").to_stream().to(results)


PROGRAM = """
import penstock as ps
from tests.integration.test_custom_stores import visits

app = ps.Application({id!r}, bootstrap_servers={servers!r}, state_dir={state!r})
visits(app, {source!r}, {results!r})
"""


def verified(scene: Scene, capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, Any]]:
    """What `penstock state verify` says of each store."""
    program = scene.directory / "program.py"
    facts = {"id": scene.application_id, "servers": scene.bootstrap, "state": str(scene.state_dir)}
    program.write_text(PROGRAM.format(**facts, source=scene.source, results=scene.results))
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(["state", "verify", str(program), "--json"])
    assert not ended.value.code
    stores = json.loads(capsys.readouterr().out)["data"]["stores"]
    return {each["place"].rpartition("/")[2]: each for each in stores}


@pytest.mark.usefixtures("spark")
def test_a_sketch_and_a_store_in_sqlite_go_on_without_their_disk(
    kafka: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scene = Scene(kafka, tmp_path, partitions=1).create_topics()
    exact = f"{scene.results}-exact"
    scene.create_topics(exact)
    error = start_fails(scene, refused("no_such_module:Sketch"), num_instances=1)
    assert isinstance(error, TopologyError)
    assert "no_such_module:Sketch" in str(error)
    records = [
        (each.key, each.value) for each in islice(find_example("visit-sketch").test_data(), 400)
    ]
    scene.produce(records[:200])
    with Run(scene, visits, num_instances=1) as run:
        run.wait_committed(200)
    assert list(scene.state_dir.rglob("counts/store.db"))
    shutil.rmtree(scene.state_dir)
    scene.produce(records[200:])
    with Run(scene, visits, num_instances=1) as run:
        run.wait_committed(400)
    found = verified(scene, capsys)
    assert found.keys() == {"counts", "visits"}
    assert all(each["entries"] > 0 and not each["differences"] for each in found.values())

    app = ps.Application("driven", statestore_cache_max_bytes=0)
    visits(app, "in", "out")
    driver = TopologyTestDriver(app)
    driver.input_topic("in", key=str, value=str).pipe_all(records)
    for topic, driven in ((scene.results, "out"), (exact, "out-exact")):
        wanted = driver.output_topic(driven, key=str, value=int).read_pairs()
        given = [
            ((row.key or b"").decode(), int.from_bytes(row.value or b"", "big"))
            for row in scene.read(topic)
        ]
        assert given == wanted
    logged = scene.read(f"{scene.application_id}-visits-changelog")
    # Chunks, and not visits: far fewer than two a record.
    assert {(row.key or b"")[:1] for row in logged} == {b"h", b"c"}
    assert len(logged) < len(records)


@pytest.mark.usefixtures("spark")
def test_a_supplier_that_is_none_stops_the_start(kafka: str, tmp_path: Path) -> None:
    scene = Scene(kafka, tmp_path, partitions=2).create_topics()
    error = start_fails(scene, lacking, num_instances=1)
    assert isinstance(error, CustomStoreError)
    assert "'builtins:print' gives for the store counts lacks name, apply" in str(error)


def failing(app: ps.Application, source: str, results: str) -> None:
    grouped = app.stream(source, key=bytes, value=bytes).group_by_key()
    supplier = "tests.integration.failing_store:FailingStore"
    grouped.count("counts", supplier=supplier).to_stream().to(results)


@pytest.mark.usefixtures("spark")
def test_one_tasks_store_fails_and_the_others_go_on(kafka: str, tmp_path: Path) -> None:
    scene = Scene(kafka, tmp_path, partitions=3).create_topics()
    fails, shut = scene.state_dir / "fails-0_1", scene.state_dir / "shut-0_1"

    def produce() -> int:
        return scene.produce((b"k%d" % n, b"") for n in range(30))

    total = produce()
    in_task = sum(row.partition == 1 for row in scene.read(scene.source))
    assert 0 < in_task < total
    with Run(scene, failing, num_instances=1) as run:
        run.wait_committed(total)
        # Its task is taken again, which lasts until the store can be had.
        shut.touch()
        write_whole(fails, "1")
        total += produce()
        run.wait_committed(total - in_task)
        assert scene.committed() == total - in_task
        shut.unlink()
        run.wait_committed(total)
        [notice] = run.notices
        assert "get_many of the store counts raised ConnectionError" in notice
        assert "task 0_1" in notice
        # One that never works again is the end.
        write_whole(fails, "1000")
        total += produce()
        with pytest.raises(CustomStoreError) as failed:
            run.wait_end()
    where = {"store": "counts", "task": "0_1", "method": "get_many"}
    assert where.items() <= failed.value.where.items()
    assert "Mend the store" in failed.value.hint
    assert scene.committed() < total

    fails.unlink()
    with Run(scene, failing, num_instances=1) as run:
        run.wait_committed(total)
    expected = scene.expected()
    assert scene.sequences() == {key: list(range(1, n + 1)) for key, n in expected.items()}
