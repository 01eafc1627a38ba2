"""Where two answers differ, and the fewest records for which they do."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.conformance.cases import Case, Record

Answer = dict[str, Any]

# Kafka Streams fails where a sliding window was deleted, and the cache has not told its store.
# Penstock goes on (docs/concepts/differences.md); up to there the answers are the same.
_FAILS_ON_DELETED_WINDOW = '"windowBeingProcessed.value" is null'


def difference(case: Case, expected: Answer, actual: Answer, *, stores: bool = True) -> str | None:
    """The first difference, in a sentence; `None` where there is none."""
    order = _by_key if case.unordered else list
    for number, (want, got) in enumerate(
        zip(expected.get("outputs", ()), actual.get("outputs", ()), strict=False)
    ):
        for topic in sorted(want.keys() | got.keys()):
            if order(want.get(topic, [])) != order(got.get(topic, [])):
                return f"record {number} gives other records in topic {topic}"
    if _FAILS_ON_DELETED_WINDOW in expected.get("error", ""):
        return None
    if expected.get("at") != actual.get("at"):
        return f"one fails: {expected.get('error', 'no error')} / {actual.get('error', 'no error')}"
    # Recorded answers of before do not tell it.
    if stores and expected.get("dropped", actual.get("dropped")) != actual.get("dropped"):
        return f"{expected['dropped']} records were dropped / {actual['dropped']}"
    held = expected.get("stores", {}) if stores else {}
    for name, rows in held.items():
        if _sorted(_shown_once(case, rows)) != _sorted(actual["stores"][name]):
            return f"store {name} ends with other contents"
    return None


def _shown_once(case: Case, rows: list[Any]) -> list[Any]:
    """Rows of Kafka Streams: from a cache and its store, which order keys that begin with others in
    different ways, it may show one twice (docs/concepts/differences.md)."""
    return list({json.dumps(row): row for row in rows}.values()) if case.cache else rows


def _by_key(rows: list[Any]) -> list[Any]:
    """Each window's results in their order, the windows in any."""
    return sorted(rows, key=lambda row: json.dumps(row[0]))


def _sorted(rows: list[Any]) -> list[Any]:
    return sorted(rows, key=json.dumps)


def shrunk(case: Case, differs: Callable[[Case], bool]) -> Case:
    """The case with as few records as still differ, taken away in ever smaller parts."""
    records: tuple[Record, ...] = case.records
    part = len(records) // 2
    while part > 0:
        start = 0
        while start < len(records):
            fewer = records[:start] + records[start + part :]
            if fewer and differs(replace(case, records=fewer)):
                records = fewer
            else:
                start += part
        part //= 2
    return replace(case, records=records)


def side_by_side(case: Case, expected: Answer, actual: Answer) -> str:
    """Both answers, record by record, then the stores that differ."""
    lines = []
    both = (expected.get("outputs", []), actual.get("outputs", []))
    for number, record in enumerate(case.records):
        lines.append(f"  {number}: {record}")
        want, got = (side[number] if number < len(side) else None for side in both)
        lines.append(f"      Kafka Streams  {_shown(want)}")
        if want != got:
            lines.append(f"      Penstock       {_shown(got)}   <-- differs")
    for side, answer in (("Kafka Streams", expected), ("Penstock", actual)):
        if "error" in answer:
            lines.append(f"  {side} failed at record {answer['at']}: {answer['error']}")
    for name, rows in expected.get("stores", {}).items():
        other = actual.get("stores", {}).get(name)
        if other is None or _sorted(rows) != _sorted(other):
            lines.append(f"  store {name}: Kafka Streams {_shown(_sorted(rows))}")
            shown = None if other is None else _sorted(other)
            lines.append(f"  store {name}: Penstock      {_shown(shown)}")
    return "\n".join(lines)


def _shown(data: Any) -> str:
    return json.dumps(data, ensure_ascii=False)
