"""The systems that are compared, each as commands to run and topics to read back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bench.verify import Decode, long_value, same_key

Guarantee = Literal["exactly_once", "at_least_once"]
COMMIT_INTERVAL_MS: dict[Guarantee, int] = {"exactly_once": 100, "at_least_once": 1000}
# Not in this folder: a program's own folder is where its imports are looked for first, and here
# `import penstock` would find the module of that name.
PROGRAMS = Path(__file__).parent.parent / "programs"


@dataclass(frozen=True, kw_only=True)
class Job:
    """One run of a program: what every system is told, and nothing more."""

    bootstrap_servers: str
    application_id: str
    input: str
    output: str
    guarantee: Guarantee
    state_dir: Path
    # Which topology, of a system that has several, and the second topic that it reads, if any.
    topology: str = "count"
    other: str = ""

    def arguments(self) -> list[str]:
        """The command line that all programs understand."""
        options = {
            "bootstrap-servers": self.bootstrap_servers,
            "application-id": self.application_id,
            "input": self.input,
            "output": self.output,
            "guarantee": self.guarantee,
            "commit-interval-ms": str(COMMIT_INTERVAL_MS[self.guarantee]),
            "state-dir": str(self.state_dir),
        }
        return flags(options)

    def choice(self) -> list[str]:
        """What the programs that know several topologies are told besides."""
        return flags({"topology": self.topology, "other": self.other})


def flags(options: dict[str, str]) -> list[str]:
    return [part for name, value in options.items() for part in (f"--{name}", value)]


@dataclass(frozen=True, kw_only=True)
class System:
    """How a system is run, and where it leaves its state in Kafka."""

    name: str
    title: str
    version: str
    settings: str
    commands: Callable[[Job], list[list[str]]]
    changelog: Callable[[Job], str] = lambda job: f"{job.application_id}-counts-changelog"
    changelog_key: Callable[[bytes], bytes] = same_key
    changelog_value: Decode = long_value
