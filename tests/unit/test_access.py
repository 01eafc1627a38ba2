"""What the two Kafka clients say of a broker that does not let them in, as errors of ours."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from confluent_kafka import KafkaError as ClientError

from penstock.changelog.access import check_access, end_of, refusal_in_spark, refusal_of
from penstock.config import Config
from penstock.driver.setup import check_broker
from penstock.errors import (
    BrokerUnreachableError,
    ConfigError,
    KafkaAuthenticationError,
    KafkaCertificateError,
)
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


@contextlib.contextmanager
def answering(answer: Callable[[socket.socket], object]) -> Iterator[tuple[str, int]]:
    """A server that does this with each connection, and hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    with connection, contextlib.suppress(OSError):
                        answer(connection)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()
        server.shutdown(socket.SHUT_RDWR)
        thread.join(60)


def test_a_listener_with_tls_that_is_called_without_is_told_as_that() -> None:
    def alert(connection: socket.socket) -> None:
        # The length of a request that no TLS begins with, and all of it.
        assert connection.recv(100)[:6] == b"\x00\x00\x00\x0a\x00\x12"
        connection.sendall(b"\x15\x03\x03\x00\x02\x02\x50")

    with answering(alert) as (host, port):
        config = Config(bootstrap_servers=f"{host}:{port}")
        with pytest.raises(KafkaCertificateError, match="wants TLS") as told:
            check_broker(config)
        assert told.value.where == {"broker": f"{host}:{port}"}
    with answering(lambda connection: connection.sendall(b"\x00\x00")) as (host, port):
        check_broker(Config(bootstrap_servers=f"{host}:{port}"))


def test_who_is_hung_up_on_behind_tls_is_told_of_passwords(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "a")
    broker = authority.issue("broker")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(broker.certificate, broker.key)

    def hang_up(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as secured:
            secured.recv(1)

    with answering(hang_up) as address:
        config = Config(
            bootstrap_servers="{}:{}".format(*address),
            kafka={"security.protocol": "SSL", "ssl.ca.location": str(authority.certificate)},
        )
        with pytest.raises(KafkaAuthenticationError, match=r"hangs up.*SASL_SSL"):
            check_access(config, address=address, timeout=timedelta(seconds=1))
        with pytest.raises(BrokerUnreachableError):
            check_access(config, timeout=timedelta(seconds=1))


def test_a_file_that_is_not_there_is_told_by_its_name(tmp_path: Path) -> None:
    for name in ("ssl.ca.location", "ssl.key.location"):
        config = Config(kafka={"security.protocol": "SSL", name: str(tmp_path / "none.pem")})
        with pytest.raises(ConfigError, match=rf"none\.pem. as {name}, and there is no such file"):
            config.client_properties()
    assert Config(kafka={"ssl.ca.location": "probe"}).client_properties()
