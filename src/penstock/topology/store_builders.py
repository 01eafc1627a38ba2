"""What makes stores for processors, to be added with `add_state_store`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

from penstock.errors import TopologyError
from penstock.topology.changelogs import Logging, RecoverFrom
from penstock.topology.external import PostgreSQL
from penstock.topology.processor import Shape, StoreBuilder
from penstock.topology.spans import check_span

_MILLISECOND = timedelta(milliseconds=1)
# Histories up to a length, into how many segments they are cut, and how long one is at least.
_SEGMENTS = (
    (timedelta(minutes=1), 3, timedelta(seconds=2)),
    (timedelta(minutes=5), 5, timedelta(seconds=20)),
    (timedelta(hours=1), 12, timedelta(minutes=1)),
)


def lru_store(
    name: str,
    *,
    key: Any,
    value: Any,
    max_entries: int,
    logging: Logging = True,
    recover_from: RecoverFrom = "changelog",
) -> StoreBuilder:
    """A key-value store that forgets the key which was not used for longest, when it is full.

    >>> lru_store("recent", key=str, value=int, max_entries=10).max_entries
    10
    """
    return StoreBuilder(
        name, key, value, logging=logging, recover_from=recover_from, max_entries=max_entries
    )


def key_value_store(
    name: str,
    *,
    key: Any,
    value: Any,
    persistent: bool = True,
    logging: Logging = True,
    recover_from: RecoverFrom = "changelog",
    supplier: str | None = None,
    kept_in: PostgreSQL | None = None,
) -> StoreBuilder:
    """A key-value store for processors; with `kept_in` a database keeps it.

    `supplier` names, as `module:name`, what opens a store of yours on every instance:
    `supplier(name, directory)` gives a `penstock.stores.KeyValueStore`.

    >>> key_value_store("seen", key=str, value=int).kind
    'key_value'
    """
    return StoreBuilder(
        name,
        key,
        value,
        persistent=persistent,
        logging=logging,
        recover_from=recover_from,
        supplier=supplier,
        kept_in=kept_in,
    )


def timestamped_key_value_store(
    name: str,
    *,
    key: Any,
    value: Any,
    persistent: bool = True,
    logging: Logging = True,
    recover_from: RecoverFrom = "changelog",
    supplier: str | None = None,
    kept_in: PostgreSQL | None = None,
) -> StoreBuilder:
    """As `key_value_store`, of values that have times of their own: `ValueAndTimestamp`s.

    >>> timestamped_key_value_store("seen", key=str, value=int).timestamped
    True
    """
    plain = key_value_store(
        name,
        key=key,
        value=value,
        persistent=persistent,
        logging=logging,
        recover_from=recover_from,
        supplier=supplier,
        kept_in=kept_in,
    )
    return replace(plain, timestamped=True)


def custom_store(
    name: str,
    made_of: str | Callable[..., Any],
    *,
    persistent: bool = True,
    logging: Logging = True,
    supplier: str | None = None,
    **options: Any,
) -> StoreBuilder:
    """A store with a shape of its own: processors are given `made_of(store, **options)`.

    `made_of` is a class, or where it is as `module:name`. It is called for each slice with a
    `SliceStore` of bytes, and decides by itself under which keys it keeps what: that is also its
    changelog's format. Its method `flush()`, if it has one, is called at the slice's end.

    >>> custom_store("visits", "mypackage:CountMinSketch", depth=4).shape.options
    {'depth': 4}
    """
    return StoreBuilder(
        name,
        bytes,
        bytes,
        persistent=persistent,
        logging=logging,
        supplier=supplier,
        shape=Shape(made_of, options),
    )


def window_store(
    name: str,
    *,
    key: Any,
    value: Any,
    retention: timedelta,
    window: timedelta,
    persistent: bool = True,
    logging: Logging = True,
    recover_from: RecoverFrom = "changelog",
    supplier: str | None = None,
) -> StoreBuilder:
    """A window store for processors; entries older than `retention` expire.

    Raises `TopologyError` for windows that would expire before they end.
    """
    check_span(window, f"The window of store {name!r}")
    check_span(retention, f"The retention of store {name!r}")
    if window < timedelta(0) or retention < window:
        raise TopologyError(
            f"The store {name!r} keeps windows of {window} for {retention}",
            hint="Let retention be at least the window, and neither be negative",
        )
    return StoreBuilder(
        name,
        key,
        value,
        kind="window",
        persistent=persistent,
        logging=logging,
        recover_from=recover_from,
        supplier=supplier,
        retention=retention,
        window=window,
    )


def timestamped_window_store(
    name: str,
    *,
    key: Any,
    value: Any,
    retention: timedelta,
    window: timedelta,
    persistent: bool = True,
    logging: Logging = True,
    recover_from: RecoverFrom = "changelog",
    supplier: str | None = None,
) -> StoreBuilder:
    """As `window_store`, of values that have times of their own: `ValueAndTimestamp`s."""
    plain = window_store(
        name,
        key=key,
        value=value,
        retention=retention,
        window=window,
        persistent=persistent,
        logging=logging,
        recover_from=recover_from,
        supplier=supplier,
    )
    return replace(plain, timestamped=True)


def session_store(
    name: str,
    *,
    key: Any,
    value: Any,
    retention: timedelta,
    persistent: bool = True,
    logging: Logging = True,
    recover_from: RecoverFrom = "changelog",
    supplier: str | None = None,
) -> StoreBuilder:
    """A session store for processors; sessions that ended longer ago than `retention` expire."""
    check_span(retention, f"The retention of store {name!r}")
    if retention < timedelta(0):
        raise TopologyError(
            f"The store {name!r} keeps sessions for {retention}",
            hint="Let retention be 0 or more",
        )
    return StoreBuilder(
        name,
        key,
        value,
        kind="session",
        persistent=persistent,
        logging=logging,
        recover_from=recover_from,
        supplier=supplier,
        retention=retention,
    )


def versioned_store(
    name: str,
    *,
    history_retention: timedelta,
    segment_interval: timedelta | None = None,
    key: Any = None,
    value: Any = None,
    persistent: bool = True,
    logging: Logging = True,
    recover_from: RecoverFrom = "changelog",
    supplier: str | None = None,
) -> StoreBuilder:
    """A store that knows what each key was in the last `history_retention` of stream time.

    It goes where a table's store is named, or into `add_state_store` for processors, and only there
    `key` and `value` are to be said. What is older than the history is no longer accepted.
    Versions leave the disk a `segment_interval` at a time.

    >>> versioned_store("prices", history_retention=timedelta(hours=1)).segment_interval
    datetime.timedelta(seconds=300)

    Raises `TopologyError` for a negative history or an interval that is not positive.
    """
    check_span(history_retention, f"The history_retention of store {name!r}")
    if segment_interval is not None:
        check_span(segment_interval, f"The segment_interval of store {name!r}")
    if history_retention < timedelta(0) or (
        segment_interval is not None and segment_interval < _MILLISECOND
    ):
        raise TopologyError(
            f"The store {name!r} has a history of {history_retention} in segments of "
            f"{segment_interval}",
            hint="A history is not negative, and a segment lasts a millisecond or more",
        )
    return StoreBuilder(
        name,
        key,
        value,
        kind="versioned",
        persistent=persistent,
        logging=logging,
        recover_from=recover_from,
        supplier=supplier,
        retention=history_retention,
        segment_interval=segment_interval or _segment_interval(history_retention),
    )


def _segment_interval(history: timedelta) -> timedelta:
    """Kafka Streams' choice: the longer the history, the more segments."""
    for most, parts, least in _SEGMENTS:
        if history <= most:
            return max(history / parts, least)
    return max(history / 24, timedelta(minutes=5))
