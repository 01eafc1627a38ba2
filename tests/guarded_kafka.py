"""A Kafka that lets in only whom it knows: by SCRAM over TLS, and by mutual TLS."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from penstock.config import Config
from penstock.errors import KafkaAuthenticationError, KafkaCertificateError, KafkaError
from penstock.local.broker import EmbeddedKafka, KafkaOptions
from penstock.local.kraft import Listener
from tests.certificates import Authority, Identity

TOPIC, USER = "charts", "nurse"
# With what JAAS must quote; the last word has nothing that a page would write otherwise.
PASSWORD_WORD = "planted-kafka-password"
PASSWORD = f'w4rd "7" \\ {PASSWORD_WORD}'


@dataclass(frozen=True)
class Guarded:
    """A broker with a listener for each way to be safe, and configs that it lets in."""

    scram: Config
    mutual: Config
    expired: Config
    """Its broker's certificate has expired."""
    other: Authority
    client: Identity
    old_client: Identity
    plain_servers: str
    """Where it asks no questions, for the tests' own clients."""

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


@contextlib.contextmanager
def guarded_kafka(directory: Path) -> Iterator[Guarded]:
    """Such a broker, for as long as the block."""
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
        client = authority.issue("client")
        yield Guarded(
            scram=Config(bootstrap_servers=kafka.address_of("SCRAM"), kafka={**trusted, **scram}),
            mutual=Config(
                bootstrap_servers=kafka.address_of("MUTUAL"),
                kafka={**tls, **own_certificate(client)},
            ),
            expired=Config(bootstrap_servers=kafka.address_of("OLD"), kafka=tls),
            other=Authority(directory, "elsewhere"),
            client=client,
            plain_servers=kafka.bootstrap_servers,
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
