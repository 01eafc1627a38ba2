"""A store for instances to import, which fails as files in the state directory say."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from penstock.observability.crash_points import write_whole
from penstock.stores.rocksdb import RocksDBStore


class FailingStore(RocksDBStore):
    """Fails to read as often as `fails-<task>` says; does not open while `shut-<task>` exists."""

    def __init__(self, name: str, directory: Path) -> None:
        task = directory.parent
        while (task.parent.parent / f"shut-{task.name}").exists():
            time.sleep(0.01)
        self._fails = task.parent.parent / f"fails-{task.name}"
        super().__init__(name, directory)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """What the store holds, unless it is to fail."""
        left = int(self._fails.read_text()) if self._fails.exists() else 0
        if left:
            write_whole(self._fails, str(left - 1))
            raise ConnectionError("the store's server is away")
        return super().get_many(keys)
