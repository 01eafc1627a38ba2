"""What the two Kafka clients say of a broker that does not let them in, as errors of ours."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from confluent_kafka import KafkaError as ClientError

from penstock.changelog.access import end_of, refusal_in_spark, refusal_of
from penstock.errors import KafkaAuthenticationError, KafkaCertificateError
from tests.certificates import Authority

SECRET = "planted-secret"
LOGIN = {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "u", "sasl.password": SECRET}


def test_the_end_of_a_certificate_is_read(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "a")
    good = end_of(authority.issue("good").certificate.read_text())
    bad = end_of(authority.issue("bad", expired=True).certificate.read_text())
    assert timedelta(days=29) < good - datetime.now(UTC) < timedelta(days=31)
    assert timedelta(hours=23) < datetime.now(UTC) - bad < timedelta(hours=25)
    with pytest.raises(ValueError, match="no PEM"):
        end_of("-----BEGIN PRIVATE KEY-----")


def test_a_refused_login_names_the_user_and_never_the_password() -> None:
    heard = ClientError(ClientError._AUTHENTICATION, "sasl_ssl://127.0.0.1:1/bootstrap: SASL error")
    told = refusal_of(heard, LOGIN)
    assert isinstance(told, KafkaAuthenticationError)
    assert told.where == {"mechanism": "SCRAM-SHA-512", "user": "u", "broker": "127.0.0.1:1"}
    assert SECRET not in str(told)


def test_a_lost_connection_is_no_refusal() -> None:
    lost = ClientError(ClientError._TRANSPORT, "ssl://127.0.0.1:1/1: Disconnected")
    assert refusal_of(lost, LOGIN) is None
    assert refusal_in_spark("org.apache.kafka.common.errors.TimeoutException: x", LOGIN) is None


def test_what_java_says_is_told_without_its_text() -> None:
    text = f"Caused by: x.SaslAuthenticationException: Authentication failed\n\tat {SECRET}"
    told = refusal_in_spark(text, LOGIN)
    assert isinstance(told, KafkaAuthenticationError)
    assert SECRET not in str(told)


def test_a_listener_without_tls_is_told_as_that() -> None:
    text = "ssl://127.0.0.1:1/bootstrap: SSL handshake failed: error:0A00010B:SSL::wrong version"
    told = refusal_of(ClientError(ClientError._SSL, text), {"security.protocol": "SSL"})
    assert isinstance(told, KafkaCertificateError)
    assert "speaks TLS" in str(told)
    assert "wrong version" in str(told)
