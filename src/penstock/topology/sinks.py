"""Writing to topics: those of others, and those that bring equal keys together."""

from __future__ import annotations

import dataclasses
import reprlib
from collections.abc import Callable, Collection
from typing import Any

from penstock.errors import TopologyError
from penstock.topology.draft import needed, said_serde
from penstock.topology.flow import Flow
from penstock.topology.naming import check_name
from penstock.topology.nodes import SinkNode

Partitioner = Callable[[Any, Any, int], int | Collection[int] | None]
"""`partitioner(key, value, partitions)`: where a record goes, to several partitions, or None."""


def write_to(
    flow: Flow,
    step: str,
    topic: str | Callable[[Any, Any], str],
    *,
    key: Any,
    value: Any,
    partitioner: Partitioner | None,
) -> None:
    """Write every record to a topic, or to the one that a function names."""
    if isinstance(topic, str):
        check_name(topic, "topic", step=f"{step}, behind {flow.step}")
    elif not callable(topic):
        raise TopologyError(
            f"The topic of step {step}, behind {flow.step}, is {reprlib.repr(topic)}",
            hint="Write the topic's name, or a function that names it: lambda key, value: ...",
        )
    records = f"what step {step} writes to topic {topic!r}"
    key_serde = flow.key if key is None else said_serde(key, "key", records)
    value_serde = flow.value if value is None else said_serde(value, "value", records)
    where = f"Writing to topic {topic!r}"
    keys, values = needed(key_serde, "key", where), needed(value_serde, "value", where)
    if isinstance(topic, str):
        keys, values = keys.for_topic(topic, "key"), values.for_topic(topic, "value")
    flow.then(
        SinkNode(
            name=step,
            topic=topic if isinstance(topic, str) else "",
            topic_of=None if isinstance(topic, str) else topic,
            key_serde=keys,
            value_serde=values,
            partitioner=partitioner,
        )
    )


def through_repartition(
    flow: Flow,
    *,
    key: Any,
    value: Any,
    partitions: int | None,
    partitioner: Partitioner | None,
    name: str | None,
) -> Flow:
    """The same records, behind an internal topic."""
    draft = flow.draft
    topic = name or draft.unique(flow.origin)
    if name is None and draft.names == "kafka_streams":
        topic = draft.number("KSTREAM-REPARTITION-")
    where = f"The repartition topic {topic!r}"
    given = f"the repartition topic {topic!r} behind step {flow.step}"
    keys = flow.key if key is None else said_serde(key, "key", given)
    values = flow.value if value is None else said_serde(value, "value", given)
    key_serde, value_serde = needed(keys, "key", where), needed(values, "value", where)
    source = draft.add_repartition(
        flow.step,
        topic,
        key_serde,
        value_serde,
        partitions=partitions,
        partitioner=partitioner,
    )
    return dataclasses.replace(flow, step=source, key=key_serde, value=value_serde, rekeyed=False)
