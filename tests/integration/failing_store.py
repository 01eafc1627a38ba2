"""A store for instances to import that fails as often as a file beside the state says."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from penstock.stores.rocksdb import RocksDBStore


class FailingStore(RocksDBStore):
    """Fails to read as many times as the file `fails-<task>` in the state directory says."""

    def __init__(self, name: str, directory: Path) -> None:
        super().__init__(name, directory)
        task = directory.parent
        self._fails = task.parent.parent / f"fails-{task.name}"

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """What the store holds, unless it is to fail."""
        left = int(self._fails.read_text()) if self._fails.exists() else 0
        if left:
            self._fails.write_text(str(left - 1))
            raise ConnectionError("the store's server is away")
        return super().get_many(keys)
