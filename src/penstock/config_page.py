"""The page of all options, for the documentation."""

from __future__ import annotations

import dataclasses
from datetime import timedelta

from penstock.config import Config

_OURS_ALONE = frozenset(
    {
        "dead.letter.dropped.records",
        "recover.outputs",
        "allow.topology.change",
        "manage.topics",
        "allow.truncated.changelog",
        "num.instances",
        "coordinator.listen",
        "tls.certificate.file",
        "tls.key.file",
        "tls.ca.file",
        "tls.server.name",
        "allow.unencrypted",
        "snapshot.location",
        "snapshot.interval.ms",
        "rocksdb.memory.bytes",
        "rocksdb.write.buffer.bytes",
        "rocksdb.write.buffers.max",
        "rocksdb.block.bytes",
        "rocksdb.bloom.bits",
        "rocksdb.compression",
        "slice.records.max",
        "slice.bytes.max",
        "log.format",
        "rebalance.protocol",
        "spark.master",
        "kafka.*",
        "spark.*",
    }
)
"""What `from_properties` knows and Kafka Streams does not."""

_PAGE = """# Configuration

Options are keywords of `Application`, by Kafka's names with underscores; durations are `timedelta`.
`PENSTOCK_<OPTION>` in the environment overrides them (durations in milliseconds; `kafka`, `spark`,
`topic` and `client_tags` as `name=value;name=value` or, where a value has a `;` in it, as a JSON
object: `{"name": "value"}`).

`Config.from_properties` takes Java's names and values; `Application` takes a config, and keywords
over it:

```python
import penstock as ps

properties = {"processing.guarantee": "exactly_once_v2", "topic.segment.bytes": "104857600"}
app = ps.Application("orders", config=ps.Config.from_properties(properties), num_instances=2)
```

Names that Kafka Streams has and that have no effect here (`num.stream.threads`, default serdes) are
told in the log; those that would change results (`topology.optimization`) are refused. Prefixes of
clients (`producer.`, `consumer.`, `main.consumer.`, `admin.`) are taken off: all clients have the
same properties. Every other name is one of theirs.

`kafka` is given in librdkafka's words and reaches Spark's Java client too, translated where the two
differ. Properties on which the promises here rest (`isolation.level`, `group.id`, `acks`,
`enable.auto.commit`, `transactional.id` and so on) are refused there, with the option to use.

Defaults are Kafka Streams', except: the guarantee is exactly-once (a commit is one transaction for
a whole slice, so the safe choice is also fast); `commit_interval` is 100 ms under both guarantees
(it is the time between batches); `state_dir` is not below `/tmp`, which some systems empty at boot.

| option | in Kafka Streams | default | meaning |
| --- | --- | --- | --- |
"""


def options_page() -> str:
    """The page of all options, for the documentation."""
    rows = []
    for each in dataclasses.fields(Config):
        name, default = each.name, each.default
        if isinstance(default, timedelta):
            shown = f"{default // timedelta(milliseconds=1)} ms"
        elif default is dataclasses.MISSING:
            shown = "`~/.local/share/penstock`" if name == "state_dir" else "none"
        else:
            shown = f"`{default}`" if default != "" else "none"
        kafka = each.metadata["kafka"]
        there = "-" if kafka in _OURS_ALONE else f"`{kafka}`"
        rows.append(f"| `{name}` | {there} | {shown} | {each.metadata['doc']} |\n")
    return _PAGE + "".join(rows)
