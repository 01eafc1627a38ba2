"""What a topology takes over from the one that ran before it: names, and what was left behind."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import msgspec

from penstock.topology.graph import SubTopology, Topology
from penstock.topology.manifest import SubTopologyFacts, TopologyManifest


def keep_names(topology: Topology, old: TopologyManifest) -> Topology:
    """The topology with the durable names that its sub-topologies had when it last ran.

    A sub-topology is generally called after its first store. A store that is added before that one
    would rename it, and with it the transactions and commit records of its tasks; so the one with
    the most stores, then inputs, of an old sub-topology goes on under the old name.
    """
    kept = _kept(topology.sub_topologies, old)
    taken = set(kept.values())
    subs = []
    for sub in topology.sub_topologies:
        name = kept.get(sub.number) or _free(sub.name, taken)
        taken.add(name)
        subs.append(dataclasses.replace(sub, name=name))
    return dataclasses.replace(topology, sub_topologies=tuple(subs))


def succeed(old: TopologyManifest | None, new: TopologyManifest) -> TopologyManifest:
    """The new manifest, with the stores that it leaves behind."""
    if old is None:
        return new
    logged = {name for name, (_, store) in old.stores.items() if store.changelog}
    behind = (logged | set(old.retired)) - set(new.stores)
    return msgspec.structs.replace(new, retired=tuple(sorted(behind)))


def _kept(subs: Iterable[SubTopology], old: TopologyManifest) -> dict[int, str]:
    """The old names of sub-topologies, by number: the best matches first, each name once."""
    matches = sorted(
        (
            (_likeness(sub, facts, old.application_id), sub.name == facts.name, -sub.number, facts)
            for sub in subs
            for facts in old.sub_topologies
        ),
        key=lambda match: match[:3],
        reverse=True,
    )
    kept: dict[int, str] = {}
    for likeness, _, negative, facts in matches:
        if any(likeness) and -negative not in kept and facts.name not in kept.values():
            kept[-negative] = facts.name
    return kept


def _likeness(sub: SubTopology, facts: SubTopologyFacts, application_id: str) -> tuple[int, int]:
    stores = {store.name for store in sub.stores} & {store.name for store in facts.stores}
    old_inputs = {*facts.sources, *(each.topic for each in facts.repartitions)}
    return len(stores), len(old_inputs & set(sub.input_topics(application_id)))


def _free(name: str, taken: set[str]) -> str:
    candidate, tries = name, 1
    while candidate in taken:
        tries += 1
        candidate = f"{name}-{tries}"
    return candidate
