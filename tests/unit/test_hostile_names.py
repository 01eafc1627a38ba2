"""Names cannot become paths: whatever an application, a store, a task or a file is called, nothing
is touched outside of the state directory, and the refusal is an error of ours.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock import Application, StreamsBuilder
from penstock.changelog.snapshots import (
    Manifest,
    Snapshot,
    SnapshotFile,
    SnapshotLocation,
    copy_snapshot,
)
from penstock.errors import PenstockError
from penstock.instance.peers import PeerCopies, listener_for
from penstock.instance.process import _open_directory
from penstock.instance.protocol import CopyReply, CopyRequest, encode
from penstock.option_values import check_group_instance_id
from penstock.stores.contract import StoreIdentity
from penstock.stores.directory import StateDirectory

COUNT = 10_000
PIECES = [
    *("..", ".", "/", "//", "\\", "~", "$HOME", "%2e%2e%2f", "..%00", "\0", "\n", "\r", "\x1b[2J"),
    *("CON", "NUL", "a", "counts", "0_3", "tmp", "etc", "passwd", "C:", ":", "*", "?", "'", '"'),
    *("\u2024\u2024", "\uff0f", "\u202e", "\ud800", "ä", "日本", "\U0001f4a9", " ", "\t", "-", "_"),
    *("\u0663_\u0664", "x" * 250, "../" * 40, "/proc/self/cwd", "file:///etc", "&&", "$(id)", "{}"),
]


def names() -> Iterator[str]:
    """Pieces of paths, control signs, look-alikes and long ones, put together; always the same."""
    known = ("", ".", "..", "/", "../x", "/etc/passwd", "a/../../b", ".lock", ".checkpoint")
    yield from known
    choices, seen = random.Random(7), set(known)
    while True:
        name = "".join(choices.choices(PIECES, k=choices.randint(1, 5)))
        if name not in seen:
            seen.add(name)
            yield name


def identity(store: str, task: str = "0_0") -> StoreIdentity:
    return StoreIdentity(
        application_id="clinic",
        store=store,
        task=task,
        changelog_topic="c",
        changelog_topic_id="i",
    )


def pour(file: SnapshotFile, target: Path) -> Iterator[None]:
    target.write_bytes(b"!")
    yield


def everything_below(directory: Path) -> set[str]:
    return {os.fspath(path) for path in directory.rglob("*")}


@pytest.fixture
def state(tmp_path: Path) -> Iterator[StateDirectory]:
    with StateDirectory.open(tmp_path / "state", "clinic") as directory:
        yield directory


def test_no_name_leaves_the_state_directory(tmp_path: Path, state: StateDirectory) -> None:
    task = state.lock_task("0_0")
    (tmp_path / "location").mkdir()
    location = SnapshotLocation((tmp_path / "location").as_uri(), "clinic")
    copies = PeerCopies(state, None, lambda task: None, listener=listener_for("", tmp_path))

    def open_application(name: str) -> None:
        StateDirectory.open(tmp_path / "state", name).close()

    def open_slot(name: str) -> None:
        if name != "*":
            _open_directory(tmp_path / "state", "clinic-2", name).close()

    def put_store(name: str) -> None:
        task.store_path(name).mkdir(exist_ok=True)
        with task.scratch(name, "peer") as path:
            path.mkdir()

    def copy_file(name: str) -> None:
        manifest = Manifest(identity=identity("s"), offset=1, files=[SnapshotFile(name, 1, None)])
        copy_snapshot(Snapshot(manifest, pour), task.path / "s")

    def ask_peer(name: str) -> None:
        with contextlib.suppress(UnicodeEncodeError):  # Such a name cannot come over the wire.
            for body in (identity(name), identity("s", task=name)):
                reply = copies.actions["has_copy"](encode(CopyRequest(identity=body)))
                assert isinstance(reply, CopyReply)
                assert not reply.here

    uses: list[Callable[[str], object]] = [
        Application,
        open_application,
        open_slot,
        state.lock_task,
        put_store,
        copy_file,
        ask_peer,
        lambda name: location.manifest(name, "s"),
        lambda name: location.manifest("t", name),
        lambda name: SnapshotLocation((tmp_path / "location").as_uri(), name),
        check_group_instance_id,
        lambda name: StreamsBuilder().stream(name, key=str, value=str).to(name),
        lambda name: StreamsBuilder().table("t", name, key=str, value=str),
    ]
    outside = everything_below(tmp_path) - everything_below(tmp_path / "state")
    refusals: list[str] = []
    tried = set(itertools.islice(names(), COUNT))
    assert len(tried) == COUNT
    for name in tried:
        for use in uses:
            try:
                use(name)
            except PenstockError as error:
                refusals.append(str(error))
    copies.close()
    assert everything_below(tmp_path) - everything_below(tmp_path / "state") == outside
    assert len(refusals) > len(tried) * len(uses) * 0.8
    # Nor does a name do anything to the terminal that shows it.
    assert not any("\x1b" in text or "\n" in text for text in refusals)
    # Whatever was let in lies where it belongs.
    for path in (tmp_path / "state").rglob("*"):
        assert path.resolve().is_relative_to((tmp_path / "state").resolve())
        assert not path.is_symlink()
