"""Questions about stores on a plain socket, beside that of an instance's other calls.

A call by Flight costs 400 µs of the processor and wakes half a dozen threads, whatever it is about;
here it is 15 µs and one thread on each side. Only processes of the same user on the same machine
can open the socket, and they too must show the run's token first.

Each message is its length and then JSON. An answer that could not be made is empty.
"""

from __future__ import annotations

import contextlib
import hmac
import logging
import os
import socket
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path

from penstock.errors import InstanceUnreachableError

UNIX_SCHEME = "grpc+unix://"
CONNECTIONS_MAX = 256
_NAME = "questions.sock"
LENGTH = struct.Struct(">I")
_PIECE_BYTES = 256 * 1024
_TOKEN_SECONDS = 5.0
_RETRY_SECONDS = 0.25
MESSAGE_BYTES_MAX = 2**30
_log = logging.getLogger("penstock.instance")


def socket_beside(location: str) -> Path | None:
    """Where the instance at a location takes questions; None if that is on no plain socket.

    >>> socket_beside("grpc+unix:///tmp/penstock-1/instance.sock").name
    'questions.sock'
    >>> socket_beside("grpc+tls://ward-7:7600")
    """
    if not location.startswith(UNIX_SCHEME):
        return None
    return Path(location.removeprefix(UNIX_SCHEME)).with_name(_NAME)


class QuestionSocket:
    """Answers whoever connects and bears the token, until it is closed."""

    def __init__(self, directory: Path, *, token: str, answer: Callable[[bytes], bytes]) -> None:
        self._token = token.encode()
        self._answer = answer
        self._connections: set[socket.socket] = set()
        self._closing = threading.Event()
        path = directory / _NAME
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        path.chmod(0o600)
        self._listener.listen()
        threading.Thread(target=self._accept, name="questions", daemon=True).start()

    def close(self) -> None:
        """Answer no more."""
        self._closing.set()
        for each in (self._listener, *list(self._connections)):
            # Only this wakes a thread that waits for it.
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                connection, _ = self._listener.accept()
                self._admit(connection)
            except (OSError, RuntimeError) as error:
                # No file or thread is to be had now: the next one may be answered.
                if not self._closing.wait(_RETRY_SECONDS):
                    _log.warning("Somebody who asks is not answered: %s", error)

    def _admit(self, connection: socket.socket) -> None:
        if len(self._connections) >= CONNECTIONS_MAX:
            connection.close()
            return
        self._connections.add(connection)
        try:
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()
        except RuntimeError:
            self._connections.discard(connection)
            connection.close()
            raise

    def _serve(self, connection: socket.socket) -> None:
        try:
            if not _bears(connection, self._token):
                return
            connection.settimeout(None)
            while True:
                connection.sendall(framed(self._answered(_received(connection))))
        except OSError:
            pass  # It hung up, or never said who it is.
        finally:
            self._connections.discard(connection)
            connection.close()

    def _answered(self, body: bytes) -> bytes:
        try:
            return self._answer(body)
        except Exception:  # noqa: BLE001 - whoever asks is told that there is none
            _log.exception("A question could not be answered")
            return b""


class QuestionLine:
    """Connections to one instance's socket, as many as ask at once. Any thread may ask."""

    def __init__(self, path: Path, *, token: str) -> None:
        self.path = path
        self._token = token.encode()
        self._process = os.getpid()
        self._idle: list[socket.socket] = []

    def ask(self, body: bytes, seconds: float) -> bytes:
        """What is answered within so long; empty if the instance failed over it.

        Raises `InstanceUnreachableError`.
        """
        deadline = time.monotonic() + seconds
        try:
            connection = self._taken(deadline)
            try:
                connection.sendall(framed(body))
                answer = _received(connection, deadline=deadline)
            except BaseException:
                # What comes later would be taken for the answer to another question.
                connection.close()
                raise
        except OSError as error:
            raise InstanceUnreachableError(
                f"No answer on {self.path}: {str(error) or type(error).__name__}",
                where={"location": str(self.path)},
            ) from error
        if answer:
            self._idle.append(connection)
        else:
            connection.close()
        return answer

    def close(self) -> None:
        """Close the connections that nobody uses now."""
        while self._idle:
            self._idle.pop().close()

    def _taken(self, deadline: float) -> socket.socket:
        if self._process != os.getpid():
            # After a fork both processes have the same connections.
            self._process, self._idle = os.getpid(), []
        with contextlib.suppress(IndexError):
            connection = self._idle.pop()
            connection.settimeout(_left(deadline))
            return connection
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.settimeout(_left(deadline))
            connection.connect(str(self.path))
            connection.sendall(self._token)
        except BaseException:
            connection.close()
            raise
        return connection


def _left(deadline: float) -> float:
    """The seconds until then. Raises `TimeoutError` if there are none."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("timed out")
    return left


def framed(body: bytes) -> bytes:
    """A message as it is sent."""
    return LENGTH.pack(len(body)) + body


def _received(connection: socket.socket, *, deadline: float | None = None) -> bytes:
    """One message. Raises `OSError` if there is none, or one that is too large."""
    # Whoever sends waits for the answer: behind a message there is nothing.
    data = bytearray(_piece(connection))
    while len(data) < LENGTH.size:
        data += _piece(connection)
    length = LENGTH.unpack_from(data)[0]
    if length > MESSAGE_BYTES_MAX:
        raise ConnectionAbortedError("the message is too large")
    while len(data) < LENGTH.size + length:
        if deadline is not None:
            connection.settimeout(_left(deadline))
        data += _piece(connection)
    return bytes(memoryview(data)[LENGTH.size :])


def _piece(connection: socket.socket, most: int = _PIECE_BYTES) -> bytes:
    data = connection.recv(most)
    if not data:
        raise ConnectionResetError("it hung up")
    return data


def _bears(connection: socket.socket, token: bytes) -> bool:
    """Whether the token comes first, in as many bytes as it has, and soon."""
    deadline = time.monotonic() + _TOKEN_SECONDS
    given = b""
    while len(given) < len(token):
        connection.settimeout(_left(deadline))
        given += _piece(connection, len(token) - len(given))
    return hmac.compare_digest(given, token)
