"""Disks that outlive a process: stores of which a crash forgets what was not flushed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.errors import StateLockedError, StoreDamagedError
from penstock.stores.contract import Change, StoreIdentity
from penstock.stores.memory import MemoryStore
from tests.simulation.broker import Log
from tests.simulation.world import Process, ViolationError, World, WouldBlock


@dataclass
class Files:
    """What is durable of a store."""

    entries: dict[bytes, bytes] = field(default_factory=dict)
    offset: int | None = None
    identity: StoreIdentity | None = None
    caught_up_at: int | None = None
    has_more: bool = False
    """A crash between two chunks left more in it than its offset says."""
    is_damaged: bool = False
    is_standby: bool = False
    """A standby wrote to it last."""

    def exists(self) -> bool:
        """Whether there is anything on the disk."""
        return self.identity is not None or self.is_damaged


class SimStore(MemoryStore):
    """A store with files; what is applied gets there when it is flushed, or by chance before."""

    def __init__(self, name: str, files: Files, world: World) -> None:
        super().__init__(name)
        self.files = files
        self._world = world
        if files.is_damaged:
            world.reached("a damaged store was rebuilt")
            raise StoreDamagedError("simulated damage", where={"store": name})
        self._entries = dict(files.entries)
        self._keys = sorted(self._entries)
        self._offset = files.offset
        self._identity = files.identity
        self._caught_up_at = files.caught_up_at
        self._has_more = files.has_more
        self._more_until = self._changelog_end() if files.has_more else -1

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        # Not always at the first opportunity: another run of the slice may have read before.
        if self._world.random.random() < 0.5 and self._world.strikes("store damaged in use"):
            raise StoreDamagedError("simulated damage", where={"store": self.name})
        return super().get_many(keys)

    def apply(self, changes: Any, *, offset: int | None) -> None:
        changes = list[Change](changes)
        super().apply(changes, offset=offset)
        if offset is not None and offset >= self._more_until:
            self._has_more = False
            self._compare(offset)
        elif changes:
            self._has_more = True
        if self._world.random.random() < 0.3:
            self.flush()

    def flush(self) -> None:
        super().flush()
        files = self.files
        files.entries, files.offset = dict(self._entries), self._offset
        files.identity, files.caught_up_at = self._identity, self._caught_up_at
        files.has_more = self._has_more

    def _changelog(self) -> Log | None:
        identity = self._identity
        if identity is None or not identity.changelog_topic:
            return None
        partition = int(identity.task.rpartition("_")[2])
        return self._world.broker.log((identity.changelog_topic, partition))

    def _changelog_end(self) -> int:
        """The last offset by now: no more than that was written to the store."""
        log = self._changelog()
        return -1 if log is None else log.last_committed

    def _compare(self, offset: int) -> None:
        """Whoever holds a changelog up to an offset holds what is committed there, be it the owner
        or one who follows.
        """
        log = self._changelog()
        if log is None:
            return
        assert self._identity is not None
        state = log.state_at(offset)
        self._world.compared += 1
        if state != {key: value[8:] for key, value in self._entries.items()}:
            raise ViolationError(
                f"task {self._identity.task}: a store differs from its changelog at offset "
                f"{offset}: {self._entries}, not {state}"
            )


class Disk:
    """The state directories, by name."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.files: dict[str, dict[str, dict[str, Files]]] = {}
        """By directory, task and store."""
        self.holders: dict[str, Process] = {}

    def take_free(self, process: Process) -> SimStateDirectory:
        """The first directory that no living process holds."""
        number = 0
        while (holder := self.holders.get(f"d{number}")) is not None and not holder.dead:
            number += 1
        name = f"d{number}"
        self.holders[name] = process
        return SimStateDirectory(self.world, name)

    def wipe(self, name: str) -> None:
        """A disk is lost."""
        self.files.pop(name, None)

    def damage(self, name: str) -> bool:
        """A store's files cannot be read any more; False if there are none."""
        found = [
            files
            for stores in self.files.get(name, {}).values()
            for files in stores.values()
            if files.identity
        ]
        if found:
            self.world.random.choice(found).is_damaged = True
        return bool(found)


class SimStateDirectory:
    """StateDirectory."""

    application_id = "app"

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.locked: set[str] = set()

    def checkpoints(self, *, but: Collection[str] = ()) -> dict[str, dict[str, int]]:
        """How far the stores are that nobody holds."""
        found: dict[str, dict[str, int]] = {}
        for task, stores in self.world.disk.files.get(self.name, {}).items():
            for files in stores.values():
                if task not in but and files.identity is not None and files.offset is not None:
                    found.setdefault(task, {})[files.identity.changelog_topic] = files.offset + 1
        return found

    def lock_task(self, task: str, wait: object = None) -> SimTaskDirectory:
        """A task's directory, for one at a time."""
        if task in self.locked:
            if wait:
                raise WouldBlock
            raise StateLockedError("simulated: another task object holds the directory")
        self.locked.add(task)
        return SimTaskDirectory(self, task)


class SimTaskDirectory:
    """TaskDirectory."""

    def __init__(self, parent: SimStateDirectory, task: str) -> None:
        self._parent = parent
        self.task = self._task = task
        self._is_locked = True

    def store_path(self, store: str) -> Files:
        """Where a store's files are; here the files themselves."""
        self._check()
        tasks = self._parent.world.disk.files.setdefault(self._parent.name, {})
        return tasks.setdefault(self._task, {}).setdefault(store, Files())

    def wipe_store(self, store: str) -> None:
        """Delete them."""
        self._check()
        tasks = self._parent.world.disk.files.setdefault(self._parent.name, {})
        tasks.setdefault(self._task, {}).pop(store, None)

    def write_checkpoint(self, offsets: dict[tuple[str, int], int]) -> None: ...

    def unlock(self) -> None:
        """Let others in."""
        self._is_locked = False
        self._parent.locked.discard(self._task)

    def _check(self) -> None:
        if not self._is_locked:
            raise ViolationError(f"the directory of {self._task} is used by who has let others in")
