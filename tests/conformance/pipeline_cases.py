"""Cases for the whole pipeline, in which several partitions and slices must not change the answer.

A test driver has one partition and takes records in the order in which they come. A task takes the
lowest time first, and the tasks behind a repartition topic get the records of several tasks mixed.
So these cases have their records in the order of their times, no two of one time, tables that all
tasks read whole come first, and at the end every key comes again, much later, so that windows close
in every partition.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

from tests.conformance.cases import Case, Record, Step, make_case

# Their answers do not depend on how the records of several tasks are mixed: what they group anew
# comes from one key each, or is not summed up in an order. They were found by running tasks of
# two and three partitions in random order.
SEEDS = (7, 9, 13, 14, 36, 38, 106, 161, 175, 176, 188, 420)


def make_pipeline_case(seed: int) -> Case:
    """The topology of a seed with records in order, without a cache, versions and headers.

    How long versions are kept goes by the clock of each partition, of which the driver has one.
    """
    case = make_case(seed, knotted=False)
    steps = tuple(
        {name: given for name, given in step.items() if name not in ("versioned", "grace")}
        for step in case.steps
    )
    return replace(case, cache=0, steps=steps, records=tuple(_ordered(case)), marked=False)


def _ordered(case: Case) -> list[Record]:
    everywhere = {step["topic"] for step in case.steps if step["op"] == "global_table"}
    # Which partition a record without a key gets is left to chance.
    keyed = [record for record in case.records if record[1] is not None]
    keyed.sort(key=lambda record: (record[0] not in everywhere, record[3]))
    records: list[Record] = []
    clock = 0
    for topic, key, value, time in keyed:
        clock = clock + 1 if topic in everywhere else max(clock + 1, time)
        records.append((topic, key, value, clock))
    span = max(100, clock - records[0][3])
    keys = sorted({key for _, key, _, _ in records if key is not None})
    topics = sorted({topic for topic, *_ in records} - everywhere)
    for round_number, topic, (place, key) in itertools.product((1, 2), topics, enumerate(keys)):
        clock = max(clock + 1, records[-1][3] + (span if place == 0 else 0))
        records.append((topic, key, "abcd"[(place + round_number) % 4], clock))
    return records


def at(case: Case, base: int) -> Case:
    """The case with its times counted from `base`."""
    moved = tuple((topic, key, value, time + base) for topic, key, value, time in case.records)
    return replace(case, records=moved)


def prefixed(case: Case, prefix: str) -> Case:
    """The case with names of its own, so that several can be one program."""

    def step(given: Step) -> Step:
        names = ("id", "from", "with", "topic", "topics", "store", "name", "ids")
        return {
            key: _prefixed(value, prefix) if key in names else value for key, value in given.items()
        }

    records = ((prefix + topic, key, value, time) for topic, key, value, time in case.records)
    return replace(case, steps=tuple(map(step, case.steps)), records=tuple(records))


def _prefixed(name: str | list[str], prefix: str) -> str | list[str]:
    return prefix + name if isinstance(name, str) else [prefix + each for each in name]
