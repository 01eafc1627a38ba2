"""How workers and the driver speak to an instance, and instances to the coordinator.

Every call has a deadline: a stopped peer would otherwise hang its caller for ever. Clients are made
after a fork, never before: a gRPC channel does not survive one.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
from pyarrow import flight

from penstock.errors import (
    InstanceCertificateError,
    InstanceError,
    InstanceUnreachableError,
)
from penstock.instance import protocol
from penstock.instance.protocol import (
    CommitHeader,
    Exchange,
    M,
    Message,
    ReadHeader,
    Reply,
    decode,
    encode,
)
from penstock.instance.tls import Trust

TLS_SCHEME = "grpc+tls://"

_CHANNEL = [
    # A slice's rows are one message per batch; gRPC's default of 4 MiB would refuse large ones.
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # A call that waits asks whether there is anybody. gRPC itself answers that, however busy Python
    # is, but not in a process that stands still: its callers know within three seconds, and
    # not when a deadline is over that is made for large commits.
    ("grpc.keepalive_time_ms", 1_000),
    ("grpc.keepalive_timeout_ms", 2_000),
    ("grpc.http2.ping_timeout_ms", 2_000),
    # A server that is asked more often than twice without anything else being sent hangs up.
    ("grpc.http2.max_pings_without_data", 2),
    # The kernel takes connections for a process that stands still.
    ("grpc.min_reconnect_backoff_ms", 3_000),
]

# What a lost, stopped or restarting peer can make of a call, and also a peer's own exception.
_FAILURES = (
    flight.FlightUnavailableError,
    flight.FlightTimedOutError,
    flight.FlightCancelledError,
    pa.ArrowInvalid,
    pa.ArrowException,
    OSError,
    # The stream ended where an answer should be.
    StopIteration,
)

_HUNG_UP = ("failed to connect", "Socket closed")
"""What becomes of a caller over TLS whose certificate is not taken: gRPC gives no reason."""
_GONE = ("refused", "reset", "closed", "No such file", "Broken pipe")
"""What is said by whoever is there in the place of a process that has ended."""
_PYTHON_EXCEPTION = "Detail: Python exception: "
"""How Flight tells of an exception in the peer's own code."""


class Client:
    """A connection to one Flight server of ours.

    Raises `InstanceUnreachableError` when the peer is lost or does not answer before the deadline,
    and `InstanceError` when it answers with an exception of its own.
    """

    def __init__(
        self, location: str, *, token: str, timeout_seconds: float, trust: Trust | None = None
    ) -> None:
        self.location = location
        self._flight = flight.connect(location, generic_options=_CHANNEL, **_tls(location, trust))
        self._headers = [(b"authorization", f"Bearer {token}".encode())]
        self._options = self._within(timeout_seconds)

    def call(
        self, action: str, message: Message, reply: type[M], *, within_seconds: float | None = None
    ) -> M:
        """Send one message and decode the one that comes back; a deadline may be said."""
        options = self._options if within_seconds is None else self._within(within_seconds)
        try:
            request = flight.Action(action, encode(message))
            answers = list(self._flight.do_action(request, options))
        except _FAILURES as error:
            raise self._failure(error) from error
        return decode(answers[0].body.to_pybytes(), reply)

    def read(
        self, header: ReadHeader, questions: pa.RecordBatch
    ) -> tuple[Reply, list[pa.RecordBatch]]:
        """The answers to these questions, which count only if the reply is `ok`."""
        return self._exchange(Exchange(read=header), [questions], questions.schema)

    def commit(self, header: CommitHeader, rows: Iterable[pa.RecordBatch]) -> Reply:
        """Commit a slice: once this answers `ok`, it is durable."""
        return self._exchange(Exchange(commit=header), rows, protocol.ROWS)[0]

    def close(self) -> None:
        """Give the connection up."""
        self._flight.close()

    def _within(self, seconds: float) -> flight.FlightCallOptions:
        return flight.FlightCallOptions(timeout=seconds, headers=self._headers)

    def _exchange(
        self, request: Exchange, batches: Iterable[pa.RecordBatch], schema: pa.Schema
    ) -> tuple[Reply, list[pa.RecordBatch]]:
        descriptor = flight.FlightDescriptor.for_command(encode(request))
        try:
            writer, reader = self._flight.do_exchange(descriptor, self._options)
            with writer:
                writer.begin(schema)
                for batch in batches:
                    writer.write_batch(batch)
                writer.done_writing()
                answers: list[pa.RecordBatch] = []
                while (chunk := reader.read_chunk()).app_metadata is None:
                    answers.append(chunk.data)
            return decode(chunk.app_metadata.to_pybytes(), Reply), answers
        except _FAILURES as error:
            raise self._failure(error) from error

    def _failure(self, error: BaseException) -> InstanceError:
        # Not every error has a text; an end of stream has none.
        text = str(error).strip() or type(error).__name__
        text = text.split(". gRPC", 1)[0]
        lines = text.splitlines()
        if _PYTHON_EXCEPTION in text:
            # The peer is there and has a bug; asking again would hide it.
            return InstanceError(
                f"{self.location} failed with {lines[-1]}", where={"location": self.location}
            )
        reason = lines[0]
        if self.location.startswith(TLS_SCHEME) and all(each in text for each in _HUNG_UP):
            return InstanceCertificateError(
                f"{self.location} closed the connection as soon as it was made",
                where={"location": self.location},
                hint="If tls_verify_clients is set there, set it here, with a certificate that the "
                "same CA signed and that has not expired",
            )
        unreachable = InstanceUnreachableError(
            f"No answer from {self.location}: {reason}", where={"location": self.location}
        )
        unreachable.is_gone = any(each in text for each in _GONE)
        return unreachable


def tcp_location(host: str, port: int, *, tls: bool = False) -> str:
    """Where Flight listens or calls.

    >>> tcp_location("::1", 7600), tcp_location("ward-7", 7600, tls=True)
    ('grpc+tcp://[::1]:7600', 'grpc+tls://ward-7:7600')
    """
    return f"grpc+{'tls' if tls else 'tcp'}://{f'[{host}]' if ':' in host else host}:{port}"


def _tls(location: str, trust: Trust | None) -> dict[str, Any]:
    """What Flight wants to know of whom to trust, where it speaks TLS."""
    if trust is None or not location.startswith(TLS_SCHEME):
        return {}
    options: dict[str, Any] = {"tls_root_certs": trust.authorities}
    if trust.server_name:
        options["override_hostname"] = trust.server_name
    shown = trust.pair()
    if shown is not None:
        options["cert_chain"], options["private_key"] = shown
    return options


class ClientCache:
    """One client per location in this process; a fork starts with none. Any thread may call."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._clients: dict[str, Client] = {}

    def get(
        self, location: str, *, token: str, timeout_seconds: float, trust: Trust | None = None
    ) -> Client:
        """The client of that location."""
        if self._pid != os.getpid():
            # The parent's channels are dead here; closing them would block, so they are forgotten.
            self._pid, self._clients = os.getpid(), {}
        # One look only: another thread may drop what the first one saw.
        client = self._clients.get(location)
        if client is None:
            client = self._clients[location] = Client(
                location, token=token, timeout_seconds=timeout_seconds, trust=trust
            )
        return client

    def drop(self, location: str) -> None:
        """Forget a client whose peer was lost, so that the next call connects anew."""
        client = self._clients.pop(location, None)
        if client is not None:
            client.close()
