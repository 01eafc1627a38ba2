"""`penstock state`: what lies on the disk, without a broker and without Spark."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from penstock.cli import main
from penstock.cli.entries import row_of
from penstock.instance.open_stores import shaped
from penstock.instance.protocol import StoreOrder
from penstock.serdes.windowed import session_key, window_key
from penstock.stores.contract import (
    ByteStore,
    Change,
    StoreIdentity,
    stored_value,
    version_key,
)
from penstock.stores.custom import open_custom
from penstock.stores.directory import FileLock, StateDirectory
from penstock.stores.rocksdb import RocksDBStore
from tests.snapshot_stores import write_snapshot

PROGRAM = """
from datetime import timedelta
import penstock as ps

app = ps.Application("clinic", bootstrap_servers="localhost:1")
pulses = app.stream("pulses", key=str, value=int).group_by_key()
pulses.count("counts").to_stream().to("out")
minutes = pulses.windowed_by(ps.tumbling(timedelta(minutes=1), grace=timedelta(0)))
minutes.count("rates", retention=timedelta(minutes=10)).to_stream().to("rates-out")
"""


def long(number: int, time: int = 1_000) -> bytes:
    return stored_value(time, number.to_bytes(8, "big", signed=True))


def write(
    state: StateDirectory, task: str, order: StoreOrder, changes: list[Change], offset: int
) -> None:
    directory = state.lock_task(task)
    path = directory.store_path(order.name)
    inner: ByteStore = (
        RocksDBStore(order.name, path)
        if not order.supplier
        else (open_custom(order.supplier, order.name, path, task=task))
    )
    store = shaped(inner, order)
    store.set_identity(
        StoreIdentity(
            application_id="clinic",
            task=task,
            store=order.name,
            changelog_topic=f"clinic-{order.name}-changelog",
            changelog_topic_id="id",
            layout=order.layout,
        )
    )
    store.set_caught_up_at(0)
    store.apply(changes, offset=offset)
    store.close()
    directory.write_checkpoint({(f"clinic-{order.name}-changelog", int(task[2:])): offset})
    directory.unlock()


COUNTS = StoreOrder(name="counts")
RATES = StoreOrder(name="rates", kind="window", retention_ms=600_000, segment_ms=300_000)


@pytest.fixture
def states(tmp_path: Path) -> Path:
    """A state directory of an application with two tasks of one store, and one of windows."""
    path = tmp_path / "state"
    with StateDirectory.open(path, "clinic") as state:
        write(state, "0_0", COUNTS, [(b"ann", long(3)), (b"bob", long(4))], 7)
        write(state, "0_1", COUNTS, [(b"cem", long(5, 2_000))], 9)
        windows = [(window_key(b"ann", start), long(start)) for start in (0, 60_000, 540_000)]
        write(state, "1_0", RATES, windows, 3)
    return path


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "state_program.py"
    path.write_text(PROGRAM)
    return str(path)


def run(*words: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["state", *map(str, words)])
    assert isinstance(ended.value.code, int)
    return ended.value.code


def answer(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_ls_lists_stores_and_does_without_a_broker(
    states: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ("--state-dir", states, "--bootstrap-servers", "localhost:1")
    assert run("ls", *where, "--application", "clinic") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:4]] == [
        "clinic/0_0/counts",
        "clinic/0_1/counts",
        "clinic/1_0/rates",
    ]
    assert lines[1].split()[2:] == ["2", "7", "-", "-"]
    assert lines[4].startswith("Without ends and lag: Nothing answers at localhost:1")
    assert run("ls", *where, "--json") == 0
    data = answer(capsys)["data"]
    assert [each["offset"] for each in data["stores"]] == [7, 9, 3]
    assert data["stores"][2]["layout"] == "window segment_ms=300000"
    assert data["broker"] is False
    assert run("ls", *where, "--application", "ward") == 0
    assert "There is no state" in capsys.readouterr().out
    assert run("ls", "--state-dir", states / "nowhere") == 1


def test_snapshots_that_are_kept_are_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for time in (1_000, 2_000):
        write_snapshot(tmp_path, "clinic", "counts", 3, [("a", time, 1)], written_ms=time, keep=2)
    where = ("--application", "clinic", "--location", tmp_path.as_uri())
    assert run("snapshots", *where) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [line[:2] for line in lines[1:]] == [["sub-3/counts", "0"], ["sub-3/counts", "1"]]
    assert run("snapshots", *where, "--json") == 0
    found = answer(capsys)["data"]["snapshots"]
    assert [(each["partition"], each["written_ms"]) for each in found] == [(3, 2_000), (3, 1_000)]
    assert run("snapshots", "--application", "ward", "--location", tmp_path.as_uri()) == 0
    assert "no snapshot" in capsys.readouterr().out
    assert run("snapshots", "--application", "clinic") == 2


def test_show_prints_bytes_or_what_the_programs_serdes_read(
    states: Path, program: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("show", "counts", "--state-dir", states, "--partition", 0) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first == "0  1970-01-01T00:00:01.000  ann = 0x0000000000000003"
    assert second.endswith("bob = 0x0000000000000004")
    assert run("show", "counts", program, "--state-dir", states, "--json") == 0
    entries = answer(capsys)["data"]["entries"]
    assert [(each["partition"], each["key"], each["value"]) for each in entries] == [
        (0, "ann", 3),
        (0, "bob", 4),
        (1, "cem", 5),
    ]
    # In the order of other commands, too.
    assert run("show", program, "rates", "--state-dir", states, "--key", "ann", "--json") == 0
    entries = answer(capsys)["data"]["entries"]
    assert [each["window_start"] for each in entries] == [0, 60_000, 540_000]
    assert entries[1]["window_end"] == 120_000
    # Without the program nobody knows how long windows live or are; all that is there is shown.
    assert run("show", "rates", "--state-dir", states, "--limit", 2, "--json") == 0
    data = answer(capsys)["data"]
    assert data["more"] is True
    assert [(each["key"], each["window_end"]) for each in data["entries"]] == [
        ("0x616e6e", None)
    ] * 2
    assert run("show", "counts", program, "--state-dir", states, "--key", "nobody") == 0
    assert capsys.readouterr().out == "Nothing\n"
    assert run("show", "sums", "--state-dir", states) == 1
    assert "There is: counts, rates" in capsys.readouterr().err


def test_export_writes_columns(
    states: Path, program: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "rates.parquet"
    assert run("export", "rates", file, program, "--state-dir", states) == 0
    table = pq.read_table(file)
    assert table.column_names == [
        "partition",
        "key",
        "window_start",
        "window_end",
        "value",
        "timestamp",
    ]
    assert [str(kind) for kind in table.schema.types] == [
        "int32",
        "string",
        "timestamp[ms, tz=UTC]",
        "timestamp[ms, tz=UTC]",
        "int64",
        "timestamp[ms, tz=UTC]",
    ]
    assert table["value"].to_pylist() == [0, 60_000, 540_000]
    assert table["window_end"].cast("int64").to_pylist() == [60_000, 120_000, 600_000]
    raw = tmp_path / "counts.parquet"
    assert run("export", "counts", raw, "--state-dir", states, "--json") == 0
    capsys.readouterr()
    assert pq.read_table(raw)["key"].to_pylist() == [b"ann", b"bob", b"cem"]
    assert run("export", "counts", raw, "--state-dir", states) == 1
    assert "exists already" in capsys.readouterr().err


def test_diff_names_what_differs(
    states: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(states, copy)
    assert run("diff", states, copy) == 0
    assert "clinic/0_0/counts: the same (offset 7)" in capsys.readouterr().out
    with StateDirectory.open(copy, "clinic") as state:
        changes: list[Change] = [(b"ann", long(9)), (b"bob", None), (b"dot", long(1))]
        write(state, "0_0", COUNTS, changes, 8)
    shutil.rmtree(copy / "clinic" / "0_1")
    assert run("diff", states, copy) == 1
    out = capsys.readouterr().out
    assert "clinic/0_0/counts: 1 different, 1 extra, 1 missing (offsets 7 and 8)" in out
    assert "  different: ann\n  extra: bob\n  missing: dot\n" in out
    assert f"clinic/0_1/counts: only in {states}" in out
    assert "clinic/1_0/rates: the same" in out
    assert run("diff", states / "clinic" / "0_0", copy / "clinic" / "0_0", "--json") == 1
    [store] = answer(capsys)["data"]["stores"]
    assert store["place"] == "counts"
    assert store["differences"] == {"different": 1, "extra": 1, "missing": 1}
    # One that cannot be read is told, and the others are compared.
    damaged = copy / "clinic" / "0_0" / "counts"
    (damaged / "CURRENT").write_bytes(b"nonsense")
    assert run("diff", states, copy, "--json") == 1
    first, *_, last = answer(capsys)["data"]["stores"]
    assert str(damaged) in first["problem"]
    assert (last["place"], last["differences"]) == ("clinic/1_0/rates", {})
    shutil.rmtree(states / "clinic" / "0_1")
    assert run("diff", states, copy) == 1
    out = capsys.readouterr().out
    assert "clinic/0_0/counts: The store cannot be read: " in out
    assert "clinic/1_0/rates: the same" in out


HOLD = """
import sys
from pathlib import Path
from penstock.stores.directory import StateDirectory
with StateDirectory.open(Path(sys.argv[1]), "clinic"):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_store_that_a_living_process_holds_is_not_opened(
    states: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [sys.executable, "-c", HOLD, str(states)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(words, text=True, **pipes) as child:  # type: ignore[call-overload]
        assert child.stdout.readline() == "held\n"
        for command in (
            ("show", "counts", "--state-dir", states),
            ("export", "counts", tmp_path / "x.parquet", "--state-dir", states),
            ("diff", states, states / "clinic"),
        ):
            assert run(*command, "--json") == 1
            error = answer(capsys)["error"]
            assert error["code"] == "state_locked"
            assert f"process {child.pid} on " in error["message"]
        # What lies beside the stores can be had all the same.
        where = ("--state-dir", states, "--bootstrap-servers", "localhost:1")
        assert run("ls", *where, "--json") == 0
        first = answer(capsys)["data"]["stores"][0]
        assert f"process {child.pid} on " in first["problem"]
        assert (first["offset"], first["approximate_entries"]) == (7, None)
        child.stdin.close()
    assert run("show", "counts", "--state-dir", states) == 0


def test_looking_changes_nothing(states: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def files() -> dict[str, tuple[int, bytes]]:
        return {
            str(path): (path.stat().st_ino, path.read_bytes())
            for path in sorted(states.rglob("*.sst"))
        }

    before, names = files(), sorted((states / "clinic" / "0_0" / "counts").iterdir())
    assert run("show", "counts", "--state-dir", states) == 0
    assert run("ls", "--state-dir", states, "--bootstrap-servers", "localhost:1") == 0
    assert before == files()
    assert before
    assert names == sorted((states / "clinic" / "0_0" / "counts").iterdir())


def test_what_cannot_be_read_is_not_told_as_nothing(
    states: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = os.scandir

    def scandir(path: Any) -> Any:
        if str(path).endswith("clinic"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    for words in (("ls", "--state-dir", states), ("diff", states, states)):
        assert run(*words) == 1
        assert "cannot be used by this user" in capsys.readouterr().err


def test_a_disk_that_can_only_be_read_is_looked_at(
    states: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ("--state-dir", states)
    assert run("show", "counts", *where) == 0
    expected = capsys.readouterr().out
    files = sorted(path for path in states.rglob("*") if path.is_file())
    before = [path.read_bytes() for path in files]
    writes = os.O_RDWR | os.O_CREAT
    real = os.open

    def opened(path: Any, flags: int, *more: Any, **how: Any) -> int:
        if flags & writes and Path(path).is_relative_to(states):
            raise OSError(errno.EROFS, "Read-only file system", str(path))
        return real(path, flags, *more, **how)

    monkeypatch.setattr(os, "open", opened)
    monkeypatch.setattr(os, "access", lambda _, wanted: wanted != os.W_OK)
    assert run("show", "counts", *where) == 0
    assert capsys.readouterr().out == expected
    assert sorted(path for path in states.rglob("*") if path.is_file()) == files
    assert [path.read_bytes() for path in files] == before
    lock = FileLock.acquire_to_read(states / "clinic" / ".lock")
    assert run("show", "counts", *where) == 1
    assert "is held by" in capsys.readouterr().err
    lock.release()


def test_one_that_cannot_be_read_does_not_hold_up_the_others(
    states: Path, program: str, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ("--state-dir", states, "--bootstrap-servers", "localhost:1")
    # RocksDB's own, without the file that says where it begins: not one that a program brought.
    (states / "clinic" / "0_0" / "counts" / "CURRENT").unlink()
    # As a crash may leave it, right after it was made; only the program tells whose it is.
    shutil.rmtree(states / "clinic" / "1_0" / "rates")
    (states / "clinic" / "1_0" / "rates").mkdir()
    assert run("ls", program, *where) == 0
    told = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in told if "cannot be read" in line] == [
        "clinic/0_0/counts",
        "clinic/1_0/rates",
    ]
    (states / "clinic" / "0_1" / ".checkpoint").write_text("rubbish")
    with StateDirectory.open(states, "clinic"):
        assert run("ls", *where) == 0
    assert "held by process" in capsys.readouterr().out


def test_sessions_have_their_own_ends() -> None:
    entry = (session_key(b"ann", 1_000, 5_000), long(2))
    row = row_of(entry, kind="session", spec=None, partition=4)
    assert (row.key, row.window_start, row.window_end, row.partition) == (b"ann", 1_000, 5_000, 4)
    assert row.value == (2).to_bytes(8, "big")


SUPPLIER = "tests.integration.documented_store:SqliteStore"
OWN = f"""
import penstock as ps

app = ps.Application("clinic", bootstrap_servers="localhost:1")
pulses = app.stream("pulses", key=str, value=int).group_by_key()
pulses.count("own", supplier={SUPPLIER!r}).to_stream().to("out")
"""


def test_a_store_that_the_program_brings_is_listed_and_its_program_looks_inside(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, program = tmp_path / "state", tmp_path / "own_program.py"
    program.write_text(OWN)
    order = StoreOrder(name="own", supplier=SUPPLIER)
    with StateDirectory.open(path, "clinic") as state:
        write(state, "0_0", order, [(b"ann", long(3)), (b"bob", long(4))], 7)
    before = {each: each.read_bytes() for each in path.rglob("own/*")}
    assert run("ls", "--state-dir", path) == 0
    assert "The store own is one that the program brings" in capsys.readouterr().out
    assert run("show", "own", "--state-dir", path) == 1
    assert "Name the program" in capsys.readouterr().err
    assert run("ls", program, "--state-dir", path, "--json") == 0
    [facts] = answer(capsys)["data"]["stores"]
    assert (facts["place"], facts["offset"], facts["approximate_entries"]) == (
        "clinic/0_0/own",
        7,
        2,
    )
    assert facts["size_bytes"] > 0
    assert facts["problem"] == ""
    assert run("show", "own", program, "--state-dir", path, "--json") == 0
    assert [each["value"] for each in answer(capsys)["data"]["entries"]] == [3, 4]
    assert run("export", "own", tmp_path / "own.parquet", program, "--state-dir", path) == 0
    assert pq.read_table(tmp_path / "own.parquet").column("value").to_pylist() == [3, 4]
    assert {each: each.read_bytes() for each in path.rglob("own/*")} == before

    other = tmp_path / "other"
    with StateDirectory.open(other, "clinic") as state:
        write(state, "0_0", order, [(b"ann", long(3)), (b"bob", long(5))], 7)
    capsys.readouterr()
    assert run("diff", path, other) == 0
    assert "not compared, the program brings it, and was not named" in capsys.readouterr().out
    assert run("diff", path, other, "--app", program, "--json") == 1
    [found] = answer(capsys)["data"]["stores"]
    assert found["differences"] == {"different": 1}


def test_versions_are_compared_and_exported_with_their_history(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prices = StoreOrder(name="prices", kind="versioned", retention_ms=600_000, segment_ms=60_000)

    def versions(*times: int) -> list[Change]:
        kept: list[Change] = [
            (version_key(b"tea", time), long(time // 1_000, time)) for time in times
        ]
        return [*kept, (version_key(b"ale", 500_000), long(9, 500_000))]

    gone: Change = (version_key(b"ale", 550_000), None)
    for side, changes in (("left", (100_000, 300_000, 900_000)), ("right", (300_000, 900_000))):
        with StateDirectory.open(tmp_path / side, "clinic") as state:
            write(state, "0_0", prices, [*versions(*changes), gone], 7)
    # What ended before the history, 300 s, is in neither; without a program all that is there is.
    assert run("diff", tmp_path / "left", tmp_path / "right") == 0
    capsys.readouterr()
    with StateDirectory.open(tmp_path / "third", "clinic") as state:
        write(state, "0_0", prices, [*versions(310_000, 900_000), gone], 7)
    assert run("diff", tmp_path / "left", tmp_path / "third") == 1
    out = capsys.readouterr().out
    assert "1 extra, 1 missing" in out
    assert "  extra: tea since 1970-01-01T00:05:00.000\n" in out
    file = tmp_path / "prices.parquet"
    assert run("export", "prices", file, "--state-dir", tmp_path / "left") == 0
    rows = pq.read_table(file).to_pylist()
    assert [(row["key"], row["timestamp"].timestamp(), row["value"]) for row in rows] == [
        (b"ale", 500, long(9)[8:]),
        (b"ale", 550, None),
        (b"tea", 300, long(300)[8:]),
        (b"tea", 900, long(900)[8:]),
    ]
