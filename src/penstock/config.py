"""Every option, its default, and its name in Kafka Streams.

Options have Kafka's names with underscores; durations are `timedelta`. Values come, weakest first,
from the defaults here, from the keywords of `Application`, and from `PENSTOCK_<OPTION>` in the
environment.

Defaults are Kafka Streams', except: `processing_guarantee` is exactly-once (a commit here is one
transaction for a whole slice, so the safe choice is also fast); `commit_interval` is 100 ms under
both guarantees (it is the time between batches, not the length of a transaction); `state_dir` is
under the user's data directory (`/tmp` is emptied by some systems at boot, and with it hours of
state).
"""

from __future__ import annotations

import dataclasses
import difflib
import logging
import os
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

from penstock.errors import ConfigError
from penstock.hidden import shown, without_secrets
from penstock.kafka_names import check_client_properties, sort_properties, with_files, word_for
from penstock.option_values import (
    PARSERS,
    check_group_instance_id,
    check_kind,
    check_listening,
    check_tls_files,
    check_topic_settings,
    parse_address,
    tell_misspelt,
    with_new_names,
)

_log = logging.getLogger("penstock.config")

Guarantee = Literal["exactly_once", "at_least_once"]
OffsetReset = Literal["earliest", "latest"]
OnBadRecord = Literal["fail", "continue", "dead_letter"]
RecoverOutputs = Literal["drop", "repeat"]
RebalanceProtocol = Literal["cooperative", "eager"]
DslStore = Literal["rocksdb", "memory"]
Compression = Literal["none", "snappy", "lz4", "zstd"]
RecordingLevel = Literal["OFF", "INFO", "DEBUG", "TRACE"]
LogFormat = Literal["text", "json"]
TimestampRule = Literal["fail", "skip", "partition_time", "wall_clock"]
"""What a record's time is: Kafka's, where a negative one stops the application, drops the record or
becomes the latest of its partition; or that of the clock."""


def default_state_dir() -> Path:
    """Where state lives unless told otherwise: the user's data directory, never `/tmp`."""
    base = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(base) / "penstock"


def _option(default: Any, kafka: str, doc: str) -> Any:
    return field(default=default, metadata={"kafka": kafka, "doc": doc})


@dataclass(frozen=True, kw_only=True)
class Config:
    """The options of one application.

    >>> Config(commit_interval=timedelta(seconds=1)).commit_interval.total_seconds()
    1.0
    >>> Config.from_properties({"processing.guarantee": "exactly_once_v2"}).processing_guarantee
    'exactly_once'

    Raises `ConfigError` for an unknown option or a value that cannot work.
    """

    bootstrap_servers: str = _option(
        "localhost:9092", "bootstrap.servers", "Where Kafka listens, host:port[,host:port]."
    )
    processing_guarantee: Guarantee = _option(
        "exactly_once",
        "processing.guarantee",
        "`exactly_once` (transactions, fencing) or `at_least_once` (neither).",
    )
    commit_interval: timedelta = _option(
        timedelta(milliseconds=100),
        "commit.interval.ms",
        "The least time between two batches of a task; every batch ends with a commit.",
    )
    statestore_cache_max_bytes: int = _option(
        10 * 1024 * 1024,
        "statestore.cache.max.bytes",
        "Size of the record cache, divided by the slices that run at once; 0 turns it off. Kafka "
        "Streams' older name, `cache_max_bytes_buffering`, is taken too; where both are set, this "
        "one counts.",
    )
    dsl_store: DslStore = _option(
        "rocksdb",
        "dsl.store.suppliers.class",
        "Where tables, aggregations and joins keep what they hold, unless `persistent=` says: on "
        "disk (`rocksdb`), or in `memory`, restored from the changelog by each new owner.",
    )
    state_dir: Path = field(
        default_factory=default_state_dir,
        metadata={"kafka": "state.dir", "doc": "Where instances keep their stores."},
    )
    state_cleanup_delay: timedelta = _option(
        timedelta(minutes=10),
        "state.cleanup.delay.ms",
        "An instance deletes its copy of a task that it has not held for this long.",
    )
    auto_offset_reset: OffsetReset = _option(
        "earliest",
        "auto.offset.reset",
        "Where a task starts that has no position yet, unless `stream` or `table` says.",
    )
    deserialization_exception_handler: OnBadRecord = _option(
        "fail",
        "deserialization.exception.handler",
        "What a record that cannot be decoded does: `fail` stops, `continue` skips and counts it, "
        "`dead_letter` also sends it to the dead-letter topic.",
    )
    processing_exception_handler: OnBadRecord | Callable[[Any], OnBadRecord] = _option(
        "fail",
        "processing.exception.handler",
        "The same for a record that a function of the user's raises on; or a function of a "
        "`RecordFailure` that says one of these words.",
    )
    production_exception_handler: OnBadRecord | Callable[[Any], OnBadRecord] = _option(
        "fail",
        "production.exception.handler",
        "The same for a record that cannot be written: its key or value has no bytes by its serde, "
        "or Kafka does not take it (too large, no key for a compacted topic, no such topic). Also "
        "a function. A change of a store that Kafka does not take always stops.",
    )
    errors_dead_letter_queue_topic_name: str = _option(
        "",
        "errors.dead.letter.queue.topic.name",
        "The dead-letter topic, which must exist; records keep their bytes, time and headers.",
    )
    dead_letter_dropped_records: bool = _option(
        False,
        "dead.letter.dropped.records",
        "Whether dropped records (late, without a key, undecodable ...) go there too.",
    )
    default_timestamp_extractor: TimestampRule | Callable[[Any, Any, int], int] = _option(
        "fail",
        "default.timestamp.extractor",
        "The time of a record whose source says none: Kafka's, where a negative one stops "
        "(`fail`), drops the record (`skip`) or becomes its partition's latest (`partition_time`); "
        "`wall_clock`; or a function of key, value and Kafka's time.",
    )
    recover_outputs: RecoverOutputs = _option(
        "drop",
        "recover.outputs",
        "What a task whose stores recover from its input does with outputs that it has written "
        "before: `drop` or `repeat`; those to repartition topics are always dropped.",
    )
    allow_topology_change: bool = _option(
        False,
        "allow.topology.change",
        "Start although the program leaves behind or misreads state of the one that ran before.",
    )
    replication_factor: int = _option(
        -1, "replication.factor", "Of internal topics; -1 takes the brokers' default."
    )
    topic: Mapping[str, str] = field(
        default_factory=dict,
        metadata={
            "kafka": "topic.*",
            "doc": "Settings of all internal topics, by Kafka's names; `logging=` of a store wins.",
        },
    )
    manage_topics: bool = _option(
        False,
        "manage.topics",
        "Change the settings of internal topics at start to what the program says, as `penstock "
        "topics apply` does; else a difference is told.",
    )
    windowstore_changelog_additional_retention: timedelta = _option(
        timedelta(days=1),
        "windowstore.changelog.additional.retention.ms",
        "How much longer than its store a changelog of windows keeps them.",
    )
    allow_truncated_changelog: bool = _option(
        False,
        "allow.truncated.changelog",
        "Rebuild a store although its changelog lost its start: keys that were only there are "
        "lost.",
    )
    session_timeout: timedelta = _option(
        timedelta(seconds=45),
        "session.timeout.ms",
        "An instance that is silent for this long has lost its tasks.",
    )
    heartbeat_interval: timedelta = _option(
        timedelta(seconds=3), "heartbeat.interval.ms", "How often instances and the driver beat."
    )
    group_instance_id: str = _option(
        "",
        "group.instance.id",
        "Makes the instances that the application starts on its machine static members, `<id>` or "
        "`<id>-instance-0` and so on: one that comes back within `session_timeout` keeps its "
        "tasks. Others have `penstock instance --group-instance-id`.",
    )
    initial_rebalance_delay: timedelta = _option(
        timedelta(seconds=3),
        "group.initial.rebalance.delay.ms",
        "How long the first assignment waits for a further instance, each time that one comes. It "
        "does not wait where all that are to come are known and there: those that the application "
        "starts itself, on its machine or on Spark's executors.",
    )
    transaction_timeout: timedelta = _option(
        timedelta(seconds=10),
        "transaction.timeout.ms",
        "After this long the broker aborts a transaction whose owner is gone.",
    )
    num_instances: int = _option(
        0,
        "num.instances",
        "Instances on one machine; 0 is one per two cores, or none with `coordinator_listen`.",
    )
    coordinator_listen: str = _option(
        "",
        "coordinator.listen",
        "HOST:PORT where `penstock instance --coordinator` finds the application, which then "
        "starts none by itself. Whoever has the token in `PENSTOCK_TOKEN` is let in.",
    )
    tls_certificate_file: str = _option(
        "",
        "tls.certificate.file",
        "What driver and instances show to other hosts: a certificate with its chain, as PEM.",
    )
    tls_key_file: str = _option("", "tls.key.file", "Its private key, as PEM.")
    tls_ca_file: str = _option("", "tls.ca.file", "The CA that signed those of all hosts.")
    tls_server_name: str = _option(
        "", "tls.server.name", "The name in all of them; else each bears its host's address."
    )
    tls_verify_clients: bool = _option(
        False,
        "tls.verify.clients",
        "Whoever calls driver or instances from another host shows such a certificate too: workers "
        "then need the files on their hosts.",
    )
    allow_unencrypted: bool = _option(
        False,
        "allow.unencrypted",
        "Let driver and instances listen to other hosts without TLS: a trusted network alone.",
    )
    http_listen: str = _option(
        "127.0.0.1:0",
        "http.listen",
        "HOST:PORT where queries, health and metrics are answered over HTTP; port 0 is a free one, "
        "an empty text turns it off. Beyond this machine it takes TLS and a token.",
    )
    http_token_file: str = _option(
        "",
        "http.token.file",
        "A file with a token that may read, beside the run's own in `driver.json`.",
    )
    http_admin_token_file: str = _option(
        "", "http.admin.token.file", "The same, with a token that may pause and resume too."
    )
    http_tls_certificate_file: str = _option(
        "", "http.tls.certificate.file", "The certificate that is shown, with its chain, as PEM."
    )
    http_tls_key_file: str = _option("", "http.tls.key.file", "Its private key, as PEM.")
    http_tls_client_ca_file: str = _option(
        "",
        "http.tls.client.ca.file",
        "The CA of clients, as PEM: whoever shows no certificate that it signed is not let in.",
    )
    http_hosts: tuple[str, ...] = _option((), "http.hosts", "Names that it may be called by.")
    instance_http_listen: str = _option(
        "",
        "instance.http.listen",
        "HOST:PORT where each instance that the application starts answers queries too; port 0 is "
        "a free one. The options of the driver's service count here as well.",
    )
    num_standby_replicas: int = _option(
        0,
        "num.standby.replicas",
        "How many other instances follow the stores of each task, ready to take it over.",
    )
    acceptable_recovery_lag: int = _option(
        10_000,
        "acceptable.recovery.lag",
        "An instance that lacks at most so many changelog records of a task may be given it.",
    )
    max_warmup_replicas: int = _option(
        2,
        "max.warmup.replicas",
        "How many tasks may be warmed up at once on instances that are to take them.",
    )
    rebalance_protocol: RebalanceProtocol = _option(
        "cooperative",
        "rebalance.protocol",
        "`cooperative`: only tasks that move stop; `eager`: all do, to compare.",
    )
    probing_rebalance_interval: timedelta = _option(
        timedelta(minutes=10),
        "probing.rebalance.interval.ms",
        "While tasks warm up, how often it is looked whether they can move.",
    )
    rack_aware_assignment_tags: tuple[str, ...] = _option(
        (),
        "rack.aware.assignment.tags",
        "Names of tags; standbys go to instances that differ in them from the active, and from "
        "each other.",
    )
    client_tags: Mapping[str, str] = field(
        default_factory=dict,
        metadata={
            "kafka": "client.tag.*",
            "doc": "Tags of the instances that the application starts on its machine, such as "
            "`zone`. Others have `penstock instance --client-tag`.",
        },
    )
    task_assignor: str = _option(
        "",
        "task.assignor.class",
        "`module:name` of a `TaskAssignor` that decides who holds which task; else tasks stay "
        "where they are as far as the load is even.",
    )
    snapshot_location: str = _option(
        "",
        "snapshot.location",
        "Where instances copy their stores to and get them back from, before they read changelogs: "
        "`file:///directory`, `s3://bucket/prefix`.",
    )
    snapshot_interval: timedelta = _option(
        timedelta(minutes=10), "snapshot.interval.ms", "How often they are copied there."
    )
    snapshot_keep: int = _option(
        1,
        "snapshot.keep",
        "How many copies of each store stay there, to be read as of then; they share files.",
    )
    rocksdb_memory_bytes: int = _option(
        512 * 1024 * 1024,
        "rocksdb.memory.bytes",
        "Memory that all stores of an instance share: blocks, indexes, filters, write buffers, and "
        "what is read ahead in a restore.",
    )
    rocksdb_write_buffer_bytes: int = _option(
        16 * 1024 * 1024, "rocksdb.write.buffer.bytes", "A store's write buffer is flushed at this."
    )
    rocksdb_write_buffers_max: int = _option(
        3, "rocksdb.write.buffers.max", "Write buffers that a store may fill before it must wait."
    )
    rocksdb_block_bytes: int = _option(
        4096, "rocksdb.block.bytes", "How much is read from the disk, and cached, at once."
    )
    rocksdb_bloom_bits: int = _option(
        10, "rocksdb.bloom.bits", "Bits of a bloom filter per key; 0 for no filters."
    )
    rocksdb_compression: Compression = _option(
        "none", "rocksdb.compression", "`none`, `snappy`, `lz4` or `zstd`."
    )
    rocksdb_config_setter: str = _option(
        "",
        "rocksdb.config.setter",
        "`module:function`, called in instances as `function(store, options)` with rocksdict's "
        "`Options` before a store is opened, for everything else.",
    )
    slice_records_max: int = _option(
        400_000, "slice.records.max", "Most records of a task that are committed together."
    )
    slice_bytes_max: int = _option(
        64 * 1024 * 1024, "slice.bytes.max", "Most bytes of a task that are committed together."
    )
    repartition_purge_interval: timedelta = _option(
        timedelta(seconds=30),
        "repartition.purge.interval.ms",
        "How often repartition topics are emptied up to the committed positions.",
    )
    metrics_recording_level: RecordingLevel = _option(
        "INFO", "metrics.recording.level", "Which metrics are recorded; `OFF` is none."
    )
    log_format: LogFormat = _option(
        "text",
        "log.format",
        "`json` writes the log to standard error, an object a line; `text` leaves it to Python.",
    )
    master: str = _option("local[*,4]", "spark.master", "Spark's master, unless spark-submit says.")
    kafka: Mapping[str, str] = field(
        default_factory=dict,
        metadata={
            "kafka": "kafka.*",
            "doc": "Client properties (security and so on) for every Kafka client.",
        },
    )
    spark: Mapping[str, str] = field(
        default_factory=dict,
        metadata={"kafka": "spark.*", "doc": "Further Spark settings, by Spark's own names."},
    )

    def __post_init__(self) -> None:
        _check(self)

    def __repr__(self) -> str:
        """Every option, without secrets: what is printed ends in logs."""
        options = ", ".join(f"{name}={_shown(getattr(self, name))!r}" for name in _FIELDS)
        return f"Config({options})"

    @classmethod
    def build(
        cls,
        options: Mapping[str, Any],
        environment: Mapping[str, str],
        *,
        base: Config | None = None,
    ) -> Config:
        """The config of these options, over those of `base`, overridden by `PENSTOCK_*`."""
        known = {} if base is None else {name: getattr(base, name) for name in _FIELDS}
        values = {**known, **with_new_names(options, _OLD_OPTIONS)}
        unknown = sorted(set(values) - set(_FIELDS))
        if unknown:
            raise _no_such_option(unknown[0])
        variables = {
            f"PENSTOCK_{old.upper()}": f"PENSTOCK_{new.upper()}"
            for old, new in _OLD_OPTIONS.items()
        }
        environment = with_new_names(environment, variables)
        for name in _FIELDS:
            text = environment.get(f"PENSTOCK_{name.upper()}")
            if text is not None:
                values[name] = _parse(name, text)
        tell_misspelt(environment, [name.upper() for name in _FIELDS])
        return cls(**values)

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Config:
        """The config of Java's names and values; names that are not known go to the Kafka clients.

        `topic.`, `kafka.` and `spark.` before a name say whose it is. What has no effect here is
        told in the log; what would change results is refused.

        >>> Config.from_properties({"topic.segment.bytes": "536870912"}).topic
        {'segment.bytes': '536870912'}
        """
        given = with_new_names(properties, _OLD_NAMES)
        names = {f.metadata["kafka"]: name for name, f in _FIELDS.items()}
        groups = {each.removesuffix("*"): name for each, name in names.items() if each[-1] == "*"}
        options = {each: name for each, name in names.items() if each[-1] != "*"}
        found = sort_properties(given, options, groups)
        for name, reason in found.ignored.items():
            _log.warning("%s has no effect here: %s", name, reason)
        values: dict[str, Any] = dict(found.groups)
        values |= {name: _parse(name, text) for name, text in found.options.items()}
        return cls(**values)

    @property
    def exactly_once(self) -> bool:
        """Whether commits are transactions."""
        return self.processing_guarantee == "exactly_once"

    def client_properties(self, **more: object) -> dict[str, Any]:
        """The properties of a confluent-kafka client: the user's, and these (`_` for `.`)."""
        own = {name.replace("_", "."): value for name, value in more.items()}
        said = {**with_files(self.kafka), "bootstrap.servers": self.bootstrap_servers}
        return {"log_level": 0, **said, **own}


_FIELDS = {f.name: f for f in dataclasses.fields(Config)}
_GUARANTEES = {"exactly_once": "exactly_once", "exactly_once_v2": "exactly_once"}
_OLD_NAMES = {
    "cache.max.bytes.buffering": "statestore.cache.max.bytes",
    "default.dsl.store": "dsl.store.suppliers.class",
}
"""Names that Kafka Streams still takes; where both are set, the new one counts."""
_OLD_OPTIONS = {"cache_max_bytes_buffering": "statestore_cache_max_bytes"}


_NEVER_EMPTY = {
    "bootstrap_servers": "Use host:port[,host:port]; `penstock dev` prints its Kafka's address",
    "master": "Use local[*,4], spark://host:port, yarn or k8s://...",
}


def _no_such_option(name: str) -> ConfigError:
    near = difflib.get_close_matches(name, _FIELDS, n=1)
    there = f"There are: {', '.join(sorted(_FIELDS))}"
    hint = f"Did you mean {near[0]!r}?" if near else there
    return ConfigError(f"There is no option {name!r}", hint=hint)


def _shown(value: object) -> object:
    if isinstance(value, Mapping):
        return shown(value)
    return without_secrets(value) if isinstance(value, str) else value


def _parse(name: str, text: str) -> Any:
    kind = typing.get_type_hints(Config)[name]
    try:
        value = PARSERS.get(kind, str)(text)
    except ValueError as error:
        # Settings of clients may be passwords, which are not for the log.
        said = "that" if kind == Mapping[str, str] else repr(without_secrets(text))
        raise ConfigError(f"Option {name} cannot be {said}", hint=_hint(kind, error)) from error
    if name == "processing_guarantee":
        return _GUARANTEES.get(value, value)
    return word_for(name, value) if isinstance(value, str) else value


def _hint(kind: Any, error: ValueError) -> str:
    numbers = {
        timedelta: "Use a number of milliseconds, up to 100 years",
        int: "Use a whole number",
    }
    return numbers.get(kind, str(error))


def _check(config: Config) -> None:
    """Refuse values that would fail later, in words that are harder to understand."""
    if config.processing_guarantee in _GUARANTEES:
        object.__setattr__(config, "processing_guarantee", "exactly_once")
    directory: object = config.state_dir
    if isinstance(directory, str):
        object.__setattr__(config, "state_dir", Path(directory))
    for name, kind in typing.get_type_hints(Config).items():
        value = getattr(config, name)
        check_kind(name, kind, value)
        if name in _NEVER_EMPTY and not str(value).strip(" ,"):
            raise ConfigError(f"Option {name} is {value!r}", hint=_NEVER_EMPTY[name])
    if config.replication_factor == 0:
        raise ConfigError(
            "Option replication_factor is 0",
            hint="Use the number of copies, or -1 for the brokers' default",
        )
    _check_handlers(config)
    check_client_properties(config.kafka)
    check_topic_settings(config.topic)
    if config.rocksdb_config_setter and ":" not in config.rocksdb_config_setter:
        raise ConfigError(
            f"Option rocksdb_config_setter is {config.rocksdb_config_setter!r}",
            hint="Write module:function, of a Python function",
        )
    _check_members(config)
    if config.heartbeat_interval * 2 > config.session_timeout:
        raise ConfigError(
            "heartbeat_interval is more than half of session_timeout",
            hint="One lost beat would count as a lost instance; make it a third",
        )


def _check_handlers(config: Config) -> None:
    """Refuse rules for bad records that say too little."""
    rules, rule = typing.get_args(TimestampRule), config.default_timestamp_extractor
    if not callable(rule) and rule not in rules:
        raise ConfigError(
            f"Option default_timestamp_extractor is {rule!r}",
            hint=f"Use one of {rules}, or a function of key, value and Kafka's time",
        )
    handlers = [name for name in _FIELDS if name.endswith("_exception_handler")]
    words = typing.get_args(OnBadRecord)
    for name in handlers:
        handler = getattr(config, name)
        if not callable(handler) and handler not in words:
            raise ConfigError(
                f"Option {name} is {handler!r}",
                hint=f"Use one of {words}, or a function of a RecordFailure that says one",
            )
    sends = [name for name in handlers if getattr(config, name) == "dead_letter"]
    sends += ["dead_letter_dropped_records"] if config.dead_letter_dropped_records else []
    if sends and not config.errors_dead_letter_queue_topic_name:
        raise ConfigError(
            f"Option {sends[0]} sends records to a dead-letter topic, and none is named",
            hint="Set errors_dead_letter_queue_topic_name to a topic that exists",
        )


def _check_members(config: Config) -> None:
    if config.group_instance_id:
        check_group_instance_id(config.group_instance_id)
    for address in (
        config.coordinator_listen,
        config.http_listen,
        config.instance_http_listen,
    ):
        if address:
            parse_address(address)
    files = (config.tls_certificate_file, config.tls_key_file, config.tls_ca_file)
    check_tls_files(
        files, server_name=config.tls_server_name, verify_clients=config.tls_verify_clients
    )
    check_listening(config.coordinator_listen, tls=any(files), allowed=config.allow_unencrypted)


def usual_state_dir() -> Path:
    """Where applications of this user keep their state, unless they say otherwise themselves."""
    return Config.build({}, os.environ).state_dir
