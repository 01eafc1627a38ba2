"""Where Penstock's tasks differ from a recorded run of KafkaStreams, by what each case promises.

docs/concepts/differences.md says why some promise less than the same records in the same order.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable
from typing import Any

from penstock.serdes.windowed import split_window_key
from penstock.topology import StoreSpec
from penstock.topology.naming import changelog_topic
from tests.conformance import programs
from tests.conformance.streams_cases import NO_EVICTION, StreamsCase
from tests.conformance.tasks import WHOLE, Row, Tasks

Answer = dict[str, Any]
Topics = dict[str, list[list[Row]]]
"""Rows by topic and partition."""


def replayed(
    case: StreamsCase, answer: Answer, *, cache: int | None = None, slice_records: int = WHOLE
) -> tuple[Tasks, list[dict[str, dict[str, int]]]]:
    """The tasks after the recorded commits, and where each topic ended after each of them."""
    tasks = Tasks(case, cache=cache, slice_records=slice_records)
    phases = iter(case.phases)
    written, ends = -1, []
    for commit in answer["commits"]:
        if commit["phase"] > written:
            tasks.write(next(phases))
            written = commit["phase"]
        tasks.run_to(commit["committed"])
        ends.append(tasks.ends())
    return tasks, ends


def streams_difference(case: StreamsCase, answer: Answer) -> str | None:
    """The first difference, in a sentence; `None` where there is none."""
    tasks, ends = replayed(case, answer)
    wanted = {name: _rows(rows, case) for name, rows in answer["topics"].items()}
    found = {name: tasks.topics[name] for name in wanted}
    extra = {name for name in tasks.ends() if name.startswith(case.id)} - set(_known(case, wanted))
    if extra:
        return f"there are other topics: {extra}"
    for spec in _stores(case):
        name = changelog_topic(case.id, spec.name)
        if _contents(spec, wanted[name]) != _contents(spec, found[name]):
            return f"store {spec.name} ends with other contents"
    if case.emit_interval:
        return _throttled(case, wanted, found)
    if not _evicts_alike(case):
        every, _ = replayed(case, answer, cache=0)
        reordered = case.kind == "table_join"
        return _evicted(answer, wanted, found, {} if reordered else every.topics, ends)
    for name, rows in wanted.items():
        if _is_free(case, name):
            continue
        if rows != found[name]:
            return f"topic {name} has other records"
        commits = [commit["ends"].get(name) for commit in answer["commits"]]
        if [end.get(name) for end in ends] != commits:
            return f"topic {name} has other records in a commit"
    return None


def _rows(rows: list[Any], case: StreamsCase) -> list[list[Row]]:
    partitions: list[list[Row]] = [[] for _ in range(case.partitions)]
    for place, key, value, time, headers in rows:
        marked = tuple((name, _bytes(data)) for name, data in headers)
        partitions[place].append(Row(place, _bytes(key), _bytes(value), time, marked))
    return partitions


def _bytes(written: str | None) -> bytes | None:
    return None if written is None else bytes.fromhex(written)


def _known(case: StreamsCase, wanted: Topics) -> list[str]:
    return [*wanted, *(topic for phase in case.phases for topic, *_ in phase)]


def _stores(case: StreamsCase) -> tuple[StoreSpec, ...]:
    return programs.application(case.topology, case.id).build().stores


def _evicts_alike(case: StreamsCase) -> bool:
    """Whether a cache that is too small lets through the same records at the same moments.

    Kafka Streams has one cache for all stores, Penstock a share for each.
    """
    return case.cache in NO_EVICTION or sum(spec.caching for spec in _stores(case)) <= 1


def _is_free(case: StreamsCase, topic: str) -> bool:
    """Whether a changelog may have other records, as long as they come to the same contents."""
    joins = any("window" in step for step in case.steps if step["op"] == "join")
    closes = case.kind == "on_close"
    return topic.endswith("-changelog") and (joins or closes or _is_buffer(topic))


def _is_buffer(changelog: str) -> bool:
    return changelog.endswith("-calm-store-changelog")


# What must hold where records may come at other moments.


def _evicted(
    answer: Answer, wanted: Topics, found: Topics, every: Topics, ends: list[Any]
) -> str | None:
    """Each commit leaves every key with the same value; what comes between is a choice of all
    updates, `every`. (Not behind a join of tables: what the caches of its two sides let through
    meets in pairs that never stood side by side.)
    """
    for name in (name for name in wanted if not _is_buffer(name)):
        for place, (want, got) in enumerate(zip(wanted[name], found[name], strict=True)):
            for commit, end in zip(answer["commits"], ends, strict=True):
                until = (each.get(name, {}).get(str(place), 0) for each in (commit["ends"], end))
                one, two = (_last(rows[:n]) for rows, n in zip((want, got), until, strict=True))
                if one != two:
                    return f"topic {name} has other last records in a commit"
            if every and not all(_is_choice(rows, every[name][place]) for rows in (want, got)):
                return f"topic {name} has records that the cache made up"
    return None


def _is_choice(rows: Iterable[Row], every: Iterable[Row]) -> bool:
    """Whether each key's rows are some of all its rows, in order."""
    waiting: dict[bytes | None, list[Row]] = {}
    for row in every:
        waiting.setdefault(row.key, []).append(row)
    queues = {key: iter(of_key) for key, of_key in waiting.items()}
    return all(row in queues.get(row.key, iter(())) for row in rows)


def _throttled(case: StreamsCase, wanted: Topics, found: Topics) -> str | None:
    """What Kafka Streams gives late, Penstock gives too; what else it gives is no longer true when
    Kafka Streams looks (a partner has come, or a session has grown), or is of the last phase, in
    which Kafka Streams looks only at the first record.
    """
    topic = f"{case.id}-out"
    last_look = case.phases[-1][0][3]
    for want, got in zip(map(_bare, wanted[topic]), map(_bare, found[topic]), strict=True):
        missing, more = Counter(want) - Counter(got), Counter(got) - Counter(want)
        if missing:
            return f"results are missing: {list(missing)}"
        for row in more:
            if case.kind == "unmatched" and b"null" not in (row.value or b""):
                return f"a pair came out twice: {row}"
            if case.kind == "on_close" and row.timestamp < last_look and not _grew(case, row, want):
                return f"a window came out that Kafka Streams does not know: {row}"
    return None


def _bare(rows: list[Row]) -> list[Row]:
    """Without headers: a result has those of the record that lets it out."""
    return [row._replace(headers=()) for row in rows]


def _grew(case: StreamsCase, row: Row, final: list[Row]) -> bool:
    """Whether this is a session that is part of a later one of its key."""
    if not any(step.get("window", {}).get("kind") == "session" for step in case.steps):
        return False
    key, start, end = _session(row)
    return any(
        other == key and first <= start and end <= last
        for other, first, last in map(_session, final)
    )


def _session(row: Row) -> tuple[bytes, int, int]:
    assert row.key is not None
    end, start = struct.unpack(">qq", row.key[-16:])
    return row.key[:-16], start, end


# What a changelog comes to.


def _last(rows: Iterable[Row]) -> dict[bytes | None, Row]:
    return {row.key: row for row in rows}


def _contents(spec: StoreSpec, partitions: list[list[Row]]) -> list[Any]:
    return [sorted(_kept(spec, rows), key=repr) for rows in partitions]


def _kept(spec: StoreSpec, rows: list[Row]) -> list[tuple[Any, ...]]:
    """What a store holds that is restored from these rows."""
    held = [row for row in _last(rows).values() if row.value is not None]
    if spec.kind != "window" or spec.retention_ms is None:
        timed = not _is_buffer(f"-{spec.name}-changelog")  # Of the wall clock, there.
        return [(row.key, row.value, row.headers, row.timestamp if timed else 0) for row in held]
    entries = [(*split_window_key(row.key or b"")[:2], row) for row in held]
    # Where a key may have several entries of one time, deleting one is no write.
    writes = held if spec.duplicates else rows
    latest = max((split_window_key(row.key or b"")[1] for row in writes), default=0)
    # A store drops what has expired, and numbers only tell equal times apart.
    return [
        (key, start, row.value, row.timestamp)
        for key, start, row in entries
        if start >= latest - spec.alive_ms
    ]
