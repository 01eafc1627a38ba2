"""Stores that a database keeps, and what may stand beside one in a task."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.errors import TopologyError
from penstock.topology.changelogs import Logging

if TYPE_CHECKING:
    from penstock.topology.graph import SubTopology, Topology
    from penstock.topology.nodes import StoreSpec

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
NAME_BYTES_MAX = 63
"""PostgreSQL cuts longer names off in silence, and two tables could become one."""


@dataclass(frozen=True, kw_only=True)
class PostgreSQL:
    """A PostgreSQL database as the keeper of a store.

    `dsn_variable` names the environment variable of the instances that holds the connection string:
    the string itself, with a password perhaps, never travels. `table` is by default called after
    the store, and may name a schema (`"accounts.balances"`). With `outbox` a task's outputs are
    written to a table in the same transaction and sent to Kafka from there, exactly once.

    >>> PostgreSQL(dsn_variable="BALANCES_DSN", outbox=True).names("balances")
    ('balances',)
    """

    dsn_variable: str
    table: str = ""
    outbox: bool = False

    def __post_init__(self) -> None:
        # The text is not repeated: whoever mistakes the option writes a password here.
        if not _VARIABLE.fullmatch(self.dsn_variable):
            raise TopologyError(
                "dsn_variable is not the name of an environment variable",
                hint="Put the connection string into one, such as BALANCES_DSN, where instances "
                'run, and write ps.PostgreSQL(dsn_variable="BALANCES_DSN")',
            )
        if self.table:
            self.names("")

    def names(self, store: str) -> tuple[str, ...]:
        """The table's name, with that of its schema before it if there is one."""
        names = tuple(self.table.split(".")) if self.table else (store,)
        if len(names) > 2 or not all(0 < len(each.encode()) <= NAME_BYTES_MAX for each in names):
            raise TopologyError(
                f"{'.'.join(names)!r} cannot be the name of a table in PostgreSQL",
                hint=f'Say table="name" or table="schema.name", of at most {NAME_BYTES_MAX} bytes',
            )
        return names


def kept_sentence(store: str, kept_in: PostgreSQL) -> str:
    """What is to be known of such a store when the application starts.

    >>> kept_sentence("sums", PostgreSQL(dsn_variable="SUMS"))
    'Store sums is kept in PostgreSQL (SUMS): no changelog, no standbys; outputs may repeat'
    """
    outputs = "outputs exactly once" if kept_in.outbox else "outputs may repeat"
    return (
        f"Store {store} is kept in PostgreSQL ({kept_in.dsn_variable}): no changelog, no standbys; "
        f"{outputs}"
    )


def check_kept(spec: StoreSpec, *, logging: Logging) -> None:
    """Raise `TopologyError` for a store that no database keeps so."""
    if spec.kept_in is None:
        return
    spec.kept_in.names(spec.name)
    if spec.kind != "key_value":
        raise TopologyError(
            f"The store {spec.name!r} is a {spec.kind} store, which PostgreSQL does not keep",
            hint="Leave kept_in= out, or use a key-value store",
        )
    if spec.supplier:
        raise TopologyError(
            f"The store {spec.name!r} cannot be both in PostgreSQL and opened by {spec.supplier!r}",
            hint="Leave kept_in= or supplier= out",
        )
    if not isinstance(logging, bool):
        raise TopologyError(
            f"The store {spec.name!r} is kept in PostgreSQL and has no changelog to be set up",
            hint="Leave logging= out",
        )
    if spec.max_entries is not None:
        raise TopologyError(
            f"The store {spec.name!r} is kept in PostgreSQL, which forgets no key by itself",
            hint="Leave max_entries= or kept_in= out",
        )


def check_external(topology: Topology, *, exactly_once: bool) -> None:
    """Raise `TopologyError` for a task whose stores cannot be committed together."""
    for sub in topology.sub_topologies:
        kept = [store for store in sub.stores if store.kept_in is not None]
        if kept:
            _check_one_database(kept)
            _check_read_once(sub, kept[0])
            _check_no_changelog(sub, kept[0], exactly_once=exactly_once)


def _check_one_database(kept: list[StoreSpec]) -> None:
    first = kept[0]
    tables: dict[tuple[str, ...], str] = {}
    for other in kept:
        assert first.kept_in is not None
        assert other.kept_in is not None
        if (other.kept_in.dsn_variable, other.kept_in.outbox) != (
            first.kept_in.dsn_variable,
            first.kept_in.outbox,
        ):
            raise TopologyError(
                f"The stores {first.name!r} and {other.name!r} belong to the same task and would "
                "not be written by the same transaction",
                hint="Give both the same dsn_variable= and outbox=, or put .repartition() between "
                "their steps, which makes two tasks of them",
            )
        owner = tables.setdefault(other.kept_in.names(other.name), other.name)
        if owner != other.name:
            raise TopologyError(
                f"The stores {owner!r} and {other.name!r} have the same table",
                hint="Give one of them another table=",
            )


def _check_read_once(sub: SubTopology, kept: StoreSpec) -> None:
    again = next((store.name for store in sub.stores if store.recover_from == "input"), None)
    if again is not None:
        raise TopologyError(
            f"The store {kept.name!r} is kept in PostgreSQL, and the task of {again!r} would read "
            "its input again: what the database holds would be counted twice",
            hint='Leave recover_from="input" out, or put .repartition() between their steps, '
            "which makes two tasks of them",
        )


def _check_no_changelog(sub: SubTopology, kept: StoreSpec, *, exactly_once: bool) -> None:
    assert kept.kept_in is not None
    if not exactly_once and not kept.kept_in.outbox:
        return
    logged = next((store.name for store in sub.stores if store.logging), None)
    if logged is None:
        return
    steps = ", ".join(node.name for node in sub.nodes if logged in node.stores)
    raise TopologyError(
        f"The store {kept.name!r} is kept in PostgreSQL, and step {steps} of the same task keeps "
        f"{logged!r} in a changelog: no transaction spans both, so one could be ahead of the other",
        hint=f"Keep {logged!r} in PostgreSQL too (kept_in=...), or say logging=False for it, or "
        "put .repartition() between the two steps, which makes two tasks of them"
        + ("" if kept.kept_in.outbox else ', or choose processing_guarantee="at_least_once"'),
    )
