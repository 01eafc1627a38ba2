"""The list of metrics against Kafka Streams' own, and the page against the list."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from penstock.observability.catalogue import ABSENT, METRICS
from penstock.observability.groups import GROUPS
from penstock.observability.metrics_page import metrics_page

ROOT = Path(__file__).parents[2]
KAFKA_STREAMS = Path(__file__).parent / "data" / "kafka_streams_metrics.txt"


def expanded(pattern: str) -> Iterator[str]:
    parts = [each.split(",") for each in re.split(r"[{}]", pattern)]
    return map("".join, itertools.product(*parts))


def kafka_streams() -> dict[tuple[str, str], str]:
    found = {}
    for line in KAFKA_STREAMS.read_text().splitlines():
        if line.startswith("#"):
            continue
        group, level, *patterns = line.split()
        for name in itertools.chain.from_iterable(map(expanded, patterns)):
            found[group, name] = level
    return found


def test_every_metric_of_kafka_streams_is_here_or_said_to_be_absent() -> None:
    ours = {(each.group, each.name): each.level for each in METRICS if each.group[:6] == "stream"}
    known = kafka_streams()
    assert set(ours) | set(ABSENT) == set(known)
    assert not set(ours) & set(ABSENT)
    assert {name: known[name] for name in ours} == ours


def test_names_are_unique_in_both_forms() -> None:
    assert max(Counter((each.group, each.name) for each in METRICS).values()) == 1
    assert max(Counter(each.prometheus for each in METRICS).values()) == 1
    for each in METRICS:
        assert re.fullmatch(r"[a-z][a-z0-9_]*", each.prometheus), each


def test_counters_end_as_prometheus_wants_it() -> None:
    for each in METRICS:
        assert not each.is_counter or each.prometheus.endswith("_total"), each.name
        assert each.group in GROUPS


def test_every_metric_says_what_it_means() -> None:
    for each in METRICS:
        assert each.doc.endswith("."), each.name


def test_the_page_is_what_the_code_says() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text()
    assert page == metrics_page(), "Run tools/metrics-docs > docs/metrics.md"
