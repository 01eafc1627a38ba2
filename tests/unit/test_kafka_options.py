"""One set of Kafka properties, in librdkafka's words, as Spark's Java client wants them."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import ConfigError
from penstock.pipeline.kafka_options import java_properties

KEY = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nBBBB\n-----END CERTIFICATE-----\n"


def test_passwords_become_a_login_module() -> None:
    java = java_properties(
        {"sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": 'p"q'}
    )
    assert "sasl.password" not in java
    assert java["sasl.jaas.config"].endswith('required username="u" password="p\\"q";')


def test_the_authorities_are_a_pem_truststore() -> None:
    assert java_properties({"ssl.ca.location": "/ca.pem"}) == {
        "ssl.truststore.location": "/ca.pem",
        "ssl.truststore.type": "PEM",
    }
    assert java_properties({"ssl.ca.pem": CERTIFICATE}) == {
        "ssl.truststore.certificates": CERTIFICATE,
        "ssl.truststore.type": "PEM",
    }
    assert java_properties({"ssl.ca.location": "probe"}) == {}


def test_key_and_certificate_files_are_a_pem_keystore(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    key.write_text(KEY)
    certificate.write_text(CERTIFICATE)
    wanted = {
        "ssl.keystore.certificate.chain": CERTIFICATE,
        "ssl.keystore.key": KEY,
        "ssl.keystore.type": "PEM",
        "ssl.key.password": "p",
    }
    files = {"ssl.certificate.location": str(certificate), "ssl.key.location": str(key)}
    texts = {"ssl.certificate.pem": CERTIFICATE, "ssl.key.pem": KEY}
    for given in (files, texts):
        assert java_properties({**given, "ssl.key.password": "p"}) == wanted


def test_a_keystore_is_what_librdkafka_takes_for_one() -> None:
    java = java_properties({"ssl.keystore.location": "/k.p12", "ssl.keystore.password": "p"})
    assert java == {
        "ssl.keystore.location": "/k.p12",
        "ssl.keystore.password": "p",
        "ssl.keystore.type": "PKCS12",
    }


def test_words_that_java_spells_otherwise() -> None:
    algorithm = "ssl.endpoint.identification.algorithm"
    assert java_properties({algorithm: "none"}) == {algorithm: ""}
    assert java_properties({algorithm: "https"}) == {algorithm: "https"}
    assert java_properties({"security.protocol": "sasl_ssl"}) == {"security.protocol": "SASL_SSL"}
    assert java_properties({"ssl.cipher.suites": "ECDHE+AESGCM", "socket.timeout.ms": "1"}) == {}


def test_files_that_java_cannot_have_are_named(tmp_path: Path) -> None:
    key = tmp_path / "key.pem"
    with pytest.raises(ConfigError, match=r"key\.pem"):
        java_properties({"ssl.key.location": str(key)})
    key.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="no PEM file"):
        java_properties({"ssl.key.location": str(key)})
    key.write_text(KEY.replace("PRIVATE", "RSA PRIVATE"))
    with pytest.raises(ConfigError, match="openssl pkcs8"):
        java_properties({"ssl.key.location": str(key)})
