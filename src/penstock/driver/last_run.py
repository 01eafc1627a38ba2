"""What the run before this one left in Kafka, and whether the program of this one fits it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.changelog.clients import LogClients
from penstock.changelog.commit_record import (
    DRIVER_KEY,
    DRIVER_PARTITION,
    TOPOLOGY_KEY,
    DriverRecord,
)
from penstock.changelog.reading import read_latest
from penstock.changelog.topic_admin import TopicAdmin
from penstock.changelog.topics import commits_name
from penstock.config import Config
from penstock.errors import TopologyChangedError
from penstock.topology.diff import diff
from penstock.topology.manifest import TopologyManifest


@dataclass(frozen=True, kw_only=True)
class LastRun:
    """The commits topic's map of tasks to partitions, and the topology; nothing on a first run."""

    tasks: Mapping[str, int] = field(default_factory=dict)
    topology_record: bytes | None = None

    @property
    def topology(self) -> TopologyManifest | None:
        """The topology that ran."""
        if self.topology_record is None:
            return None
        return TopologyManifest.decode(self.topology_record, where={"key": "topology"})


def read_last_run(application_id: str, logs: LogClients, admin: TopicAdmin) -> LastRun:
    """What the last driver wrote, be it at work or not."""
    commits = commits_name(application_id)
    if not admin.describe([commits]):
        return LastRun()
    latest = read_latest(logs, commits, DRIVER_PARTITION)
    driver = latest.get(DRIVER_KEY)
    tasks = {} if driver is None else DriverRecord.decode(driver).tasks
    return LastRun(tasks=tasks, topology_record=latest.get(TOPOLOGY_KEY))


def refuse_change(old: TopologyManifest | None, new: TopologyManifest, config: Config) -> None:
    """Raise `TopologyChangedError` if the program would leave behind or misread what there is.

    Changed numbers of partitions are left to the look at the topics, which knows whose they are.
    """
    if old is None or config.allow_topology_change:
        return
    severe = [each for each in diff(old, new) if each.severity != "harmless"]
    if all(each.kind == "store_width_changed" for each in severe):
        return
    lines = "".join(f"\n  - {each}" for each in severe)
    raise TopologyChangedError(
        f"The program does not fit what application {old.application_id!r} left when it last ran:"
        f"{lines}",
        hint="To start all the same, once: allow_topology_change=True, or "
        "PENSTOCK_ALLOW_TOPOLOGY_CHANGE=true",
    )
