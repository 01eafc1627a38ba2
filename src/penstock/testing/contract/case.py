"""What the promises are tried on: a store of some kind in a directory of its own."""

from __future__ import annotations

import contextlib
import shutil
import struct
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from penstock.instance.open_stores import shaped
from penstock.instance.protocol import StoreOrder
from penstock.serdes.windowed import session_key, window_key
from penstock.stores.contract import (
    ByteStore,
    Change,
    Entry,
    KeyValueStore,
    StoreIdentity,
    StoreSupplier,
    WindowStore,
    stored_value,
    version_key,
)
from penstock.stores.custom import CustomStore, CustomWindowStore

NAME = "checked"
_TIME = struct.Struct(">q")
_COPIES_MAX = 200


class Broken(Exception):  # noqa: N818 - never leaves this package
    """A promise is not kept; the text says what was seen."""


def expect(holds: bool, what: str) -> None:
    """Raise `Broken` unless it holds."""
    if not holds:
        raise Broken(what)


@dataclass
class Case:
    """A store under test, opened as an instance would open it."""

    supplier: StoreSupplier
    order: StoreOrder
    directory: Path
    keeps_offset: bool = True
    _open: list[KeyValueStore] = field(default_factory=list)

    @property
    def persistent(self) -> bool:
        """Whether the store is to hold what it held when it is opened again."""
        return self.order.persistent

    @property
    def identity(self) -> StoreIdentity:
        """Whose the store is; where it keeps no offset, no task's and no changelog's."""
        own = self.keeps_offset
        return StoreIdentity(
            application_id="clinic",
            task="0_3" if own else "",
            store=NAME,
            changelog_topic="clinic-checked-changelog" if own else "",
            changelog_topic_id="id" if own else "",
        )

    def kept(self, number: int) -> int | None:
        """What a store says that was told this offset, or this time of having been caught up."""
        return number if self.keeps_offset else None

    def raw(self, directory: Path | None = None) -> KeyValueStore:
        """What the supplier gives."""
        path = self.directory / NAME if directory is None else directory
        path.mkdir(parents=True, exist_ok=True)
        store = self.supplier(NAME, path)
        self._open.append(store)
        return store

    def open(self, directory: Path | None = None) -> KeyValueStore:
        """The store of the kind that is checked."""
        store = self.raw(directory)
        if self.order.kind == "key_value" and self.order.time_index is None:
            return store
        where = {"store": NAME}
        if isinstance(store, WindowStore):
            return CustomWindowStore(store, name=NAME, where=where)
        inner: ByteStore = CustomStore(store, name=NAME, where=where)
        return shaped(inner, self.order)

    def crashed(self) -> Path:
        """The directory as it is now, as a killed process would leave it."""
        copy = Path(tempfile.mkdtemp(dir=self.directory, prefix="crashed-")) / NAME
        still_copy(self.directory / NAME, copy)
        return copy

    def close(self) -> None:
        """Close what a check left open."""
        for store in self._open:
            with contextlib.suppress(Exception):
                store.close()

    def key(self, number: int, time: int = 10) -> bytes:
        """A key; those of higher numbers come later in the order of bytes."""
        name = b"%06d" % number
        if self.order.kind == "window":
            return window_key(name, time)
        return session_key(name, 0, time) if self.order.kind == "session" else name

    def value(self, number: int) -> bytes:
        """A stored value of that time; its last 8 bytes can be read as a time too."""
        return stored_value(number, b"-%d-" % number + _TIME.pack(number))

    def put(self, key: int, number: int) -> Change:
        """The change that gives a key the value of this number."""
        return self._changed(key, number), self.value(number)

    def drop(self, key: int, number: int) -> Change:
        """The change that deletes a key; higher numbers come later."""
        return self._changed(key, number), None

    def changes(self, count: int, number: int) -> Iterator[Change]:
        """That many keys, all with the value of this number."""
        return (self.put(each, number) for each in range(count))

    def entries(self, count: int, number: int) -> list[Entry]:
        """What these changes make of an empty store."""
        return [(self.key(each), self.value(number)) for each in range(count)]

    def _changed(self, key: int, number: int) -> bytes:
        """Changes of a store of versions name the time, too."""
        name = self.key(key)
        return version_key(name, number) if self.order.kind == "versioned" else name


def still_copy(source: Path, target: Path) -> None:
    """Copy a directory whose files may change meanwhile, as it was at one moment."""
    for _ in range(_COPIES_MAX):
        before = _listing(source)
        with contextlib.suppress(OSError, shutil.Error):
            shutil.copytree(source, target)
            if _listing(source) == before:
                return
        shutil.rmtree(target, ignore_errors=True)
    raise Broken("the store's files never stand still, although nobody writes")


def _listing(directory: Path) -> list[tuple[str, int, int]]:
    with contextlib.suppress(OSError):
        files = sorted(each for each in directory.rglob("*") if each.is_file())
        stats = [(str(each), each.stat()) for each in files]
        return [(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats]
    return []


def content(store: KeyValueStore) -> list[Entry]:
    """Everything in a store."""
    return store.range(limit=1_000_000)


Check = Callable[[Case], None]
Promises = dict[str, Check]
