"""A real Apache Kafka on this machine, for development, tests, the demo and benchmarks.

    with EmbeddedKafka(KafkaOptions(directory=Path("kafka"))) as kafka:
        print(kafka.bootstrap_servers)

Not for production: it listens on loopback without authentication.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from io import TextIOWrapper
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Self

import msgspec
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from penstock.errors import BrokerStartError
from penstock.local import jars, kraft
from penstock.local.class_archive import ClassArchive, are_being_made
from penstock.local.java import find_java
from penstock.local.kraft import Cluster, Listener, Node
from penstock.serdes.decoders import decoder

_NODES_MAX = 3
_LEASH = Path(__file__).with_name("leash.py")
# A port can be taken between looking and binding; then the nodes get others.
_START_ATTEMPTS = 3
_LOCK_SECONDS_MAX = 10.0
_STOP_SECONDS_MAX = 15.0
_ARCHIVE_SECONDS_MAX = 120.0
"""As long may one take that writes an archive of its classes: half of one is worth nothing."""
_LOG_LINES_SHOWN = 12
# Java's optimising compiler is half of a node's work at start, and pays only after minutes.
_QUICK_START = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]


@dataclass(frozen=True, kw_only=True)
class KafkaOptions:
    """How an embedded Kafka is run.

    `settings` are broker settings by Kafka's names; they win over the ones chosen here.
    `heap_mib` is per node: 512 for one node, 384 for several, unless given. `listeners` are further
    addresses of a single node, by name, which `address_of` tells.
    """

    directory: Path
    nodes: int = 1
    heap_mib: int | None = None
    settings: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    listeners: Mapping[str, Listener] = field(default_factory=lambda: MappingProxyType({}))
    ready_seconds_max: float = 120.0
    report: Callable[[str], None] = jars.silent


def broker_archive(java: Path, paths: Sequence[Path]) -> ClassArchive:
    """The archive of a broker's classes."""
    return ClassArchive("kafka", (str(java.resolve()), *map(str, paths)))


class EmbeddedKafka:
    """One to three Kafka nodes (broker and controller in one) as children of this process.

    Data, ports and identity live in the directory: a second start on it goes on where the first
    one ended, under the same addresses where they are free. The children end with this process,
    even when it is killed, but not on Ctrl-C in its terminal: the application has things to write
    first.
    """

    def __init__(self, options: KafkaOptions) -> None:
        if not 1 <= options.nodes <= _NODES_MAX:
            raise BrokerStartError(
                f"an embedded Kafka has 1 to {_NODES_MAX} nodes, not {options.nodes}"
            )
        if options.listeners and options.nodes > 1:
            raise BrokerStartError("only a single node has further listeners")
        self._options = options
        self._ports: dict[str, int] = {}
        self._directory = options.directory.absolute()
        self._cluster: Cluster | None = None
        self._lock: TextIOWrapper | None = None
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self._java = Path()
        self._classpath = ""
        self._archive_options: list[str] = []

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def bootstrap_servers(self) -> str:
        """The nodes' addresses, as clients want them."""
        return self._running_cluster().bootstrap_servers

    def address_of(self, listener: str) -> str:
        """Where one of the further listeners is."""
        return f"localhost:{self._ports[listener]}"

    @property
    def node_ids(self) -> tuple[int, ...]:
        """The nodes' numbers, for `kill` and `restart`."""
        return tuple(node.id for node in self._running_cluster().nodes)

    def start(self) -> None:
        """Start all nodes; return when a client has seen them. Raises `BrokerStartError`."""
        if self._lock is not None:
            return
        self._java = find_java().program
        paths = jars.ensure(jars.BROKER, report=self._options.report)
        self._classpath = jars.classpath(paths)
        self._archive_options = broker_archive(self._java, paths).options()
        self._lock = self._locked()
        try:
            self._start_nodes()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop all nodes in order; a second call does nothing."""
        for child in self._children.values():
            child.terminate()
        seconds = _ARCHIVE_SECONDS_MAX if are_being_made() else _STOP_SECONDS_MAX
        deadline = time.monotonic() + seconds
        for child in self._children.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(max(0.0, deadline - time.monotonic()))
            self._end(child)
        self._children.clear()
        self._cluster = None
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def check(self) -> None:
        """Raise `BrokerStartError`, with the end of its log, if a node has ended by itself."""
        for node in self._running_cluster().nodes:
            child = self._children.get(node.id)
            if child is not None and child.poll() is not None:
                raise self._failure(node, f"ended with status {child.returncode}")

    def kill(self, node: int) -> None:
        """Kill a node as a power cut would: no signal that it could catch, nothing flushed."""
        self._node(node)
        child = self._children.pop(node, None)
        if child is not None:
            self._end(child)

    def restart(self, node: int) -> None:
        """Start a node that was killed (or kill and start it); return when all nodes are seen."""
        found = self._node(node)
        self.kill(node)
        self._spawn(found)
        self._wait_ready(self._running_cluster())

    def _start_nodes(self) -> None:
        cluster = kraft.with_free_ports(self._remembered_cluster())
        for attempt in range(1, _START_ATTEMPTS + 1):
            self._write_settings(cluster)
            self._format_new_nodes(cluster)
            self._cluster = cluster
            try:
                for node in cluster.nodes:
                    self._spawn(node)
                self._wait_ready(cluster)
            except BrokerStartError:
                self._end_all()
                moved = kraft.with_free_ports(cluster)
                if moved is cluster or attempt == _START_ATTEMPTS:
                    raise
                cluster = moved
            else:
                return

    def _remembered_cluster(self) -> Cluster:
        path = self._directory / "cluster.json"
        if not path.exists():
            return kraft.new_cluster(self._options.nodes)
        try:
            cluster = decoder(Cluster).decode(path.read_bytes())
        except (msgspec.MsgspecError, OSError) as error:
            raise BrokerStartError(
                f"what the directory remembers cannot be read: {error}",
                where={"file": path},
                hint="Delete the directory to start with an empty Kafka, or give another one",
            ) from error
        if len(cluster.nodes) != self._options.nodes:
            raise BrokerStartError(
                f"the directory holds a Kafka of {len(cluster.nodes)} nodes, "
                f"{self._options.nodes} are asked for",
                where={"directory": self._directory},
                hint="Ask for as many as it holds, or give another directory",
            )
        return cluster

    def _write_settings(self, cluster: Cluster) -> None:
        listeners = self._options.listeners
        ports = kraft.free_ports(len(listeners), besides=cluster.ports)
        self._ports = dict(zip(listeners, ports, strict=True))
        for node in cluster.nodes:
            home = self._home(node)
            home.mkdir(parents=True, exist_ok=True)
            settings = kraft.server_properties(cluster, node, home / "data", self._options.settings)
            settings = kraft.with_listeners(settings, listeners, self._ports)
            (home / "server.properties").write_text(kraft.properties_text(settings))
            (home / "log4j2.properties").write_text(kraft.log4j2_text(home / "kafka.log"))
        # Written whole or not at all: without it the data under the nodes would belong to nobody.
        draft = self._directory / "cluster.json.new"
        draft.write_bytes(msgspec.json.encode(cluster))
        draft.replace(self._directory / "cluster.json")

    def _format_new_nodes(self, cluster: Cluster) -> None:
        formats: list[tuple[Node, subprocess.Popen[bytes]]] = []
        for node in cluster.nodes:
            if (self._home(node) / "data" / "meta.properties").exists():
                continue
            arguments = ["format", "--cluster-id", cluster.cluster_id, "--ignore-formatted"]
            arguments += ["--config", str(self._home(node) / "server.properties")]
            command = self._command(
                node, [*_QUICK_START, "-Xmx128m"], "kafka.tools.StorageTool", arguments
            )
            formats.append((node, self._run(node, command)))
        for node, child in formats:
            if child.wait() != 0:
                raise self._failure(node, "could not format its storage")

    def _spawn(self, node: Node) -> None:
        alone = self._options.nodes == 1
        heap = self._options.heap_mib or (512 if alone else 384)
        # A broker without memory left answers nothing, for ever; one that ends can be named.
        options = [f"-Xmx{heap}m", "-XX:+ExitOnOutOfMemoryError"]
        # Several nodes on one machine are there to be killed, not measured.
        options += [] if alone else _QUICK_START
        options += self._archive_options
        properties = str(self._home(node) / "server.properties")
        command = self._command(node, options, "kafka.Kafka", [properties])
        self._children[node.id] = self._run(node, command)

    def _command(
        self, node: Node, options: list[str], main_class: str, arguments: list[str]
    ) -> list[str]:
        log4j2 = self._home(node) / "log4j2.properties"
        return [
            *(str(self._java), *options, "-Djava.awt.headless=true"),
            f"-Dlog4j2.configurationFile={log4j2.as_uri()}",
            *("-cp", self._classpath, main_class, *arguments),
        ]

    def _run(self, node: Node, command: list[str]) -> subprocess.Popen[bytes]:
        assert self._lock is not None
        lock = self._lock.fileno()
        with (self._home(node) / "output.log").open("wb") as output:
            return subprocess.Popen(
                [sys.executable, "-I", "-S", str(_LEASH), *command],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self._home(node),
                # The lock is held until the last node is gone, even when this process is killed:
                # the next start on the directory then waits for that, not for luck.
                pass_fds=(lock,),
                env=os.environ | {"PENSTOCK_LEASH_FDS": str(lock)},
                # Ctrl-C in the terminal goes to the application, which stops the broker last.
                start_new_session=True,
            )

    def _wait_ready(self, cluster: Cluster) -> None:
        """Return when a client sees every node; raise as soon as one has ended."""
        client = AdminClient(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "reconnect.backoff.ms": 50,
                "reconnect.backoff.max.ms": 200,
                # Refused connections are what waiting looks like; they are no news.
                "log_level": 0,
            }
        )
        deadline = time.monotonic() + self._options.ready_seconds_max
        while time.monotonic() < deadline:
            self.check()
            with contextlib.suppress(KafkaException):
                seen = set(client.list_topics(timeout=0.5).brokers)
                if seen >= set(self._children):
                    return
            time.sleep(0.05)
        raise self._failure(
            cluster.nodes[0], f"did not answer within {self._options.ready_seconds_max:g} s"
        )

    def _failure(self, node: Node, what: str) -> BrokerStartError:
        home = self._home(node)
        logs = (home / "kafka.log", home / "output.log")
        story = kraft.last_lines(logs, count=_LOG_LINES_SHOWN)
        error = BrokerStartError(
            f"the embedded Kafka's node {node.id} {what}: {kraft.telling_line(story)}",
            where={"log": home / "kafka.log"},
            hint="See the last lines of its log",
        )
        return error.arrived("\n".join(story))

    def _locked(self) -> TextIOWrapper:
        path = self._directory / ".lock"
        try:
            self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = path.open("a+")
        except OSError as error:
            raise BrokerStartError(
                f"the directory cannot be written: {error.strerror}",
                where={"directory": self._directory},
                hint="Give a directory that this user may write",
            ) from error
        deadline = time.monotonic() + _LOCK_SECONDS_MAX
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    lock.close()
                    raise self._in_use(path) from None
                time.sleep(0.05)
            else:
                lock.truncate(0)
                lock.write(str(os.getpid()))
                lock.flush()
                return lock

    def _in_use(self, path: Path) -> BrokerStartError:
        return BrokerStartError(
            f"another Kafka runs in this directory, started by process {path.read_text()}",
            where={"directory": self._directory},
            hint="Use that one, stop it, or give another directory",
        )

    def _end(self, child: subprocess.Popen[bytes]) -> None:
        # The leash leads a session of its own, so its group is it and the program on it.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        if child.stdin is not None:
            child.stdin.close()

    def _end_all(self) -> None:
        for child in self._children.values():
            self._end(child)
        self._children.clear()

    def _running_cluster(self) -> Cluster:
        if self._cluster is None:
            raise BrokerStartError(
                "the embedded Kafka is not running", hint="Call start(), or use it in a `with`"
            )
        return self._cluster

    def _node(self, node_id: int) -> Node:
        for node in self._running_cluster().nodes:
            if node.id == node_id:
                return node
        raise BrokerStartError(f"there is no node {node_id}", hint=f"The nodes are {self.node_ids}")

    def _home(self, node: Node) -> Path:
        return self._directory / f"node-{node.id}"
