"""A topology as data: what of it is durable, to be compared with what a later program says.

No functions and no step names are in it: a step may change freely, what it left in Kafka may not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import msgspec

from penstock.errors import TopologyError
from penstock.serdes import Serde, WindowedSerde
from penstock.serdes.decoders import decoder
from penstock.topology.fingerprints import Fingerprints
from penstock.topology.graph import SubTopology, Topology, full_topic
from penstock.topology.naming import changelog_topic
from penstock.topology.nodes import StoreSpec, SuppressNode, WindowAggregateNode
from penstock.topology.origins import Origins
from penstock.topology.windows import SlidingWindows, TimeWindows, Windows

VERSION = 1
BUFFER = "buffer"
"""What is written of values that a step puts together; what they hold follows in brackets."""


WaitsFor = Literal["window_end", "time_limit"]


class WindowFacts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the windows of a store begin: every `advance_ms` from `start_ms` on, or with records.

    Sliding windows have no advance.
    """

    advance_ms: int | None = None
    start_ms: int = 0


class StoreFacts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A store: what its bytes mean, which topic can rebuild it, and what it was made of.

    Earlier versions did not write what comes after `changelog`: nothing there is not known.
    """

    name: str
    kind: str
    key: str
    value: str
    window_ms: int | None = None
    """How long the windows are that it keeps, or whose rows do."""
    retention_ms: int | None = None
    changelog: str | None = None
    """The changelog's full name; None without one."""
    windows: WindowFacts | None = None
    waits_for: WaitsFor | None = None
    """Of what `suppress` holds back: the time by which it is let go."""
    max_entries: int | None = None
    """How many keys it keeps; 0 is all."""
    kept_in: str | None = None
    """The database's table that keeps it; empty for a store of an instance."""
    origins: tuple[str, ...] = ()
    """The topics, none of them internal, whose records fill it."""
    made_by: str = ""
    """What the step does that fills it: see `fingerprints`."""


class RepartitionFacts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An internal topic that a sub-topology reads; not all was written by earlier versions."""

    topic: str
    key: str
    value: str
    window_ms: int | None = None
    """How long the windows are that are its keys."""
    origins: tuple[str, ...] = ()
    """The topics, none of them internal, whose records are written to it."""
    made_by: str = ""
    """What the steps do that write to it."""


class SubTopologyFacts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A sub-topology under its durable name; `partitions` is known once it has run."""

    name: str
    sources: tuple[str, ...] = ()
    repartitions: tuple[RepartitionFacts, ...] = ()
    stores: tuple[StoreFacts, ...] = ()
    partitions: int | None = None


class GlobalFacts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A global table or store: what its bytes mean, and whether code makes them of its topic's."""

    key: str
    value: str
    is_filled_by_code: bool = False


class TopologyManifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What of a topology is durable.

    >>> manifest = TopologyManifest(application_id="monitoring")
    >>> TopologyManifest.decode(manifest.encode()) == manifest
    True
    """

    application_id: str
    sub_topologies: tuple[SubTopologyFacts, ...] = ()
    global_tables: dict[str, str] = {}
    """The topic of each global table, by its store's name."""
    global_facts: dict[str, GlobalFacts] = {}
    """What more is known of each of them; nothing in what earlier versions wrote."""
    retired: tuple[str, ...] = ()
    """Stores that an allowed change left behind: their changelogs stopped then."""
    topic_settings: dict[str, dict[str, tuple[str, ...]]] = {}
    """What was asked of each internal topic when it ran, by setting; nothing in what earlier
    versions wrote."""
    version: int = VERSION

    @property
    def stores(self) -> dict[str, tuple[SubTopologyFacts, StoreFacts]]:
        """Every store by its name, with its sub-topology."""
        return {store.name: (sub, store) for sub in self.sub_topologies for store in sub.stores}

    @property
    def repartitions(self) -> dict[str, tuple[SubTopologyFacts, RepartitionFacts]]:
        """Every repartition topic by its full name, with the sub-topology that reads it."""
        return {each.topic: (sub, each) for sub in self.sub_topologies for each in sub.repartitions}

    @property
    def sources(self) -> dict[str, SubTopologyFacts]:
        """Every source topic, with the sub-topology that reads it."""
        return {topic: sub for sub in self.sub_topologies for topic in sub.sources}

    def encode(self) -> bytes:
        """The manifest as JSON."""
        return msgspec.json.encode(self)

    @classmethod
    def decode(cls, data: bytes, *, where: Mapping[str, object] | None = None) -> TopologyManifest:
        """The manifest of this JSON; `TopologyError` if it is none.

        The version is read first: a later one may hold fields that must not be guessed.
        """
        try:
            version = decoder(_Versioned).decode(data).version
            if version == VERSION:
                return decoder(cls).decode(data)
        except msgspec.DecodeError as error:
            raise TopologyError(
                f"This is no description of a topology: {error}",
                where=where,
                hint="`penstock topology describe --json` writes one",
            ) from error
        raise TopologyError(
            f"The topology's description has version {version}, and this Penstock reads {VERSION}",
            where=where,
            hint="Run the version of Penstock that wrote it, or a later one",
        )


class _Versioned(msgspec.Struct):
    version: int


class _Made(NamedTuple):
    """Where things come from, and what is done to make them."""

    origins: Origins
    fingerprints: Fingerprints


def manifest_of(
    topology: Topology, application_id: str, widths: Mapping[str, int] | None = None
) -> TopologyManifest:
    """What of a topology is durable; `widths` are the partitions of its sub-topologies by name."""
    widths, made = widths or {}, _Made(Origins(topology), Fingerprints(topology))
    return TopologyManifest(
        application_id=application_id,
        sub_topologies=tuple(
            _sub_topology(sub, application_id, widths.get(sub.name), made)
            for sub in topology.sub_topologies
        ),
        global_tables={
            store.name: sub.sources[0].topics[0]
            for sub in topology.global_tables
            for store in sub.stores
        },
        global_facts={
            store.name: GlobalFacts(
                key=serde_name(store.key_serde),
                value=serde_name(store.value_serde),
                is_filled_by_code=sub.is_filled_by_code,
            )
            for sub in topology.global_tables
            for store in sub.stores
        },
    )


def serde_name(serde: Serde[Any]) -> str:
    """A serde's name with those of its parts: what must stay, for bytes to keep their meaning.

    >>> from penstock.serdes import ListSerde, serde_of
    >>> serde_name(ListSerde(serde_of(str)))
    'list<string>'
    """
    parts = [serde_name(value) for value in vars(serde).values() if isinstance(value, Serde)]
    return f"{serde.name}<{', '.join(parts)}>" if parts else serde.name


def _sub_topology(
    sub: SubTopology, application_id: str, width: int | None, made: _Made
) -> SubTopologyFacts:
    internal = [source for source in sub.sources if source.repartition]
    return SubTopologyFacts(
        name=sub.name,
        sources=tuple(
            sorted(topic for each in sub.sources if not each.repartition for topic in each.topics)
        ),
        repartitions=tuple(
            RepartitionFacts(
                topic=full_topic(source, topic, application_id),
                key=serde_name(source.key_serde),
                value=serde_name(source.value_serde),
                window_ms=_key_window_ms(source.key_serde),
                origins=made.origins.of_repartition(topic),
                made_by=made.fingerprints.of_repartition(topic),
            )
            for source in internal
            for topic in source.topics
        ),
        stores=tuple(_store(store, sub, application_id, made) for store in sub.stores),
        partitions=width,
    )


def _store(store: StoreSpec, sub: SubTopology, application_id: str, made: _Made) -> StoreFacts:
    return StoreFacts(
        name=store.name,
        kind=store.kind,
        key=serde_name(store.key_serde),
        value=_value_name(store),
        window_ms=_window_ms(store),
        retention_ms=store.retention_ms,
        changelog=changelog_topic(application_id, store.name) if store.logging else None,
        windows=_windows(store, sub),
        waits_for=_waits_for(store, sub),
        max_entries=store.max_entries or 0,
        kept_in="" if store.kept_in is None else ".".join(store.kept_in.names(store.name)),
        origins=made.origins.of_store(sub, store.name),
        made_by=made.fingerprints.of_store(sub, store.name),
    )


def _window_ms(store: StoreSpec) -> int | None:
    # The entries of a join of streams lie at their own times, whatever its window is.
    if store.duplicates:
        return None
    return store.window_ms if store.kind == "window" else _key_window_ms(store.key_serde)


def _key_window_ms(serde: Serde[Any]) -> int | None:
    """How long the windows are that are keys: only their starts are written."""
    return serde.size_ms if isinstance(serde, WindowedSerde) else None


def _windows(store: StoreSpec, sub: SubTopology) -> WindowFacts | None:
    for node in sub.nodes:
        if isinstance(node, WindowAggregateNode) and node.store == store.name:
            return _window_facts(node.windows)
    return None


def _window_facts(windows: Windows) -> WindowFacts | None:
    match windows:
        case TimeWindows():
            return WindowFacts(advance_ms=windows.advance_ms, start_ms=windows.start_ms)
        case SlidingWindows():
            return WindowFacts()
    return None


def _waits_for(store: StoreSpec, sub: SubTopology) -> WaitsFor | None:
    for node in sub.nodes:
        if isinstance(node, SuppressNode) and node.store == store.name:
            return "window_end" if node.final else "time_limit"
    return None


def _value_name(store: StoreSpec) -> str:
    if store.shape:
        return store.shape.format
    if store.holds:
        return f"{BUFFER}<{', '.join(serde_name(each) for each in store.holds)}>"
    return serde_name(store.value_serde)
