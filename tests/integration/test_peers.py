"""An instance with an empty disk gets its stores from another one, and the rest from the log."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from bench.errors import BenchError
from bench.instances import STORE, Instances

KEYS = [b"k%05d" % n for n in range(3000)]


@pytest.fixture
def instances(kafka: str, tmp_path: Path) -> Iterator[Instances]:
    application = f"app-{uuid.uuid4().hex[:8]}"
    with Instances(kafka, application, tmp_path, partitions=2) as made:
        yield made


def _write(kafka: str, instances: Instances, keys: list[bytes], value: bytes) -> None:
    """Changes of the store, as an owner would have logged them: the same in each partition."""
    producer = Producer({"bootstrap.servers": kafka})
    for partition in range(instances.partitions):
        for key in keys:
            producer.produce(instances.changelog, value, key, partition)
        producer.poll(0)
    assert producer.flush(30) == 0


def _restored(instances: Instances, name: str) -> int:
    return sum(one.restored for status in instances.statuses(name) for one in status.restores)


@pytest.mark.parametrize("owner", ["at work", "at rest"])
def test_a_store_comes_from_a_peer_and_the_tail_from_the_changelog(
    kafka: str, tmp_path: Path, instances: Instances, owner: str
) -> None:
    _write(kafka, instances, KEYS, b"old" * 100)
    first, second = instances.start("first"), instances.start("second")
    instances.take(first)
    assert _restored(instances, first) == 2 * len(KEYS)
    if owner == "at rest":
        instances.stop(first)
        first = instances.start("first")
    _write(kafka, instances, KEYS[:10], b"new")
    notes = instances.take(second, peers=[first])
    assert sum("comes from another instance's copy" in note for note in notes) == 2, notes
    assert _restored(instances, second) == 2 * 10
    for partition in range(2):
        values = instances.get(second, partition, KEYS)
        assert values == [b"new"] * 10 + [b"old" * 100] * (len(KEYS) - 10)
    assert not list(tmp_path.glob("*/*/*/.*.peer"))


def test_a_store_that_no_peer_gives_whole_comes_from_the_changelog(
    kafka: str, tmp_path: Path, instances: Instances
) -> None:
    _write(kafka, instances, KEYS, b"v" * 100)
    first, second, third = (instances.start(slot) for slot in ("first", "second", "third"))
    instances.take(first)
    instances.stop(first)
    first = instances.start("first")
    # One partition of the copy is damaged, the other is gone.
    shutil.rmtree(tmp_path / "first" / instances.application_id / "0_1" / STORE)
    [data] = (tmp_path / "first" / instances.application_id / "0_0" / STORE).glob("*.sst")
    data.write_bytes(data.read_bytes()[:-100])
    instances.take(second, peers=[third, first])
    assert _restored(instances, second) == 2 * len(KEYS)
    for partition in range(2):
        assert instances.get(second, partition, KEYS) == [b"v" * 100] * len(KEYS)


def test_a_damaged_store_is_rebuilt_though_a_peer_has_it_too(
    kafka: str, tmp_path: Path, instances: Instances
) -> None:
    """From the peer if it cannot be opened; if a read finds out, the changelog alone is trusted."""
    _write(kafka, instances, KEYS, b"v" * 100)
    first, second = instances.start("first"), instances.start("second")
    instances.take(first)
    instances.take(second, peers=[first])
    instances.stop(second)
    own = tmp_path / "second" / instances.application_id
    (own / "0_0" / STORE / "CURRENT").write_bytes(b"nonsense")
    # Blocks behind the first, which holds the store's own records: seen only when keys are read.
    data = max((own / "0_1" / STORE).glob("*.sst"), key=lambda path: path.stat().st_size)
    with data.open("r+b") as file:
        file.seek(data.stat().st_size // 3)
        file.write(b"\xff" * 64)
    _write(kafka, instances, KEYS[:10], b"new")
    second = instances.start("second")
    notes = instances.take(second, peers=[first])
    assert any("0_0" in note and "cannot be read" in note for note in notes), notes
    assert any("task 0_0 comes from another instance's copy" in note for note in notes), notes
    with pytest.raises(BenchError, match="cannot be read"):
        instances.get(second, 1, KEYS)
    instances.wait_running(second)
    notes = [note for status in instances.statuses(second) for note in status.notes]
    assert any("0_1" in note and "rebuilding it from" in note for note in notes), notes
    assert not any("task 0_1 comes from another instance's copy" in note for note in notes), notes
    for partition in range(2):
        values = instances.get(second, partition, KEYS)
        assert values == [b"new"] * 10 + [b"v" * 100] * (len(KEYS) - 10)
