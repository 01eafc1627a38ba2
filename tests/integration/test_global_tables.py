"""Global tables: all of a topic on every instance, from the start and from then on."""

from __future__ import annotations

import contextlib
import itertools
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Never

import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import NewPartitions

import penstock as ps
from penstock.changelog.clients import LogClients
from penstock.config import Config
from penstock.errors import StoreDamagedError, TaskNotHereError, TopicMissingError
from penstock.instance import global_tables, protocol
from penstock.instance.global_tables import GlobalTable, GlobalTables
from penstock.instance.protocol import GlobalOrder, ReadHeader, Reply
from penstock.observability.time_of_day import wall_clock_ms
from penstock.stores.directory import StateDirectory
from penstock.stores.whole_topic import WholeTopicStore
from tests.harness import Scene, wait_until
from tests.in_process import Run, instances_here, start_fails


@pytest.fixture
def scene(kafka: str, tmp_path: Path) -> Scene:
    return Scene(kafka, tmp_path, partitions=2).create_topics()


@contextlib.contextmanager
def following(scene: Scene, *, persistent: bool = True) -> Iterator[GlobalTables]:
    """The tables of one instance over the scene's source topic, once they hold all of it."""
    logs = LogClients(Config(bootstrap_servers=scene.bootstrap), scene.application_id)
    order = GlobalOrder(store="teams", topic=scene.source, persistent=persistent)
    with StateDirectory.open(scene.state_dir, scene.application_id) as directory:
        tables = GlobalTables([order], directory, logs)
        try:
            tables.wait(lambda: False)
            yield tables
        finally:
            tables.close()


def rows(tables: GlobalTables) -> dict[bytes, bytes]:
    """Everything in the table, through a read as a worker does it; values without their times."""
    header = ReadHeader(task="0_0", epoch=(1, 1), n=7, store="teams", question="range")
    question = pa.table([[None], [None]], schema=protocol.QUESTIONS["range"])
    *batches, reply = tables.read(header, question)
    assert isinstance(reply, Reply)
    if reply.status == "lost":
        raise TaskNotHereError(reply.reason)
    found: dict[bytes, bytes] = {}
    for batch in batches:
        assert isinstance(batch, pa.RecordBatch)
        keys, values = batch.column("key").to_pylist(), batch.column("value").to_pylist()
        found |= {key: value[8:] for key, value in zip(keys, values, strict=True)}
    return found


def restored(tables: GlobalTables) -> int:
    """How many records the table was restored from, over all partitions."""
    told = tables.restores.latest()
    assert {each.state for each in told} == {"ended"}
    assert [each.partition for each in told] == list(range(len(told)))
    return sum(each.restored for each in told)


def purge(scene: Scene) -> None:
    """Have the topic forget everything that it holds."""
    admin = scene.admin
    before = [TopicPartition(scene.source, p, -1) for p in range(scene.partitions)]
    for future in admin.delete_records(before).values():
        future.result()


def numbered(count: int, value: bytes = b"v") -> list[tuple[bytes, bytes | None]]:
    return [(b"%d" % number, value) for number in range(count)]


@pytest.mark.parametrize("persistent", [True, False])
def test_a_table_is_its_topic_now_and_later(scene: Scene, persistent: bool) -> None:
    scene.produce([*numbered(100, b"old"), *numbered(50), (b"7", None), (None, b"no key")])
    expected = {b"%d" % n: b"v" if n < 50 else b"old" for n in range(100) if n != 7}
    with following(scene, persistent=persistent) as tables:
        assert rows(tables) == expected
        [row] = [row for row in scene.read(scene.source) if row.key == b"99"]
        header = ReadHeader(task="0_0", epoch=(1, 1), n=1, store="teams")
        keys = pa.table([[b"99", b"none"]], schema=protocol.QUESTIONS["get"])
        [values, reply] = tables.read(header, keys)
        assert isinstance(values, pa.RecordBatch)
        assert values.column(0).to_pylist() == [row.timestamp.to_bytes(8, "big") + b"old", None]
        assert reply == Reply(status="ok", n=1)

        scene.produce([(b"99", None), (b"new", b"v")])
        del expected[b"99"]
        expected[b"new"] = b"v"
        wait_until(lambda: rows(tables) == expected, what="the table followed")
    with following(scene, persistent=persistent) as tables:
        assert rows(tables) == expected
        assert tables.new_notes() == []


def test_a_restart_reads_only_what_came_meanwhile(scene: Scene) -> None:
    scene.produce(numbered(100))
    with following(scene) as tables:
        assert len(rows(tables)) == 100
        assert restored(tables) == 100
    checkpoint = scene.state_dir / scene.application_id / "global" / ".checkpoint"
    assert sum(int(line.split()[2]) + 1 for line in checkpoint.read_text().splitlines()[2:]) == 100
    # What the store holds is no longer needed, and cannot be had.
    purge(scene)
    scene.produce([(b"3", None), (b"new", b"v")])
    with following(scene) as tables:
        assert len(rows(tables)) == 100
        assert rows(tables).keys() >= {b"new", b"4"}
        assert restored(tables) == 2
        assert tables.new_notes() == []


def test_records_that_are_gone_before_they_were_read_are_noticed(scene: Scene) -> None:
    scene.produce(numbered(10))
    with following(scene) as tables:
        assert len(rows(tables)) == 10
    scene.produce(numbered(10, b"never seen"))
    purge(scene)
    scene.produce([(b"new", b"v")])
    with following(scene) as tables:
        assert rows(tables) == {b"new": b"v"}
        [note] = tables.new_notes()
        assert "no longer holds what the table needs next" in note


def test_a_store_that_a_read_finds_damaged_is_read_anew(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.produce(numbered(10))
    with following(scene) as tables:
        whole = WholeTopicStore.range
        damage = StoreDamagedError("A block is damaged")

        def once(*_: object, **__: object) -> Never:
            monkeypatch.setattr(WholeTopicStore, "range", whole)
            raise damage

        monkeypatch.setattr(WholeTopicStore, "range", once)
        with pytest.raises(TaskNotHereError, match="damaged"):
            rows(tables)
        wait_until(lambda: bool(tables.new_notes()), what="it was told")
        tables.wait(lambda: False)
        assert rows(tables) == dict(numbered(10))


def test_a_table_that_may_have_missed_deletions_is_read_anew(scene: Scene) -> None:
    scene.produce(numbered(10))
    scene.set_config(scene.source, {"delete.retention.ms": "1"})
    with following(scene) as tables:
        assert len(rows(tables)) == 10
    # It missed nothing, however short deletions last.
    with following(scene) as tables:
        assert tables.new_notes() == []
    scene.produce(numbered(11))
    with following(scene) as tables:
        assert rows(tables) == dict(numbered(11))
        assert ["may have forgotten deletions" in note for note in tables.new_notes()] == [True]
    # They last for a day again.
    scene.produce(numbered(12))
    scene.set_config(scene.source, {"delete.retention.ms": "86400000"})
    with following(scene) as tables:
        assert rows(tables) == dict(numbered(12))
        assert tables.new_notes() == []


def test_a_table_whose_topic_is_out_of_reach_grows_older(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [wall_clock_ms()]
    monkeypatch.setattr(global_tables, "wall_clock_ms", lambda: now[0])
    # From here on nobody asks whether the table has all of its topic, and nothing is heard of it.
    monkeypatch.setattr(global_tables, "WATCH_SECONDS", 1_000.0)
    monkeypatch.setattr(GlobalTable, "_was_cut_off", lambda table, topic: False)
    scene.produce(numbered(10))
    with following(scene) as tables:
        now[0] += 2 * 86_400_000
        tables.flush()
    scene.produce(numbered(11))
    with following(scene) as tables:
        assert rows(tables) == dict(numbered(11))
        assert ["may have forgotten deletions" in note for note in tables.new_notes()] == [True]


def test_a_table_that_was_cut_off_for_longer_than_deletions_last_is_read_anew(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [wall_clock_ms()]
    monkeypatch.setattr(global_tables, "wall_clock_ms", lambda: now[0])
    monkeypatch.setattr(global_tables, "WATCH_SECONDS", 1_000.0)
    scene.produce(numbered(10))
    with following(scene) as tables:
        # One that is set back makes nobody older.
        now[0] -= 86_400_000
        scene.produce([(b"0", b"v")])
        tables.wait(lambda: False)
        assert tables.new_notes() == []
        now[0] += 3 * 86_400_000
        # It means nothing, and so no change comes with it.
        scene.produce([(None, b"no key")])
        notes: list[str] = []
        wait_until(lambda: bool(notes.extend(tables.new_notes()) or notes), what="it was told")
        assert ["may have forgotten deletions" in note for note in notes] == [True]
        tables.wait(lambda: False)
        assert rows(tables) == dict(numbered(10))


@pytest.mark.parametrize("policy", ["compact", "delete"])
def test_a_first_read_that_takes_longer_than_deletions_last_is_told_and_not_begun_anew(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    now = [wall_clock_ms()]
    monkeypatch.setattr(global_tables, "wall_clock_ms", lambda: now[0])
    monkeypatch.setattr(global_tables, "WATCH_SECONDS", 1_000.0)
    scene.set_config(scene.source, {"cleanup.policy": policy})
    apply_read = WholeTopicStore.apply_read

    def slow(*given: Any) -> None:
        now[0] += 2 * 86_400_000
        apply_read(*given)

    scene.produce(numbered(10))
    monkeypatch.setattr(WholeTopicStore, "apply_read", slow)
    with following(scene) as tables:
        monkeypatch.setattr(WholeTopicStore, "apply_read", apply_read)
        # Records that came meanwhile do not make it old, either.
        scene.produce([(b"new", b"v")])
        tables.wait(lambda: False)
        assert rows(tables) == {**dict(numbered(10)), b"new": b"v"}
        told = [
            f"took longer than {scene.source} keeps deletions" in note
            for note in tables.new_notes()
        ]
        assert told == ([True] if policy == "compact" else [])
    # A table that has all is as old as it is.
    now[0] += 9 * 86_400_000
    with following(scene) as tables:
        assert tables.new_notes() == []


def test_a_table_that_is_read_with_a_delay_is_whole_as_of_then(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(global_tables, "WATCH_SECONDS", 1_000.0)
    scene.produce(numbered(10))
    with following(scene) as tables:
        [table] = tables._tables.values()
        table.stop()
        ahead = iter([5, 9, 14, 20])
        monkeypatch.setattr(table, "_ends", lambda _: {0: next(ahead)})
        whole = []
        # Each question finds the end where it was read to by the next but one.
        for position in (1, 4, 5, 14):
            table._positions, asked = {0: position}, table._asked
            table._note_whole()
            whole.append(asked is not None and table._whole_ms == asked[2])
        assert whole == [False, False, True, True]


def test_a_table_of_a_busy_topic_is_whole_as_of_when_its_end_was_asked_for(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(global_tables, "WATCH_SECONDS", 0.05)
    ends = GlobalTable._ends
    ahead = itertools.count()

    def always_ahead(table: GlobalTable, partitions: list[int]) -> dict[int, int]:
        """Whenever it is asked, another record has come that is not read yet."""
        scene.produce([(b"new", b"%d" % next(ahead))] if table._complete else [])
        return ends(table, partitions)

    monkeypatch.setattr(GlobalTable, "_ends", always_ahead)
    scene.produce(numbered(10))
    with following(scene) as tables:
        [table] = tables._tables.values()
        first = table.whole_at
        wait_until(lambda: table.whole_at > first, what="it is known to be whole again")


def recreate(scene: Scene) -> None:
    admin = scene.admin
    admin.delete_topics([scene.source])[scene.source].result()
    wait_until(lambda: scene.source not in admin.list_topics().topics, what="it was deleted")
    scene.create_topics(scene.source)


def test_a_topic_made_anew_is_read_anew(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(global_tables, "WATCH_SECONDS", 0.2)
    scene.produce(numbered(10))
    with following(scene) as tables:
        assert len(rows(tables)) == 10
    recreate(scene)
    scene.produce(numbered(20, b"second"))
    with following(scene) as tables:
        assert rows(tables) == dict(numbered(20, b"second"))
        assert ["was deleted and made anew" in note for note in tables.new_notes()] == [True]

        # And so while it is followed.
        recreate(scene)
        scene.produce(numbered(3, b"third"))

        def is_third() -> bool:
            with contextlib.suppress(TaskNotHereError):
                return rows(tables) == dict(numbered(3, b"third"))
            return False

        wait_until(is_third, what="the table was read again")
        assert tables.new_notes()


def test_partitions_that_are_added_are_read_too(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(global_tables, "WATCH_SECONDS", 0.2)
    scene.produce(numbered(10))
    with following(scene) as tables:
        admin = scene.admin
        admin.create_partitions([NewPartitions(scene.source, 6)])[scene.source].result()
        scene.produce(numbered(100))
        wait_until(lambda: len(rows(tables)) == 100, what="all partitions were read")
        assert tables.new_notes() == []


def teams(app: ps.Application, source: str, results: str) -> None:
    """Results are scores with the name of the team that the score's value points to."""
    table = app.global_table(f"{source}-teams", "teams", key=str, value=str)
    scores = app.stream(source, key=str, value=str)
    scores.join(
        table,
        lambda score, team: f"{team}:{score}",
        key_selector=lambda key, score: score.split("-")[0],
        value=str,
    ).to(results)


@pytest.mark.usefixtures("spark")
def test_a_stream_is_joined_with_all_of_a_table_on_every_instance(scene: Scene) -> None:
    names = f"{scene.source}-teams"
    # Three partitions and two: nothing has to correspond.
    three = Scene(scene.bootstrap, scene.directory, partitions=3, id=scene.id)
    three.create_topics(names)
    total = three.produce([(b"t%d" % n, b"team %d" % n) for n in range(30)], names)
    assert total == 30
    # No text: whoever asks for it finds no row, and nothing else comes to harm.
    three.produce([(b"broken", b"\xff")], names)
    scores = [(b"player", b"t%d-%d" % (n, n)) for n in range(30)]
    scores += [(b"p%d" % n, b"t%d-x" % n) for n in range(30)]
    expected = sorted(b"team %d:t%d-%s" % (n, n, e) for n in range(30) for e in (b"%d" % n, b"x"))
    scores += [(b"player", b"broken-1")]
    skips = {"deserialization_exception_handler": "continue"}
    with Run(scene, teams, num_instances=2, **skips) as run:
        count = scene.produce(scores)
        run.wait_committed(count)
        assert sorted(row.value or b"" for row in scene.read(scene.results)) == expected
        assert len(instances_here()) == 2

        # A row that comes later is found by records that come after it, also on an instance that
        # replaces a lost one.
        three.produce([(b"late", b"came late")], names)
        instances_here()[0].kill()

        def is_joined() -> bool:
            nonlocal count
            count += scene.produce([(b"p%d" % n, b"late-1") for n in range(4)])
            run.wait_committed(count)
            late = [row.value for row in scene.read(scene.results) if b"late" in (row.value or b"")]
            return b"came late:late-1" in late

        run.wait_for(is_joined, what="the new row was seen")


@pytest.mark.usefixtures("spark")
def test_a_global_table_without_its_topic_is_named_at_the_start(scene: Scene) -> None:
    error = start_fails(scene, teams)
    assert isinstance(error, TopicMissingError)
    assert f"{scene.source}-teams" in str(error)


class Summing(ps.Processor[str, int, str, int]):
    """Keeps a sum for each key: more than the topic's latest values, so order and once count."""

    def process(self, record: ps.Record[str, int]) -> None:
        if record.key == "poison":
            raise ValueError(record.key)
        sums = self.context.store("sums")
        sums.put(record.key, (sums.get(record.key) or 0) + record.value)


def priced(app: ps.Application, source: str, results: str) -> None:
    """Results are the sums that the processor of the global store has made so far."""
    store = ps.key_value_store("sums", key=str, value=int)
    table = app.add_global_store(f"{source}-amounts", store, Summing)
    questions = app.stream(source, key=str, value=str)
    questions.join(
        table, lambda _, total: total, key_selector=lambda key, asked: asked, value=int
    ).to(results)


@pytest.mark.usefixtures("spark")
def test_a_processor_keeps_a_global_store_on_every_instance(scene: Scene) -> None:
    amounts = f"{scene.source}-amounts"
    scene.create_topics(amounts)
    rows = [(b"k%d" % (n % 5), n.to_bytes(8, "big")) for n in range(200)]
    scene.produce(rows, amounts)
    totals = {f"k{k}": sum(n for n in range(200) if n % 5 == k) for k in range(5)}

    # What the processor fails on is for the handler, on an instance too.
    scene.produce([(b"poison", bytes(8))], amounts)
    skips = {"processing_exception_handler": lambda failure: "continue"}
    rounds = itertools.count(1)

    def ask(run: Run) -> list[bytes | None]:
        """Every sum, asked for from both partitions."""
        turn = next(rounds)
        scene.produce([(b"%d-%d" % (turn, n), b"k%d" % (n % 5)) for n in range(20)])
        run.wait_committed(20 * turn)
        mine = b"%d-" % turn
        return [row.value for row in scene.read(scene.results) if (row.key or b"").startswith(mine)]

    expected = [total.to_bytes(8, "big") for total in totals.values()] * 4
    with Run(scene, priced, num_instances=2, **skips) as run:
        assert Counter(ask(run)) == Counter(expected)
        # Later records are added to what is there, once on each instance.
        scene.produce([(b"k0", (1_000).to_bytes(8, "big"))], amounts)
        more = (totals["k0"] + 1_000).to_bytes(8, "big")
        run.wait_for(lambda: ask(run).count(more) == 4, what="the later record was added")
    # On a restart one goes on with what it holds, and the other, without its disk, begins anew.
    shutil.rmtree(scene.state_dir / "instance-0")
    with Run(scene, priced, num_instances=2, **skips) as run:
        assert ask(run).count(more) == 4
