"""`penstock state` beside a broker: lag, and whether stores are what their changelogs say."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.cli import main
from penstock.stores.contract import stored_value
from penstock.stores.rocksdb import RocksDBStore
from tests.harness import Scene
from tests.in_process import Run

pytestmark = pytest.mark.usefixtures("spark")


def counts(app: ps.Application, source: str, results: str) -> None:
    grouped = app.stream(source, key=bytes, value=bytes).group_by_key()
    grouped.count("counts").to_stream().to(results)
    windows = ps.tumbling(timedelta(minutes=1), grace=timedelta(minutes=1))
    grouped.windowed_by(windows).count("minutes", retention=timedelta(hours=1))


def state(
    capsys: pytest.CaptureFixture[str], scene: Scene, state_dir: Path, command: str, *more: str
) -> tuple[int, dict[str, dict[str, Any]]]:
    """The exit status, and what was found of each store by its place in the application."""
    where = ["--application", scene.application_id, "--state-dir", str(state_dir)]
    servers = ["--bootstrap-servers", scene.bootstrap]
    with pytest.raises(SystemExit) as ended:
        main(["state", command, *where, *servers, "--json", *more])
    answer = json.loads(capsys.readouterr().out)
    found = {each["place"].split("/", 1)[1]: each for each in answer["data"]["stores"]}
    assert isinstance(ended.value.code, int)
    return ended.value.code, found


def records(scene: Scene, store: str) -> Counter[int]:
    """How many records each partition of a changelog holds."""
    topic = f"{scene.application_id}-{store}-changelog"
    return Counter(row.partition for row in scene.read(topic))


def test_stores_are_compared_with_their_changelogs(
    kafka: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scene = Scene(kafka, tmp_path, partitions=2).create_topics()
    total = scene.produce((b"k%d" % (i % 40), b"v") for i in range(400))
    with Run(scene, counts) as run:
        run.wait_committed(total)
        status, found = state(capsys, scene, scene.state_dir, "ls")
        assert status == 0
        assert all("is held by process" in each["problem"] for each in found.values())
    places = ["0_0/counts", "0_0/minutes", "0_1/counts", "0_1/minutes"]
    status, found = state(capsys, scene, scene.state_dir, "verify")
    assert status == 0
    assert sorted(found) == places
    assert all(each["entries"] > 0 and not each["differences"] for each in found.values())
    assert sum(found[f"0_{p}/counts"]["entries"] for p in (0, 1)) == 40
    _, found = state(capsys, scene, scene.state_dir, "ls")
    assert [found[place]["lag"] for place in places] == [0, 0, 0, 0]
    assert all(each["offset"] < each["changelog_end"] for each in found.values())

    before = {name: records(scene, name) for name in ("counts", "minutes")}
    copy, broken = tmp_path / "copy", tmp_path / "broken"
    shutil.copytree(scene.state_dir, copy)
    shutil.copytree(scene.state_dir, broken)
    total += scene.produce((b"k%d" % (i % 40), b"v") for i in range(200))
    with Run(scene, counts) as run:
        run.wait_committed(total)
    # A store that is behind is right as far as it goes.
    status, found = state(capsys, scene, copy, "verify")
    assert status == 0
    assert not any(each["differences"] or each["unjudged"] for each in found.values())
    _, found = state(capsys, scene, copy, "ls")
    for name, was in before.items():
        now = records(scene, name)
        for partition in (0, 1):
            lag = found[f"0_{partition}/{name}"]["lag"]
            assert lag == now[partition] - was[partition] > 0

    store = RocksDBStore("counts", broken / scene.application_id / "0_0" / "counts")
    (first, value), (second, _) = store.range(limit=2)
    # The first two are written again later on: what they were is the changelog's to forget.
    store.apply([(first, value + b"!"), (second, None), (b"new", value)], offset=None)
    store.close()
    status, found = state(capsys, scene, broken, "verify", "--store", "counts")
    assert status == 1
    assert found["0_0/counts"]["differences"] == {"extra": 1}
    assert found["0_0/counts"]["keys"] == [{"key": f"0x{b'new'.hex()}", "kind": "extra"}]
    assert found["0_0/counts"]["unjudged"] == 2
    assert found["0_1/counts"]["differences"] == {}

    store = RocksDBStore("counts", scene.state_dir / scene.application_id / "0_0" / "counts")
    store.apply([(first, value + b"!"), (second, None), (b"new", value)], offset=None)
    store.close()
    status, found = state(capsys, scene, scene.state_dir, "verify")
    assert status == 1
    assert [(each["key"], each["kind"]) for each in found["0_0/counts"]["keys"]] == [
        (f"0x{first.hex()}", "different"),
        (f"0x{second.hex()}", "missing"),
        (f"0x{b'new'.hex()}", "extra"),
    ]
    assert [place for place in places if found[place]["differences"]] == ["0_0/counts"]
    # What its changelog was told to forget is no fault of a store; what is younger is.
    store = RocksDBStore("counts", scene.state_dir / scene.application_id / "0_0" / "counts")
    store.apply([(b"old", stored_value(1, b"x"))], offset=None)
    store.close()
    status, found = state(capsys, scene, scene.state_dir, "verify", "--store", "counts")
    assert (found["0_0/counts"]["differences"]["extra"], found["0_0/counts"]["forgotten"]) == (2, 0)
    scene.set_config(scene.changelog, {"cleanup.policy": "compact,delete"})
    status, found = state(capsys, scene, scene.state_dir, "verify", "--store", "counts")
    assert status == 1
    assert (found["0_0/counts"]["differences"]["extra"], found["0_0/counts"]["forgotten"]) == (1, 1)
    scene.set_config(scene.changelog, {"cleanup.policy": "compact"})
    (broken / scene.application_id / "0_0" / "counts" / "CURRENT").write_bytes(b"nonsense")
    status, found = state(capsys, scene, broken, "verify")
    assert status == 1
    assert [place for place in places if found[place]["problem"]] == ["0_0/counts"]
