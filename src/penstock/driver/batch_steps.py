"""Where the time of a batch went."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from penstock.observability import groups
from penstock.observability.tallies import Tally
from penstock.pipeline.orders import Outcome
from penstock.processors.meter import E2E_LATENCY

Span = tuple[float, float]


def steps_of(outcomes: Sequence[Outcome], *, planning: float, seconds: float) -> dict[str, float]:
    """The seconds of a batch by step; together they are those of planning it and of its job.

    Slices that run side by side share the time in which workers were at work, each step by what
    all slices spent on it; `spark` is what workers did not use. Without metrics there is no more
    to tell than `job`.
    """
    spent: dict[str, float] = {}
    for entry in (entry for outcome in outcomes for entry in outcome.metrics):
        if entry.group == groups.JOB:
            [step] = entry.tags
            spent[step] = spent.get(step, 0.0) + entry.tally.total
    total = sum(spent.values())
    if not total:
        return {"plan": planning, "job": seconds}
    at_work = min(covered(each.worked for each in outcomes), seconds)
    share = min(1.0, at_work / total)
    steps = {step: time * share for step, time in spent.items()}
    return {"plan": planning, "spark": max(0.0, seconds - sum(steps.values())), **steps}


def latencies_of(outcomes: Iterable[Outcome], sources: Collection[str]) -> Tally | None:
    """How long records took from their timestamps until they were committed, in ms.

    Those that came from these sources: all of a batch. Without metrics it is not known.
    """
    found = [
        entry.tally
        for outcome in outcomes
        for entry in outcome.metrics
        if (entry.group, entry.name) == (groups.NODE, E2E_LATENCY) and entry.tags[0] in sources
    ]
    return sum(found[1:], start=found[0]) if found else None


def covered(spans: Iterable[Span]) -> float:
    """How long at least one of these was under way.

    >>> covered([(1.0, 3.0), (2.0, 4.0), (6.0, 7.0)])
    4.0
    """
    length, until = 0.0, float("-inf")
    for start, end in sorted(spans):
        length += max(0.0, end - max(start, until))
        until = max(until, end)
    return length
