"""The connections to the instances that are asked, and who was silent of late."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from penstock.errors import InstanceUnreachableError
from penstock.instance.client import Client
from penstock.instance.protocol import M, Message, decode, encode
from penstock.instance.query_messages import (
    StoreAnswer,
    StoreAnswers,
    StoreQuestion,
    StoreQuestions,
)
from penstock.instance.question_socket import QuestionLine, socket_beside
from penstock.instance.tls import Trust

_SILENT_SECONDS = 1.0
"""How long one that did not answer in time is asked after all others."""


class Locations(Protocol):
    """Of `asking.Places`, how instances are reached."""

    @property
    def token(self) -> str:
        """What calls to instances bear."""
        ...

    @property
    def trust(self) -> Trust | None:
        """By what instances on other hosts are known; None without TLS."""
        ...

    def location(self, instance: str) -> str | None:
        """Where an instance listens."""
        ...


class Connections:
    """Those to each instance. Any thread may call."""

    def __init__(self, places: Locations) -> None:
        self._places = places
        self._lock = threading.Lock()
        self._clients: dict[str, Client] = {}
        self._lines: dict[str, QuestionLine | None] = {}
        """By location; None where nobody listens for questions alone."""
        self._silent_until: dict[str, float] = {}

    def ask(self, name: str, message: StoreQuestion, seconds: float) -> StoreAnswer:
        """What an instance says to one question. Raises `InstanceError`."""
        return self.ask_many(name, StoreQuestions(questions=[message]), seconds)[0]

    def ask_many(self, name: str, questions: StoreQuestions, seconds: float) -> list[StoreAnswer]:
        """What it says to each of several. Raises `InstanceError`."""
        location = self._location(name)
        line = self._line(location)
        deadline = time.monotonic() + seconds
        if line is not None:
            with self._noted(name, location, seconds):
                told = self._ask_line(line, encode(questions), seconds)
            if told:
                return decode(told, StoreAnswers).answers
            seconds = deadline - time.monotonic()
        # Where it failed over the question, this says why.
        return self.call(name, "ask_many", questions, StoreAnswers, seconds).answers

    def _ask_line(self, line: QuestionLine, body: bytes, seconds: float) -> bytes:
        """What is said on the plain socket; empty if there is time to ask in the other way."""
        started = time.monotonic()
        try:
            return line.ask(body, seconds)
        except InstanceUnreachableError:
            # One that takes no more connections there refuses at once.
            if time.monotonic() - started >= seconds / 2:
                raise
            return b""

    def call(self, name: str, action: str, message: Message, reply: type[M], seconds: float) -> M:
        """What an instance says to a message. Raises `InstanceError`."""
        location = self._location(name)
        client = self._client(location, seconds)
        with self._noted(name, location, seconds):
            return client.call(action, message, reply, within_seconds=seconds)

    def socket_of(self, name: str) -> Path | None:
        """Where an instance takes questions on a plain socket; None if it does not."""
        location = self._places.location(name)
        line = None if location is None else self._line(location)
        return None if line is None else line.path

    def silent(self) -> set[str]:
        """Those who did not answer in time a moment ago."""
        if not self._silent_until:
            return set()
        now = time.monotonic()
        with self._lock:
            self._silent_until = {n: at for n, at in self._silent_until.items() if at > now}
            return set(self._silent_until)

    def _location(self, name: str) -> str:
        location = self._places.location(name)
        if location is None:
            raise InstanceUnreachableError("It is gone", where={"instance": name})
        return location

    @contextlib.contextmanager
    def _noted(self, name: str, location: str, seconds: float) -> Iterator[None]:
        """Remember of one that gives no answer that it was so."""
        started = time.monotonic()
        try:
            yield
        except InstanceUnreachableError:
            with self._lock:
                # Others may be using them: they are closed when the last of them lets them go.
                self._clients.pop(location, None)
                self._lines.pop(location, None)
                if time.monotonic() - started >= seconds / 2:
                    self._silent_until[name] = time.monotonic() + _SILENT_SECONDS
            raise

    def _line(self, location: str) -> QuestionLine | None:
        with self._lock:
            if location not in self._lines:
                path = socket_beside(location)
                is_there = path is not None and path.exists()
                self._lines[location] = (
                    QuestionLine(path, token=self._places.token)
                    if path is not None and is_there
                    else None
                )
            return self._lines[location]

    def _client(self, location: str, seconds: float) -> Client:
        with self._lock:
            client = self._clients.get(location)
            if client is None:
                token = self._places.token
                trust = self._places.trust
                client = Client(location, token=token, timeout_seconds=seconds, trust=trust)
                self._clients[location] = client
            return client
