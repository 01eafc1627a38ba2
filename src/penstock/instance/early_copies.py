"""Copies of stores that come while Kafka is still asked where their task stands.

Most of taking a task is waiting for Kafka, in which a peer's copy can come. Whether it is of use is
known only afterwards: it must be of what the changelog goes on from.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from penstock.changelog.reading import never
from penstock.changelog.snapshots import Snapshot, SnapshotSource, copy_snapshot
from penstock.errors import PenstockError, SnapshotError
from penstock.stores.contract import StoreIdentity
from penstock.stores.directory import TaskDirectory


class Peer(SnapshotSource, Protocol):
    """Another instance, which says soon whether it has a copy to give."""

    def has_copy(self, wanted: StoreIdentity) -> bool:
        """Whether it has a store."""


class EarlyCopies:
    """Copies the stores that a locked directory lacks, in a thread, one after the other."""

    def __init__(
        self,
        directory: TaskDirectory | None,
        wanted: Mapping[str, StoreIdentity],
        *,
        name: str = "",
        peers: Sequence[Peer] = (),
        stop: Callable[[], bool] = never,
    ) -> None:
        """`name` is the task's durable name."""
        self._directory = directory
        self._name = name
        self._peers = peers
        self._stop = stop
        self._ended = threading.Event()
        # While it is copied, whoever wants the store waits; nobody waits for a peer's first word.
        self._idle = threading.Condition()
        self._is_copying = False
        self._arrived: dict[str, Snapshot] = {}
        self._failures: dict[str, list[str]] = {}
        self._tried: list[tuple[str, SnapshotSource]] = []
        self.thread: threading.Thread | None = None
        if directory is not None:
            # What is there is this instance's own, and newer than nothing.
            missing = {
                store: identity
                for store, identity in wanted.items()
                if not directory.store_path(store).exists()
            }
            self.thread = threading.Thread(
                target=self._copy_all,
                args=(directory, missing),
                name=f"early-{directory.task}",
                daemon=True,
            )
            self.thread.start()

    def wait(self) -> None:
        """Return once nothing comes any more; what no peer has promised yet is given up."""
        with self._idle:
            self._idle.wait_for(lambda: not self._is_copying)
            self._ended.set()

    def end(self) -> None:
        """Give up what is on its way; what came whole stays on the disk, as after any cut."""
        self._ended.set()
        self.wait()

    def take(self, store: str) -> tuple[Snapshot | None, list[str]]:
        """What was copied into a store's place, once, and what went wrong."""
        return self._arrived.pop(store, None), self._failures.pop(store, [])

    def was_tried(self, store: str, source: SnapshotSource) -> bool:
        """Whether a source has given a copy of the store already, which was of no use."""
        return any(each == store and tried is source for each, tried in self._tried)

    def _is_over(self) -> bool:
        return self._ended.is_set() or self._stop()

    def _copy_all(self, directory: TaskDirectory, missing: Mapping[str, StoreIdentity]) -> None:
        for wanted in missing.values():
            for peer in itertools.takewhile(lambda _: not self._is_over(), self._peers):
                if peer.has_copy(wanted) and self._copy(directory, wanted, peer):
                    break

    def _copy(self, directory: TaskDirectory, wanted: StoreIdentity, peer: Peer) -> bool:
        with self._idle:
            if self._ended.is_set():
                return False  # The directory may be others' by now.
            self._is_copying = True
        store = wanted.store
        try:
            with peer.open(self._name, wanted) as snapshot:
                # One that has none yet may have it when the task's owner asks.
                if snapshot is None or snapshot.manifest.identity != wanted:
                    return False
                self._tried.append((store, peer))
                directory.wipe_store(store)
                copy_snapshot(snapshot, directory.store_path(store), stop=self._is_over)
            self._arrived[store] = snapshot
        except SnapshotError as error:
            self._tried.append((store, peer))
            self._failures.setdefault(store, []).append(str(error))
        except PenstockError:
            pass  # Whoever opens the store finds the same, and says so.
        finally:
            with self._idle:
                self._is_copying = False
                self._idle.notify_all()
        return store in self._arrived


NONE_EARLY = EarlyCopies(None, {})
"""Of a task that asks nobody."""
