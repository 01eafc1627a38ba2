"""The settings of an embedded Kafka cluster, as text: pure, so that they can be read and tested."""

from __future__ import annotations

import base64
import random
import socket
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Literal

import msgspec

from penstock.errors import BrokerStartError

# Below the range from which Linux takes ports for outgoing connections: a port found free there
# could be taken by anybody's next connection before Kafka binds it.
_PORTS = range(20_000, 32_000)
_PORT_TRIES_MAX = 500
HOST = "127.0.0.1"


class Node(msgspec.Struct, frozen=True):
    """One broker that is also a controller."""

    id: int
    port: int
    controller_port: int

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"


class Cluster(msgspec.Struct, frozen=True):
    """What a data directory remembers: the cluster's identity, and its nodes with their ports."""

    cluster_id: str
    nodes: tuple[Node, ...]

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(node.address for node in self.nodes)

    @property
    def ports(self) -> list[int]:
        return [port for node in self.nodes for port in (node.port, node.controller_port)]


@dataclass(frozen=True, kw_only=True)
class Listener:
    """A further address of a node, at which it wants to know who calls.

    `settings` are those of Kafka's that begin with `listener.name.<name>.`, without that.
    """

    protocol: Literal["SSL", "SASL_SSL"]
    settings: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


def with_listeners(
    settings: Mapping[str, str], listeners: Mapping[str, Listener], ports: Mapping[str, int]
) -> dict[str, str]:
    """The settings of a node that also listens there, at `localhost`: certificates bear names.

    >>> both = with_listeners(
    ...     {"listeners": "A://:1", "advertised.listeners": "A://:1",
    ...      "listener.security.protocol.map": "A:PLAINTEXT"},
    ...     {"TLS": Listener(protocol="SSL", settings={"ssl.client.auth": "required"})},
    ...     {"TLS": 2},
    ... )
    >>> both["listeners"], both["listener.name.tls.ssl.client.auth"]
    ('A://:1,TLS://127.0.0.1:2', 'required')
    """
    result = dict(settings)
    for name, listener in listeners.items():
        result["listeners"] += f",{name}://{HOST}:{ports[name]}"
        result["advertised.listeners"] += f",{name}://localhost:{ports[name]}"
        result["listener.security.protocol.map"] += f",{name}:{listener.protocol}"
        for key, value in listener.settings.items():
            result[f"listener.name.{name.lower()}.{key}"] = value
    return result


def new_cluster(node_count: int) -> Cluster:
    """Return a cluster with a new identity on ports that are free now."""
    identity = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    ports = free_ports(2 * node_count)
    nodes = (Node(i + 1, ports[2 * i], ports[2 * i + 1]) for i in range(node_count))
    # Kafka's tools read an identity that starts with a dash as an option.
    return Cluster("p" + identity[1:], tuple(nodes))


def with_free_ports(cluster: Cluster) -> Cluster:
    """Return the cluster with the same ports where all are free, else with others.

    Clients that were given the address before a restart go on working in the first case.
    """
    if all(is_free(port) for port in cluster.ports):
        return cluster
    fresh = new_cluster(len(cluster.nodes))
    return Cluster(cluster.cluster_id, fresh.nodes)


def is_free(port: int) -> bool:
    """Whether a server could listen on the loopback port now."""
    with socket.socket() as probe:
        # As Java does; without it a port whose last connection just ended looks taken.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def free_ports(count: int, *, besides: Iterable[int] = ()) -> list[int]:
    """Return that many different free loopback ports, none of them in `besides`."""
    found: list[int] = []
    taken = set(besides)
    for _ in range(_PORT_TRIES_MAX):
        if len(found) == count:
            return found
        port = random.choice(_PORTS)
        if port not in taken and is_free(port):
            found.append(port)
            taken.add(port)
    raise BrokerStartError(
        f"{_PORT_TRIES_MAX} loopback ports were tried, fewer than {count} are free",
        where={"ports": f"{_PORTS.start}-{_PORTS.stop}"},
        hint="End what listens there",
    )


def server_properties(
    cluster: Cluster, node: Node, data: Path, overrides: Mapping[str, str]
) -> dict[str, str]:
    """Return one node's settings: small, quick to start, on loopback only; `overrides` win."""
    copies = str(min(3, len(cluster.nodes)))
    voters = ",".join(f"{n.id}@{HOST}:{n.controller_port}" for n in cluster.nodes)
    settings = {
        "process.roles": "broker,controller",
        "node.id": str(node.id),
        "controller.quorum.voters": voters,
        "listeners": f"PLAINTEXT://{node.address},CONTROLLER://{HOST}:{node.controller_port}",
        "advertised.listeners": f"PLAINTEXT://{node.address}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": str(data),
        "auto.create.topics.enable": "false",
        "default.replication.factor": copies,
        "offsets.topic.replication.factor": copies,
        "offsets.topic.num.partitions": "8",
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.num.partitions": "8",
        "transaction.state.log.min.isr": "1",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.num.partitions": "8",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "1000",
        # Its default of 128 MiB is allocated at start, a quarter of the heap.
        "log.cleaner.dedupe.buffer.size": "16777216",
        # A node that was killed is let in again only when its old session is over; by default that
        # takes 9 s of every start after a crash.
        "broker.session.timeout.ms": "6000",
        "broker.heartbeat.interval.ms": "500",
    }
    return settings | dict(overrides)


def properties_text(settings: Mapping[str, str]) -> str:
    """Return Java's properties format.

    >>> properties_text({"a": "C:\\\\x"})
    'a=C:\\\\\\\\x\\n'
    """
    return "".join(f"{key}={_escaped(value)}\n" for key, value in settings.items())


def log4j2_text(log: Path) -> str:
    """Return a logging configuration that keeps warnings, in one bounded file."""
    return properties_text(
        {
            "status": "error",
            "appender.file.type": "RollingFile",
            "appender.file.name": "file",
            "appender.file.fileName": str(log),
            "appender.file.filePattern": f"{log}.%i",
            "appender.file.layout.type": "PatternLayout",
            "appender.file.layout.pattern": "%d %p %c{1} %m%n",
            "appender.file.policies.type": "Policies",
            "appender.file.policies.size.type": "SizeBasedTriggeringPolicy",
            "appender.file.policies.size.size": "10MB",
            "appender.file.strategy.type": "DefaultRolloverStrategy",
            "appender.file.strategy.max": "2",
            "rootLogger.level": "warn",
            "rootLogger.appenderRef.file.ref": "file",
        }
    )


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n")


def telling_line(lines: Sequence[str]) -> str:
    """The line that says best why a broker died: the last with an exception, else the last.

    >>> telling_line(["INFO up", "java.net.BindException: Address already in use", "INFO down"])
    'java.net.BindException: Address already in use'
    """
    named = [line for line in lines if "Exception" in line or "Error" in line]
    return next(reversed(named or lines), "it said nothing").strip()


def last_lines(paths: Iterable[Path], *, count: int) -> list[str]:
    """Return the last lines of each file that exists: what a broker said before it died.

    Java's stack frames are left out; they would push out the line that says what is wrong.
    """
    lines: list[str] = []
    for path in paths:
        if path.exists():
            text = path.read_text(errors="replace").splitlines()
            lines += [line for line in text if not line.startswith(("\tat ", "\t... "))][-count:]
    return lines
