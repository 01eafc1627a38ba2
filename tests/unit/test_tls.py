"""TLS between processes of an application: who is trusted, who is not, and what is refused."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import cast

import msgspec
import pytest
from cryptography.hazmat.primitives import serialization

from penstock.changelog.snapshots import copy_snapshot
from penstock.config import Config
from penstock.coordination.ids import TaskId
from penstock.coordination.members import Member
from penstock.driver.coordinator import Coordinator
from penstock.driver.copies import CopyWatch
from penstock.driver.instance_metrics import InstanceReadings
from penstock.errors import (
    ConfigError,
    InstanceCertificateError,
    InstanceUnreachableError,
    SnapshotError,
)
from penstock.instance.client import Client, tcp_location
from penstock.instance.peers import PeerCopies, PeerSource, listener_for
from penstock.instance.process import TOKEN_VARIABLE, InstanceOptions, options_of
from penstock.instance.protocol import Beat, BeatReply, CopiesReply, CopyStatus, MetricsReply
from penstock.instance.server import Server
from penstock.instance.tls import TlsFiles, Trust
from penstock.queries.listening import Listening
from penstock.stores.directory import StateDirectory
from tests.certificates import Authority
from tests.harness import wait_until
from tests.unit.test_peers import IDENTITY, TASK, fill


@pytest.fixture
def files(tmp_path: Path) -> TlsFiles:
    authority = Authority(tmp_path, "ward")
    shown = authority.issue("shown")
    return TlsFiles(
        certificate=str(shown.certificate),
        key=str(shown.key),
        authority=str(authority.certificate),
    )


@pytest.fixture
def server(files: TlsFiles) -> Iterator[Server]:
    actions = {"beat": lambda body: BeatReply(known=True)}
    place = tcp_location("127.0.0.1", 0, tls=True)
    with Server(place, token="t", actions=actions, tls=files) as server:
        yield server


def call(server: Server, trust: Trust | None, *, token: str = "t", tls: bool = True) -> bool:
    location = tcp_location("127.0.0.1", server.port, tls=tls)
    client = Client(location, token=token, timeout_seconds=5, trust=trust)
    try:
        return client.call("beat", Beat(instance="i"), BeatReply).known
    finally:
        client.close()


def test_a_caller_that_trusts_the_authority_is_answered(server: Server, files: TlsFiles) -> None:
    assert call(server, files.trust())
    # The name that all certificates bear, whatever the address.
    assert call(server, replace(files.trust(), server_name="localhost"))


def test_tls_does_not_replace_the_token(server: Server, files: TlsFiles) -> None:
    with pytest.raises(InstanceUnreachableError):
        call(server, files.trust(), token="guess")


def test_other_authorities_names_and_plain_callers_are_not_answered(
    server: Server, files: TlsFiles, tmp_path: Path
) -> None:
    other = Trust(authorities=Authority(tmp_path, "other").certificate.read_text())
    for trust in (other, None, replace(files.trust(), server_name="elsewhere")):
        with pytest.raises(InstanceUnreachableError):
            call(server, trust)
    with pytest.raises(InstanceUnreachableError):
        call(server, None, tls=False)


@pytest.fixture
def mutual(files: TlsFiles) -> TlsFiles:
    return replace(files, verify_clients=True)


def test_callers_show_certificates_where_they_are_verified(
    mutual: TlsFiles, files: TlsFiles, tmp_path: Path
) -> None:
    other = Authority(tmp_path, "other").issue("wrong")
    late = Authority(tmp_path, "late").issue("late", expired=True)
    actions = {"beat": lambda body: BeatReply(known=True)}
    place = tcp_location("127.0.0.1", 0, tls=True)
    with Server(place, token="t", actions=actions, tls=mutual) as server:
        assert call(server, mutual.trust())
        with pytest.raises(InstanceUnreachableError):
            call(server, mutual.trust(), token="guess")
        wrong = [
            replace(mutual.trust(), certificate=str(each.certificate), key=str(each.key))
            for each in (other, late)
        ]
        for trust in (files.trust(), *wrong):
            with pytest.raises(InstanceCertificateError, match="tls_verify_clients"):
                call(server, trust)
        # A worker's host that has not the files says which.
        with pytest.raises(ConfigError, match="tls_key_file"):
            call(server, replace(mutual.trust(), key=str(tmp_path / "none")))


def test_a_certificate_that_is_not_asked_for_does_no_harm(server: Server, mutual: TlsFiles) -> None:
    assert call(server, mutual.trust())


def test_copies_of_stores_are_for_those_who_show_certificates(
    mutual: TlsFiles, files: TlsFiles, tmp_path: Path
) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        ThreadPoolExecutor(1) as pool,
    ):
        address = listener.getsockname()

        def served() -> bytes:
            connection, _ = listener.accept()
            with connection, mutual.context().wrap_socket(connection, server_side=True) as wrapped:
                return wrapped.recv(1)

        for trust, is_let_in in ((mutual.trust(), True), (files.trust(), False)):
            answer = pool.submit(served)
            context, name = trust.wrap("127.0.0.1")
            with (
                contextlib.suppress(OSError),
                socket.create_connection(address) as plain,
                context.wrap_socket(plain, server_hostname=name) as connection,
            ):
                connection.sendall(b"x")
            if is_let_in:
                assert answer.result(30) == b"x"
            else:
                with pytest.raises(ssl.SSLError):
                    answer.result(30)


class Members:
    """What a coordinator knows of one instance, which listens to other hosts."""

    token = "t"

    def __init__(self, server: Server, trust: Trust) -> None:
        self.trust = trust
        place = tcp_location("127.0.0.1", server.port, tls=True)
        self._members = {
            name: Member(
                name=name,
                host="h",
                pid=1,
                unix_location="",
                tcp_location=place,
                last_beat=0.0,
                member_id=name,
            )
            for name in ("a", "b")
        }

    def names(self) -> list[str]:
        return list(self._members)

    def away(self) -> frozenset[str]:
        return frozenset()

    def member(self, name: str) -> Member | None:
        return self._members.get(name)


def test_the_driver_asks_for_copies_and_metrics_over_tls_too(mutual: TlsFiles) -> None:
    told = CopiesReply(copies=[CopyStatus(task="0_0", state="following", positions={"log": 7})])
    actions = {
        "copies": lambda body: told,
        "metrics": lambda body: MetricsReply(readings=[]),
    }
    place = tcp_location("127.0.0.1", 0, tls=True)
    with Server(place, token="t", actions=actions, tls=mutual) as server:
        members = cast("Coordinator", Members(server, mutual.trust()))
        readings = InstanceReadings(members)
        assert {each.value for each in readings.snapshot()} == {1.0}
        readings.close()
        copies = CopyWatch(members, {}, ends_of=dict, order_for=lambda task, name: None)  # type: ignore[arg-type, return-value]
        try:
            wait_until(lambda: copies.has_heard(["a", "b"]), what="both were heard")
            assert copies.positions()["b"] == {TaskId(0, 0): 7}
        finally:
            copies.close()


def test_verifying_clients_takes_certificates() -> None:
    with pytest.raises(ConfigError, match="TLS"):
        Config(tls_verify_clients=True)


def test_copies_of_stores_come_over_tls(files: TlsFiles, tmp_path: Path) -> None:
    other = Trust(authorities=Authority(tmp_path, "other").certificate.read_text())
    with StateDirectory.open(tmp_path / "state", IDENTITY.application_id) as state:
        fill(state)
        copies = PeerCopies(
            state,
            None,
            lambda _: None,
            listener=listener_for("127.0.0.1", tmp_path),
            context=files.context(),
        )
        place = tcp_location("127.0.0.1", 0, tls=True)
        with Server(place, token="t", actions=copies.actions, tls=files) as server:
            location = tcp_location("127.0.0.1", server.port, tls=True)
            with PeerSource(location, token="t", trust=files.trust()).open(TASK, IDENTITY) as found:
                assert found is not None
                # It is checked against the sums behind its files.
                copy_snapshot(found, tmp_path / "counts")
            # Its word is not taken, and nothing is asked for over a socket that anyone can read.
            source = PeerSource(location, token="t", trust=other)
            with source.open(TASK, IDENTITY) as found:
                assert found is None
            address = str(copies._listener.getsockname()[1])
            with pytest.raises(SnapshotError, match="certificate"):
                source._connected(address, "counts")
            # It is told nothing but that this is no TLS, or thrown out.
            with (
                contextlib.suppress(ConnectionResetError),
                socket.create_connection(("127.0.0.1", int(address)), timeout=5) as plain,
            ):
                plain.sendall(b"0" * 64)
                assert plain.recv(1) in (b"", b"\x15")
        copies.close()


def test_who_listens_to_other_hosts_without_tls_is_refused(files: TlsFiles) -> None:
    named = {
        "tls_certificate_file": files.certificate,
        "tls_key_file": files.key,
        "tls_ca_file": files.authority,
    }
    for address in ("0.0.0.0:7600", "10.0.0.7:7600", "ward-7:7600", "[::]:7600"):
        with pytest.raises(ConfigError, match="without TLS"):
            Config(coordinator_listen=address)
        assert Config(coordinator_listen=address, allow_unencrypted=True)
        assert Config(coordinator_listen=address, **named)
    for address in ("127.0.0.1:7600", "localhost:7600", "[::1]:7600"):
        assert Config(coordinator_listen=address)
    for name in named:
        with pytest.raises(ConfigError, match="Some of the options for TLS"):
            Config(**{**named, name: ""})


def test_an_instance_that_is_started_knows_its_files(
    files: TlsFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = InstanceOptions(name="i", coordinator="c", token="", tls=files)
    monkeypatch.setenv(TOKEN_VARIABLE, "t")
    assert options_of([msgspec.json.encode(options).decode()]) == replace(options, token="t")


def test_files_that_cannot_be_used_are_named(files: TlsFiles, tmp_path: Path) -> None:
    stranger = Authority(tmp_path, "stranger").issue("other")
    with pytest.raises(ConfigError, match="belong together"):
        replace(files, key=str(stranger.key)).pair()
    with pytest.raises(ConfigError, match="tls_ca_file"):
        replace(files, authority="/nowhere.pem").trust()
    with pytest.raises(ConfigError, match="tls_certificate_file"):
        replace(files, certificate="/nowhere.pem").pair()


def test_nobody_is_asked_for_the_password_of_a_key(files: TlsFiles) -> None:
    key = serialization.load_pem_private_key(Path(files.key).read_bytes(), None)
    guarded = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"w4rd"),
    )
    Path(files.key).write_bytes(guarded)
    with pytest.raises(ConfigError, match="key without a password"):
        files.pair()
    config = Config(http_tls_certificate_file=files.certificate, http_tls_key_file=files.key)
    with pytest.raises(ConfigError, match="key without a password"):
        Listening.of(config)
