"""Cases for the whole pipeline, in which several partitions and slices must not change the answer.

A test driver has one partition and takes records in the order in which they come. A task takes the
lowest time first, and the tasks behind a repartition topic get the records of several tasks mixed.
So these cases have their records in the order of their times, no two of one time, tables that all
tasks read whole come first, and at the end every key comes again, much later, so that windows close
in every partition.

Some have their records in the order in which they were made, so that many come out of order and
some too late. What is late goes by the clock of each partition, of which the driver has one; so in
their midst every key comes once, which brings all clocks together.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from penstock.processors.record_cache import TIMESTAMP_BYTES
from penstock.serdes.windowed import split_session_key, split_window_key
from penstock.testing import TopologyTestDriver
from penstock.topology import StoreSpec
from tests.conformance import programs
from tests.conformance.cases import Case, Record, Step, make_case

# Their answers do not depend on how the records of several tasks are mixed: what they group anew
# comes from one key each, or is not summed up in an order. `find_pipeline` found them, by running
# tasks of two and three partitions in random order.
ORDERED = (7, 9, 13, 14, 20, 36, 48, 112, 175, 188)
DISORDERED = (80, 82, 110, 171, 198, 390)
Results = dict[bytes | None, list[tuple[bytes | None, int]]]
"""By key: each value and its time, in order."""
Contents = dict[bytes, tuple[bytes, int]]


@dataclass(frozen=True)
class Expected:
    """What the pipeline must give, by topic and by store."""

    results: dict[str, Results]
    stores: dict[str, Contents]


def pipeline_cases() -> Iterator[Case]:
    """The chosen cases; no two of them have the same seed."""
    yield from map(make_pipeline_case, ORDERED)
    for seed in DISORDERED:
        yield make_pipeline_case(seed, disordered=True)


def make_pipeline_case(seed: int, *, disordered: bool = False) -> Case:
    """The topology of a seed with records in order, without a cache, versions and headers.

    How long versions are kept goes by the clock of each partition, of which the driver has one.
    """
    case = make_case(seed, knotted=False)
    steps = tuple(
        {name: given for name, given in step.items() if name not in ("versioned", "grace")}
        for step in case.steps
    )
    # Which partition a record without a key gets is left to chance.
    keyed = [record for record in case.records if record[1] is not None]
    everywhere = {step["topic"] for step in case.steps if step["op"] == "global_table"}
    records = _disordered(keyed, everywhere) if disordered else _ordered(keyed, everywhere)
    _add_rounds(records, everywhere, (1, 2))
    return replace(case, cache=0, steps=steps, records=tuple(records), marked=False)


def _ordered(keyed: list[Record], everywhere: set[str]) -> list[Record]:
    keyed = sorted(keyed, key=lambda record: (record[0] not in everywhere, record[3]))
    records: list[Record] = []
    clock = 0
    for topic, key, value, time in keyed:
        clock = clock + 1 if topic in everywhere else max(clock + 1, time)
        records.append((topic, key, value, clock))
    return records


def _disordered(keyed: list[Record], everywhere: set[str]) -> list[Record]:
    """Records as they come; in their midst all keys, so that what comes late is late everywhere."""
    whole = [record for record in keyed if record[0] in everywhere]
    others = [record for record in keyed if record[0] not in everywhere]
    middle = len(others) // 2
    records = [*whole, *others[:middle]]
    _add_rounds(records, everywhere, (0,))
    return [*records, *others[middle:]]


def _add_rounds(records: list[Record], everywhere: set[str], rounds: tuple[int, ...]) -> None:
    """Let every key come again in every topic, much later."""
    times = [time for *_, time in records]
    clock = max(times)
    span = max(100, clock - records[0][3])
    keys = sorted({key for _, key, _, _ in records if key is not None})
    topics = sorted({topic for topic, *_ in records} - everywhere)
    for number, topic, (place, key) in itertools.product(rounds, topics, enumerate(keys)):
        clock += span if place == 0 and number else 1
        records.append((topic, key, "abcd"[(place + number) % 4], clock))


def driven(case: Case) -> Expected:
    """What the test driver gives, as bytes."""
    app = programs.application(case)
    driver = TopologyTestDriver(app)
    for topic, key, value, timestamp in case.records:
        driver.input_topic(topic, key=str, value=str).pipe(key, value, timestamp=timestamp)
    outputs = [step["topic"] for step in case.steps if step["op"] == "to"]
    results = {
        topic: by_key(driver.output_topic(topic, key=bytes, value=bytes).read_all())
        for topic in outputs
    }
    stores = {
        spec.name: alive(
            spec,
            {
                key: (data[TIMESTAMP_BYTES:], int.from_bytes(data[:TIMESTAMP_BYTES], "big"))
                for key, data in driver._state.of(spec.name).items()
            },
        )
        for spec in named_stores(case)
    }
    return Expected(results, stores)


def driven_apart(parts: Iterable[Case]) -> Expected:
    """What the test driver gives for the records of each partition, taken together."""
    results: dict[str, Results] = {}
    stores: dict[str, Contents] = {}
    specs: dict[str, StoreSpec] = {}
    for case in parts:
        given = driven(case)
        specs |= {spec.name: spec for spec in named_stores(case)}
        for topic, rows in given.results.items():
            results.setdefault(topic, {}).update(rows)
        for name, contents in given.stores.items():
            stores.setdefault(name, {}).update(contents)
    return Expected(results, {name: alive(specs[name], stores[name]) for name in stores})


def named_stores(case: Case) -> list[StoreSpec]:
    """Those that users name, whose changelogs say what they hold.

    Others hold offsets and partitions, which are not the driver's; and of a store that keeps
    versions the last record of a key may be an old one: which there were, results show.
    """
    named = {s["store"] for s in case.steps if "store" in s and "versioned" not in s}
    subs = programs.application(case).build().sub_topologies
    return [spec for sub in subs for spec in sub.stores if spec.name in named]


def alive(spec: StoreSpec, contents: Contents) -> Contents:
    """Without windows and sessions that have expired, or may have by another partition's clock."""
    if spec.kind not in ("window", "session"):
        return contents
    split = split_window_key if spec.kind == "window" else split_session_key
    times = {key: split(key)[1 if spec.kind == "window" else 2] for key in contents}
    oldest = max(times.values(), default=0) - spec.alive_ms
    return {key: row for key, row in contents.items() if times[key] >= oldest}


def by_key(rows: Iterable[Any]) -> Results:
    """Each key's rows, in their order."""
    found: Results = defaultdict(list)
    for row in rows:
        found[row.key].append((row.value, row.timestamp))
    return dict(found)


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
