"""What is known of Kafka Streams, written as a case: topology, records and results.

A record is written `key:value@time`, or `topic/key:value@time`; a result `key=value@time`, where a
windowed key is `key[start,end]`; `-` is no key or no value. `|` stands between records' results;
`!` in the place of results says that the record stops the application.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.conformance.cases import Case, Record, Step

Answer = dict[str, Any]


@dataclass(frozen=True)
class Known:
    """A case whose results are known."""

    name: str
    case: Case
    results: str
    held: str = ""
    """What a store has at the end, as `store: results`, where it is known."""

    def shown(self, answer: Answer) -> str:
        """An answer in the words of `results`."""
        groups = [" ".join(map(_result, each.get("out", []))) for each in answer["outputs"]]
        if "error" in answer:
            assert "!" in self.results, answer["error"]
            groups[answer["at"] :] = ["!"]
        if "|" in self.results:
            return " | ".join(groups).replace("  ", " ").strip()
        return " ".join(group for group in groups if group)

    @property
    def expected(self) -> str:
        """The results, with the spaces of `shown`."""
        if "|" not in self.results:
            return " ".join(self.results.split())
        groups = [" ".join(group.split()) for group in self.results.split("|")]
        return " | ".join(groups).replace("  ", " ").strip()

    def shown_store(self, answer: Answer) -> str:
        """What the store of `held` has, in its words."""
        name = self.held.partition(":")[0]
        rows = answer["stores"][name] if name else []
        return f"{name}: {' '.join(map(_result, rows))}" if name else ""


def _result(row: list[Any]) -> str:
    key, value, time = row
    if isinstance(key, list):
        key = f"{key[0]}[{key[1]},{key[2]}]"
    return f"{'-' if key is None else key}={'-' if value is None else value}@{time}"


def _record(written: str) -> Record:
    rest, _, time = written.rpartition("@")
    topic, separator, pair = rest.rpartition("/")
    key, _, value = pair.partition(":")
    return (topic if separator else "in"), _none(key), _none(value), int(time)


def _none(written: str) -> str | None:
    return None if written == "-" else written


def known_case(
    name: str,
    steps: list[Step],
    records: str,
    results: str,
    *,
    cache: int = 0,
    held: str = "",
) -> Known:
    numbered = tuple({"id": f"s{number}", **step} for number, step in enumerate(steps))
    case = Case(0, cache, numbered, tuple(_record(each) for each in records.split()))
    return Known(name, case, results, held)


def windowed(window: Step, op: str = "aggregate", **more: Any) -> list[Step]:
    more = more if op == "count" else {"f": "add", **more}
    return [
        {"op": "stream", "topics": ["in"]},
        {"op": "group_by_key", "from": "s0"},
        {"op": op, "from": "s1", "store": "held", "window": window, **more},
        {"op": "to_stream", "from": "s2"},
        {"op": "to", "from": "s3", "topic": "out"},
    ]


def counted_by_value(*suppress: Step) -> list[Step]:
    last = 2 + len(suppress)
    return [
        {"op": "table", "topic": "in", "store": "held"},
        {"op": "group_by", "from": "s0", "f": "whole_value"},
        {"op": "count", "from": "s1", "store": "counts"},
        *suppress,
        {"op": "to_stream", "from": f"s{last}"},
        {"op": "to", "from": f"s{last + 1}", "topic": "out"},
    ]
