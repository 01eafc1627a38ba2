"""SCRAM over TLS and mutual TLS, with both clients and one config; and who is not let in."""

from __future__ import annotations

import json
import subprocess

import pytest
from confluent_kafka import Producer

from penstock.config import Config
from penstock.driver.setup import check_broker
from tests.guarded_kafka import CERTIFIED, PASSWORD, TOPIC, USER, Guarded, block

USERS = {"scram": USER, "mutual": CERTIFIED}


@pytest.mark.parametrize("which", USERS)
def test_one_config_lets_both_clients_in(guarded: Guarded, spark: None, which: str) -> None:
    config: Config = getattr(guarded, which)
    check_broker(config)
    producer = Producer(config.client_properties())
    producer.produce(TOPIC, which.encode())
    assert producer.flush(30) == 0
    assert which in read_with_spark(config, f"{USERS[which]}-reads")


@pytest.mark.parametrize(
    "which",
    [
        "wrong password",
        "wrong mechanism",
        "wrong authority",
        "expired broker",
        "expired client",
        "no certificate",
    ],
)
def test_who_is_not_let_in_is_told_why_by_both_clients(
    guarded: Guarded, spark: None, which: str
) -> None:
    config, kind, words = guarded.refused(which)
    with pytest.raises(kind, match=words) as told:
        check_broker(config)
    assert PASSWORD not in str(told.value)
    with pytest.raises(kind, match=words) as told:
        read_with_spark(config, which)
    assert told.value.hint
    assert PASSWORD not in str(told.value)


WHO = {"trial: password": "scram", "trial: certificate": "mutual"}


@pytest.mark.parametrize("mark", WHO)
def test_who_is_who_by_the_variables_of_the_page(guarded: Guarded, mark: str) -> None:
    servers = getattr(guarded, WHO[mark]).bootstrap_servers
    script = block(mark).replace("localhost:PORT", servers) + "\nprintenv -0"
    done = subprocess.run(
        ["bash", "-euc", script], cwd=guarded.directory, capture_output=True, check=True
    )
    told = dict(line.partition("=")[::2] for line in done.stdout.decode().split("\0") if line)
    config = Config.build({}, told)
    assert config.bootstrap_servers == servers
    check_broker(config)


def read_with_spark(config: Config, application_id: str) -> list[str]:
    """What Spark's Kafka source reads from the topic, with the options of every batch."""
    from pyspark.sql import SparkSession

    from penstock.pipeline.jobs import refusals_named, source_options

    session = SparkSession.getActiveSession()
    assert session is not None
    options = source_options(config, application_id.replace(" ", "-"))
    offsets = {"startingOffsets": json.dumps({TOPIC: {"0": -2}})}
    ending = {"endingOffsets": json.dumps({TOPIC: {"0": -1}})}
    reader = session.read.format("kafka").options(**options, **offsets, **ending)
    # By default it asks three times, a second apart.
    reader = reader.option("fetchOffset.retryIntervalMs", "1")
    with refusals_named(config):
        frame = reader.option("assign", json.dumps({TOPIC: [0]})).load()
        return [row.value for row in frame.selectExpr("CAST(value AS STRING)").collect()]
