"""The driver's side of the instances: who is there, where, and who is lost."""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from penstock.coordination.members import Member, Members
from penstock.errors import InstanceError, PenstockError
from penstock.instance import protocol
from penstock.instance.client import Client, ClientCache
from penstock.instance.process import InstanceOptions
from penstock.instance.protocol import (
    Beat,
    BeatReply,
    CommitHeader,
    Failure,
    Hello,
    M,
    Message,
    Registration,
    Reply,
    Settings,
)
from penstock.instance.server import Server
from penstock.pipeline.instances import start_instance

_log = logging.getLogger("penstock.driver")

_CALL_SECONDS = 10.0


@dataclass
class _Child:
    """An instance that this process started."""

    slot: str
    process: subprocess.Popen[bytes]


class Coordinator:
    """Lets instances register and beat; starts them on one machine; tells who was lost."""

    def __init__(self, settings: Settings, *, token: str, programs: bytes = b"") -> None:
        self.token = token
        self._programs = programs
        self._settings = settings
        self._lock = threading.Lock()
        self._members = Members(
            session_timeout_seconds=settings.session_timeout.total_seconds(),
            heartbeat_seconds=settings.heartbeat_interval.total_seconds(),
        )
        self._children: dict[str, _Child] = {}
        self._started = 0
        self._failure: PenstockError | None = None
        self._clients = ClientCache()
        self._directory = tempfile.TemporaryDirectory(prefix="penstock-")
        self._server = self._listen()

    @property
    def location(self) -> str:
        """Where instances find the coordinator."""
        if self._settings.listen_host:
            return f"grpc+tcp://{self._settings.listen_host}:{self._server.port}"
        location: str = self._server.location
        return location

    def start_child(self, slot: str) -> str:
        """Start an instance on this machine; it registers when it is ready."""
        self._started += 1
        name = f"{slot or 'instance'}.{self._started}"
        options = InstanceOptions(
            name=name, coordinator=self.location, token=self.token, slot=slot, watch_stdin=True
        )
        # The pipe is never written to: that it closes with this process is the message.
        process = start_instance(options, programs=self._programs, stdin=subprocess.PIPE)
        self._children[name] = _Child(slot, process)
        return name

    def names(self) -> list[str]:
        """The instances that are there."""
        with self._lock:
            return self._members.names

    def member(self, name: str) -> Member | None:
        """The instance of that name."""
        with self._lock:
            return self._members.get(name)

    def lost(self) -> list[tuple[str, str | None]]:
        """Instances that are gone, each once, with the slot to start again if it was a child.

        Raises what an instance reported when it could not start.
        """
        if self._failure is not None:
            raise self._failure
        with self._lock:
            gone: list[tuple[str, str | None]] = []
            for name, child in list(self._children.items()):
                if child.process.poll() is not None:
                    _log.warning("Instance %s ended with %s", name, child.process.returncode)
                    del self._children[name]
                    self._members.leave(name)
                    gone.append((name, child.slot))
            for name in self._members.lost(time.monotonic()):
                self._members.leave(name)
                gone.append((name, self._discard_child(name)))
            return gone

    def doubt(self, name: str) -> None:
        """A call to an instance failed; if it missed beats too, it is lost."""
        with self._lock:
            member = self._members.get(name)
            if member is not None:
                self._clients.drop(member.tcp_location or member.unix_location)
            if name not in self._children:
                self._members.doubt(name, time.monotonic())

    def call(self, name: str, action: str, message: Message, reply: type[M]) -> M:
        """Ask an instance something. Raises `InstanceUnreachableError`, `InstanceError`."""
        return self._client(name).call(action, message, reply)

    def commit_nothing(self, name: str, header: CommitHeader) -> Reply:
        """Have a task's owner commit a range that held no records."""
        return self._client(name).commit(header, [])

    def _client(self, name: str) -> Client:
        member = self.member(name)
        if member is None:
            raise InstanceError("There is no such instance", where={"instance": name})
        location = member.tcp_location or member.unix_location
        return self._clients.get(location, token=self.token, timeout_seconds=_CALL_SECONDS)

    def close(self, timeout_seconds: float) -> None:
        """Tell the instances to stop, and make sure that children did."""
        for child in self._children.values():
            child.process.terminate()
        deadline = time.monotonic() + timeout_seconds
        for name, child in self._children.items():
            self._members.leave(name)
            try:
                child.process.wait(max(deadline - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                _log.warning("Instance %s did not stop in time; killed", name)
                child.process.kill()
                child.process.wait()
        for name in self.names():
            # Not our child, so there is no signal to send; one that cannot be told ends by its
            # lease.
            with contextlib.suppress(InstanceError):
                self.call(name, "stop", Beat(instance=name), BeatReply)
        self._server.shutdown()
        self._directory.cleanup()

    def _discard_child(self, name: str) -> str | None:
        child = self._children.pop(name, None)
        if child is None:
            return None
        child.process.kill()
        child.process.wait()
        return child.slot

    def _listen(self) -> Server:
        host = self._settings.listen_host
        path = Path(self._directory.name) / "coordinator.sock"
        location = f"grpc+tcp://{host}:0" if host else f"grpc+unix://{path}"
        actions = {
            "hello": self._on_hello,
            "register": self._on_register,
            "beat": self._on_beat,
            "failed": self._on_failed,
        }
        previous = os.umask(0o177)
        try:
            return Server(location, token=self.token, actions=actions)
        finally:
            os.umask(previous)

    def _on_hello(self, body: bytes) -> Message:
        protocol.decode(body, Hello)
        return self._settings

    def _on_register(self, body: bytes) -> Message:
        who = protocol.decode(body, Registration)
        member = Member(
            name=who.instance,
            host=who.host,
            pid=who.pid,
            unix_location=who.unix_location,
            tcp_location=who.tcp_location,
            last_beat=time.monotonic(),
        )
        with self._lock:
            self._members.join(member)
        return BeatReply(known=True)

    def _on_beat(self, body: bytes) -> Message:
        beat = protocol.decode(body, Beat)
        with self._lock:
            return BeatReply(known=self._members.beat(beat.instance, time.monotonic()))

    def _on_failed(self, body: bytes) -> Message:
        failure = protocol.decode(body, Failure)
        self._failure = protocol.error_of(failure.fault)
        return BeatReply(known=False)
