"""A task that lost a store reads its input again: whether it can, how far, what it writes."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

import penstock as ps
from penstock.changelog.commit_record import ChangelogEnd, CommitRecord
from penstock.config import Config
from penstock.coordination.ids import Epoch, Range, TaskId
from penstock.coordination.planning import PlanLimits, plan
from penstock.coordination.recovery import Recovery
from penstock.coordination.tasks import TaskBook
from penstock.driver.watch import InputWatch, Jump
from penstock.errors import (
    BootstrapError,
    ChangelogError,
    InputLostError,
    TopicMismatchError,
    TopologyError,
)
from penstock.instance.clients import SharedClients
from penstock.instance.protocol import CHANGE, OUTPUT, ROWS, CommitHeader, StoreOrder, TakeOrder
from penstock.instance.recovery import not_yet_written, recovery_fields, recovery_of
from penstock.instance.state import TaskStores
from penstock.stores.directory import StateDirectory
from penstock.topology.recovery import check_compacted

TASK = TaskId(0, 0)
BEGUN = Recovery(begun={"pulses": {0: 3}})


def restarted(
    recovery: Recovery, position: int, log: tuple[int, int], *, lost: str = "Store x is lost"
) -> Recovery:
    return recovery.restarted(
        {"pulses": {0: position}}, {("pulses", 0): log}, task="0_0", lost=lost
    )


def test_it_goes_back_to_where_it_began_and_up_to_where_it_stood() -> None:
    recovery = restarted(BEGUN, 9, (0, 20))
    assert (recovery.begun, recovery.until) == ({"pulses": {0: 3}}, {"pulses": {0: 9}})
    assert recovery.after({"pulses": {0: 8}}).until == {"pulses": {0: 9}}
    assert recovery.after({"pulses": {0: 9}}).until == {}


def test_one_that_was_cut_off_goes_on_to_the_same_end() -> None:
    assert restarted(restarted(BEGUN, 9, (0, 20)), 5, (0, 20)).until == {"pulses": {0: 9}}


def test_a_task_that_read_nothing_has_lost_nothing() -> None:
    assert restarted(BEGUN, 3, (7, 20)).until == {}


@pytest.mark.parametrize(
    ("log", "missing"), [((5, 20), "3 to 4"), ((15, 20), "3 to 8"), ((0, 8), "8 to 8")]
)
def test_records_that_are_gone_are_named(log: tuple[int, int], missing: str) -> None:
    with pytest.raises(InputLostError, match=f"Store x is lost.*records {missing} are gone"):
        restarted(BEGUN, 9, log)


def test_history_is_not_in_the_input() -> None:
    with pytest.raises(InputLostError, match="history"):
        restarted(Recovery(begun=BEGUN.begun, from_history=True), 9, (0, 20))


def test_the_commit_record_carries_it() -> None:
    position = {"pulses": {0: 5}}
    assert recovery_of(None, position) == Recovery(begun=position)
    recovery = restarted(BEGUN, 9, (0, 20))
    record = CommitRecord(
        n=1, epoch=(1, 1), position=position, previous={}, **recovery_fields(recovery)
    )
    assert recovery_of(CommitRecord.decode(record.encode()), position) == recovery
    # Records of before say nothing of where the task began: at the log's first record.
    old = CommitRecord(n=1, epoch=(1, 1), position=position, previous={})
    assert recovery_of(old, position).begun == {"pulses": {0: 0}}


def test_no_slice_goes_over_where_the_task_stood() -> None:
    book = TaskBook([(TASK, "x-0")], generation=1)
    book.own(TASK, "one")
    until = {"pulses": {0: 9}}
    book.serving(TASK, Epoch(1, 1), {"pulses": {0: 3}}, 4, {}, until=until)
    limits = PlanLimits(records_max=100, bytes_max=2**30, jobs_max=2)
    ends = {("pulses", 0): 20}
    [batch] = plan(book.views(), ends, now=0.0, running_jobs=0, limits=limits)
    assert (batch.slices[0].ranges[0].end, batch.slices[0].more) == (9, frozenset())
    book.start(TASK)
    book.finish(TASK, until, 5, due=0.0, bytes_per_record=1.0, metadata={})
    [batch] = plan(book.views(), ends, now=0.0, running_jobs=0, limits=limits)
    assert batch.slices[0].ranges[0].end == 20


def test_input_that_goes_while_a_task_reads_it_again_is_an_error_and_not_jumped_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    layout = SimpleNamespace(reset=lambda topic, otherwise: otherwise)
    prepared = cast(Any, SimpleNamespace(layout=layout, config=Config()))
    inputs = cast(Any, SimpleNamespace(starts=lambda: {("pulses", 0): 5}))
    watch = InputWatch(prepared, cast(Any, None), inputs, notice=print)
    for name in ("_check_topics", "_purge"):
        monkeypatch.setattr(watch, name, lambda *_: None)

    def jumps(now: float, *, until: dict[str, dict[int, int]]) -> list[Jump]:
        book = TaskBook([(TASK, "x-0")], generation=1)
        book.own(TASK, "one")
        book.serving(TASK, Epoch(1, 1), {"pulses": {0: 3}}, 4, {}, until=until)
        return watch.check(now, book, {("pulses", 0): 20})

    [jump] = jumps(100, until={})
    assert jump.ranges == (Range("pulses", 0, 3, 5),)
    with pytest.raises(InputLostError, match=r"before a task .* came to them: 3 to 4") as lost:
        jumps(200, until={"pulses": {0: 9}})
    assert lost.value.where == {"task": TASK, "topic": "pulses", "partition": 0}


def take_order(**more: Any) -> TakeOrder:
    plain = {"inputs": [], "stores": [], "first_taking": True, "commits_partition": 1}
    return TakeOrder(task="0_0", name="x-0", epoch=(1, 1), **{**plain, **more})


def rows(kind: int, *targets: int) -> pa.RecordBatch:
    count = len(targets)
    columns: list[Any] = [[kind] * count, list(targets), [0] * count, [b"k"] * count]
    columns += [[b"v"] * count, [1] * count, [None] * count]
    arrays = [pa.array(each, field.type) for each, field in zip(columns, ROWS, strict=True)]
    return pa.record_batch(arrays, schema=ROWS)


@pytest.mark.parametrize(("outputs", "left"), [("drop", []), ("repeat", [0, 0])])
def test_outputs_are_dropped_or_repeated_but_never_to_repartition_topics(
    outputs: Any, left: list[int]
) -> None:
    order = take_order(recover_outputs=outputs, repartitions=["app-words-repartition"])
    header = CommitHeader(
        task="0_0",
        epoch=(1, 1),
        n=1,
        start={},
        end={},
        stores=[],
        topics=["results", "app-words-repartition"],
        rows=3,
    )
    written = not_yet_written(rows(OUTPUT, 0, 1, 0), header, order)
    assert written.column("target").to_pylist() == left
    assert not_yet_written(rows(CHANGE, 0, 1), header, order).num_rows == 2


@pytest.mark.parametrize(
    ("changelog", "until", "lost"),
    [("log", {"pulses": {0: 9}}, True), ("log", {}, False), ("", {"pulses": {0: 9}}, False)],
)
def test_a_changelog_that_was_half_written_again_is_no_store(
    tmp_path: Path, changelog: str, until: dict[str, dict[int, int]], *, lost: bool
) -> None:
    store = StoreOrder(name="counts", changelog=changelog, recovers=True)
    order = take_order(stores=[store])
    record = CommitRecord(n=1, epoch=(1, 0), position={"pulses": {0: 5}}, previous={}, until=until)
    clients = SimpleNamespace(config=Config())
    with StateDirectory.open(tmp_path, "clinic") as directory:
        stores = TaskStores(order, directory, cast(SharedClients, clients))
        stores.open(record)
        # A changelog of which only some keys were written again would give values of two times.
        assert ("was cut off while it read its input again" in stores.lost) is lost
        stores.close()


@pytest.mark.parametrize(
    ("commits_id", "n", "lost"),
    [("now", 3, False), ("", 3, False), ("now", 2, True), ("before a reset", 3, True)],
)
def test_a_store_without_changelog_is_of_the_last_commit_or_lost(
    tmp_path: Path, commits_id: str, n: int, *, lost: bool
) -> None:
    clients = cast(SharedClients, SimpleNamespace(config=Config(), logs=None))
    record = CommitRecord(n=3, epoch=(1, 0), position={"pulses": {0: 5}}, previous={})
    for topic_id, committed in ((commits_id, n), ("now", None)):
        store = StoreOrder(name="counts", changelog_id=topic_id, recovers=True)
        with StateDirectory.open(tmp_path, "clinic") as directory:
            stores = TaskStores(take_order(stores=[store]), directory, clients)
            stores.open(record)
            stores.restore(lambda: False)
            if committed is not None:
                stores.start_empty()
                stores.apply("counts", [(b"k", b"12345678v")], None)
                stores.mark("counts", committed)
            else:
                assert bool(stores.lost) is lost
            stores.close()


@pytest.mark.parametrize("recovers", [False, True])
def test_a_changelog_that_was_made_again_is_known_by_its_id_alone(
    tmp_path: Path, *, recovers: bool
) -> None:
    """Though it may be longer than the one before, and no disk tells."""
    store = StoreOrder(name="counts", changelog="log", changelog_id="new", recovers=recovers)
    record = CommitRecord(
        n=3,
        epoch=(1, 0),
        position={"pulses": {0: 5}},
        previous={},
        changelogs={"counts": ChangelogEnd(id="old", end=3)},
    )
    clients = cast(SharedClients, SimpleNamespace(config=Config()))
    with StateDirectory.open(tmp_path, "clinic") as directory:
        stores = TaskStores(take_order(stores=[store]), directory, clients)
        if recovers:
            stores.open(record)
            assert "has lost its changelog" in stores.lost
        else:
            with pytest.raises(ChangelogError, match="deleted and made again"):
                stores.open(record)
        stores.close()


def test_a_repartition_topic_cannot_be_read_again() -> None:
    app = ps.Application("clinic")
    words = app.stream("lines", key=str, value=str).group_by(lambda key, value: value, key=str)
    words.count("words", logging=False, recover_from="input")
    with pytest.raises(TopologyError, match="words-repartition"):
        app.build()


def test_a_store_that_recovers_from_input_takes_no_history() -> None:
    from penstock.coordination.history import fillable

    app = ps.Application("clinic")
    grouped = app.stream("lines", key=str, value=str).group_by_key()
    grouped.count("lines-count", recover_from="input")
    with pytest.raises(BootstrapError, match="recovers from its input"):
        fillable(app.build(), "lines-count")
    wrong: Any = "nowhere"
    grouped.count("other", recover_from=wrong)
    with pytest.raises(TopologyError, match="nowhere"):
        app.build()


def _compacted(app: ps.Application, *, policy: str = "compact,delete") -> None:
    """Check the program over a topic `lines` that Kafka compacts, and any others that it keeps."""
    for sub in app.build().sub_topologies:
        check_compacted(sub, "clinic", {"lines": policy})


def test_what_folds_a_compacted_topic_cannot_recover_from_it() -> None:
    def counted(app: ps.Application) -> None:
        lines = app.stream("lines", key=str, value=str).group_by_key()
        lines.count("lines-count", logging=False, recover_from="input")

    def beside_a_table(app: ps.Application) -> None:
        # All stores of the task are made anew, those with a changelog too.
        table = app.table("lines", "latest", key=str, value=str, recover_from="input")
        table.to_stream().group_by_key().count("lines-count")

    def joined(app: ps.Application) -> None:
        table = app.table("lines", "latest", key=str, value=str, recover_from="input")
        joins = app.stream("words", key=str, value=str).join(
            table, lambda word, line: word + line, value=str
        )
        joins.group_by_key().count("lines-count")

    def filtered(app: ps.Application) -> None:
        lines = app.stream("lines", key=str, value=str).filter(lambda _key, line: line != "")
        lines.to_table("lines-count", recover_from="input")

    def versioned(app: ps.Application) -> None:
        store = ps.versioned_store("lines-count", history_retention=timedelta(hours=1))
        app.table("lines", store, key=str, value=str, recover_from="input")

    for program in (counted, beside_a_table, joined, filtered, versioned):
        app = ps.Application("clinic")
        program(app)
        with pytest.raises(TopicMismatchError, match=r"lines-count.*=compact,delete") as raised:
            _compacted(app)
        assert raised.value.where == {"topic": "lines", "store": "lines-count"}


def test_a_table_of_a_compacted_topic_recovers_from_it() -> None:
    app = ps.Application("clinic")
    table = app.table("lines", "latest", key=str, value=str, recover_from="input")
    upper = table.map_values(str.upper, store="upper", value=str).filter(
        lambda _key, line: line != ""
    )
    words = app.stream("words", key=str, value=str)
    words.join(upper, lambda word, line: word + line, value=str).to("joined")
    # This one does not read the compacted topic at all.
    words.group_by_key().count("words-count", recover_from="input")
    _compacted(app)


def test_a_store_with_a_changelog_may_fold_a_compacted_topic() -> None:
    app = ps.Application("clinic")
    app.stream("lines", key=str, value=str).group_by_key().count("lines-count")
    _compacted(app)
