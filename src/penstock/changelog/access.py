"""Whether the brokers let this client in, asked once at start; and if not, whose fault it is.

Clients of Kafka try again and again when a password is wrong or a certificate is not trusted. All
that their callers see is that nothing answers.
"""

from __future__ import annotations

import re
import socket
import ssl
import struct
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import confluent_kafka
from confluent_kafka.admin import AdminClient

from penstock.changelog.kafka_failures import kafka_error, refusals_named
from penstock.config import Config
from penstock.errors import KafkaAuthenticationError, KafkaCertificateError, KafkaError

_Code = confluent_kafka.KafkaError
_LOGIN = (_Code._AUTHENTICATION, _Code.SASL_AUTHENTICATION_FAILED)  # noqa: SLF001
_ACCESS_TIMEOUT = timedelta(seconds=15)
_LOOK_SECONDS = 0.25
_PLAIN_SECONDS = 1.0
_WHICH_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)
"""Kafka's first request, ApiVersions: its length, key, version, number, and no client's name."""
_TLS_ALERT = b"\x15"
_LOGIN_IN_JAVA = ("SaslAuthenticationException", "UnsupportedSaslMechanismException")
_TLS_IN_JAVA = "SslAuthenticationException"
# What Java says of a certificate that it does not take, and of one of its own that was not taken.
_OWN_IN_JAVA = re.compile(r"SSLHandshakeException: (?:\([a-z_]+\) )?Received fatal alert")
_BROKER = re.compile(r"//([^/\s]+):(\d+)/")
_UTC_TIME, _GENERALIZED_TIME, _VERSION = 0x17, 0x18, 0xA0
_ONE_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.S)


def check_plain(config: Config, connection: socket.socket) -> None:
    """Make sure that a broker which is called without TLS does not want it.

    It would hang up on every call, and clients would ask on until their time is over. Raises
    `KafkaCertificateError`.
    """
    if "ssl" in _protocol(config):
        return
    connection.settimeout(_PLAIN_SECONDS)
    try:
        connection.sendall(_WHICH_VERSIONS)
        answer = connection.recv(1)
    except OSError:
        return  # Whatever it is, clients will say so.
    if answer == _TLS_ALERT:
        raise KafkaCertificateError(
            "The broker wants TLS, and option kafka does not say so",
            where=_at(connection.getpeername()[:2]),
            hint="Set security.protocol of option kafka (PENSTOCK_KAFKA) to SSL, or to SASL_SSL "
            "with a user and a password; or name the broker's listener without TLS",
        )


def check_access(
    config: Config,
    *,
    address: tuple[str, int] | None = None,
    timeout: timedelta = _ACCESS_TIMEOUT,
) -> None:
    """Make sure that the brokers take what option kafka says, if it says how to be safe.

    `address` is one of theirs. Raises `KafkaAuthenticationError`, `KafkaCertificateError`,
    `BrokerUnreachableError`.
    """
    if _protocol(config) == "plaintext":
        return
    heard: list[confluent_kafka.KafkaError] = []
    with refusals_named():
        client = AdminClient(config.client_properties() | {"error_cb": heard.append})
    deadline = time.monotonic() + timeout.total_seconds()
    while True:
        try:
            client.list_topics(timeout=_LOOK_SECONDS)
        except confluent_kafka.KafkaException as error:
            failure = error
        else:
            return
        client.poll(0)
        for each in heard:
            refusal = refusal_of(each, config.kafka)
            if refusal is not None:
                raise refusal from failure
        if time.monotonic() > deadline:
            if _protocol(config) == "ssl" and address and _end_of_brokers(address) is not None:
                raise _hung_up(address) from failure
            raise kafka_error(
                failure, doing="let this client in", bootstrap_servers=config.bootstrap_servers
            ) from failure


def _protocol(config: Config) -> str:
    return config.kafka.get("security.protocol", "plaintext").lower()


def _hung_up(address: tuple[str, int]) -> KafkaAuthenticationError:
    """Of a broker that speaks TLS, takes no call, and does not say why."""
    return KafkaAuthenticationError(
        "The broker hangs up on this client: it may want a user and a password",
        where=_at(address),
        hint="Set security.protocol of option kafka to SASL_SSL, with sasl.mechanism, "
        "sasl.username and sasl.password; or name the listener that takes certificates alone",
    )


def refusal_of(
    error: confluent_kafka.KafkaError, properties: Mapping[str, str]
) -> KafkaError | None:
    """What librdkafka says of a connection, if it was refused rather than lost."""
    text, broker = error.str(), _BROKER.search(error.str())
    address = (broker[1], int(broker[2])) if broker else None
    if error.code() in _LOGIN:
        return _login_refused(text, properties, address)
    if "SSL alert number" in text:
        return _own_certificate_refused(properties, address)
    if error.code() == _Code._SSL:  # noqa: SLF001
        return _broker_not_trusted(text, properties, address)
    return None


def refusal_in_spark(text: str, properties: Mapping[str, str]) -> KafkaError | None:
    """The same of what Spark's Java client says; `text` is all of Spark's, stack traces included.

    The text is not repeated: it may bear settings.
    """
    login = next((name for name in _LOGIN_IN_JAVA if name in text), None)
    if login is not None:
        lines = [line for line in text.splitlines() if login in line]
        return _login_refused("\n".join(lines), properties, None)
    if _TLS_IN_JAVA not in text:
        return None
    if _OWN_IN_JAVA.search(text):
        return _own_certificate_refused(properties, None)
    causes = [line for line in text.splitlines() if "Caused by: " in line]
    return _broker_not_trusted("\n".join(causes), properties, None)


def _login_refused(
    text: str, properties: Mapping[str, str], address: tuple[str, int] | None
) -> KafkaAuthenticationError:
    mechanism = properties.get("sasl.mechanism") or properties.get("sasl.mechanisms", "")
    where = {"mechanism": mechanism, "user": properties.get("sasl.username", "")}
    if "nsupported" in text:
        return KafkaAuthenticationError(
            f"Kafka does not take {mechanism or 'this mechanism'}",
            where=where | _at(address),
            hint="Set sasl.mechanism of option kafka to one that the brokers' listener has",
        )
    return KafkaAuthenticationError(
        "Kafka does not know this user with this password",
        where=where | _at(address),
        hint="Correct sasl.username or sasl.password of option kafka (PENSTOCK_KAFKA), or have the "
        "user created on the brokers",
    )


def _broker_not_trusted(
    text: str, properties: Mapping[str, str], address: tuple[str, int] | None
) -> KafkaCertificateError:
    until = None if address is None else _end_of_brokers(address)
    if (until is not None and until < datetime.now(UTC)) or "CertificateExpired" in text:
        when = f" on {until:%Y-%m-%d %H:%M} UTC" if until is not None else ""
        return KafkaCertificateError(
            f"The broker's certificate expired{when}",
            where=_at(address),
            hint="Have it renewed on the broker",
        )
    if "verify failed" not in text and "certpath" not in text:
        return KafkaCertificateError(
            "No secure connection to the broker can be made",
            where=_at(address),
            hint="Make sure that its listener speaks TLS, as security.protocol of option kafka has "
            f"it; the client says: {_plain(text)}",
        )
    return KafkaCertificateError(
        "The broker's certificate is not to be trusted: another authority signed it, or it is for "
        "another host",
        where={"authorities": _authorities(properties), **_at(address)},
        hint="Set ssl.ca.location of option kafka to the certificate of the authority that signed "
        "the brokers', and bootstrap_servers to names that are in theirs",
    )


def _own_certificate_refused(
    properties: Mapping[str, str], address: tuple[str, int] | None
) -> KafkaCertificateError:
    name = properties.get("ssl.certificate.location", "")
    where = {**({"certificate": name} if name else {}), **_at(address)}
    if not any(each in properties for each in _OWN):
        return KafkaCertificateError(
            "Kafka wants a certificate of this client, and option kafka names none",
            where=where,
            hint="Set ssl.certificate.location and ssl.key.location",
        )
    until = _end_of_own(properties)
    if until is not None and until < datetime.now(UTC):
        return KafkaCertificateError(
            f"This client's certificate expired on {until:%Y-%m-%d %H:%M} UTC",
            where=where,
            hint="Have it renewed, and put the new one in its place",
        )
    return KafkaCertificateError(
        "Kafka does not take this client's certificate",
        where=where,
        hint="Use one that an authority signed which the brokers trust",
    )


_OWN = ("ssl.certificate.location", "ssl.certificate.pem", "ssl.keystore.location")


def _at(address: tuple[str, int] | None) -> dict[str, str]:
    return {} if address is None else {"broker": f"{address[0]}:{address[1]}"}


def _authorities(properties: Mapping[str, str]) -> str:
    if "ssl.ca.pem" in properties:
        return "those in ssl.ca.pem"
    return properties.get("ssl.ca.location", "the system's")


def _plain(text: str) -> str:
    """What OpenSSL says, without the address and its own numbers."""
    line = (text.splitlines() or [""])[-1]
    return re.sub(r"^\S+: |error:[0-9A-F]+:|\(after .*\)$", "", line).strip()


def _end_of_brokers(address: tuple[str, int]) -> datetime | None:
    try:
        return end_of(ssl.get_server_certificate(address, timeout=_LOOK_SECONDS * 8))
    except (OSError, ValueError):
        return None


def _end_of_own(properties: Mapping[str, str]) -> datetime | None:
    text = properties.get("ssl.certificate.pem", "")
    path = properties.get("ssl.certificate.location")
    try:
        return end_of(text if path is None else Path(path).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def end_of(pem: str) -> datetime:
    """When the first certificate in a PEM text ends. Raises `ValueError` if there is none."""
    found = _ONE_CERTIFICATE.search(pem)
    if found is None:
        raise ValueError("This is no PEM certificate")
    # Certificate { body { [version], serial, algorithm, issuer, validity { from, until } } }
    (_, certificate), *_ = _parts(ssl.PEM_cert_to_DER_cert(found[0]))
    (_, body), *_ = _parts(certificate)
    fields = [value for tag, value in _parts(body) if tag != _VERSION]
    _, (tag, text) = _parts(fields[3])
    form = {_UTC_TIME: "%y%m%d%H%M%SZ", _GENERALIZED_TIME: "%Y%m%d%H%M%SZ"}[tag]
    return datetime.strptime(text.decode("ascii"), form).replace(tzinfo=UTC)


def _parts(data: bytes) -> list[tuple[int, bytes]]:
    """Tag and value of what lies one after the other, in DER."""
    found: list[tuple[int, bytes]] = []
    at = 0
    while at + 2 <= len(data):
        tag, length = data[at], data[at + 1]
        at += 2
        if length & 0x80:
            width = length & 0x7F
            length = int.from_bytes(data[at : at + width], "big")
            at += width
        found.append((tag, data[at : at + length]))
        at += length
    return found
