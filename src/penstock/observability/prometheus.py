"""A snapshot as the text that Prometheus reads."""

from __future__ import annotations

import math
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from penstock.observability.catalogue import METRICS, Metric
from penstock.observability.groups import CLIENT, GROUPS
from penstock.observability.readings import Reading

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
INFO = f"{GROUPS[CLIENT].prefix}info"
"""What is text, as labels of a metric that is always 1."""
_INFO_NAMES = ("version", "application-id")

_BY_NAME = {(each.group, each.name): each for each in METRICS}


def render(snapshot: Iterable[Reading]) -> bytes:
    """The readings as Prometheus' text, for an answer of `CONTENT_TYPE`.

    >>> commits = Reading("stream-thread-metrics", "commit-total", ("i",), 3)
    >>> print(render([commits]).decode(), end="")
    # HELP kafka_streams_stream_thread_metrics_commit_total Commits of slices, since the start.
    # TYPE kafka_streams_stream_thread_metrics_commit_total counter
    kafka_streams_stream_thread_metrics_commit_total{thread_id="i"} 3.0
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Snapshot(list(snapshot)))
    return generate_latest(registry)


class _Snapshot(Collector):
    """Hands a snapshot to prometheus_client."""

    def __init__(self, snapshot: list[Reading]) -> None:
        self._snapshot = snapshot

    def collect(self) -> list[Family]:
        families: dict[str, Family] = {}
        texts: dict[tuple[str, ...], dict[str, str]] = {}
        for reading in self._snapshot:
            metric = _BY_NAME.get((reading.group, reading.name))
            if metric is None:
                continue
            if isinstance(reading.value, str):
                if metric.name in _INFO_NAMES:
                    texts.setdefault(reading.tags, {})[_label(metric.name)] = reading.value
                continue
            family = families.get(metric.prometheus)
            if family is None:
                family = families[metric.prometheus] = _family(metric)
            value = math.nan if reading.value is None else reading.value
            family.add_sample(metric.prometheus, labels(metric.group, reading.tags), value)
        return [*_infos(texts), *(families[name] for name in sorted(families))]


def labels(group: str, tags: Iterable[str]) -> dict[str, str]:
    """The tags of a group as labels.

    >>> labels("stream-task-metrics", ("instance.1", "0_3"))
    {'thread_id': 'instance.1', 'task_id': '0_3'}
    """
    return {_label(name): value for name, value in zip(GROUPS[group].tags, tags, strict=True)}


def _label(tag: str) -> str:
    return tag.replace("-", "_")


def _family(metric: Metric) -> Family:
    # The library takes `_total` off a counter's name and puts it back.
    name = metric.prometheus.removesuffix("_total") if metric.is_counter else metric.prometheus
    return Family(name, metric.doc, "counter" if metric.is_counter else "gauge")


def _infos(texts: dict[tuple[str, ...], dict[str, str]]) -> list[Family]:
    if not texts:
        return []
    family = Family(INFO, "What runs.", "gauge")
    for tags, words in texts.items():
        family.add_sample(INFO, {**labels(CLIENT, tags), **words}, 1.0)
    return [family]
