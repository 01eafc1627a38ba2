"""An instance with an empty disk gets its stores from another one, and the rest from the log."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

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
    assert sum("comes from a snapshot" in note for note in notes) == 2, notes
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
