"""The state directory: one holder, one application, and no way out of it by a name."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import (
    PenstockError,
    StateDirectoryError,
    StateForeignError,
    StateLockedError,
    TopologyError,
)
from penstock.stores import directory, mounts
from penstock.stores.directory import FileLock, StateDirectory

HOLD = """
import sys
from pathlib import Path
from penstock.stores.directory import StateDirectory
directory = StateDirectory.open(Path(sys.argv[1]), "clinic")
print("held", flush=True)
sys.stdin.read()
"""

AS_NOBODY = """
import os, sys
from pathlib import Path
from penstock.errors import StatePermissionError
from penstock.stores.directory import StateDirectory
from penstock.stores.rocksdb import RocksDBStore
if os.geteuid() == 0:
    os.setuid(65534)
for attempt in (
    lambda path: StateDirectory.open(path, "clinic"),
    lambda path: RocksDBStore("counts", path / "counts"),
):
    try:
        attempt(Path(sys.argv[1]))
    except StatePermissionError as error:
        print(error.code)
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the directory of the application `clinic`."""
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "held\n"
    yield child
    child.kill()
    child.wait()


def test_a_second_process_is_told_who_holds_the_directory(
    tmp_path: Path, holder: subprocess.Popen[str]
) -> None:
    with pytest.raises(StateLockedError, match=f"process {holder.pid} on "):
        StateDirectory.open(tmp_path, "clinic")


def test_the_lock_of_a_killed_process_is_free(
    tmp_path: Path, holder: subprocess.Popen[str]
) -> None:
    holder.kill()
    StateDirectory.open(tmp_path, "clinic", wait=timedelta(seconds=5)).close()


def test_waiting_for_a_lock_ends(tmp_path: Path) -> None:
    first = FileLock.acquire(tmp_path / ".lock")
    now = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    with pytest.raises(StateLockedError):
        FileLock.acquire(
            tmp_path / ".lock", wait=timedelta(seconds=2), clock=lambda: now, sleep=sleep
        )
    assert now == pytest.approx(2, abs=0.2)
    first.release()
    first.release()
    FileLock.acquire(tmp_path / ".lock").release()


def test_the_directory_is_private_and_keeps_its_process_id(tmp_path: Path) -> None:
    with StateDirectory.open(tmp_path / "deep" / "state", "clinic") as first:
        assert stat.S_IMODE(first.path.stat().st_mode) == 0o700
        assert first.tasks() == []
        for task in ("0_3", "1_0"):
            first.lock_task(task).unlock()
    with StateDirectory.open(tmp_path / "deep" / "state", "clinic") as second:
        assert second.process_id == first.process_id
        assert second.tasks() == ["0_3", "1_0"]


def test_a_directory_of_another_application_is_refused(tmp_path: Path) -> None:
    StateDirectory.open(tmp_path, "clinic").close()
    (tmp_path / "clinic").rename(tmp_path / "ward")
    with pytest.raises(StateForeignError, match="'clinic'"):
        StateDirectory.open(tmp_path, "ward")
    # The refusal holds nothing: the rightful owner can go on.
    (tmp_path / "ward").rename(tmp_path / "clinic")
    StateDirectory.open(tmp_path, "clinic").close()


def test_a_directory_with_something_else_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "clinic").mkdir()
    (tmp_path / "clinic" / "kafka-streams-process-metadata").write_text("{}")
    with pytest.raises(StateForeignError, match="kafka-streams-process-metadata"):
        StateDirectory.open(tmp_path, "clinic")


def test_a_crash_before_the_metadata_does_no_harm(tmp_path: Path) -> None:
    (tmp_path / "clinic").mkdir()
    (tmp_path / "clinic" / ".lock").touch()
    (tmp_path / "clinic" / "process-metadata.tmp").write_text('{"proc')
    StateDirectory.open(tmp_path, "clinic").close()


def test_unreadable_metadata_is_named(tmp_path: Path) -> None:
    StateDirectory.open(tmp_path, "clinic").close()
    (tmp_path / "clinic" / "process-metadata").write_text("not json")
    with pytest.raises(StateDirectoryError, match="metadata"):
        StateDirectory.open(tmp_path, "clinic")


def test_a_directory_that_is_not_ours_is_a_permission_error(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    done = subprocess.run(
        [sys.executable, "-c", AS_NOBODY, str(tmp_path)], capture_output=True, text=True
    )
    tmp_path.chmod(0o700)
    assert done.stdout.split() == ["state_permission", "state_permission"], done.stderr


def test_a_file_in_the_way_is_a_directory_error(tmp_path: Path) -> None:
    (tmp_path / "clinic").touch()
    with pytest.raises(StateDirectoryError):
        StateDirectory.open(tmp_path, "clinic")


HOSTILE = ["..", ".", "", "a/b", "../x", "/etc", "a\0b", "a\\b", "é", "x" * 250, "a b", "a\n"]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(TopologyError):
        StateDirectory.open(tmp_path, name)
    with StateDirectory.open(tmp_path, "clinic") as state:
        task = state.lock_task("0_0")
        with pytest.raises(TopologyError):
            task.store_path(name)
        with pytest.raises(StateDirectoryError):
            state.lock_task(name)
        task.unlock()


def test_a_store_lies_inside_its_task_or_is_refused(tmp_path: Path) -> None:
    with StateDirectory.open(tmp_path, "clinic") as state:
        task = state.lock_task("0_0")

        @given(name=st.text(max_size=300))
        def check(name: str) -> None:
            with contextlib.suppress(TopologyError):
                assert task.store_path(name).resolve().parent == task.path.resolve()

        check()
        task.unlock()


def test_a_symbolic_link_does_not_lead_out(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    with StateDirectory.open(tmp_path / "state", "clinic") as state:
        task = state.lock_task("0_0")
        (task.path / "counts").symlink_to(outside)
        with pytest.raises(StateDirectoryError, match="leads out"):
            task.store_path("counts")
        (state.path / "0_1").symlink_to(outside)
        with pytest.raises(StateDirectoryError, match="leads out"):
            state.lock_task("0_1")
        # Wiping removes the link, not what it points to.
        (outside / "kept").touch()
        task.wipe()
        assert (outside / "kept").exists()
        task.unlock()
    (tmp_path / "state" / "ward").symlink_to(outside)
    with pytest.raises(StateDirectoryError, match="leads out"):
        StateDirectory.open(tmp_path / "state", "ward")


def test_wiping_takes_stores_and_checkpoint_and_needs_the_lock(tmp_path: Path) -> None:
    with StateDirectory.open(tmp_path, "clinic") as state:
        task = state.lock_task("0_0")
        for store in ("counts", "sums"):
            task.store_path(store).mkdir()
            (task.store_path(store) / "data").touch()
        task.write_checkpoint({("clinic-counts-changelog", 0): 5})
        task.wipe_store("counts")
        assert task.stores() == ["sums"]
        assert task.read_checkpoint() == {}
        task.wipe()
        assert [entry.name for entry in task.path.iterdir()] == [".lock"]
        task.unlock()
        for forbidden in (
            task.wipe,
            lambda: task.wipe_store("x"),
            lambda: task.write_checkpoint({}),
        ):
            with pytest.raises(StateLockedError):
                forbidden()


def test_copies_that_a_killed_process_was_at_are_gone_with_the_next(tmp_path: Path) -> None:
    """They may be as large as the stores, and who comes next need not copy again."""
    with StateDirectory.open(tmp_path, "clinic") as state:
        tasks = [state.lock_task("0_0"), state.lock_task("1_0"), state.lock_global()]
        for task in tasks:
            task.write_checkpoint({("clinic-counts-changelog", 0): 5})
            for name in ("counts", ".counts.incoming", ".counts.peer", ".counts.snapshot"):
                (task.path / name).mkdir()
                (task.path / name / "data").touch()
            task.unlock()
        (state.path / "kept").mkdir()
        (state.path / "kept" / ".own").mkdir()
        (state.path / "2_0").symlink_to(state.path / "kept")
    with StateDirectory.open(tmp_path, "clinic") as state:
        for task in tasks:
            left = sorted(each.name for each in task.path.iterdir())
            assert left == [".checkpoint", ".lock", "counts"]
            assert (task.path / "counts" / "data").exists()
        assert (state.path / "kept" / ".own").exists()


def test_a_task_is_locked_once(tmp_path: Path) -> None:
    with StateDirectory.open(tmp_path, "clinic") as state:
        task = state.lock_task("0_0")
        with pytest.raises(StateLockedError, match=f"process {os.getpid()} on "):
            state.lock_task("0_0")
        task.unlock()
        state.lock_task("0_0").unlock()


def test_a_file_system_without_locks_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(descriptor: int, how: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    # One that says so, and one that grants a lock to everyone who asks.
    for flock in (unsupported, lambda descriptor, how: None):
        with monkeypatch.context() as patched:
            patched.setattr(directory.fcntl, "flock", flock)
            with pytest.raises(StateDirectoryError, match="no working locks"):
                StateDirectory.open(tmp_path, "clinic")
    StateDirectory.open(tmp_path, "clinic").close()


@pytest.mark.parametrize(
    ("mounted", "how"),
    [
        ("nfs rw,vers=3,nolock,local_lock=all", "nfs with nolock"),
        ("nfs rw,vers=3,hard,local_lock=all", "nfs with local_lock=all"),
        ("nfs4 rw,vers=4.2,local_lock=flock", "nfs4 with local_lock=flock"),
        ("cifs rw,nobrl", "cifs with nobrl"),
        ("fuse.sshfs rw,user_id=0", "fuse.sshfs"),
        ("afs rw,flock=local", "afs with flock=local"),
        ("nfs4 rw,vers=4.2,local_lock=none", ""),
        ("nfs rw,vers=3,local_lock=posix", ""),
        ("ext4 rw,nolock", ""),
        ("fuse.glusterfs rw", ""),
    ],
)
def test_locks_that_hold_on_one_host_alone_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mounted: str, how: str
) -> None:
    volume = tmp_path / "a volume"
    (volume / "inner").mkdir(parents=True)
    table = tmp_path / "mounts"
    point = str(volume.resolve()).replace(" ", r"\040")
    lines = ["/dev/a / ext4 rw", f"old:/ {point} nfs rw,nolock", f"host:/ {point} {mounted}"]
    # What is mounted beside it, or in it, is not its own.
    lines += [f"host:/ {point}2 nfs rw,nolock", f"host:/ {point}/inner nfs rw,nolock", "cut off"]
    table.write_text("".join(f"{line} 0 0\n" for line in lines))
    monkeypatch.setattr(mounts, "MOUNTS", table)
    link = tmp_path / "link"
    link.symlink_to(volume)
    for state_dir in (volume, link):
        if how:
            with pytest.raises(StateDirectoryError, match=re.escape(f"alone ({how}): ")) as refused:
                StateDirectory.open(state_dir, "clinic")
            assert refused.value.where["path"] == volume / "clinic"
            assert "local disk" in refused.value.hint
        else:
            StateDirectory.open(state_dir, "clinic").close()
    # Nobody tells, on other systems.
    monkeypatch.setattr(mounts, "MOUNTS", tmp_path / "none")
    StateDirectory.open(volume, "clinic").close()


@pytest.mark.parametrize(
    ("mounted", "how"),
    [
        ("host fuse.unheard-of rw,user_id=0", "fuse.unheard-of"),
        ("https://host/dav fuse rw", "fuse"),
        ("share virtiofs rw", "virtiofs"),
        ("share 9p rw,access=client,trans=virtio", "9p"),
        ("beegfs_nodev beegfs rw,cfgFile=/etc/beegfs/beegfs-client.conf", "beegfs"),
        ("none 9p rw,trans=fd,rfd=4,wfd=4", ""),
        ("host:/volume fuse.glusterfs rw", ""),
        ("fuse-overlayfs fuse.fuse-overlayfs rw", ""),
        ("/dev/sdb1 fuseblk rw", ""),
        ("overlay overlay rw,lowerdir=/a,upperdir=/b", ""),
    ],
)
def test_locks_of_which_nobody_knows_how_far_they_reach_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mounted: str, how: str
) -> None:
    source, rest = mounted.split(" ", 1)
    table = tmp_path / "mounts"
    table.write_text(f"/dev/a / ext4 rw 0 0\n{source} {tmp_path.resolve()} {rest} 0 0\n")
    monkeypatch.setattr(mounts, "MOUNTS", table)
    with StateDirectory.open(tmp_path / "state", "clinic") as state:
        told = [f"{state.path} is on {how}, whose locks may hold on this machine alone"]
        assert [note[len("The state directory ") :].partition(":")[0] for note in state.notes] == (
            told if how else []
        )


def test_a_bucket_that_is_mounted_by_its_programs_name_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "mounts"
    table.write_text(f"mountpoint-s3 {tmp_path.resolve()} fuse rw,user_id=0 0 0\n")
    monkeypatch.setattr(mounts, "MOUNTS", table)
    with pytest.raises(StateDirectoryError, match=r"alone \(fuse.mountpoint-s3\): "):
        StateDirectory.open(tmp_path / "state", "clinic")


def test_tasks_that_nobody_holds_leave_after_a_while(tmp_path: Path) -> None:
    delay = timedelta(minutes=10)
    failed: list[PenstockError] = []
    with StateDirectory.open(tmp_path, "clinic") as state:
        held, coming = state.lock_task("0_0"), state.lock_task("0_1")
        moved = state.lock_task("1_11")
        for task in (held, coming, moved):
            task.store_path("counts").mkdir()
            (task.store_path("counts") / "data").touch()
            os.utime(task.path, (0, 0))
            os.utime(task.path / ".lock", (0, 0))
        (state.path / "global").mkdir()
        coming.unlock()
        moved.unlock()
        # Letting it go is when its age begins.
        now = (state.path / "1_11").stat().st_mtime
        assert now > 0
        assert state.remove_unused(delay, now=now + 599, keep=["0_1"], failed=failed.append) == []
        assert state.tasks() == ["0_0", "0_1", "1_11"]
        # One whose owner was killed is as old as its lock.
        os.utime(state.path / "1_11", (0, 0))
        os.utime(state.path / "1_11" / ".lock", (now, now))
        assert state.remove_unused(delay, now=now + 599, keep=["0_1"], failed=failed.append) == []
        # One that was cut off while it deleted is finished by the next.
        (state.path / ".removed-0_9").mkdir()
        assert state.remove_unused(delay, now=now + 601, keep=["0_1"], failed=failed.append) == [
            "1_11"
        ]
        names = sorted(entry.name for entry in state.path.iterdir())
        assert names == [".lock", "0_0", "0_1", "global", "process-metadata"]
        assert (held.path / "counts" / "data").exists()
        assert failed == []
        # Who takes the task later finds nothing.
        again = state.lock_task("1_11")
        assert again.stores() == []
        again.unlock()
        # One that cannot be deleted does not keep the others.
        for name in ("0_5", "2_0"):
            (state.path / name).symlink_to(tmp_path)
        gone = state.remove_unused(delay, now=time.time() + 601, failed=failed.append)
        assert gone == ["0_1", "1_11"]
        assert len(failed) == 2
        assert "leads out of the state directory" in str(failed[0])
        held.unlock()
