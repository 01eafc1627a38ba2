"""A Kafka that lets in only whom it knows: by SCRAM over TLS, and by mutual TLS.

It is the one of docs/kafka-security.md, with an authorizer that allows what the page says.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from penstock.config import Config
from penstock.errors import KafkaAuthenticationError, KafkaCertificateError, KafkaError
from penstock.local.broker import EmbeddedKafka, KafkaOptions
from penstock.local.kraft import Listener
from tests.certificates import Authority, Identity

PAGE = Path(__file__).parents[1] / "docs" / "kafka-security.md"
TOPIC, USER, CERTIFIED = "charts", "nurse", "client"
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
    directory: Path
    """Where the files of the page are."""
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


def block(mark: str) -> str:
    """The block of the page that stands behind a mark which readers do not see."""
    found = re.search(rf"<!-- {mark} -->\n```\w+\n(.*?)^```$", PAGE.read_text(), re.S | re.M)
    assert found is not None, mark
    return found[1]


def allow(bootstrap_servers: str, user: str, names: Mapping[str, str]) -> None:
    """Give a user the rights that the page lists; `names` are others for those of the page."""
    bindings = []
    for line in block("trial: rights").replace("\\\n", " ").splitlines():
        words = shlex.split(line)
        given: dict[str, list[str]] = {}
        for name, value in itertools.pairwise(words):
            given.setdefault(name, []).append(value)
        [(kind, [name])] = [
            (kind, given[option])
            for option, kind in {
                "--topic": ResourceType.TOPIC,
                "--group": ResourceType.GROUP,
                "--transactional-id": ResourceType.TRANSACTIONAL_ID,
            }.items()
            if option in given
        ]
        [pattern] = given.get("--resource-pattern-type", ["literal"])
        plain = name.removesuffix("-")
        bindings += [
            AclBinding(
                kind,
                names[plain] + name[len(plain) :],
                ResourcePatternType[pattern.upper()],
                f"User:{user}",
                "*",
                AclOperation[_snake(operation)],
                AclPermissionType.ALLOW,
            )
            for operation in given["--operation"]
        ]
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    # Where one topic is read and written, some rights come twice.
    for done in admin.create_acls(list(dict.fromkeys(bindings))).values():
        done.result(30)


def _snake(word: str) -> str:
    """`DescribeConfigs` as DESCRIBE_CONFIGS."""
    return re.sub("(?<=[a-z])(?=[A-Z])", "_", word).upper()


@contextlib.contextmanager
def guarded_kafka(directory: Path) -> Iterator[Guarded]:
    """Such a broker, for as long as the block."""
    authority = Authority(directory, "hospital")
    program = page_program(directory, authority)
    old = keystore(authority.issue("old-broker", expired=True))
    with EmbeddedKafka(with_rights(program["options"], old)) as kafka:
        program["add_user"](kafka.bootstrap_servers, USER, PASSWORD)
        program["add_user"](kafka.bootstrap_servers, "word-count", "trial-password")
        prepare(kafka.bootstrap_servers)
        trusted = {"ssl.ca.location": str(authority.certificate)}
        scram = {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": USER,
            "sasl.password": PASSWORD,
        }
        tls = {**trusted, "security.protocol": "SSL"}
        client = authority.issue(CERTIFIED)
        yield Guarded(
            scram=Config(
                bootstrap_servers=kafka.address_of("PASSWORDS"), kafka={**trusted, **scram}
            ),
            mutual=Config(
                bootstrap_servers=kafka.address_of("CERTIFICATES"),
                kafka={**tls, **own_certificate(client)},
            ),
            expired=Config(bootstrap_servers=kafka.address_of("OLD"), kafka=tls),
            directory=directory,
            other=Authority(directory, "elsewhere"),
            client=client,
            plain_servers=kafka.bootstrap_servers,
            old_client=authority.issue("old-client", expired=True),
        )


def page_program(directory: Path, authority: Authority) -> dict[str, Any]:
    """The names of the page's program, in a directory that has the files of its first step."""
    shutil.copy(authority.certificate, directory / "ca.pem")
    shutil.copy(authority.issue("broker").both, directory / "broker-both.pem")
    client = authority.issue("word-count")
    shutil.copy(client.certificate, directory / "word-count.pem")
    shutil.copy(client.key, directory / "word-count.key")
    names: dict[str, Any] = {"__name__": "secure_kafka"}
    with contextlib.chdir(directory):
        exec(compile(block("trial: kafka"), str(PAGE), "exec"), names)
    return names


def with_rights(options: KafkaOptions, old: Mapping[str, str]) -> KafkaOptions:
    """The page's Kafka with an authorizer, and a listener whose certificate has expired."""
    certified = options.listeners["CERTIFICATES"]
    by_name = {"ssl.principal.mapping.rules": "RULE:^.*CN=([^,]+).*$/$1/"}
    return dataclasses.replace(
        options,
        settings={
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        },
        listeners={
            **options.listeners,
            "CERTIFICATES": dataclasses.replace(
                certified, settings={**certified.settings, **by_name}
            ),
            "OLD": Listener(protocol="SSL", settings=old),
        },
    )


def prepare(bootstrap_servers: str) -> None:
    """The topic, and who may use it, through the listener that asks no questions."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    for done in admin.create_topics([NewTopic(TOPIC, 1, 1)]).values():
        done.result(30)
    for user in (USER, CERTIFIED):
        names = {"lines": TOPIC, "word-totals": TOPIC, "word-count": user}
        allow(bootstrap_servers, user, names)
