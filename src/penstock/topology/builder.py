"""`StreamsBuilder`: where a topology begins."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar, get_args

from penstock.config import DslStore, OffsetReset, TimestampRule
from penstock.errors import TopologyError
from penstock.serdes import Serde
from penstock.topology.changelogs import Logging, RecoverFrom, changelog_config, is_logged
from penstock.topology.draft import Draft, Names, said_serde
from penstock.topology.external import PostgreSQL, check_kept
from penstock.topology.flow import Flow
from penstock.topology.graph import Topology
from penstock.topology.holding import Store, name_of, plain_name
from penstock.topology.holding import kept_in as held_in
from penstock.topology.naming import check_name, pattern_name
from penstock.topology.nodes import AggregateNode, ProcessNode, SourceNode, StoreSpec
from penstock.topology.processor import Processor, StoreBuilder
from penstock.topology.streams import GlobalKTable, KStream
from penstock.topology.tables import KTable, latest_values

K = TypeVar("K")
V = TypeVar("V")


class StreamsBuilder:
    """Collects what a program says and compiles it; building does no I/O.

    >>> builder = StreamsBuilder()
    >>> builder.stream("in", key=bytes, value=bytes).group_by_key().count("counts").to_stream().to(
    ...     "out"
    ... )
    >>> builder.build().stores[0].name
    'counts'

    `names="kafka_streams"` gives unnamed stores Kafka Streams' numbers; otherwise a generated name
    is made of the topic's, and unrelated changes leave it alone. `dsl_store="memory"` keeps what
    tables, aggregations and joins hold in memory, where `persistent=` does not say otherwise.
    """

    def __init__(self, *, names: Names = "stable", dsl_store: DslStore = "rocksdb") -> None:
        if names not in get_args(Names):
            raise TopologyError(
                f"There are no names {names!r} for steps and stores",
                hint=f"Use one of {get_args(Names)}",
            )
        self._draft = Draft(names, dsl_store)

    def stream(
        self,
        topic: str | Sequence[str] | re.Pattern[str],
        *,
        key: type[K] | Serde[K],
        value: type[V] | Serde[V],
        timestamp: Callable[[K, V, int], int] | TimestampRule | None = None,
        auto_offset_reset: OffsetReset | None = None,
        name: str | None = None,
    ) -> KStream[K, V]:
        """The stream of a topic's records, of several topics', or of all that match a pattern.

        A pattern must match a topic's whole name. Topics that come to match later are read too.

        `timestamp(key, value, kafka_timestamp)` gives a record's time in milliseconds; a record of
        a negative time is dropped. A rule such as "wall_clock" does so too; without either the
        option `default_timestamp_extractor` does. `auto_offset_reset` is the option of that name,
        for these topics alone. A second stream of the same topics is the first one.
        """
        pattern = topic if isinstance(topic, re.Pattern) else None
        topics: tuple[str, ...] = ()
        if not isinstance(topic, re.Pattern):
            topics = (topic,) if isinstance(topic, str) else tuple(topic)
        if not topics and pattern is None:
            raise TopologyError("A stream needs a topic")
        source = _source(
            self._draft.step_name(name, "KSTREAM-SOURCE-"),
            topics,
            f"stream of {topic!r}",
            key=key,
            value=value,
            timestamp=timestamp,
            auto_offset_reset=auto_offset_reset,
            pattern=pattern,
        )
        step = self._draft.add_stream(source)
        origin = topics[0] if pattern is None else pattern_name(pattern)
        return KStream(Flow(self._draft, step, source.key_serde, source.value_serde, origin=origin))

    def table(
        self,
        topic: str,
        store: Store | None = None,
        *,
        key: type[K] | Serde[K],
        value: type[V] | Serde[V],
        caching: bool = True,
        logging: Logging = True,
        recover_from: RecoverFrom = "changelog",
        persistent: bool | None = None,
        supplier: str | None = None,
        kept_in: PostgreSQL | None = None,
        timestamp: Callable[[K, V, int], int] | TimestampRule | None = None,
        auto_offset_reset: OffsetReset | None = None,
        name: str | None = None,
    ) -> KTable[K, V]:
        """A topic as a table: the latest value of each key, in a store.

        A record without a value deletes its key; one without a key is dropped. In place of the
        store's name may stand a `versioned_store(...)`: then records may come in any order, and a
        stream that joins the table meets the value of each record's own time. With
        `persistent=False` instances keep the store in memory; else `dsl_store` says. `supplier`
        names what opens a store of yours, as for `key_value_store`; `timestamp` and
        `auto_offset_reset` are as in `stream`.

        >>> builder = StreamsBuilder()
        >>> patients = builder.table("patients", "patient-names", key=str, value=str)
        >>> patients.filter(lambda key, name: name != "").to_stream().to("named-patients")
        """
        draft = self._draft
        held = draft.store_name(name_of(store), f"{topic}-STATE-STORE-", origin=topic, kind="table")
        source, step = self._table_steps(name)
        read = _source(
            source,
            (topic,),
            f"table of {topic!r}",
            key=key,
            value=value,
            timestamp=timestamp,
            auto_offset_reset=auto_offset_reset,
        )
        draft.add_source(read)
        spec = StoreSpec(
            name=held,
            key_serde=read.key_serde,
            value_serde=read.value_serde,
            logging=is_logged(logging) and kept_in is None,
            changelog_config=changelog_config(logging, held),
            recover_from=recover_from,
            caching=caching,
            persistent=draft.keeps(persistent, supplier or kept_in),
            supplier=supplier or "",
            kept_in=kept_in,
        )
        spec = held_in(store, spec)
        check_kept(spec, logging=logging)
        named = store is not None or kept_in is not None
        return latest_values(draft, step, spec, after=source, named=named)

    def global_table(
        self,
        topic: str,
        store: str | None = None,
        *,
        key: type[K] | Serde[K],
        value: type[V] | Serde[V],
        persistent: bool | None = None,
        timestamp: Callable[[K, V, int], int] | TimestampRule | None = None,
        name: str | None = None,
    ) -> GlobalKTable[K, V]:
        """A topic as a table that every instance holds whole, to be joined by any key.

        `timestamp` is as in `stream`, without "partition_time": nobody owns the topic's partitions.
        """
        draft = self._draft
        if timestamp == "partition_time":
            raise TopologyError(
                f"The global table of topic {topic!r} cannot take its partition's latest time",
                hint='Say timestamp="wall_clock", or a function of key, value and Kafka\'s time',
            )
        store = plain_name(store, "A global table")
        held = draft.store_name(store, f"{topic}-STATE-STORE-", origin=topic, kind="global")
        source, step = self._table_steps(name)
        what = f"global table of {topic!r}"
        read = _source(source, (topic,), what, key=key, value=value, timestamp=timestamp)
        draft.add_source(read)
        spec = StoreSpec(
            name=held,
            key_serde=read.key_serde,
            value_serde=read.value_serde,
            logging=False,
            caching=False,
            persistent=draft.keeps(persistent),
            is_global=True,
            topic=topic,
        )
        draft.add_store(spec, behind=source)
        draft.add(AggregateNode(name=step, kind="latest", store=held), after=[source])
        return GlobalKTable(draft, spec)

    def add_state_store(self, store: StoreBuilder) -> None:
        """Add a store for processors, to be connected by its name.

        >>> from penstock.topology import key_value_store
        >>> StreamsBuilder().add_state_store(key_value_store("seen", key=str, value=int))
        """
        if store.key is None or store.value is None:
            raise TopologyError(
                f"The types of keys and values of the store {store.name!r} are not said",
                hint="Say key=str, value=int (or others) where it is made",
            )
        spec = StoreSpec(
            name=check_name(store.name, "store", step="add_state_store"),
            key_serde=said_serde(store.key, "key", f"the store {store.name!r}"),
            value_serde=said_serde(store.value, "value", f"the store {store.name!r}"),
            kind=store.kind,
            logging=is_logged(store.logging) and store.kept_in is None,
            changelog_config=changelog_config(store.logging, store.name),
            recover_from=store.recover_from,
            caching=False,
            max_entries=store.max_entries,
            persistent=store.persistent,
            supplier=store.supplier or "",
            shape=store.shape,
            retention_ms=_milliseconds(store.retention),
            segment_interval_ms=_milliseconds(store.segment_interval),
            window_ms=_milliseconds(store.window),
            kept_in=store.kept_in,
            timestamped=store.timestamped,
        )
        check_kept(spec, logging=store.logging)
        self._draft.add_store(spec)

    def add_global_store(
        self,
        topic: str,
        store: StoreBuilder,
        processor: Callable[[], Processor[Any, Any, Any, Any]],
        *,
        key: type[Any] | Serde[Any] | None = None,
        value: type[Any] | Serde[Any] | None = None,
        name: str | None = None,
    ) -> GlobalKTable[Any, Any]:
        """A store that every instance holds whole, filled from a topic by a processor.

        The processor sees every record of the topic, again whenever the store is rebuilt, and puts
        into the store what it likes; nothing else may. `key` and `value` are the topic's types, by
        default the store's.
        """
        draft = self._draft
        special = store.max_entries is not None or store.supplier or store.shape or store.kept_in
        if store.kind != "key_value" or special:
            raise TopologyError(
                f"The global store {store.name!r} is not a plain key-value store",
                hint="Make it with key_value_store(...), and without supplier= and kept_in=",
            )
        source, step = self._table_steps(name)
        check_name(store.name, "store", step=step)
        read = _source(
            source,
            (topic,),
            f"global store {store.name!r}",
            key=store.key if key is None else key,
            value=store.value if value is None else value,
        )
        draft.add_source(read)
        spec = StoreSpec(
            name=store.name,
            key_serde=said_serde(store.key, "key", f"the store {store.name!r} of step {step}"),
            value_serde=said_serde(
                store.value, "value", f"the store {store.name!r} of step {step}"
            ),
            # The topic is what it is rebuilt from.
            logging=False,
            caching=False,
            persistent=store.persistent,
            timestamped=store.timestamped,
            is_global=True,
            topic=topic,
        )
        spec = draft.add_store(spec, behind=source)
        node = ProcessNode(name=step, reads=(spec.name,), supplier=processor, fixed_key=False)
        draft.add(node, after=[source])
        return GlobalKTable(draft, spec)

    def _table_steps(self, name: str | None) -> tuple[str, str]:
        """The names of a table's source and of the step that keeps its rows."""
        source = self._draft.number("KSTREAM-SOURCE-")
        step = self._draft.step_name(name, "KTABLE-SOURCE-")
        return (source if name is None else f"{name}-source"), step

    def build(self) -> Topology:
        """The frozen topology; raises `TopologyError` if it cannot be run."""
        return self._draft.compile()


def _source(
    step: str,
    topics: tuple[str, ...],
    what: str,
    *,
    key: Any,
    value: Any,
    timestamp: Callable[..., int] | TimestampRule | None = None,
    auto_offset_reset: OffsetReset | None = None,
    pattern: re.Pattern[str] | None = None,
) -> SourceNode:
    """The step that reads topics; serdes know the topic, if it is one. Raises `TopologyError`."""
    if not (timestamp is None or callable(timestamp) or timestamp in get_args(TimestampRule)):
        raise TopologyError(
            f"The {what} takes its records' time by {timestamp!r}",
            hint=f"Use one of {get_args(TimestampRule)}, or a function of key, value and "
            "Kafka's time",
        )
    if auto_offset_reset is not None and auto_offset_reset not in get_args(OffsetReset):
        raise TopologyError(
            f"The {what} has auto_offset_reset={auto_offset_reset!r}",
            hint=f"Use one of {get_args(OffsetReset)}, or leave it to the option of that name",
        )
    for each in topics:
        check_name(each, "topic", step=f"{step}, the {what}")
    key_serde = said_serde(key, "key", f"the {what} (step {step})")
    value_serde = said_serde(value, "value", f"the {what} (step {step})")
    if len(topics) == 1:
        key_serde = key_serde.for_topic(topics[0], "key")
        value_serde = value_serde.for_topic(topics[0], "value")
    return SourceNode(
        name=step,
        topics=topics,
        pattern=pattern,
        key_serde=key_serde,
        value_serde=value_serde,
        timestamp=timestamp if callable(timestamp) else None,
        time_rule=None if callable(timestamp) else timestamp,
        auto_offset_reset=auto_offset_reset,
    )


def _milliseconds(span: timedelta | None) -> int | None:
    return None if span is None else int(span / timedelta(milliseconds=1))
