"""The instance's process: settings from the coordinator, a lock, a server, a lease.

An instance never outlives its driver: it ends when its standard input closes (a child whose parent
died), or when the coordinator has not answered a beat for `session_timeout`.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import logging
import math
import os
import signal
import socket
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import IntEnum
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Literal

import pyarrow as pa

from penstock.changelog.snapshots import SnapshotLocation
from penstock.config import Config
from penstock.errors import (
    InstanceError,
    InstanceUnreachableError,
    MemberRefusedError,
    PenstockError,
    StateLockedError,
)
from penstock.instance import protocol
from penstock.instance.cleaning import Cleaner
from penstock.instance.client import TLS_SCHEME, Client, tcp_location
from penstock.instance.clients import SharedClients
from penstock.instance.flushing import Flushing
from penstock.instance.global_processing import Programs
from penstock.instance.global_tables import GlobalTables
from penstock.instance.holder import Holder
from penstock.instance.http_options import HttpOptions, HttpParts, ServeHttp
from penstock.instance.memory import share_heaps
from penstock.instance.peers import PeerCopies, PeerSource, listener_for
from penstock.instance.protocol import (
    Beat,
    BeatReply,
    Failure,
    Hello,
    Registration,
    RegistrationReply,
    Settings,
)
from penstock.instance.question_socket import QuestionSocket
from penstock.instance.server import Server
from penstock.instance.snapshots import Snapshotter
from penstock.instance.static_id import StaticId
from penstock.instance.task import TaskEnvironment
from penstock.instance.tls import TlsFiles
from penstock.observability.json_logs import log_as_json, secrets_of
from penstock.observability.promptness import answer_promptly
from penstock.observability.recorder import Recorder
from penstock.option_values import parse_address
from penstock.serdes.decoders import decoder
from penstock.stores.directory import StateDirectory
from penstock.stores.rocksdb_engine import RocksDBEngine
from penstock.topology.naming import check_name

TOKEN_VARIABLE = "PENSTOCK_TOKEN"
_NO_SUCH_NAME = "address lookup failed"
"""What gRPC says of a host that nobody knows."""
_LOCK_WAIT = timedelta(seconds=5)
_log = logging.getLogger("penstock.instance")

_SLOTS_MAX = 64
_CALL_SECONDS = 10.0
_PATIENCE_SECONDS = 1.0


class Ending(IntEnum):
    """Why an instance ended; the status of its process, if the driver started it."""

    ASKED = 0
    FAILED = 1
    """The driver was told why."""
    DRIVER_LOST = 3
    GIVEN_UP = 4
    """Its tasks were given to others, for it was silent for too long."""


class Lease:
    """Holds while the coordinator has answered within the session timeout."""

    def __init__(self, timeout_seconds: float) -> None:
        self._timeout = timeout_seconds
        self._renewed = time.monotonic()

    def renew(self, asked_at: float) -> None:
        """The coordinator has answered what it was asked then.

        From then on it counts: an answer may be old when it is read, by a process that was stopped
        in between, and its tasks may be others' since.
        """
        self._renewed = asked_at

    def end(self) -> None:
        """Serve nothing any more, until it is renewed."""
        self._renewed = -math.inf

    def holds(self) -> bool:
        """Whether this instance may still serve."""
        return time.monotonic() - self._renewed < self._timeout


@dataclass(frozen=True, kw_only=True)
class InstanceOptions:
    """What an instance is started with; the rest it asks the coordinator for."""

    name: str
    coordinator: str
    token: str = field(repr=False)
    slot: str = ""
    """A directory of its own below the state directory, for several instances on one host;
    `*` is the first that no other process holds."""
    watch_stdin: bool = False
    is_static: bool = False
    """The name is a `group_instance_id`: whoever has it next gets this one's tasks."""
    is_patient: bool = False
    """Waits for a coordinator that does not answer yet: an operator started it."""
    tags: dict[str, str] = field(default_factory=dict)
    """What tells it from others, such as its zone, where standbys are to be spread."""
    capacity: int = 1
    """How many tasks it is to have for each of one with a capacity of 1."""
    tls: TlsFiles | None = None
    """What it shows to other hosts, and by what it knows them."""
    http: HttpOptions | None = None
    """Where it answers questions over HTTP, if it does."""
    member_id: str = field(default_factory=lambda: uuid.uuid4().hex)


def run_instance(
    options: InstanceOptions, programs: Programs | None = None, *, serve: ServeHttp | None = None
) -> Ending:
    """Serve until told to stop or until the lease ends.

    Raises what made it fail, unless it is the driver's own, which is told. `serve` answers over
    HTTP, where the options want that.
    """
    # Restores make messages by the million, none in a cycle: looking through them is in vain.
    gc.set_threshold(50_000, 20, 20)
    answer_promptly()
    share_heaps()
    keep_pandas_out()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    if options.watch_stdin:
        threading.Thread(target=_watch_stdin, args=(stop,), daemon=True).start()
    coordinator = Client(
        options.coordinator,
        token=options.token,
        timeout_seconds=_CALL_SECONDS,
        trust=None if options.tls is None else options.tls.trust(),
    )
    settings = _settings(coordinator, options, stop)
    if settings is None:
        return Ending.ASKED
    try:
        # Asked before the directory is opened: an instance that is refused must not wait for the
        # lock of the one that is there.
        if not _let_in(coordinator, "claim", _registration(options, []), settings, stop):
            return Ending.ASKED
        with _held_id(options, settings, stop):
            return _serve(options, settings, coordinator, stop, programs, serve)
    except MemberRefusedError as error:
        if options.watch_stdin:
            # The driver would start it again and again.
            _tell_failed(coordinator, options, error)
        # Else its own affair, and not the application's.
        raise
    except PenstockError as error:
        _tell_failed(coordinator, options, error)
        if not options.watch_stdin:
            raise
        return Ending.FAILED


class _NoPandas(MetaPathFinder):
    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError(fullname)


def keep_pandas_out() -> None:
    """Have Arrow know that it needs no pandas here; who imports it, as a custom store may, gets it.

    Else Arrow loads it within the first commit: up to two seconds on a busy machine, with the GIL
    held, just when the instance has taken over from one that died.
    """
    nothing = _NoPandas()
    sys.meta_path.insert(0, nothing)
    try:
        pa.array([0])
    finally:
        sys.meta_path.remove(nothing)


def _tell_failed(coordinator: Client, options: InstanceOptions, error: PenstockError) -> None:
    failure = Failure(
        instance=options.name,
        fault=protocol.fault_of(error),
        member_id=options.member_id,
        ends_application=not options.is_patient,
    )
    # A driver that is gone need not know, and what went wrong is told by the error itself.
    with contextlib.suppress(InstanceUnreachableError):
        coordinator.call("failed", failure, BeatReply)


@contextlib.contextmanager
def _held_id(options: InstanceOptions, settings: Settings, stop: threading.Event) -> Iterator[None]:
    """Hold a static instance's id in the whole Kafka cluster."""
    if not options.is_static:
        yield
        return
    held = StaticId(options.name, settings.application_id, settings.config())
    try:
        held.take(stop.is_set)
        yield
    finally:
        held.close()


def _settings(
    coordinator: Client, options: InstanceOptions, stop: threading.Event
) -> Settings | None:
    """What the coordinator tells a newcomer; None if it is to end before that.

    An instance that an operator started may be there before the application is.
    """
    told: object = None
    while True:
        try:
            return coordinator.call("hello", Hello(instance=options.name), Settings)
        except InstanceUnreachableError as error:
            if not options.is_patient:
                raise
            reason = (type(error), error.is_gone)
            # Again, if it is another: a driver that is there now may hang up.
            if reason != told:
                _log.warning("%s; waiting for it", _why_waiting(error, options.coordinator))
            told = reason
        if stop.wait(_PATIENCE_SECONDS):
            return None


def _why_waiting(error: InstanceUnreachableError, coordinator: str) -> str:
    """Why the application is not to be had yet, in a line."""
    address = coordinator.partition("://")[2]
    if error.is_gone:
        return f"Nobody listens at {address}"
    if protocol.WRONG_TOKEN in error.message:
        return f"Who listens at {address} has another token; {TOKEN_VARIABLE} is to be the same"
    if _NO_SUCH_NAME in error.message:
        return f"There is no host of the name in {address}"
    return str(error)


def _serve(
    options: InstanceOptions,
    settings: Settings,
    coordinator: Client,
    stop: threading.Event,
    programs: Programs | None,
    serve: ServeHttp | None,
) -> Ending:
    config = settings.config()
    if config.log_format == "json":
        fields = {"application": settings.application_id, "instance": options.name}
        log_as_json(fields, secrets=secrets_of(config, options.token))
    lease = Lease(config.session_timeout.total_seconds())
    with _open_directory(config.state_dir, settings.application_id, options.slot) as directory:
        clients = SharedClients(config, settings.application_id)
        recorder = Recorder(config.metrics_recording_level, first=(options.name,))
        engine = RocksDBEngine(settings.rocksdb, statistics=recorder.records("DEBUG"))
        location = _location(config, settings.application_id)
        tables = GlobalTables(
            settings.global_tables, directory, clients.logs, programs=programs, engine=engine
        )
        environment = TaskEnvironment(
            application_id=settings.application_id,
            config=config,
            directory=directory,
            clients=clients,
            lease_holds=lease.holds,
            recorder=recorder,
            engine=engine,
            snapshots=[] if location is None else [location],
            peer=functools.partial(
                PeerSource,
                token=options.token,
                trust=None if options.tls is None else options.tls.trust(),
            ),
            await_global_tables=tables.wait,
        )
        host, driver_host = _addresses(options.coordinator) if settings.over_tcp else ("", "")
        company = host == driver_host
        holder = Holder(environment, tables, has_company=company, notes=directory.notes)
        snapshotter = None if location is None else _snapshotter(location, config, holder)
        with tempfile.TemporaryDirectory(prefix="penstock-") as sockets:
            listener = listener_for(host, Path(sockets))
            context = options.tls.context() if host and options.tls is not None else None
            copies = PeerCopies(directory, engine, holder.task, listener=listener, context=context)
            questions = QuestionSocket(
                Path(sockets), token=options.token, answer=holder.answer_questions
            )
            servers = _listen(holder, copies, stop, options, Path(sockets), host=host)
            cleaner = Cleaner(directory, config.state_cleanup_delay, keep=holder.tasks)
            try:
                with _http(options, coordinator, lease, holder, serve) as url:
                    registration = _registration(options, servers, http_url=url)
                    if not _let_in(coordinator, "register", registration, settings, stop):
                        return Ending.ASKED
                    _log.info("Joined application %s as %s", settings.application_id, options.name)
                    return _beat(
                        options, coordinator, lease, stop, holder, config.heartbeat_interval
                    )
            finally:
                cleaner.close()
                copies.close()
                questions.close()
                if snapshotter is not None:
                    snapshotter.close()
                holder.close()
                tables.close()
                for server in servers:
                    server.shutdown()
                clients.close()


def _http(
    options: InstanceOptions,
    coordinator: Client,
    lease: Lease,
    holder: Holder,
    serve: ServeHttp | None,
) -> AbstractContextManager[str]:
    if options.http is None or serve is None:
        return contextlib.nullcontext("")
    parts = HttpParts(
        name=options.name,
        options=options.http,
        coordinator=coordinator,
        token=options.token,
        trust=None if options.tls is None else options.tls.trust(),
        is_ready=lease.holds,
        metrics=lambda: _metrics_page(holder),
    )
    return serve(parts)


def _metrics_page(holder: Holder) -> bytes:
    # Only those who are asked for it need what writes it.
    from penstock.observability.prometheus import render

    return render(holder.metrics())


def _location(config: Config, application_id: str) -> SnapshotLocation | None:
    uri = config.snapshot_location
    return SnapshotLocation(uri, application_id, keep=config.snapshot_keep) if uri else None


def _snapshotter(location: SnapshotLocation, config: Config, holder: Holder) -> Snapshotter:
    return Snapshotter(
        location,
        interval_seconds=config.snapshot_interval.total_seconds(),
        tasks=holder.running_tasks,
    )


def _open_directory(state_dir: Path, application_id: str, slot: str) -> StateDirectory:
    if slot != "*":
        # A predecessor that was killed may take a moment to let go of the lock.
        below = state_dir / check_name(slot, "slot") if slot else state_dir
        return StateDirectory.open(below, application_id, wait=_LOCK_WAIT)
    for number in range(_SLOTS_MAX):
        with contextlib.suppress(StateLockedError):
            return StateDirectory.open(state_dir / f"instance-{number}", application_id)
    return StateDirectory.open(state_dir / "instance-0", application_id, wait=_LOCK_WAIT)


def _listen(
    holder: Holder,
    copies: PeerCopies,
    stop: threading.Event,
    options: InstanceOptions,
    sockets: Path,
    *,
    host: str,
) -> list[Server]:
    """A socket that only this user can open, and TCP if there are other hosts."""

    def on_stop(body: bytes) -> BeatReply:
        stop.set()
        return BeatReply(known=False)

    actions = {**holder.actions, **copies.actions, "stop": on_stop}
    locations = [f"grpc+unix://{sockets}/instance.sock"]
    if host:
        locations.append(tcp_location(host, 0, tls=options.tls is not None))
    previous = os.umask(0o177)
    try:
        return [
            Server(
                location,
                token=options.token,
                actions=actions,
                rows=holder,
                tls=options.tls if location.startswith(TLS_SCHEME) else None,
            )
            for location in locations
        ]
    finally:
        os.umask(previous)


def _let_in(
    coordinator: Client,
    action: Literal["claim", "register"],
    registration: Registration,
    settings: Settings,
    stop: threading.Event,
) -> bool:
    """Ask until the coordinator has decided; False if this process is to end before.

    Raises `MemberRefusedError`. It takes two beats at most: by then the other one has beaten, or
    has been silent for too long.
    """
    while True:
        reply = coordinator.call(action, registration, RegistrationReply)
        if reply.fault is not None:
            raise protocol.error_of(reply.fault)
        if reply.status == "joined":
            return True
        if stop.wait(settings.heartbeat_interval.total_seconds() / 4):
            return False


def _registration(
    options: InstanceOptions, servers: list[Server], *, http_url: str = ""
) -> Registration:
    tcp = ""
    if len(servers) > 1:
        tcp = f"{str(servers[1].location).rpartition(':')[0]}:{servers[1].port}"
    return Registration(
        instance=options.name,
        host=socket.gethostname(),
        pid=os.getpid(),
        member_id=options.member_id,
        is_static=options.is_static,
        tags=options.tags,
        capacity=options.capacity,
        by_operator=options.is_patient,
        unix_location=servers[0].location if servers else "",
        tcp_location=tcp,
        http_url=http_url,
    )


def _addresses(coordinator: str) -> tuple[str, str]:
    """The address of this host that is on the way to the coordinator, and so to the workers; and
    the coordinator's own, which is the same on the driver's machine.

    A host may have several, and the driver's is none of them on another host.
    """
    host, port = parse_address(coordinator.partition("://")[2])
    with socket.create_connection((host, port), timeout=_CALL_SECONDS) as connection:
        return str(connection.getsockname()[0]), str(connection.getpeername()[0])


def _beat(
    options: InstanceOptions,
    coordinator: Client,
    lease: Lease,
    stop: threading.Event,
    holder: Holder,
    interval: timedelta,
) -> Ending:
    """Beat until stopped, unknown to the coordinator, or without a lease."""
    beat = Beat(instance=options.name, member_id=options.member_id)
    with Flushing(holder.flush, look_seconds=interval.total_seconds()) as flushing:
        while not stop.wait(interval.total_seconds()):
            flushing.check()
            asked_at = time.monotonic()
            try:
                reply = coordinator.call("beat", beat, BeatReply)
            except InstanceUnreachableError:
                if not lease.holds():
                    return Ending.DRIVER_LOST
                continue
            if not reply.known:
                # The coordinator has given our tasks to others; a fresh process starts clean.
                lease.end()
                return Ending.GIVEN_UP
            lease.renew(asked_at)
            failure = holder.disk_failure if options.is_patient else None
            if failure is not None:
                # Others have disks of their own, and take the tasks: now, and not when all is
                # closed.
                _say_goodbye(coordinator, beat, lease)
                raise failure
        # Before anything is closed: from now on nobody is to ask for our tasks here.
        _say_goodbye(coordinator, beat, lease)
    return Ending.ASKED


def _say_goodbye(coordinator: Client, beat: Beat, lease: Lease) -> None:
    # From then on others have our tasks, and to close them may take a while.
    lease.end()
    with contextlib.suppress(InstanceError):
        coordinator.call("leave", beat, BeatReply)


def _watch_stdin(stop: threading.Event) -> None:
    """The parent holds the other end; when it dies, however it dies, the read ends."""
    # Not through sys.stdin: a daemon thread inside its buffer would break interpreter shutdown.
    while os.read(0, 4096):
        pass
    stop.set()


def options_of(arguments: list[str]) -> InstanceOptions:
    """The options on the command line, with the token from the environment."""
    token = os.environ.pop(TOKEN_VARIABLE, "")
    if not token:
        raise InstanceError(f"{TOKEN_VARIABLE} is not set", hint="The driver sets it")
    return replace(decoder(InstanceOptions).decode(arguments[0]), token=token)


if __name__ == "__main__":
    sys.exit(run_instance(options_of(sys.argv[1:])))
