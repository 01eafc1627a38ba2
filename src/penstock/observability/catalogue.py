"""Every metric: its name, level and meaning, and how it comes from what was counted.

Names, groups and levels are Kafka Streams' where it has the metric. Those that it has and that make
no sense here are in `ABSENT`, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from penstock.observability import groups
from penstock.observability.groups import Level

Statistic = Literal[
    "rate", "per_hour", "total", "sum_rate", "sum_total", "avg", "min", "max", "ratio", "gauge"
]
"""`rate`, `per_hour` and `total` are of events; `sum_rate` and `sum_total` of what they add up to;
`ratio` is seconds of work in a second; a `gauge` is what was last said."""


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One metric; `sensor` is what is counted for it."""

    group: str
    name: str
    level: Level
    sensor: str
    statistic: Statistic
    doc: str
    scale: float = 1.0
    """What a counted value is multiplied by: times are counted in seconds."""
    is_text: bool = False

    @property
    def is_counter(self) -> bool:
        """Whether it only ever grows."""
        return self.statistic in ("total", "sum_total")

    @property
    def prometheus(self) -> str:
        """Its name in Prometheus."""
        return groups.GROUPS[self.group].prefix + self.name.replace("-", "_")

    @property
    def is_ours(self) -> bool:
        """Whether Kafka Streams and Kafka's clients have nothing of that name."""
        return self.group.startswith("penstock-")


_MS, _NS = 1e3, 1e9


@dataclass(frozen=True)
class _Family:
    """Metrics of one group and level."""

    group: str
    level: Level

    def gauges(self, **docs: str) -> list[Metric]:
        """What is said rather than counted; `_` stands for `-`."""
        return [self._one(name.replace("_", "-"), "gauge", doc) for name, doc in docs.items()]

    def texts(self, **docs: str) -> list[Metric]:
        return [
            self._one(name.replace("_", "-"), "gauge", doc, is_text=True)
            for name, doc in docs.items()
        ]

    def counts(self, sensor: str, what: str) -> list[Metric]:
        """`<sensor>-rate` and `<sensor>-total`."""
        return [
            self._one(f"{sensor}-rate", "rate", f"{what}, per second.", sensor=sensor),
            self._one(f"{sensor}-total", "total", f"{what}, since the start.", sensor=sensor),
        ]

    def spread(
        self,
        name: str,
        what: str,
        *,
        sensor: str = "",
        of: Iterable[Statistic] = ("avg", "max"),
        scale: float = 1.0,
    ) -> list[Metric]:
        """`<name>-avg`, `<name>-max` and the like."""
        words = {"avg": "Average", "max": "Largest", "min": "Least"}
        return [
            self._one(
                f"{name}-{each}", each, f"{words[each]} {what}.", sensor=sensor or name, scale=scale
            )
            for each in of
        ]

    def one(
        self, name: str, statistic: Statistic, doc: str, *, sensor: str = "", scale: float = 1.0
    ) -> list[Metric]:
        return [self._one(name, statistic, doc, sensor=sensor, scale=scale)]

    def _one(
        self,
        name: str,
        statistic: Statistic,
        doc: str,
        *,
        sensor: str = "",
        scale: float = 1.0,
        is_text: bool = False,
    ) -> Metric:
        return Metric(
            group=self.group,
            name=name,
            level=self.level,
            sensor=sensor or name,
            statistic=statistic,
            doc=doc,
            scale=scale,
            is_text=is_text,
        )


def _client() -> list[Metric]:
    client = _Family(groups.CLIENT, "INFO")
    return [
        *client.texts(
            version="The version of Penstock.",
            application_id="The application's id.",
            topology_description="What `describe()` prints; in Python only.",
            state="The application's state, in words.",
        ),
        *client.gauges(
            client_state="The state by Kafka Streams' numbers: 0 created, 1 rebalancing, 2 "
            "running, 3 pending shutdown, 4 not running, 5 pending error, 6 error.",
            alive_stream_threads="Instances that are there.",
            failed_stream_threads="Instances that were lost since the start.",
        ),
    ]


def _thread() -> list[Metric]:
    thread = _Family(groups.THREAD, "INFO")
    timed = {
        "commit": ("Commits of slices", "time of a commit in ms, from its first row to its answer"),
        "poll": (
            "Arrow batches that workers got from Spark's Kafka source",
            "time in ms for which a worker waited for one",
        ),
        "process": (
            "Records that workers processed",
            "time of a record in ms: that of a slice, without its reads of state, by its records",
        ),
        "punctuate": ("Punctuators that were called", "time in ms of one"),
    }
    found: list[Metric] = []
    for name, (what, time) in timed.items():
        found += thread.counts(name, what)
        found += thread.spread(f"{name}-latency", time, sensor=name, scale=_MS)
        found += thread.one(
            f"{name}-ratio",
            "ratio",
            f"Seconds that went into {name} in a second; above 1 where workers work side by side "
            "for one instance.",
            sensor=name,
        )
    return [
        *found,
        *thread.spread("poll-records", "number of records in an Arrow batch"),
        *thread.spread("process-records", "number of records in a slice"),
        *thread.counts("task-created", "Tasks that the instance began to take"),
        *thread.counts("task-closed", "Tasks that the instance gave up"),
        *thread.one(
            "blocked-time-ns-total",
            "sum_total",
            "Nanoseconds for which commits waited for Kafka's answers.",
            sensor="blocked",
            scale=_NS,
        ),
        *thread.gauges(
            thread_start_time="When the instance started, in ms since 1970.",
            thread_state="By Kafka Streams' numbers: 3 while a task is being taken or restored, "
            "else 4, running.",
        ),
        *thread.spread(
            "tasks-assigned-latency", "time in ms to take a task, its restore included", scale=_MS
        ),
        *thread.spread("tasks-revoked-latency", "time in ms to give a task up", scale=_MS),
    ]


def _updater() -> list[Metric]:
    updater = _Family(groups.UPDATER, "INFO")
    return [
        *updater.gauges(
            active_restoring_tasks="Tasks that are being restored to be served.",
            standby_updating_tasks="Tasks that are followed as standbys or warm-ups.",
            idle_ratio="What the three ratios below leave of a second, 0 at least.",
        ),
        *updater.one(
            "active-restore-ratio",
            "ratio",
            "Seconds of restores in a second; above 1 where several run at once.",
            sensor="restore",
        ),
        *updater.one(
            "standby-update-ratio",
            "ratio",
            "Seconds in a second in which records were applied to standbys.",
            sensor="update",
        ),
        *updater.one(
            "checkpoint-ratio",
            "ratio",
            "Seconds in a second in which stores were flushed and their offsets written down.",
            sensor="checkpoint",
        ),
        *updater.one(
            "restore-records-rate", "rate", "Records restored, per second.", sensor="restore"
        ),
        *updater.one(
            "restore-call-rate", "rate", "Batches of records restored, per second.", sensor="call"
        ),
    ]


def _task() -> list[Metric]:
    info, debug = _Family(groups.TASK, "INFO"), _Family(groups.TASK, "DEBUG")
    return [
        *debug.spread(
            "process-latency",
            "time of a record in ns: that of a slice, without its reads of state, by its records",
            sensor="process",
            scale=_NS,
        ),
        *debug.counts("process", "Records processed"),
        *debug.spread(
            "record-lateness", "time in ms by which a record is before the latest of its slice"
        ),
        *info.counts("dropped-records", "Records that went no further by a rule or a handler"),
        *info.gauges(
            active_process_ratio="The task's part of the time that its instance's tasks took."
        ),
        *debug.one(
            "cache-size-bytes-total",
            "max",
            "Most bytes in a record cache at the end of a slice, where steps run in columns.",
        ),
        *debug.counts("restore", "Records restored to be served"),
        *debug.gauges(
            restore_remaining_records_total="Records that restores under way still lack."
        ),
        *debug.counts("update", "Records applied to the standby"),
    ]


def _node() -> list[Metric]:
    info, debug = _Family(groups.NODE, "INFO"), _Family(groups.NODE, "DEBUG")
    emit = "window-aggregate-final-emit"
    return [
        *debug.counts("process", "Records that came from a source"),
        *debug.counts("suppression-emit", "Records that a suppress let go"),
        *debug.counts(emit, "Results of windows that were given out when they closed"),
        *debug.spread(
            f"{emit}-latency", "time in ms to find and give them out", sensor=emit, scale=_MS
        ),
        *info.spread(
            "record-e2e-latency",
            "time in ms from a record's timestamp until its slice was processed, at sources and "
            "at steps behind which there is none",
            of=("avg", "min", "max"),
        ),
    ]


def _topic() -> list[Metric]:
    topic = _Family(groups.TOPIC, "INFO")
    return [
        *topic.one(
            "bytes-consumed-total",
            "sum_total",
            "Bytes of keys and values that came to workers; values that no step needs do not.",
            sensor="consumed",
        ),
        *topic.one("records-consumed-total", "total", "Records read.", sensor="consumed"),
        *topic.one(
            "bytes-produced-total",
            "sum_total",
            "Bytes of keys and values written.",
            sensor="produced",
        ),
        *topic.one("records-produced-total", "total", "Records written.", sensor="produced"),
    ]


STORE_CALLS = {
    "put": "Changes that commits wrote with a value",
    "delete": "Deletions that commits wrote",
    "remove": "Sessions that commits removed",
    "get": "Keys that were read",
    "fetch": "Questions for a key's windows, sessions or versions, or for a stretch of time",
    "all": "Reads of all entries",
    "range": "Reads of the entries between two keys",
    "flush": "Flushes",
    "restore": "Restores from the changelog",
}


def _store() -> list[Metric]:
    info, debug = _Family(groups.STORE, "INFO"), _Family(groups.STORE, "DEBUG")
    trace = _Family(groups.STORE, "TRACE")
    found: list[Metric] = []
    for call, what in STORE_CALLS.items():
        found += debug.one(f"{call}-rate", "rate", f"{what}, per second.", sensor=call)
        found += debug.spread(
            f"{call}-latency",
            "time in ns of one; of many that were done in one go, each has its part",
            sensor=call,
            scale=_NS,
        )
    return [
        *found,
        *trace.spread(
            "record-e2e-latency",
            "time in ms from the timestamp of what is stored until its slice was processed",
            of=("avg", "min", "max"),
        ),
        *info.gauges(num_open_iterators="Reads of ranges that are under way."),
        *debug.spread("iterator-duration", "time in ns of a read of ranges", scale=_NS),
        *debug.gauges(
            oldest_iterator_open_since_ms="When the longest of those under way began, in ms since "
            "1970; 0 if there is none."
        ),
        *debug.spread(
            "suppression-buffer-size",
            "number of bytes in the buffer by RocksDB's estimate, whenever it was asked",
        ),
        *debug.spread(
            "suppression-buffer-count",
            "number of records in the buffer by RocksDB's estimate, whenever it was asked",
        ),
        *_rocksdb_properties(info),
        *_rocksdb_statistics(debug),
    ]


ROCKSDB_PROPERTIES = {
    "num-immutable-mem-table": "Write buffers that wait to be flushed.",
    "cur-size-active-mem-table": "Bytes of the write buffer in use.",
    "cur-size-all-mem-tables": "Bytes of that one and of those that wait.",
    "size-all-mem-tables": "Bytes of those and of others that reads still hold.",
    "num-entries-active-mem-table": "Entries of the write buffer in use.",
    "num-entries-imm-mem-tables": "Entries of those that wait.",
    "num-deletes-active-mem-table": "Deletions in the write buffer in use.",
    "num-deletes-imm-mem-tables": "Deletions in those that wait.",
    "mem-table-flush-pending": "1 if a flush is waited for.",
    "num-running-flushes": "Flushes under way.",
    "compaction-pending": "1 if a compaction is waited for.",
    "num-running-compactions": "Compactions under way.",
    "estimate-pending-compaction-bytes": "Bytes that compactions are still to rewrite.",
    "total-sst-files-size": "Bytes of all files.",
    "live-sst-files-size": "Bytes of the files of the newest version.",
    "num-live-versions": "Versions of the files that something still reads.",
    "block-cache-capacity": "Bytes of the cache that all stores of the instance share.",
    "block-cache-usage": "Bytes in it.",
    "block-cache-pinned-usage": "Bytes in it that must stay.",
    "estimate-num-keys": "Keys, by RocksDB's estimate.",
    "estimate-table-readers-mem": "Bytes of indexes and filters outside of the cache.",
    "background-errors": "Errors of flushes and compactions.",
}
"""As RocksDB names them, behind `rocksdb.`."""


def _rocksdb_properties(info: _Family) -> list[Metric]:
    return [
        metric
        for name, doc in ROCKSDB_PROPERTIES.items()
        for metric in info.one(name, "gauge", doc)
    ]


def _rocksdb_statistics(debug: _Family) -> list[Metric]:
    found: list[Metric] = []
    for name, what in (
        ("bytes-written", "Bytes written to the store"),
        ("bytes-read", "Bytes read from the store"),
        ("memtable-bytes-flushed", "Bytes of write buffers flushed to disk"),
    ):
        found += debug.one(f"{name}-rate", "sum_rate", f"{what}, per second.", sensor=name)
        found += debug.one(f"{name}-total", "sum_total", f"{what}.", sensor=name)
    for name in ("bytes-read-compaction", "bytes-written-compaction"):
        what = "read" if "read" in name else "written"
        doc = f"Bytes {what} by compactions, per second."
        found += debug.one(f"{name}-rate", "sum_rate", doc, sensor=name)
    return [
        *found,
        *debug.gauges(
            memtable_hit_ratio="Part of the reads that found the key in a write buffer.",
            memtable_flush_time_avg="Average time of a flush in ms.",
            memtable_flush_time_max="Longest flush in ms.",
            block_cache_data_hit_ratio="Part of the reads of blocks that found them in memory.",
            block_cache_index_hit_ratio="The same for indexes.",
            block_cache_filter_hit_ratio="The same for filters.",
            write_stall_duration_avg="Average time in ms for which a write had to wait.",
            write_stall_duration_total="All of that time, in ms.",
            compaction_time_avg="Average time of a compaction in ms.",
            compaction_time_max="Longest compaction in ms.",
            number_file_errors_total="Errors with files.",
        ),
    ]


def _kafka_clients() -> list[Metric]:
    lag = _Family(groups.FETCH, "INFO")
    group = _Family(groups.COORDINATOR, "INFO")
    return [
        *lag.gauges(records_lag="Records of an input partition behind its task's position."),
        *group.one("rebalance-total", "total", "Rebalances since the start.", sensor="rebalance"),
        *group.one(
            "rebalance-rate-per-hour", "per_hour", "Rebalances in an hour.", sensor="rebalance"
        ),
        *group.spread(
            "rebalance-latency",
            "time in ms from when a task lacked an owner that serves it until none did",
            scale=_MS,
        ),
    ]


STEPS = {
    "job": "the whole Spark job, as the driver sees it",
    "read": "waiting for Spark's Kafka source",
    "process": "the steps of the topology",
    "state": "waiting for the instances' answers to reads",
    "commit": "waiting for the instances' commits",
}


def _own() -> list[Metric]:
    job, driver = _Family(groups.JOB, "INFO"), _Family(groups.DRIVER, "INFO")
    instance, drop = _Family(groups.INSTANCE, "INFO"), _Family(groups.DROP, "INFO")
    steps = "; ".join(f"`{name}`: {what}" for name, what in STEPS.items())
    return [
        *job.one("runs-total", "total", f"How often a step was done ({steps}).", sensor="step"),
        *job.one("seconds-total", "sum_total", "Seconds that it took.", sensor="step"),
        *job.spread("duration", "time of one in ms", sensor="step", scale=_MS),
        *driver.one("failed-jobs-total", "total", "Spark jobs that failed.", sensor="failed-jobs"),
        *driver.one(
            "skipped-slices-total",
            "total",
            "Slices that were planned again, because an instance was lost or a task moved.",
            sensor="skipped-slices",
        ),
        *driver.gauges(turn_age="Seconds since the driver's loop last turned."),
        *instance.gauges(
            up="1 if the instance answered when it was asked for its metrics.",
            restore_remaining_records="Records that its restores under way still lack.",
        ),
        *drop.one("records-total", "total", "Records dropped, by the reason.", sensor="dropped"),
        *_Family(groups.COPY, "INFO").gauges(
            lag="Changelog offsets that an instance's copy of a task's state lacks."
        ),
        *_Family(groups.EDGE, "INFO").one(
            "records-total",
            "total",
            "Records that went from one step to another; where a sub-topology runs record by "
            "record, at DEBUG only.",
            sensor="went",
        ),
        *_processor(),
    ]


def _processor() -> list[Metric]:
    own = _Family(groups.PROCESSOR, "INFO")
    return [
        *own.counts("count", "What a processor's own counter, measure or timer counted"),
        *own.spread(
            "value", "value that a measure recorded", sensor="value", of=("avg", "min", "max")
        ),
        *own.one("value-total", "sum_total", "What these values add up to.", sensor="value"),
        *own.spread("latency", "time in ms that a timer took", scale=_MS),
    ]


METRICS: tuple[Metric, ...] = (
    *_client(),
    *_thread(),
    *_updater(),
    *_task(),
    *_node(),
    *_topic(),
    *_store(),
    *_Family(groups.CACHE, "DEBUG").spread(
        "hit-ratio",
        "part of a slice's reads that found the key in the record cache, where steps run in "
        "columns",
        of=("avg", "min", "max"),
    ),
    *_kafka_clients(),
    *_own(),
)

BY_SENSOR: dict[tuple[str, str], list[Metric]] = {}
for _metric in METRICS:
    BY_SENSOR.setdefault((_metric.group, _metric.sensor), []).append(_metric)

_BULK = "a slice reads and writes state in bulk: there is no such call"
_UNBUFFERED = "nothing waits between Kafka and a slice: Spark reads what the slice takes"
ABSENT: dict[tuple[str, str], str] = {
    (groups.CLIENT, "commit-id"): "a wheel does not know the commit that it was built from",
    **{
        (groups.THREAD, f"tasks-lost-latency-{each}"): "an instance that lost its tasks ends, and "
        "another starts in its place"
        for each in ("avg", "max")
    },
    **{
        (groups.UPDATER, f"{each}-paused-tasks"): "`pause()` stops new slices; restores and "
        "standbys go on"
        for each in ("active", "standby")
    },
    **{
        (groups.TASK, f"enforced-processing-{each}"): "a task waits only for an input that has "
        "more in Kafka, so that no time runs out"
        for each in ("rate", "total")
    },
    (groups.TASK, "active-buffer-count"): _UNBUFFERED,
    (groups.TASK, "input-buffer-bytes-total"): _UNBUFFERED,
    **{
        (groups.NODE, f"idempotent-update-skip-{each}"): "Kafka Streams has it and never counts it"
        for each in ("rate", "total")
    },
    **{
        (groups.STORE, f"{call}-{each}"): _BULK
        if call != "prefix-scan"
        else "a prefix is read as the range that it is, and counted there"
        for call in ("put-if-absent", "put-all", "prefix-scan")
        for each in ("rate", "latency-avg", "latency-max")
    },
    **{
        (groups.STORE, f"{name}-min"): "RocksDB's statistics do not tell it"
        for name in ("memtable-flush-time", "compaction-time")
    },
    (groups.STORE, "number-open-files"): "Kafka Streams says -1 since 4.0: RocksDB does not tell",
}
"""What Kafka Streams has and makes no sense here, and why."""
