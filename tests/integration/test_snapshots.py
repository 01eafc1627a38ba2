"""A task whose disk is gone starts from a snapshot and reads only the tail of its changelog."""

from __future__ import annotations

import shutil
from collections import Counter
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

import penstock as ps
from penstock.changelog.snapshots import Manifest
from penstock.pipeline.store_tables import KeyFilter, SnapshotChoice, SnapshotTable, typed
from penstock.serdes import serde_of
from tests.harness import Scene
from tests.in_process import Run

pytestmark = pytest.mark.usefixtures("spark")

WINDOW = timedelta(minutes=1)

NEWEST = SnapshotChoice()


def counts(app: ps.Application, source: str, results: str) -> None:
    """A plain and a windowed count: entries as they are, and entries behind an index."""
    grouped = app.stream(source, key=bytes, value=bytes).group_by_key()
    grouped.count("counts").to_stream().to(results)
    windows = ps.tumbling(WINDOW, grace=timedelta(hours=1))
    grouped.windowed_by(windows).emit_on_window_close().count("by-minute")


def _snapshots(directory: Path) -> dict[tuple[str, str], Manifest]:
    return {
        (path.parent.parent.name, path.parent.name): msgspec.json.decode(
            path.read_bytes(), type=Manifest
        )
        for path in directory.glob("*/*/*/manifest.json")
    }


def _keys(count: int) -> list[tuple[bytes, bytes]]:
    return [(b"k%d" % (n % 7), b"v") for n in range(count)]


def _last_counts(scene: Scene) -> dict[bytes, int]:
    found: Counter[bytes] = Counter()
    for row in scene.read(scene.results):
        assert row.key is not None
        assert row.value is not None
        found[row.key] = max(found[row.key], int.from_bytes(row.value, "big"))
    return dict(found)


def _sum(scene: Scene, location: Path, choice: SnapshotChoice = NEWEST) -> int:
    """All counts in a snapshot, as Spark would read them."""
    table = SnapshotTable(
        location=location.as_uri(),
        application_id=scene.application_id,
        store="counts",
        key=serde_of(bytes),
        value=serde_of(int),
        choice=choice,
    )
    shape = table.shape()
    assert shape.partitions == (0, 1)
    return sum(
        sum(batch.column("value").to_pylist())
        for partition in shape.partitions
        for raw in table.read(shape, partition, KeyFilter())
        for batch in typed(raw, shape, partition)
    )


def test_a_store_comes_back_from_a_snapshot_and_the_tail(kafka: str, tmp_path: Path) -> None:
    scene = Scene(kafka, tmp_path, partitions=2).create_topics()
    location = tmp_path / "snapshots"
    options = {
        "snapshot_location": location.as_uri(),
        "snapshot_interval": timedelta(milliseconds=300),
        "snapshot_keep": 100,
    }
    total = scene.produce(_keys(700))
    with Run(scene, counts, **options) as run:
        run.wait_committed(total)
        run.wait_for(lambda: len(_snapshots(location)) == 4, what="every store was copied")
        wanted = {where: manifest.offset for where, manifest in _snapshots(location).items()}
        then = max(manifest.written_ms for manifest in _snapshots(location).values())
        total += scene.produce(_keys(700))
        run.wait_committed(total)
        run.wait_for(
            lambda: all(each.offset > wanted[w] for w, each in _snapshots(location).items()),
            what="every store was copied again",
        )
    # What was there then can still be read.
    assert 0 < _sum(scene, location, SnapshotChoice(until_ms=then)) < _sum(scene, location)
    total += scene.produce(_keys(70))
    with Run(scene, counts) as run:
        run.wait_committed(total)
    # One store's copy is damaged: that one is rebuilt, the others start from theirs.
    name, newest = next((t, m) for (t, s), m in _snapshots(location).items() if s == "counts")
    file = next(file for file in newest.files if file.name.endswith(".sst"))
    [damaged] = location.glob(f"*/{name}/counts/{file.name}-{file.size}-*")
    damaged.write_bytes(damaged.read_bytes()[:-1])
    shutil.rmtree(scene.state_dir)
    total += scene.produce(_keys(70))
    with Run(scene, counts, **options) as run:
        run.wait_committed(total)
    started = [notice for notice in run.notices if "comes from a snapshot" in notice]
    rebuilt = [notice for notice in run.notices if "is rebuilt from its changelog" in notice]
    assert (len(started), len(rebuilt)) == (3, 1), run.notices
    assert _last_counts(scene) == {b"k%d" % n: total // 7 for n in range(7)}
