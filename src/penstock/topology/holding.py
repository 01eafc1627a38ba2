"""How a table is kept: in a plain store that is called so, or in a versioned one."""

from __future__ import annotations

import dataclasses
import difflib
from datetime import timedelta
from typing import Any, TypedDict

from penstock.errors import TopologyError
from penstock.serdes import Serde
from penstock.topology.changelogs import Logging, RecoverFrom, changelog_config, is_logged
from penstock.topology.draft import Draft
from penstock.topology.nodes import StoreSpec
from penstock.topology.processor import StoreBuilder

Store = str | StoreBuilder
"""A store's name, or what `versioned_store` gives."""

_MILLISECOND = timedelta(milliseconds=1)


class KeptOptions(TypedDict, total=False):
    """How a table's store of ours is kept.

    Without a store they have no effect, but for the numbers in Kafka Streams' names, and that a
    join of tables is kept if the application has those.
    """

    caching: bool
    logging: Logging
    recover_from: RecoverFrom
    persistent: bool | None


class TableOptions(KeptOptions, total=False):
    """How a table's store is kept, or what opens it."""

    supplier: str | None


_TABLE_OPTIONS = tuple(TableOptions.__annotations__.keys() | KeptOptions.__annotations__.keys())


def check_options(options: TableOptions, what: str) -> None:
    """Raise `TopologyError` for an option that would have no effect.

    >>> check_options({"caching": False}, "The filter behind step orders")
    """
    unknown = sorted(options.keys() - set(_TABLE_OPTIONS))
    if not unknown:
        return
    meant = difflib.get_close_matches(unknown[0], _TABLE_OPTIONS, 1)
    raise TopologyError(
        f"{what} has no option {unknown[0]}=",
        hint=f"Write {meant[0]}=" if meant else f"It has {', '.join(sorted(_TABLE_OPTIONS))}",
    )


def name_of(store: Store | None) -> str | None:
    """The name, if there is one. Raises `TopologyError` for a store in which no table can be kept.

    >>> name_of("counts")
    'counts'
    """
    if not isinstance(store, StoreBuilder):
        return store
    if store.kind != "versioned":
        raise TopologyError(
            f"A table cannot be kept in the {store.kind} store {store.name!r}",
            hint="Say the store's name alone, or versioned_store(...)",
        )
    return store.name


def plain_name(store: Store | None, what: str) -> str | None:
    """The name of a store that cannot keep versions. Raises `TopologyError` for one that would."""
    if isinstance(store, StoreBuilder):
        raise TopologyError(
            f"{what} cannot be kept in the {store.kind} store {store.name!r}",
            hint="Say the store's name alone",
        )
    return store


def says_how(options: TableOptions) -> bool:
    """Whether options say how a store is kept, as a `Materialized` in Java would.

    >>> says_how({"caching": False}), says_how({"caching": True})
    (True, False)
    """
    return (
        not options.get("caching", True)
        or options.get("logging", True) is not True
        or options.get("persistent") is not None
    )


def table_store(
    draft: Draft,
    store: Store | None,
    name: str,
    *,
    key: Serde[Any],
    value: Serde[Any],
    options: TableOptions,
) -> StoreSpec:
    """The store `name` of a table, kept as it was asked for."""
    logging, supplier = options.get("logging", True), options.get("supplier")
    plain = StoreSpec(
        name=name,
        key_serde=key,
        value_serde=value,
        caching=options.get("caching", True),
        logging=is_logged(logging),
        changelog_config=changelog_config(logging, name),
        recover_from=options.get("recover_from", "changelog"),
        persistent=draft.keeps(options.get("persistent"), supplier),
        supplier=supplier or "",
    )
    return kept_in(store, plain)


def kept_in(store: Store | None, spec: StoreSpec) -> StoreSpec:
    """The table's store as it was asked for. Versions have no cache, as in Kafka Streams."""
    if not isinstance(store, StoreBuilder):
        return spec
    if spec.max_entries is not None:
        raise TopologyError(
            f"The versioned store {store.name!r} cannot be one of limited size",
            hint="Leave max_entries= out; history_retention limits what it keeps",
        )
    assert store.retention is not None
    assert store.segment_interval is not None
    logged = spec.logging and is_logged(store.logging)
    config = {**changelog_config(store.logging, store.name), **spec.changelog_config}
    return dataclasses.replace(
        spec,
        kind="versioned",
        caching=False,
        persistent=store.persistent,
        supplier=store.supplier or spec.supplier,
        logging=logged,
        changelog_config=config,
        recover_from="input" if store.recover_from == "input" else spec.recover_from,
        retention_ms=int(store.retention / _MILLISECOND),
        segment_interval_ms=int(store.segment_interval / _MILLISECOND),
    )


def history_of(spec: StoreSpec) -> int | None:
    """For how long a store keeps versions; None if it does not."""
    return spec.retention_ms if spec.kind == "versioned" else None
