"""The stores of an application that can be asked, and which partition a key is in."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.coordination.ids import TaskId
from penstock.errors import QuestionRefusedError, UnknownStoreError
from penstock.processors.partitioner import partition_of, partitions_of
from penstock.queries.contract import StoreDescription
from penstock.serdes import BytesSerde
from penstock.serdes.subscription import CombinedKeySerde
from penstock.topology import StoreSpec, SubTopology, Topology, naming
from penstock.topology.placement import Partitioner, Placement, placement_of

_BY_KEY = Placement()
_FEW_KEYS = 24
"""So many are looked at faster one by one than as a column."""


@dataclass(frozen=True, kw_only=True)
class AskedStore:
    """A store, where its partitions are, and how keys find theirs."""

    spec: StoreSpec
    sub_topology: int
    partitions: int
    changelog: str = ""
    placement: Placement = _BY_KEY

    @property
    def description(self) -> StoreDescription:
        """What is told of it."""
        spec = self.spec
        return StoreDescription(
            name=spec.name,
            kind=spec.kind,
            partitions=self.partitions,
            is_global=spec.is_global,
            logged=bool(self.changelog),
            key=spec.key_serde.name,
            value=spec.value_serde.name,
        )

    def task(self, partition: int) -> TaskId:
        """The task that has a partition of it."""
        return TaskId(self.sub_topology, partition)

    def key_bytes(self, key: Any) -> bytes:
        """A key as the store holds it. Raises `QuestionRefusedError` if it cannot be one."""
        if key is None:
            raise _not_a_key(self.spec, key, "no store has it")
        try:
            data: bytes = self.spec.key_serde.serialize(key)
        except Exception as error:  # a serde may be the user's own
            raise _not_a_key(self.spec, key, f"{type(error).__name__}: {error}") from error
        return data

    def keys_bytes(self, keys: Sequence[Any]) -> list[bytes]:
        """Keys as the store holds them. Raises `QuestionRefusedError` of the first that is none."""
        serde = self.spec.key_serde
        if type(serde) is BytesSerde and set(map(type, keys)) == {bytes}:
            return list(keys)
        serialize = serde.serialize
        try:
            if None not in keys:
                return [serialize(key) for key in keys]
        except Exception:  # noqa: BLE001, S110 - one by one it is known which
            pass
        return [self.key_bytes(key) for key in keys]

    def partitions_of(self, keys: Sequence[Any], data: Sequence[bytes]) -> list[int]:
        """The partition in which each key is, as those choose it who write the store's input."""
        if self.spec.is_global or self.partitions == 1 or not keys:
            return [0] * len(keys)
        tail, partitioner = self.placement.unplacing, self.placement.partitioner
        placing = [each[:-tail] for each in data] if tail else data
        if len(placing) <= _FEW_KEYS:
            found = [partition_of(each, self.partitions) for each in placing]
        else:
            found = partitions_of(pa.array(placing, pa.binary()), self.partitions).tolist()
        if partitioner is None:
            return found
        return [
            self._chosen(partitioner, key, usual) for key, usual in zip(keys, found, strict=True)
        ]

    def _chosen(self, partitioner: Partitioner, key: Any, usual: int) -> int:
        try:
            said = partitioner(key, None, self.partitions)
            # None is the usual one; of several, each has the key.
            partition = usual if said is None else said if isinstance(said, int) else min(said)
        except Exception as error:
            raise QuestionRefusedError(
                f"The partitioner of the input of {self.spec.name!r} does not say where the key "
                f"{key!r} is: {type(error).__name__}: {error}",
                where={"store": self.spec.name},
                hint="It is called with None for the value; say partition= if it needs one",
            ) from error
        if not 0 <= partition < self.partitions:
            raise QuestionRefusedError(
                f"The partitioner says {partition}, of {self.partitions} partitions",
                where={"store": self.spec.name},
                hint="Mend the partitioner, or say partition=",
            )
        return partition


class Catalogue:
    """All stores that can be asked, by name; of `inner` ones only sizes are told."""

    def __init__(self, stores: Iterable[AskedStore], inner: Iterable[AskedStore] = ()) -> None:
        self._stores = {store.spec.name: store for store in stores}
        self._sized = {store.spec.name: store for store in inner} | self._stores

    @classmethod
    def of(cls, topology: Topology, application_id: str, widths: Mapping[str, int]) -> Catalogue:
        """The stores of a topology; `widths` are its sub-topologies' numbers of partitions."""

        def asked(spec: StoreSpec, sub: SubTopology, placement: Placement = _BY_KEY) -> AskedStore:
            return AskedStore(
                spec=spec,
                sub_topology=sub.number,
                partitions=widths.get(sub.name, 1),
                changelog=_changelog(spec, application_id),
                placement=placement,
            )

        subs = topology.sub_topologies
        inner = [asked(spec, sub) for sub in subs for spec in sub.stores]
        found = [
            asked(spec, sub, placement_of(spec, sub, topology))
            for sub in subs
            for spec in _for_users(sub)
        ]
        tables = [
            AskedStore(spec=spec, sub_topology=sub.number, partitions=1)
            for sub in topology.global_tables
            for spec in sub.stores
        ]
        return cls([*found, *tables], inner)

    def all(self) -> list[AskedStore]:
        """The stores by name."""
        return [self._stores[name] for name in sorted(self._stores)]

    def sized(self) -> Mapping[str, AskedStore]:
        """The same, and those that steps have for themselves."""
        return self._sized

    def find(self, name: str) -> AskedStore:
        """The store of that name. Raises `UnknownStoreError`."""
        found = self._stores.get(name)
        if found is not None:
            return found
        known = ", ".join(sorted(self._stores)) or "none"
        near = difflib.get_close_matches(str(name), self._stores, n=1)
        raise UnknownStoreError(
            f"There is no store {name!r}",
            where={"store": name},
            hint=f"Did you mean {near[0]!r}? There is: {known}" if near else f"There is: {known}",
        )


def _for_users(sub: SubTopology) -> list[StoreSpec]:
    """The stores that hold what users know of: not what `suppress` and foreign keys need."""
    own = {spec.recency.name for spec in sub.stores if spec.recency is not None}
    return [
        spec
        for spec in sub.stores
        if spec.name not in own
        and spec.time_index != "value_tail"
        and not isinstance(spec.key_serde, CombinedKeySerde)
    ]


def _changelog(spec: StoreSpec, application_id: str) -> str:
    is_logged = spec.logging and spec.kept_in is None
    return naming.changelog_topic(application_id, spec.name) if is_logged else ""


def _not_a_key(spec: StoreSpec, key: Any, why: str) -> QuestionRefusedError:
    return QuestionRefusedError(
        f"{key!r} is no key of {spec.name!r}: {why}",
        where={"store": spec.name},
        hint=f"Its keys are written by the serde {spec.key_serde.name!r}",
    )
