"""`check_store`: every promise of the contract, tried on a store of yours or ours."""

from __future__ import annotations

import tempfile
from datetime import timedelta
from pathlib import Path

from penstock.errors import ConfigError, StoreContractError
from penstock.instance.protocol import StoreOrder
from penstock.option_values import imported
from penstock.stores.contract import StoreSupplier
from penstock.testing.contract.case import NAME, Broken, Case, Promises
from penstock.testing.contract.promises import KEY_VALUE
from penstock.testing.contract.window_promises import BY_TIME, VERSIONS, WINDOWS
from penstock.topology.nodes import StoreKind, TimeIndex

_MILLISECOND = timedelta(milliseconds=1)
_INDEXES: dict[StoreKind, TimeIndex] = {
    "key_value": "value_tail",
    "window": "window_start",
    "session": "session_end",
}


def check_store(
    supplier: StoreSupplier | str,
    *,
    kind: StoreKind = "key_value",
    persistent: bool = True,
    keeps_offset: bool = True,
    finds_by_time: bool = False,
    retention: timedelta = timedelta(milliseconds=100),
) -> list[str]:
    """Try every promise of `penstock.stores` on the stores of a supplier; returns what was tried.

    `kind`, `persistent` and `retention` are what the store is to be used as; in a store that
    arranges windows by itself the retention must be its own. With `finds_by_time` it must find
    entries by their time alone, as windows do that give out results at their close. Without
    `keeps_offset` it is one as ours in PostgreSQL is: what it applies is committed at once, so that
    it has no offset to go on from, and all tasks share what says whose it is.

    >>> from penstock.stores.memory import MemoryStore
    >>> tried = check_store(lambda name, directory: MemoryStore(name), persistent=False)
    >>> tried[0]
    'What the supplier gives has the methods of a store.'

    Raises `StoreContractError` with the promise that is broken, and what was seen instead.
    """
    if finds_by_time and kind not in _INDEXES:
        raise ConfigError(f"A {kind} store does not find entries by time alone")
    found = imported(supplier, option="supplier") if isinstance(supplier, str) else supplier
    span = round(retention / _MILLISECOND)
    order = StoreOrder(
        name=NAME,
        kind=kind,
        persistent=persistent,
        retention_ms=0 if kind == "key_value" else span,
        segment_ms=0 if kind == "key_value" else max(span * 3 // 5, 1),
        time_index=_INDEXES[kind] if finds_by_time else None,
    )
    promises = dict(KEY_VALUE)
    if kind != "key_value":
        promises.update(VERSIONS if kind == "versioned" else WINDOWS)
    if finds_by_time:
        promises.update(BY_TIME)
    _try_all(promises, found, order, keeps_offset=keeps_offset)
    return list(promises)


def _try_all(
    promises: Promises, supplier: StoreSupplier, order: StoreOrder, *, keeps_offset: bool
) -> None:
    for promise, check in promises.items():
        with tempfile.TemporaryDirectory(prefix="penstock-store-") as directory:
            case = Case(supplier, order, Path(directory), keeps_offset)
            try:
                check(case)
            except Exception as error:
                what = str(error) if isinstance(error, Broken | AssertionError) else repr(error)
                raise StoreContractError(
                    f"A store breaks a promise. {promise} Here: {what}",
                    where={"promise": check.__name__, "kind": order.kind},
                    hint="penstock.stores.contract says what stores promise, and why",
                ) from error
            finally:
                case.close()
