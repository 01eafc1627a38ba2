"""Copies of stores that instances get from each other, some of which break off."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.changelog.snapshots import Manifest, Snapshot
from penstock.errors import InstanceUnreachableError, SnapshotError
from penstock.instance import early_copies, state
from penstock.instance.state import TaskStores
from penstock.stores.contract import StoreIdentity
from tests.simulation.disk import Files, SimStore
from tests.simulation.world import World

if TYPE_CHECKING:
    from tests.simulation.application import Application
    from tests.simulation.instances import InstanceProcess


@dataclass(frozen=True, kw_only=True)
class SimSnapshot(Snapshot):
    """Snapshot, with what is to be on the disk."""

    files: Files


class SimPeer:
    """PeerSource."""

    def __init__(self, application: Application, location: str) -> None:
        self._application = application
        self._location = location

    def has_copy(self, wanted: StoreIdentity) -> bool:
        """Whether the peer is there, and has the store."""
        return self._found(wanted) is not None

    @contextlib.contextmanager
    def open(self, task: str, wanted: StoreIdentity) -> Iterator[Snapshot | None]:
        """The store as it is there now."""
        files = self._found(wanted)
        if files is None or files.offset is None or files.identity is None:
            yield None
            return
        manifest = Manifest(identity=files.identity, offset=files.offset, files=[])
        yield SimSnapshot(manifest=manifest, pour=lambda file, path: iter(()), files=files)

    def _found(self, wanted: StoreIdentity) -> Files | None:
        try:
            peer = self._application.find(self._location)
        except InstanceUnreachableError:
            return None
        if peer.is_paused or peer.holder is None:
            return None
        task = peer.holder.task(wanted.task)
        if task is not None:
            return _files_of(task.stores.get(wanted.store))
        return _at_rest(peer, wanted)


def _files_of(store: Any) -> Files:
    """What a copy of an open store has, whatever of it is on the disk."""
    assert isinstance(store, SimStore)
    return Files(
        entries=dict(store._entries),
        offset=store._offset,
        identity=store._identity,
        caught_up_at=store._caught_up_at,
        has_more=store._has_more,
    )


def _at_rest(peer: InstanceProcess, wanted: StoreIdentity) -> Files | None:
    stores = peer.world.disk.files.get(peer.directory.name, {}).get(wanted.task, {})
    files = stores.get(wanted.store)
    if files is None or files.is_damaged or wanted.task in peer.directory.locked:
        return None
    return _clone(files)


def _clone(files: Files) -> Files:
    return Files(
        entries=dict(files.entries),
        offset=files.offset,
        identity=files.identity,
        caught_up_at=files.caught_up_at,
        has_more=files.has_more,
    )


def replace_copies(patch: Any, world_of: Callable[[], World]) -> None:
    """Put this in the place of files that are copied; count what happens."""

    def copy(snapshot: SimSnapshot, path: Files, *, stop: Callable[[], bool]) -> None:
        world = world_of()
        world.point("copy.half")
        if stop() or world.random.random() < 0.1:
            world.reached("a copy from a peer broke off")
            raise SnapshotError("simulated: the copy broke off")
        world.reached("a copy came from a peer")
        found = _clone(snapshot.files)
        path.__dict__.update(found.__dict__)

    use_early = TaskStores._use_early

    def used_early(self: TaskStores, order: Any, log: Any) -> list[str]:
        early = self._early._arrived.get(order.name)
        notes = use_early(self, order, log)
        if early is not None and notes:
            world_of().reached("a copy that had come early was used")
            if early.manifest.offset + 1 < log.end:
                world_of().reached("a copy that had come early lacked what was written since")
        return notes

    patch.setattr(early_copies, "copy_snapshot", copy)
    patch.setattr(state, "copy_snapshot", copy)
    patch.setattr(TaskStores, "_use_early", used_early)
