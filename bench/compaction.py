"""How changelog settings change its size and the time to restore from it.

    PYTHONPATH=src:. python -m bench.compaction [--updates 3000000] [--keys 10000]

Writes the same updates to changelogs of one embedded Kafka: one with Kafka's default settings, one
with only the dirty ratio lowered, one whose settings have it compacted early. Waits until the
cleaner has nothing more to do, and then restores a store on an empty disk from each, by the code
that an instance uses.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from confluent_kafka import Producer

from penstock.changelog.clients import LogClients
from penstock.changelog.reading import wait_stable
from penstock.changelog.restore import RestoreOutcome, restore
from penstock.changelog.topic_admin import TopicAdmin
from penstock.changelog.topics import changelog_topic
from penstock.config import Config
from penstock.local.broker import EmbeddedKafka, KafkaOptions
from penstock.stores.rocksdb import RocksDBStore

APPLICATION = "compaction"
EARLY = {
    "segment.bytes": "16777216",
    "segment.ms": "10000",
    "min.cleanable.dirty.ratio": "0.01",
}
CASES: dict[str, dict[str, str]] = {
    "default": {},
    "ratio_alone": {"min.cleanable.dirty.ratio": "0.01"},
    "early": EARLY,
}
_VALUE_BYTES = 100
_SETTLED_SECONDS = 20.0
_PAUSE_SECONDS = 1.0
_CLEANING_SECONDS_MAX = 300.0


def main() -> None:
    """Measure both and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--updates", type=int, default=3_000_000)
    parser.add_argument("--keys", type=int, default=10_000)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        # Brokers look for something to clean every 15 s; that is Kafka's default too.
        options = KafkaOptions(directory=Path(directory, "kafka"))
        with EmbeddedKafka(options) as kafka:
            config = Config(bootstrap_servers=kafka.bootstrap_servers)
            rows = {
                name: _measure(name, settings, config, Path(directory), asked.updates, asked.keys)
                for name, settings in CASES.items()
            }
    print(json.dumps({"updates": asked.updates, "keys": asked.keys, **rows}, indent=2))


def _measure(
    name: str, settings: Mapping[str, str], config: Config, directory: Path, updates: int, keys: int
) -> dict[str, float]:
    spec = changelog_topic(APPLICATION, name.replace("_", "-"), partitions=1, config=settings)
    TopicAdmin(config).ensure([spec])
    _write(config, spec.name, updates, keys)
    # A segment is closed by the first record after its time; an application that goes on writes it.
    time.sleep(int(EARLY["segment.ms"]) / 1000)
    _write(config, spec.name, keys, keys)
    log = directory / "kafka"
    _wait_cleaned(log, spec.name)
    size = _bytes(log, spec.name)
    clients = LogClients(config, APPLICATION)
    held = wait_stable(clients, [(spec.name, 0)])[spec.name, 0]
    store = RocksDBStore(name, directory / f"store-{name}")
    consumer = clients.consumer()
    began = time.monotonic()
    result = restore(store, topic=spec.name, partition=0, consumer=consumer, until=held.end)
    seconds = time.monotonic() - began
    assert result.outcome is RestoreOutcome.COMPLETE
    assert sum(1 for _ in store.all()) == keys
    store.close()
    consumer.close()
    return {
        "changelog_mib": round(size / 2**20, 1),
        "records_restored": result.restored,
        "restore_seconds": round(seconds, 2),
        "log_start": held.start,
        "log_end": held.end,
    }


def _write(config: Config, topic: str, updates: int, keys: int) -> None:
    """The same records for everyone: every key once, then keys at random."""
    rng = random.Random(1)
    value = rng.randbytes(_VALUE_BYTES)
    producer = Producer(config.client_properties(linger_ms=20, batch_num_messages=10_000))
    for number in range(updates):
        key = number if number < keys else rng.randrange(keys)
        while True:
            try:
                producer.produce(topic, value, b"patient-%08d" % key, 0)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(120) == 0


def _wait_cleaned(kafka: Path, topic: str) -> None:
    """Wait until the size has stayed the same for longer than brokers pause between cleanings."""
    deadline = time.monotonic() + _CLEANING_SECONDS_MAX
    size, since = _bytes(kafka, topic), time.monotonic()
    while time.monotonic() - since < _SETTLED_SECONDS:
        time.sleep(_PAUSE_SECONDS)
        if (now := _bytes(kafka, topic)) != size:
            size, since = now, time.monotonic()
        assert time.monotonic() < deadline, f"{topic} is still being cleaned"


def _bytes(kafka: Path, topic: str) -> int:
    """What the partition's segments take on disk, without those that wait to be deleted."""
    total = 0
    for path in kafka.glob(f"**/{topic}-0/*.log"):
        try:
            total += path.stat().st_size
        except FileNotFoundError:
            continue  # The cleaner was quicker.
    return total


if __name__ == "__main__":
    main()
