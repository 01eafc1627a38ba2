"""SCRAM over TLS and mutual TLS, with both clients and one config; and who is not let in."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from penstock.config import Config
from penstock.driver.setup import check_broker
from penstock.errors import KafkaAuthenticationError, KafkaCertificateError, KafkaError
from penstock.local.broker import EmbeddedKafka, KafkaOptions
from penstock.local.kraft import Listener
from tests.certificates import Authority, Identity

TOPIC, USER, PASSWORD = "charts", "nurse", 'w4rd "7" \\ key'


@dataclass(frozen=True)
class Guarded:
    """A broker with a listener for each way to be safe, and configs that it lets in."""

    scram: Config
    mutual: Config
    expired: Config
    """Its broker's certificate has expired."""
    other: Authority
    old_client: Identity

    def refused(self, which: str) -> tuple[Config, type[KafkaError], str]:
        """A config that is not let in, how that is told, and in which words."""
        other = {"ssl.ca.location": str(self.other.certificate)}
        own = own_certificate(self.old_client)
        bare = {name: v for name, v in self.mutual.kafka.items() if name not in own}
        cases: dict[str, tuple[Config, type[KafkaError], str]] = {
            "wrong password": (
                changed(self.scram, {"sasl.password": "guess"}),
                KafkaAuthenticationError,
                "does not know this user with this password.*sasl.password",
            ),
            "wrong mechanism": (
                changed(self.scram, {"sasl.mechanism": "PLAIN"}),
                KafkaAuthenticationError,
                "does not take PLAIN.*sasl.mechanism",
            ),
            "wrong authority": (
                changed(self.scram, other),
                KafkaCertificateError,
                "not to be trusted.*ssl.ca.location",
            ),
            "expired broker": (self.expired, KafkaCertificateError, "broker's certificate expired"),
            "expired client": (
                changed(self.mutual, own),
                KafkaCertificateError,
                "This client's certificate expired on .*renewed",
            ),
            "no certificate": (
                dataclasses.replace(self.mutual, kafka=bare),
                KafkaCertificateError,
                "names none.*ssl.certificate.location",
            ),
        }
        return cases[which]


def changed(config: Config, properties: dict[str, str]) -> Config:
    return dataclasses.replace(config, kafka={**config.kafka, **properties})


def own_certificate(identity: Identity) -> dict[str, str]:
    return {
        "ssl.certificate.location": str(identity.certificate),
        "ssl.key.location": str(identity.key),
    }


def keystore(identity: Identity) -> dict[str, str]:
    return {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(identity.both)}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    directory: Path = tmp_path_factory.mktemp("guarded")
    authority = Authority(directory, "hospital")
    broker = authority.issue("broker")
    login = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    trust = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(authority.certificate)}
    listeners = {
        "SCRAM": Listener(
            protocol="SASL_SSL",
            settings={
                **keystore(broker),
                "sasl.enabled.mechanisms": "SCRAM-SHA-512",
                "scram-sha-512.sasl.jaas.config": login,
            },
        ),
        "MUTUAL": Listener(
            protocol="SSL",
            settings={**keystore(broker), **trust, "ssl.client.auth": "required"},
        ),
        "OLD": Listener(
            protocol="SSL", settings=keystore(authority.issue("old-broker", expired=True))
        ),
    }
    options = KafkaOptions(directory=directory / "kafka", listeners=listeners)
    with EmbeddedKafka(options) as kafka:
        prepare(kafka.bootstrap_servers)
        trusted = {"ssl.ca.location": str(authority.certificate)}
        scram = {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": USER,
            "sasl.password": PASSWORD,
        }
        tls = {**trusted, "security.protocol": "SSL"}
        yield Guarded(
            scram=Config(bootstrap_servers=kafka.address_of("SCRAM"), kafka={**trusted, **scram}),
            mutual=Config(
                bootstrap_servers=kafka.address_of("MUTUAL"),
                kafka={**tls, **own_certificate(authority.issue("client"))},
            ),
            expired=Config(bootstrap_servers=kafka.address_of("OLD"), kafka=tls),
            other=Authority(directory, "elsewhere"),
            old_client=authority.issue("old-client", expired=True),
        )


def prepare(bootstrap_servers: str) -> None:
    """The user and the topic, through the listener that asks no questions."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    user = UserScramCredentialUpsertion(USER, credential, PASSWORD.encode())
    for done in (
        *admin.alter_user_scram_credentials([user]).values(),
        *admin.create_topics([NewTopic(TOPIC, 1, 1)]).values(),
    ):
        done.result(30)


@pytest.mark.parametrize("which", ["scram", "mutual"])
def test_one_config_lets_both_clients_in(guarded: Guarded, spark: None, which: str) -> None:
    config: Config = getattr(guarded, which)
    check_broker(config)
    producer = Producer(config.client_properties())
    producer.produce(TOPIC, which.encode())
    assert producer.flush(30) == 0
    assert which in read_with_spark(config, which)


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


def read_with_spark(config: Config, application_id: str) -> list[str]:
    """What Spark's Kafka source reads from the topic, with the options of every batch."""
    import json

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
