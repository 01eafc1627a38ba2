"""The driver's side of the instances: who is there, where, and who is lost."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from penstock.coordination.members import Change, Member, Members, Verdict, refusal
from penstock.driver.questions import Asked, asked_as
from penstock.driver.telling import PlacesTelling
from penstock.errors import InstanceError, InstanceUnreachableError, PenstockError
from penstock.instance import protocol
from penstock.instance.client import Client, ClientCache, tcp_location
from penstock.instance.http_options import HttpOptions
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
    RegistrationReply,
    Reply,
    Settings,
    StatusReply,
)
from penstock.instance.server import Server
from penstock.instance.tls import TlsFiles
from penstock.instance.told_messages import HttpTold
from penstock.option_values import parse_address
from penstock.pipeline.instances import start_instance

_log = logging.getLogger("penstock.driver")

STARTING = "The application is starting"
"""What those are told who ask before there is anything to tell."""
_CALL_SECONDS = 5.0
"""The driver's loop waits for these calls: nothing else happens meanwhile."""
_TAKE_OVER_SECONDS = 1.5
"""For how long nobody is started in place of a child whose tasks others take over."""
_DEATH_SECONDS = 2.0
"""How long the end of the application waits for a child that was killed."""


@dataclass
class _Child:
    """An instance that this process started."""

    slot: str
    process: subprocess.Popen[bytes]


class Coordinator:
    """Lets instances register and beat; starts them on one machine; tells who was lost."""

    def __init__(
        self,
        settings: Settings,
        *,
        token: str,
        programs: bytes = b"",
        group_instance_id: str = "",
        listen: str = "",
        client_tags: Mapping[str, str] | None = None,
        tls: TlsFiles | None = None,
        http: HttpOptions | None = None,
        told: HttpTold | None = None,
    ) -> None:
        self.token = token
        self._http = http
        self._told = told
        # Nobody beyond this machine calls a socket, so there is nothing to encrypt.
        self._tls = tls if listen else None
        self.trust = None if self._tls is None else self._tls.trust()
        self._group_instance_id = group_instance_id
        self._listen_at = parse_address(listen) if listen else None
        self._tags = {"host": socket.gethostname(), **(client_tags or {})}
        self._programs = programs
        self._settings = settings
        self._lock = threading.Lock()
        self._members = Members(
            session_timeout_seconds=settings.session_timeout.total_seconds(),
            heartbeat_seconds=settings.heartbeat_interval.total_seconds(),
        )
        self._awake_at, self._stood_still = time.monotonic(), 0.0
        self._children: dict[str, _Child] = {}
        self._dying: list[_Child] = []
        """Killed, and not dead yet: one that waits for its disk cannot die."""
        self._ended_slots: list[tuple[str, float]] = []
        self._started = 0
        self._failure: PenstockError | None = None
        self.overview: Callable[[], Message] | None = None
        """What whoever asks how things stand is told, once there is something to tell."""
        self.telling: PlacesTelling | None = None
        """What instances that are asked over HTTP are told of the state, once there is any."""
        self._clients = ClientCache()
        # Not the loop's: whoever finds that an instance is gone closes its connection.
        self._status_clients = ClientCache()
        self._directory = tempfile.TemporaryDirectory(prefix="penstock-")
        self._server = self._listen()

    @property
    def location(self) -> str:
        """Where instances find the coordinator."""
        if self._listen_at is not None:
            return tcp_location(self._listen_at[0], self._server.port, tls=self._tls is not None)
        location: str = self._server.location
        return location

    def start_child(self, slot: str) -> str:
        """Start an instance on this machine; it registers when it is ready.

        With a `group_instance_id` it is static: that and the slot are its name, and stay it.
        """
        self._started += 1
        is_static = bool(self._group_instance_id)
        name = f"{slot or 'instance'}.{self._started}"
        if is_static:
            name = "-".join(filter(None, (self._group_instance_id, slot)))
        options = InstanceOptions(
            name=name,
            coordinator=self.location,
            token=self.token,
            slot=slot,
            watch_stdin=True,
            is_static=is_static,
            tags=self._tags,
            tls=self._tls,
            http=self._http,
        )
        # The pipe is never written to: that it closes with this process is the message.
        process = start_instance(options, programs=self._programs, stdin=subprocess.PIPE)
        self._children[name] = _Child(slot, process)
        return name

    def names(self) -> list[str]:
        """The instances that are there, and static ones that are away."""
        with self._lock:
            return self._members.names

    def away(self) -> frozenset[str]:
        """Static instances that do not answer, and whose tasks wait for them."""
        with self._lock:
            return self._members.away

    def member(self, name: str) -> Member | None:
        """The instance of that name."""
        with self._lock:
            return self._members.get(name)

    def peers(self, name: str) -> list[str]:
        """Where the other instances listen."""
        with self._lock:
            there = set(self._members.names) - self._members.away - {name}
            others = [self._members.get(each) for each in sorted(there)]
        return [each.tcp_location or each.unix_location for each in others if each is not None]

    def changes(self) -> list[Change]:
        """What became of instances since the last call, in order.

        Raises what an instance reported when it could not start.
        """
        self._look_after_children()
        with self._lock:
            return self._members.take_changes()

    def start_others(self) -> None:
        """Start others in place of children that have ended; raises as `changes` does."""
        self._look_after_children()
        self.restart_children()

    def _look_after_children(self) -> None:
        if self._failure is not None:
            raise self._failure
        with self._lock:
            gone = [self._children.pop(name) for name in sorted(self._ended() | self._expired())]
        for child in gone:
            child.process.kill()
        # Nobody waits for one that takes long to die; its directory is free only then.
        self._dying += gone
        dead = [child for child in self._dying if child.process.poll() is not None]
        self._dying = [child for child in self._dying if child not in dead]
        self._ended_slots += [(child.slot, time.monotonic()) for child in dead]

    def _now(self) -> float:
        """The time, by which members are judged; under the lock.

        The loop and the beats come by here all the time. If nobody did for long, this process was
        stopped, or its machine: what members said meanwhile is still to be read, and to take them
        for silent would lose all of them at once. But those who cannot have asked for a session
        timeout have ended.
        """
        now = time.monotonic()
        still, self._awake_at = now - self._awake_at, now
        is_long = still > 2 * self._settings.heartbeat_interval.total_seconds()
        total = self._stood_still + still
        if is_long and total <= self._settings.session_timeout.total_seconds():
            _log.info("The driver stood still for %.1f s; no instance is lost for that", still)
            self._members.stood_still(still)
            self._stood_still = total
        return now

    def _ended(self) -> set[str]:
        """The children that have ended by themselves."""
        ended = {n: each for n, each in self._children.items() if each.process.poll() is not None}
        for name, child in ended.items():
            _log.warning("Instance %s ended with %s", name, child.process.returncode)
            known = self._members.get(name)
            # One that ended before it registered was never the member of that name.
            if known is not None and known.pid == child.process.pid:
                self._members.die(name)
        return set(ended)

    def _expired(self) -> set[str]:
        """The children that were silent for too long.

        A static child that died may have a successor, which has not registered yet.
        """
        pids = {member.name: member.pid for member in self._members.expire(self._now())}
        return {n for n, each in self._children.items() if each.process.pid == pids.get(n)}

    def restart_children(self, *, others_take_over: bool = False) -> None:
        """Start instances in place of those children that have ended, or were lost.

        A start takes a core for a second: those who take over have it first, for a while. Nobody
        takes over from a static child.
        """
        waits = others_take_over and not self._group_instance_id
        ended_before = time.monotonic() - (_TAKE_OVER_SECONDS if waits else 0)
        due = [slot for slot, ended in self._ended_slots if ended <= ended_before]
        self._ended_slots = [each for each in self._ended_slots if each[0] not in due]
        for slot in due:
            self.start_child(slot)

    def awaits_children(self) -> bool:
        """Whether instances are started, or about to be, that have not registered yet."""
        with self._lock:
            return bool(self._dying or self._ended_slots) or any(
                not self._is_registered(name) for name in self._children
            )

    def _is_registered(self, child: str) -> bool:
        member = self._members.get(child)
        return member is not None and member.pid == self._children[child].process.pid

    def has_ended(self, name: str) -> bool:
        """Whether the process of a child is no more."""
        child = self._children.get(name)
        return child is None or child.process.poll() is not None

    def is_silent(self, name: str) -> bool:
        """Whether an instance has missed so many beats that nothing is to be asked of it."""
        with self._lock:
            return self._members.is_silent(name, self._now())

    def doubt(self, name: str, error: InstanceError) -> None:
        """A call to an instance failed; if it missed beats too, it is lost."""
        is_gone = isinstance(error, InstanceUnreachableError) and error.is_gone
        with self._lock:
            member = self._members.get(name)
            if member is not None:
                self._clients.drop(member.tcp_location or member.unix_location)
            if name not in self._children:
                self._members.doubt(name, self._now(), is_gone=is_gone)

    def call(self, name: str, action: str, message: Message, reply: type[M]) -> M:
        """Ask an instance something. Raises `InstanceUnreachableError`, `InstanceError`."""
        return self._client(name).call(action, message, reply)

    def status(self, name: str, asked: Asked) -> StatusReply:
        """What an instance says of its tasks, or of the one that it is to take.

        For threads, of which one asks an instance at a time, while others may have it get ready.
        Raises as `call` does.
        """
        client = self._client(name, self._status_clients)
        try:
            return client.call(asked_as(asked), asked, StatusReply)
        except InstanceUnreachableError:
            self._status_clients.drop(client.location)
            raise

    def commit_nothing(self, name: str, header: CommitHeader) -> Reply:
        """Have a task's owner commit a range that held no records."""
        return self._client(name).commit(header, [])

    def _client(self, name: str, clients: ClientCache | None = None) -> Client:
        member = self.member(name)
        if member is None:
            # It said goodbye a moment ago, and whoever asks has not heard of it yet.
            raise InstanceUnreachableError("There is no such instance", where={"instance": name})
        if self.is_silent(name):
            # A process that stands still answers no call.
            raise InstanceUnreachableError("It misses its beats", where={"instance": name})
        location = member.tcp_location or member.unix_location
        return (clients or self._clients).get(
            location, token=self.token, timeout_seconds=_CALL_SECONDS, trust=self.trust
        )

    def close(self, timeout_seconds: float) -> None:
        """Tell the instances to stop, and make sure that children did."""
        for child in self._children.values():
            child.process.terminate()
        deadline = time.monotonic() + timeout_seconds
        for name, child in self._children.items():
            try:
                child.process.wait(max(deadline - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                _log.warning("Instance %s did not stop in time; killed", name)
                child.process.kill()
                # One that waits for its disk dies when it need not any more.
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.process.wait(_DEATH_SECONDS)
        for name in sorted(set(self.names()) - set(self._children) - self.away()):
            # Not our child, so there is no signal to send; one that cannot be told ends by its
            # lease.
            with contextlib.suppress(InstanceError):
                self.call(name, "stop", Beat(instance=name), BeatReply)
        self._server.shutdown()
        self._directory.cleanup()

    def _listen(self) -> Server:
        path = Path(self._directory.name) / "coordinator.sock"
        location = f"grpc+unix://{path}"
        if self._listen_at is not None:
            location = tcp_location(*self._listen_at, tls=self._tls is not None)
        actions = {
            "hello": self._on_hello,
            "claim": self._on_claim,
            "register": self._on_register,
            "beat": self._on_beat,
            "leave": self._on_leave,
            "failed": self._on_failed,
            "overview": self._on_overview,
            "http": self._on_http,
            "places": lambda body: self._tells().places(body),
            "log_ends": lambda body: self._tells().log_ends(body),
        }
        previous = os.umask(0o177)
        try:
            return Server(location, token=self.token, actions=actions, tls=self._tls)
        finally:
            os.umask(previous)

    def _on_hello(self, body: bytes) -> Message:
        protocol.decode(body, Hello)
        return self._settings

    def _on_claim(self, body: bytes) -> Message:
        with self._lock:
            newcomer = _member(body, now=self._now())
            return self._reply(newcomer, self._members.claim(newcomer))

    def _on_register(self, body: bytes) -> Message:
        with self._lock:
            newcomer = _member(body, now=self._now())
            return self._reply(newcomer, self._members.join(newcomer))

    def _reply(self, newcomer: Member, verdict: Verdict) -> RegistrationReply:
        if verdict.status != "refused":
            return RegistrationReply(status=verdict.status)
        assert verdict.incumbent is not None
        error = refusal(newcomer, verdict.incumbent)
        _log.warning("%s", error)
        child = self._children.get(newcomer.name)
        if child is not None and child.process.pid == newcomer.pid:
            # One that we started, and would start again and again.
            self._failure = error
        return RegistrationReply(status="refused", fault=protocol.fault_of(error))

    def _on_beat(self, body: bytes) -> Message:
        beat = protocol.decode(body, Beat)
        with self._lock:
            known = self._members.beat(beat.instance, beat.member_id, self._now())
            self._stood_still = 0.0
        return BeatReply(known=known)

    def _on_leave(self, body: bytes) -> Message:
        beat = protocol.decode(body, Beat)
        with self._lock:
            self._members.leave(beat.instance, beat.member_id)
        return BeatReply(known=False)

    def _on_failed(self, body: bytes) -> Message:
        failure = protocol.decode(body, Failure)
        error = protocol.error_of(failure.fault)
        if failure.ends_application:
            self._failure = error
        else:
            _log.warning("Instance %s has failed: %s", failure.instance, error)
            with self._lock:
                self._members.leave(failure.instance, failure.member_id)
        return BeatReply(known=False)

    def _on_http(self, body: bytes) -> Message:
        protocol.decode(body, Hello)
        if self._told is None:
            raise InstanceError("There is nothing to be told to those who answer over HTTP")
        return self._told

    def _tells(self) -> PlacesTelling:
        if self.telling is None:
            raise InstanceError(STARTING, hint="Ask again in a moment")
        return self.telling

    def _on_overview(self, body: bytes) -> Message:
        if self.overview is None:
            raise InstanceError(STARTING, hint="Ask again in a moment")
        return self.overview()


def _member(body: bytes, *, now: float) -> Member:
    who = protocol.decode(body, Registration)
    return Member(
        name=who.instance,
        host=who.host,
        pid=who.pid,
        unix_location=who.unix_location,
        tcp_location=who.tcp_location,
        last_beat=now,
        member_id=who.member_id,
        is_static=who.is_static,
        tags=who.tags,
        capacity=who.capacity,
        http_url=who.http_url,
        by_operator=who.by_operator,
    )
