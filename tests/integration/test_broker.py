"""The embedded Kafka: starts, keeps data, survives a node's death, never outlives its parent."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import psutil
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.errors import BrokerStartError
from penstock.local import kraft
from penstock.local.broker import EmbeddedKafka, KafkaOptions

TOPIC = "kept"


def create_topic(bootstrap: str, *, copies: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    # Until it knows the brokers it may drop the connection that a request waits on.
    admin.list_topics(timeout=30)
    for future in admin.create_topics([NewTopic(TOPIC, 1, copies)]).values():
        future.result(30)


def produce(bootstrap: str, values: list[bytes]) -> None:
    """Write records, each of which Kafka confirms."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "log_level": 0})
    errors: list[object] = []
    for value in values:
        producer.produce(TOPIC, value, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(30) == 0
    assert errors == [None] * len(values)


def consume(bootstrap: str, count: int) -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"reader-{time.monotonic_ns()}",
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    consumer.subscribe([TOPIC])
    values: list[bytes] = []
    deadline = time.monotonic() + 60
    while len(values) < count and time.monotonic() < deadline:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            values.append(message.value() or b"")
    consumer.close()
    return values


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return condition()


def can_be_locked(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def nodes_in(directory: Path) -> list[psutil.Process]:
    """Processes, of whatever parent, whose command line names the directory."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if any(str(directory) in word for word in words) and "kafka.Kafka" in words:
            found.append(process)
    return found


def test_one_broker_keeps_data_and_address_over_a_restart(tmp_path: Path) -> None:
    options = KafkaOptions(directory=tmp_path / "kafka")
    with EmbeddedKafka(options) as kafka:
        address = kafka.bootstrap_servers
        create_topic(address, copies=1)
        produce(address, [b"before"])
    assert nodes_in(tmp_path) == []
    with EmbeddedKafka(options) as kafka:
        assert kafka.bootstrap_servers == address
        produce(address, [b"after"])
        assert consume(address, 2) == [b"before", b"after"]


def test_three_brokers_outlive_the_death_of_one(tmp_path: Path) -> None:
    with EmbeddedKafka(KafkaOptions(directory=tmp_path / "kafka", nodes=3)) as kafka:
        address = kafka.bootstrap_servers
        assert kafka.node_ids == (1, 2, 3)
        create_topic(address, copies=3)
        produce(address, [b"three alive"])
        kafka.kill(2)
        produce(address, [b"two alive"])
        kafka.restart(2)
        assert consume(address, 2) == [b"three alive", b"two alive"]
    assert nodes_in(tmp_path) == []


def test_no_broker_outlives_a_killed_parent(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "penstock.cli", "dev", "--json", "--directory", str(tmp_path)]
    parent = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        assert parent.stdout is not None
        assert json.loads(parent.stdout.readline())["ok"] is True
        assert nodes_in(tmp_path) != []
    finally:
        parent.kill()
        parent.communicate()
    assert wait_until(lambda: nodes_in(tmp_path) == [], 10)
    # The lock, which the nodes held too, is free for the next start: a process that ends has no
    # command line any more a moment before its files are closed.
    with (tmp_path / ".lock").open() as lock:
        assert wait_until(lambda: can_be_locked(lock), 10)


def test_dev_stops_cleanly_on_a_signal(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "penstock.cli", "dev", "--directory", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline().startswith("Kafka is ready: 127.0.0.1:")
        os.kill(parent.pid, signal.SIGTERM)
        assert parent.wait(30) == 0
    assert nodes_in(tmp_path) == []


def test_dev_runs_in_the_background_until_it_is_stopped(tmp_path: Path) -> None:
    def dev(*words: str) -> dict[str, Any]:
        command = [sys.executable, "-m", "penstock.cli", "dev", *words, "--json"]
        command += ["--directory", str(tmp_path)]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
        answer: dict[str, Any] = json.loads(done.stdout)["data"]
        return answer

    try:
        started = dev("start")
        assert dev("start") == started
        create_topic(started["bootstrap_servers"], copies=1)
        produce(started["bootstrap_servers"], [b"kept"])
        assert "Starting Apache Kafka" in dev("logs")["lines"]
    finally:
        assert dev("stop") == {"stopped": True}
    assert nodes_in(tmp_path) == []
    assert dev("stop") == {"stopped": False}


def test_a_broker_that_cannot_start_shows_its_log(tmp_path: Path) -> None:
    options = KafkaOptions(directory=tmp_path, settings={"num.network.threads": "none"})
    with pytest.raises(BrokerStartError, match=r"num\.network\.threads"):
        EmbeddedKafka(options).start()
    assert nodes_in(tmp_path) == []


def test_another_number_of_nodes_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text(
        '{"cluster_id": "x", "nodes": [{"id": 1, "port": 20001, "controller_port": 20002}]}'
    )
    with pytest.raises(BrokerStartError, match="holds a Kafka of 1 nodes, 3 are asked for"):
        EmbeddedKafka(KafkaOptions(directory=tmp_path, nodes=3)).start()


def test_taken_ports_are_replaced_and_free_ones_kept() -> None:
    cluster = kraft.new_cluster(1)
    assert kraft.with_free_ports(cluster) is cluster
    node = cluster.nodes[0]
    with socket.socket() as taken:
        taken.bind((kraft.HOST, node.port))
        taken.listen()
        moved = kraft.with_free_ports(cluster)
    assert moved.cluster_id == cluster.cluster_id
    assert moved.nodes[0].port != node.port
