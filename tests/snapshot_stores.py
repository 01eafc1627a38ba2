"""Snapshots of stores of texts and numbers, as instances write them."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from penstock.changelog.snapshots import Manifest, SnapshotLocation, read_files
from penstock.instance.open_stores import shaped
from penstock.instance.protocol import StoreOrder
from penstock.serdes import serde_of
from penstock.serdes.windowed import session_key, window_key
from penstock.stores.contract import StoreIdentity, stored_value
from penstock.stores.rocksdb import RocksDBStore

_LONG_AGO_MS = 10**12


def write_snapshot(
    location: Path,
    application_id: str,
    store: str,
    partition: int,
    entries: Sequence[tuple[Any, ...]],
    *,
    kind: str = "key_value",
    written_ms: int = 0,
    keep: int = 1,
) -> None:
    """Entries are key, value and time, and the start and end of a window where there is one."""
    layout = kind if kind == "key_value" else f"{kind} segment_ms=60000"
    identity = StoreIdentity(
        application_id=application_id,
        task=f"0_{partition}",
        store=store,
        changelog_topic=f"{application_id}-{store}-changelog",
        changelog_topic_id="id",
        layout=layout,
    )
    with tempfile.TemporaryDirectory() as directory:
        inner = RocksDBStore(store, Path(directory) / store)
        inner.set_identity(identity)
        order = StoreOrder.of_layout(store, layout, retention_ms=_LONG_AGO_MS)
        shaped(inner, order).apply([_entry(kind, *each) for each in entries], offset=len(entries))
        copy = Path(directory) / "copy"
        inner.checkpoint(copy)
        inner.close()
        manifest = Manifest(
            identity=identity,
            offset=len(entries),
            files=read_files(copy),
            written_ms=written_ms,
        )
        SnapshotLocation(location.as_uri(), application_id, keep=keep).write(
            f"sub-{partition}", manifest, copy
        )


def _entry(
    kind: str, key: str, value: int, time: int, start: int = 0, end: int = 0
) -> tuple[bytes, bytes]:
    data = serde_of(str).serialize(key)
    if kind == "window":
        data = window_key(data, start)
    elif kind == "session":
        data = session_key(data, start, end)
    return data, stored_value(time, serde_of(int).serialize(value))
