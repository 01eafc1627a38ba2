"""What Kafka Streams and Penstock write to changelogs, in bytes, and where that differs.

Compared is what a store holds that is restored from either, so that each can take over from the
other, whatever the topology; and the names of all steps, stores and topics, as `describe` has them.
docs/concepts/differences.md says what else may be in a changelog.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

import penstock as ps
from penstock.processors import Run, SliceResult
from penstock.serdes.windowed import split_session_key, split_window_key
from penstock.testing import TopologyTestDriver
from penstock.testing.stores import rows_of
from penstock.testing.topics import RawRecord
from penstock.topology import StoreSpec, SubTopology, Topology
from penstock.topology.naming import changelog_topic
from tests.conformance import programs
from tests.conformance.cases import Case, make_case
from tests.conformance.edge_cases import make_edge_case

Answer = dict[str, Any]
_ID = "conformance"


class Written(NamedTuple):
    """A record in a changelog."""

    key: bytes
    value: bytes | None
    timestamp: int


def make_logged_case(seed: int) -> Case:
    """The case of a seed: one at the edges, or one that is not."""
    return make_edge_case(seed) if seed % 2 else make_case(seed)


def changelogs_difference(case: Case, expected: Answer) -> str | None:
    """The first difference, in a sentence; `None` where there is none."""
    if "error" in expected:
        return None
    wanted = {name: _written(rows) for name, rows in expected["changelogs"].items()}
    topology, found = _run(case)
    if topology.describe().split() != expected["described"].split():
        return f"the topology is another: {topology.describe()}\n{expected['described']}"
    known = {changelog_topic(_ID, spec.name): spec for spec in topology.stores if spec.logging}
    strange = wanted.keys() - known.keys()
    if strange:
        return f"there are no such changelogs: {sorted(strange)}"
    for name, spec in known.items():
        want, got = (_contents(spec, rows) for rows in (wanted.get(name, []), found[spec.name]))
        if want != got:
            return f"{name} has only there {list(want - got)}, only here {list(got - want)}"
    return None


def _written(rows: Iterable[tuple[str, str | None, int]]) -> list[Written]:
    return [
        Written(bytes.fromhex(key), None if value is None else bytes.fromhex(value), time)
        for key, value, time in rows
    ]


def _run(case: Case) -> tuple[Topology, dict[str, list[Written]]]:
    """The topology, and what it writes for each store."""
    app = ps.Application(_ID, names="kafka_streams", **programs.options_of(case))
    programs.build(case, app)
    driver = _Noting(app)
    for number, (topic, key, value, time) in enumerate(case.records):
        driver.input_topic(topic, key=str, value=str).pipe(
            key, value, timestamp=time, headers=case.headers(number)
        )
    return app.build(), driver.written


class _Noting(TopologyTestDriver):
    """A driver that notes what it would write to changelogs."""

    def __init__(self, app: ps.Application) -> None:
        self.written: defaultdict[str, list[Written]] = defaultdict(list)
        super().__init__(app)

    def _commit(self, sub_topology: SubTopology, run: Run) -> list[RawRecord]:
        finish = run.finish

        def noted() -> SliceResult:
            result = finish()
            for store, key, value, time in rows_of(result.changes):
                self.written[store].append(Written(key, value, time))
            return result

        run.finish = noted
        return super()._commit(sub_topology, run)


def _contents(spec: StoreSpec, rows: list[Written]) -> Counter[tuple[Any, ...]]:
    """What a store holds that is restored from these rows."""
    if spec.kind == "versioned":
        return _versions(spec, rows)
    held = {row.key: row for row in rows}
    kept = [row for row in held.values() if row.value is not None]
    if spec.holds:
        # What waits in a buffer has its time inside; Kafka Streams writes it by the wall clock.
        return Counter((row.key, row.value) for row in kept)
    if spec.kind == "key_value":
        return Counter(kept)
    # Where a key may have several entries of one time, deleting one is no write.
    moving = kept if spec.duplicates else rows
    oldest = max((_time(spec, row.key) for row in moving), default=0) - spec.alive_ms
    alive = (row for row in kept if _time(spec, row.key) >= oldest)
    if spec.duplicates:
        # Numbers only tell equal times apart.
        return Counter((*split_window_key(row.key)[:2], *row[1:]) for row in alive)
    return Counter(alive)


def _time(spec: StoreSpec, key: bytes) -> int:
    return split_session_key(key)[2] if spec.kind == "session" else split_window_key(key)[1]


def _versions(spec: StoreSpec, rows: list[Written]) -> Counter[tuple[Any, ...]]:
    """All versions but those that came too late, which Kafka Streams writes and does not keep."""
    assert spec.retention_ms is not None
    latest, kept = -1, {}
    for row in rows:
        latest = max(latest, row.timestamp)
        if row.timestamp >= latest - spec.retention_ms:
            kept[row.key, row.timestamp] = row.value
    return Counter((*name, value) for name, value in kept.items())
