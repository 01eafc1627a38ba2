"""Numbers of partitions that the program says itself: those of topics that are joined agree."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.errors import TopologyError
from penstock.topology.graph import SubTopology


def check_said_partitions(subs: Iterable[SubTopology]) -> None:
    """Raise `TopologyError` for a join of repartition topics of which the program says otherwise.

    How many partitions other topics have is known when the application starts.
    """
    subs = list(subs)
    said = {
        sink.topic: sink.partitions
        for sub in subs
        for sink in sub.sinks
        if sink.repartition and sink.partitions is not None
    }
    for sub in subs:
        ours = {source.name: source.topics[0] for source in sub.sources if source.repartition}
        for group, step in zip(sub.copartitioned, sub.joining, strict=True):
            joined = [ours[name] for name in group if ours.get(name) in said]
            for other in joined[1:]:
                if said[joined[0]] != said[other]:
                    raise _refusal(step, joined[0], other, said)


def _refusal(step: str, one: str, other: str, said: dict[str, int]) -> TopologyError:
    return TopologyError(
        f"{one!r} is to have {said[one]} partitions and {other!r} {said[other]}, and they are "
        "joined: records of one key would be in different tasks, and never meet",
        where={"step": step},
        hint=f"Say repartition(partitions={said[one]}) for both, or leave partitions= out of one",
    )
