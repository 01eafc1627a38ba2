"""Which sub-topologies can make their stores anew by reading their input again."""

from __future__ import annotations

import typing

from penstock.errors import TopologyError
from penstock.topology.changelogs import RecoverFrom
from penstock.topology.graph import SubTopology


def check_recovery(sub: SubTopology) -> None:
    """Raise `TopologyError` if a store is to recover from an input that is emptied behind it."""
    for store in sub.stores:
        if store.recover_from not in typing.get_args(RecoverFrom):
            raise TopologyError(
                f"The store {store.name!r} cannot recover from {store.recover_from!r}",
                hint='Write recover_from="changelog" or recover_from="input"',
            )
    wanting = [store.name for store in sub.stores if store.recover_from == "input"]
    internal = [source for source in sub.sources if source.repartition]
    if wanting and internal:
        raise TopologyError(
            f"The store {wanting[0]!r} is to recover from its input, and step {internal[0].name} "
            f"reads the repartition topic {internal[0].topics[0]!r}, which is emptied behind it",
            hint="Let the store have its changelog, or write the re-keyed stream to a topic of "
            "your own and read that",
        )
