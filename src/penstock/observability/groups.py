"""The groups of metrics, and the tags that tell those of one group apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from penstock.config import RecordingLevel

Level = RecordingLevel

_ORDER: tuple[Level, ...] = get_args(Level)


def includes(recorded: Level, level: Level) -> bool:
    """Whether a metric of that level is recorded: each level has all of those before it.

    >>> includes("INFO", "DEBUG"), includes("DEBUG", "INFO")
    (False, True)
    """
    return level != "OFF" and _ORDER.index(level) <= _ORDER.index(recorded)


@dataclass(frozen=True)
class Group:
    """A group's tags, and what its metrics' names begin with in Prometheus."""

    tags: tuple[str, ...]
    prefix: str


_THREAD = ("thread-id",)
_TASK = (*_THREAD, "task-id")

CLIENT = "stream-metrics"
THREAD = "stream-thread-metrics"
UPDATER = "stream-state-updater-metrics"
TASK = "stream-task-metrics"
NODE = "stream-processor-node-metrics"
TOPIC = "stream-topic-metrics"
STORE = "stream-state-metrics"
CACHE = "stream-record-cache-metrics"
FETCH = "consumer-fetch-manager-metrics"
COORDINATOR = "consumer-coordinator-metrics"
JOB = "penstock-job-metrics"
DRIVER = "penstock-driver-metrics"
INSTANCE = "penstock-instance-metrics"
DROP = "penstock-drop-metrics"
COPY = "penstock-copy-metrics"
EDGE = "penstock-edge-metrics"
PROCESSOR = "penstock-processor-metrics"

_TAGS: dict[str, tuple[str, ...]] = {
    CLIENT: ("client-id",),
    THREAD: _THREAD,
    UPDATER: _THREAD,
    TASK: _TASK,
    NODE: (*_TASK, "processor-node-id"),
    TOPIC: (*_TASK, "processor-node-id", "topic"),
    STORE: (*_TASK, "scope", "store"),
    CACHE: (*_TASK, "record-cache-id"),
    FETCH: ("client-id", "topic", "partition"),
    COORDINATOR: ("client-id",),
    JOB: ("sub-topology", "step"),
    DRIVER: ("client-id",),
    INSTANCE: _THREAD,
    DROP: (*_TASK, "reason"),
    COPY: _TASK,
    EDGE: ("sub-topology", "from", "to"),
    PROCESSOR: (*_TASK, "processor-node-id", "metric"),
}

OF_TASKS = frozenset(name for name, tags in _TAGS.items() if tags[:2] == _TASK)
"""The groups whose tags begin with instance and task."""


def _prefix(group: str) -> str:
    """What JMX's exporter makes of Kafka's groups, so that dashboards for them go on working."""
    words = group.replace("-", "_")
    if group.startswith("stream-"):
        return f"kafka_streams_{words}_"
    if group.startswith("consumer-"):
        return f"kafka_consumer_{words}_"
    return words.removesuffix("metrics")


GROUPS = {name: Group(tags, _prefix(name)) for name, tags in _TAGS.items()}


def store_scope(kind: str, *, persistent: bool) -> str:
    """The name under which Kafka Streams counts a kind of store; versions are keys and values.

    >>> store_scope("window", persistent=True), store_scope("versioned", persistent=False)
    ('rocksdb-window-state', 'in-memory-state')
    """
    place = "rocksdb" if persistent else "in-memory"
    return f"{place}-{kind}-state" if kind in ("window", "session") else f"{place}-state"


SUPPRESSION = "in-memory-suppression"
"""The scope of the buffers of `suppress`, by Kafka Streams' name; ours are on disk."""
