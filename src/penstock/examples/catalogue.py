"""The examples by name: each one's program, its topics and its test data."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from penstock.application import Application
from penstock.errors import UsageError
from penstock.examples import (
    asking,
    data,
    leaderboard,
    patient_monitoring,
    recent,
    tombstone,
    topic_configs,
    visit_sketch,
    word_count,
)
from penstock.examples.data import InputRecord
from penstock.serdes import Serde
from penstock.topology import SinkNode, SourceNode


@dataclass(frozen=True)
class ExampleTopic:
    """A topic that an example reads or writes."""

    name: str
    key: Serde[Any]
    value: Serde[Any]


@dataclass(frozen=True, kw_only=True)
class Example:
    """A program to learn from, with records to run it on.

    With a `time_scale` of 20, a minute of its test data is sent in three seconds.
    """

    program: ModuleType
    test_data: Callable[[], Iterator[InputRecord]]
    time_scale: int = 1

    @property
    def name(self) -> str:
        """What commands call it."""
        return self.program.__name__.rpartition(".")[2].replace("_", "-")

    @property
    def line(self) -> str:
        """What it shows, in a line."""
        return (self.program.__doc__ or "").partition("\n")[0]

    @property
    def file(self) -> Path:
        """Where its program is."""
        return Path(str(self.program.__file__))

    def application(self, **options: Any) -> Application:
        """The application, with these options."""
        made: Application = self.program.application(**options)
        return made

    @property
    def inputs(self) -> dict[str, ExampleTopic]:
        """The topics that it reads, global tables' among them, by name."""
        return inputs_of(self.application())

    @property
    def outputs(self) -> dict[str, ExampleTopic]:
        """The topics that it writes, by name."""
        return outputs_of(self.application())


EXAMPLES = {
    example.name: example
    for example in (
        Example(program=patient_monitoring, test_data=data.patients, time_scale=20),
        Example(program=topic_configs, test_data=data.beats),
        Example(program=recent, test_data=data.patient_events),
        Example(program=tombstone, test_data=data.patient_events),
        Example(program=word_count, test_data=data.lines),
        Example(program=leaderboard, test_data=data.scores),
        Example(program=visit_sketch, test_data=data.visits),
        Example(program=asking, test_data=data.beats),
    )
}


def find_example(name: str) -> Example:
    """The example of that name. Raises `UsageError` if there is none."""
    found = EXAMPLES.get(name)
    if found is None:
        near = difflib.get_close_matches(name, EXAMPLES, n=1)
        known = ", ".join(EXAMPLES)
        hint = f"Did you mean {near[0]!r}? There are: {known}" if near else f"There are: {known}"
        raise UsageError(f"There is no example {name!r}", hint=hint)
    return found


def inputs_of(app: Application) -> dict[str, ExampleTopic]:
    """The topics that an application reads by name, global tables' among them."""
    topology = app.build()
    subs = topology.sub_topologies + topology.global_tables
    sources = [source for sub in subs for source in sub.sources if not source.repartition]
    return {topic: _topic(topic, source) for source in sources for topic in source.topics}


def outputs_of(app: Application) -> dict[str, ExampleTopic]:
    """The topics that an application writes by name; not those that a function names."""
    subs = app.build().sub_topologies
    sinks = [sink for sub in subs for sink in sub.sinks if not sink.repartition]
    return {sink.topic: _topic(sink.topic, sink) for sink in sinks if sink.topic_of is None}


def _topic(name: str, node: SourceNode | SinkNode) -> ExampleTopic:
    return ExampleTopic(name, node.key_serde, node.value_serde)
