"""The page of all metrics, for the documentation."""

from __future__ import annotations

from penstock.observability.catalogue import ABSENT, METRICS, Metric
from penstock.observability.groups import GROUPS

_HEAD = """# Metrics

Kafka Streams' built-in metrics, by its names, groups, tags and levels, and a few of our own,
whose groups begin with `penstock-`. `metrics_recording_level` says which are recorded: `INFO`
(the default), `DEBUG`, `TRACE`, or `OFF` for none.

In Python, `app.metrics()` has the values by (group, name, tags):

<!-- before:
import penstock as ps
app = ps.Application("measured")
-->
```python
for (group, name, tags), value in app.metrics().items():
    print(group, name, dict(tags), value)
```

For Prometheus, `/metrics` has them by the names below: those that JMX's exporter gives to Kafka
Streams' metrics, so that dashboards and rules for these go on working. `-` becomes `_` in tags,
and a store's name is in the label `store`, its kind (`rocksdb-state` and so on) in `scope`; in
Python it is in the tag `<scope>-id` as in Kafka Streams. What is text is in the labels of
`kafka_streams_stream_metrics_info`.

What Kafka Streams calls a thread is an instance here. As there, rates, averages and maxima are
over the last 30 to 60 seconds, and without anything to measure they are not a number. Failures,
rebalances, commits and dropped records are counted from 0 on; what else has not happened yet, such
as a deletion from a store, has no metrics yet. What is a latency of one call there is a part of one
of many here: records are processed, and state is read and written, in bulk. Counting is per slice,
Arrow batch or bulk read, never per record; what RocksDB knows is looked up when someone asks. Calls
of a store are those of slices and of [queries](queries.md), of which one for a page is one call;
what is asked of global tables is not among them.

A processor counts and measures under names of its own, with `context.metrics`; the tag `metric`
has the name. What a slice counted is told when it is committed, so that records which are processed
again count once.

```python
import penstock as ps


class Priced(ps.Processor[str, float, str, float]):
    def init(self, context: ps.ProcessorContext) -> None:
        super().init(context)
        self.free = context.metrics.counter("free-orders")
        self.price = context.metrics.measure("price")
        self.lookup = context.metrics.timer("lookup")

    def process(self, record: ps.Record[str, float]) -> None:
        self.price.record(record.value)
        if not record.value:
            self.free.add()
        with self.lookup:
            self.context.forward(record)
```

This page is made by `tools/metrics-docs`; a test compares it with the code, and the code with
Kafka Streams' list.
"""

_ABSENT_HEAD = """## Not here

| group | name | why |
| --- | --- | --- |
"""


def metrics_page() -> str:
    """The documentation of every metric, and of those that Kafka Streams has and we do not."""
    sections = [_section(group) for group in GROUPS]
    absent = "\n".join(f"| `{group}` | `{name}` | {why} |" for (group, name), why in ABSENT.items())
    return "\n".join([_HEAD, *sections, _ABSENT_HEAD + absent, ""])


def _section(group: str) -> str:
    tags = ", ".join(f"`{tag}`" for tag in GROUPS[group].tags)
    rows = "\n".join(_row(metric) for metric in METRICS if metric.group == group)
    return f"""## `{group}`

Tags: {tags}.

| name | level | meaning | in Prometheus | Kafka's counterpart |
| --- | --- | --- | --- | --- |
{rows}
"""


def _row(metric: Metric) -> str:
    counterpart = "none" if metric.is_ours else "the same"
    shown = f"`{metric.prometheus}`"
    if metric.is_text:
        shown = "a label of `..._info`" if metric.name in ("version", "application-id") else "-"
    return f"| `{metric.name}` | {metric.level} | {metric.doc} | {shown} | {counterpart} |"
