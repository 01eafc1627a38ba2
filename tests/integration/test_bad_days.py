"""Bad input and bad days: each ends in an error that says what, where and what next.

Method: a real broker, and one Spark session for all. The application runs in this process, is
broken in one way after the other, and once all is mended goes on from where it was, to the exact
counts: no bad day costs a record.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    NewPartitions,
)

import penstock as ps
from penstock.changelog.commit_record import DriverRecord
from penstock.driver import watch
from penstock.driver.events import BatchEnded, Event, Rebalanced
from penstock.errors import (
    AnotherDriverError,
    BrokerUnreachableError,
    ChangelogError,
    DeserializationError,
    GroupInUseError,
    PartitionCountError,
    StateDirectoryError,
    StateDiskFullError,
    StateForeignError,
    StateLockedError,
    StatePermissionError,
    TopicMismatchError,
    TopicMissingError,
    UserFunctionError,
)
from penstock.stores.directory import FileLock
from tests.disks import empty, fill, read_only, small_disk
from tests.harness import AppProcess, Scene, wait_until
from tests.in_process import Run, instances_here, start_fails

pytestmark = pytest.mark.usefixtures("spark")

Records = list[tuple[bytes, bytes]]


@pytest.fixture
def scene(kafka: str, tmp_path: Path) -> Scene:
    return Scene(kafka, tmp_path, partitions=2).create_topics()


def records(count: int, *, keys: int = 10) -> Records:
    return [(b"key-%d" % (i % keys), b"value") for i in range(count)]


def assert_exact(scene: Scene) -> None:
    """Every key's counts go up by one from 1, to as often as it is in the source."""
    expected = scene.expected()
    assert scene.counts(scene.changelog) == expected
    assert scene.sequences() == {key: list(range(1, n + 1)) for key, n in expected.items()}


# Kafka.


def test_nothing_listens_at_the_bootstrap_address(scene: Scene) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
        error = start_fails(scene, bootstrap_servers=address)
    assert isinstance(error, BrokerUnreachableError)
    assert f"Nothing answers at {address}" in str(error)
    assert "Set bootstrap_servers (PENSTOCK_BOOTSTRAP_SERVERS); `penstock dev start`" in str(error)


def test_a_missing_topic_is_named_with_the_nearest_one(scene: Scene) -> None:
    def misspelt_source(app: ps.Application, source: str, results: str) -> None:
        stream = app.stream(source + "s", key=bytes, value=bytes)
        stream.group_by_key().count("counts").to_stream().to(results)

    def misspelt_sink(app: ps.Application, source: str, results: str) -> None:
        stream = app.stream(source, key=bytes, value=bytes)
        stream.group_by_key().count("counts").to_stream().to(results + "put")

    for topology, wrong, right in (
        (misspelt_source, scene.source + "s", scene.source),
        (misspelt_sink, scene.results + "put", scene.results),
    ):
        error = start_fails(scene, topology)
        assert isinstance(error, TopicMissingError)
        assert f"{wrong!r} does not exist" in str(error)
        assert f"Did you mean {right!r}" in str(error)


def test_a_source_topic_that_gets_partitions(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "WATCH_SECONDS", 0.2)
    total = scene.produce(records(40))
    with Run(scene) as run:
        run.wait_committed(total)
        admin = scene.admin
        admin.create_partitions([NewPartitions(scene.source, 3)])[scene.source].result()
        with pytest.raises(PartitionCountError) as while_running:
            run.wait_end()
    assert "has 3 partitions now; the application started with 2" in str(while_running.value)
    at_start = start_fails(scene)
    assert isinstance(at_start, PartitionCountError)
    assert "has 3 partitions, and the state was made with another number" in str(at_start)
    for error in (while_running.value, at_start):
        assert error.where["topic"] == scene.source
        assert "Use a new application id" in error.hint
    assert_exact(scene)


def test_a_changelog_that_lost_its_start(scene: Scene) -> None:
    total = scene.produce(records(40))
    with Run(scene) as run:
        run.wait_committed(total)
    old_state = scene.directory / "old"
    shutil.copytree(scene.state_dir, old_state)
    kept_from = changelog_ends(scene)
    total += scene.produce(records(40))
    with Run(scene) as run:
        run.wait_committed(total)
    # Every key was written again several times, so that what is left of the changelog is a whole
    # state, but not one that an older store can be brought up to.
    purge(scene, scene.changelog, {p: end + 4 for p, end in kept_from.items()})

    # The store that has it all loses nothing; but nobody could rebuild it.
    total += scene.produce(records(40))
    with Run(scene) as run:
        run.wait_committed(total)
    assert len(run.notices) == 2
    for notice in run.notices:
        assert f"{scene.changelog} begins at offset" in notice
        assert "is whole on this disk, and could not be rebuilt" in notice

    # One that is older, or empty, cannot know what it lacks.
    shutil.rmtree(scene.state_dir)
    empty = start_fails(scene)
    shutil.rmtree(scene.state_dir)
    old_state.rename(scene.state_dir)
    older = start_fails(scene)
    for error, holds in ((empty, "an empty store needs more of it"), (older, "the store holds up")):
        assert isinstance(error, ChangelogError)
        assert error.where["topic"] == scene.changelog
        assert "The changelog lost its start: it begins at offset" in error.message
        assert holds in error.message
        assert "allow_truncated_changelog=True" in error.hint
    assert scene.committed() == total

    total += scene.produce(records(40))
    with Run(scene, allow_truncated_changelog=True) as run:
        run.wait_committed(total)
    assert any("rebuilding the store" in notice for notice in run.notices)
    assert any("keys that were only before it are lost" in notice for notice in run.notices)
    assert_exact(scene)


def test_a_changelog_that_was_deleted(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "WATCH_SECONDS", 0.2)
    total = scene.produce(records(40))
    with Run(scene) as run:
        run.wait_committed(total)
        delete_topics(scene, scene.changelog)
        with pytest.raises(ChangelogError) as while_running:
            run.wait_end()
    at_start = start_fails(scene)
    for error in (while_running.value, at_start):
        assert isinstance(error, ChangelogError)
        assert error.where["topic"] == scene.changelog
        assert "was deleted" in error.message
        assert "internal topics" in error.hint
    # Refused before it could be made anew: it would be empty, and look right.
    assert scene.changelog not in scene.admin.list_topics().topics

    # Someone makes it by hand.
    scene.create_topics(scene.changelog)
    scene.set_config(scene.changelog, {"cleanup.policy": "compact"})
    recreated = start_fails(scene)
    assert isinstance(recreated, ChangelogError)
    assert "deleted and made again" in recreated.message
    assert recreated.where["topic"] == scene.changelog

    # All that would tell is gone, but the group still says where we were.
    delete_topics(scene, scene.changelog, f"{scene.application_id}-commits")
    shutil.rmtree(scene.state_dir)
    forgotten = start_fails(scene)
    assert isinstance(forgotten, ChangelogError)
    assert "the changelog with the state up to there does not exist" in forgotten.message
    assert forgotten.where["topic"] == scene.changelog
    assert "delete the consumer group" in forgotten.hint
    assert scene.committed() == total


def test_a_changelog_that_gets_partitions(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "WATCH_SECONDS", 0.2)
    total = scene.produce(records(40))
    with Run(scene) as run:
        run.wait_committed(total)
        # Settings that would lose state are told at once, and not at the next start.
        scene.set_config(scene.changelog, {"cleanup.policy": "delete"})
        lost = "cleanup.policy is delete, not compact: it would lose state or records"
        run.wait_for(lambda: any(lost in each for each in run.notices), what="it was told")
        scene.set_config(scene.changelog, {"cleanup.policy": "compact"})
        admin = scene.admin
        admin.create_partitions([NewPartitions(scene.changelog, 3)])[scene.changelog].result()
        with pytest.raises(PartitionCountError) as while_running:
            run.wait_end()
    at_start = start_fails(scene)
    for error in (while_running.value, at_start):
        assert isinstance(error, PartitionCountError)
        assert error.where["topic"] == scene.changelog
        assert "has 3 partitions" in error.message
        assert "Start afresh" in error.hint
    assert_exact(scene)


def test_a_repartition_topic_that_was_deleted(scene: Scene) -> None:
    def rekeyed(app: ps.Application, source: str, results: str) -> None:
        stream = app.stream(source, key=bytes, value=bytes)
        grouped = stream.group_by(lambda key, value: key, key=bytes, name="by-key")
        grouped.count("counts").to_stream().to(results)

    with Run(scene, rekeyed):
        pass
    topic = f"{scene.application_id}-by-key-repartition"
    delete_topics(scene, topic)
    error = start_fails(scene, rekeyed)
    assert isinstance(error, TopicMismatchError)
    assert error.where["topic"] == topic
    assert "was deleted" in error.message
    assert topic not in scene.admin.list_topics().topics


def changelog_ends(scene: Scene) -> dict[int, int]:
    ends: dict[int, int] = {}
    for row in scene.read(scene.changelog):
        ends[row.partition] = max(row.offset, ends.get(row.partition, 0))
    return ends


def purge(scene: Scene, topic: str, before: dict[int, int]) -> None:
    """Delete a compacted topic's records below these offsets, which the broker only allows so."""
    admin = scene.admin
    for policy in ("compact,delete", "compact"):
        scene.set_config(topic, {"cleanup.policy": policy})
        if policy == "compact,delete":
            asked = [TopicPartition(topic, p, offset) for p, offset in before.items()]
            for future in admin.delete_records(asked).values():
                future.result()


def delete_topics(scene: Scene, *names: str) -> None:
    admin = scene.admin
    for future in admin.delete_topics(list(names)).values():
        future.result()
    wait_until(lambda: not set(names) & set(admin.list_topics().topics), what="topics were gone")


# Records and functions.


def test_bad_records_and_functions_that_raise(scene: Scene) -> None:
    def topology(app: ps.Application, source: str, results: str) -> None:
        def half(value: int) -> int:
            if value == 13:
                raise RuntimeError("unlucky")
            return value // 2

        stream = app.stream(source, key=str, value=int).map_values(half, value=int)
        stream.group_by_key().count("counts").to_stream().to(results)

    def mended(app: ps.Application, source: str, results: str) -> None:
        stream = app.stream(source, key=str, value=int).map_values(lambda v: v // 2, value=int)
        stream.group_by_key().count("counts").to_stream().to(results)

    numbers = [(b"key-%d" % (i % 10), i.to_bytes(8, "big")) for i in range(20)]
    good = scene.produce([each for each in numbers if each[1][-1] != 13])
    with Run(scene, topology) as run:
        run.wait_committed(good)
        scene.produce([(key, value) for key, value in numbers if value[-1] == 13])
        with pytest.raises(UserFunctionError) as raised:
            run.wait_end()
    assert scene.committed() == good, "the slice was committed"
    unlucky = next(row for row in scene.read(scene.source) if row.value == numbers[13][1])
    assert raised.value.where["topic"] == scene.source
    assert int(str(raised.value.where["partition"])) == unlucky.partition
    assert int(str(raised.value.where["offset"])) == unlucky.offset
    assert raised.value.where["file"] == Path(__file__).name
    assert "raised RuntimeError: unlucky" in raised.value.message
    assert "in half" in raised.value.details
    assert "mend the function and start again" in str(raised.value)

    scene.produce([(b"key-1", b"no long")])
    with pytest.raises(DeserializationError) as undecodable, Run(scene, mended) as run:
        run.wait_end()
    bad = next(row for row in scene.read(scene.source) if row.value == b"no long")
    assert undecodable.value.where["topic"] == scene.source
    assert int(str(undecodable.value.where["partition"])) == bad.partition
    assert int(str(undecodable.value.where["offset"])) == bad.offset
    assert 'deserialization_exception_handler="continue"' in str(undecodable.value)

    scene.produce([(b"\xff", (1).to_bytes(8, "big"))])
    with Run(scene, mended, deserialization_exception_handler="continue") as run:
        run.wait_committed(22)
        # The totals come with the answer to the commit, a moment after the offsets.
        dropped = {"undecodable": 2}
        run.wait_for(lambda: run.app.totals.dropped == dropped, what="two were dropped")
    assert scene.sequences() == {b"key-%d" % i: [1, 2] for i in range(10)}


# The state directory.


def test_a_state_directory_that_cannot_be_used(scene: Scene) -> None:
    total = scene.produce(records(40))
    with Run(scene) as run:
        run.wait_committed(total)
    total += scene.produce(records(40))
    own = scene.state_dir / scene.application_id

    lock = FileLock.acquire(own / ".lock")
    error = start_fails(scene)
    lock.release()
    assert isinstance(error, StateLockedError)
    assert f"held by process {os.getpid()}" in str(error)
    assert "set state_dir to another" in str(error)

    kept = own.rename(scene.directory / "kept")
    own.write_text("in the way")
    error = start_fails(scene)
    own.unlink()
    assert isinstance(error, StateDirectoryError)
    assert str(own) in str(error)
    assert "set state_dir to another" in str(error)

    own.mkdir()
    own.joinpath("process-metadata").write_text('{"processId":"1","applicationId":"clinic"}')
    error = start_fails(scene)
    shutil.rmtree(own)
    assert isinstance(error, StateForeignError)
    assert "made by the application 'clinic'" in str(error)
    assert "Set state_dir to another" in str(error)

    kept.rename(own)
    with Run(scene) as run:
        run.wait_committed(total)
    assert run.notices == []
    assert_exact(scene)


def feed_until_it_ends(run: Run, records: Records) -> None:
    """How much a store keeps in memory is RocksDB's choice; sooner or later it must write."""
    for _ in range(10):
        total = run.scene.committed() + run.scene.produce(records)
        run.wait_for(
            lambda until=total: run.scene.committed() >= until, what="a commit", seconds=150
        )


@pytest.mark.timeout(600)
def test_a_disk_that_is_read_only_or_full(scene: Scene) -> None:
    def latest(app: ps.Application, source: str, results: str) -> None:
        stream = app.stream(source, key=bytes, value=bytes).group_by_key()
        stream.reduce(lambda old, new: new, "counts").to_stream().to(results)

    def large(count: int) -> Records:
        return [(b"key-%d" % (i % 3), bytes([i]) * 400_000) for i in range(count)]

    with small_disk(scene.state_dir):
        total = scene.produce(large(6))
        with Run(scene, latest) as run:
            run.wait_committed(total)
            fill(scene.state_dir)
            with pytest.raises(StateDiskFullError) as full:
                feed_until_it_ends(run, large(80))
        assert "nothing that was committed is lost" in str(full.value)
        assert "Free space" in str(full.value)
        assert str(scene.state_dir) in str(full.value)
        assert isinstance(start_fails(scene, latest), StateDiskFullError)
        empty(scene.state_dir)
        with read_only(scene.state_dir):
            error = start_fails(scene, latest)
        assert isinstance(error, StatePermissionError)
        assert str(scene.state_dir) in str(error)
        with Run(scene, latest) as run:
            run.wait_committed(len(scene.read(scene.source)))
    sent = Counter((row.key, row.value) for row in scene.read(scene.source))
    assert Counter((row.key, row.value) for row in scene.read(scene.results)) == sent


def test_damaged_stores_are_rebuilt(kafka: str, tmp_path: Path) -> None:
    scene = Scene(kafka, tmp_path, partitions=4).create_topics()
    total = scene.produce(records(8000, keys=4000))
    with Run(scene) as run:
        run.wait_committed(total)
    stores = [
        scene.state_dir / scene.application_id / f"0_{partition}" / "counts"
        for partition in range(4)
    ]
    (stores[0] / "CURRENT").write_bytes(b"nonsense")
    manifest = next(stores[1].glob("MANIFEST-*"))
    overwrite(manifest, at=manifest.stat().st_size // 3)
    table = next(stores[2].glob("*.sst"))
    os.truncate(table, table.stat().st_size // 2)
    # Blocks behind the first, which holds the store's own records: seen only when keys are read.
    table = next(stores[3].glob("*.sst"))
    overwrite(table, at=table.stat().st_size // 3)
    total += scene.produce(records(4000, keys=4000))
    with Run(scene) as run:
        run.wait_committed(total)
    for store in stores:
        [notice] = [each for each in run.notices if str(store) in each]
        assert f"rebuilding it from {scene.changelog}" in notice
    assert_exact(scene)


def overwrite(file: Path, *, at: int) -> None:
    with file.open("r+b") as opened:
        opened.seek(at)
        opened.write(b"\xff" * 64)


# Others who work under the same name.


def test_one_driver_and_nobody_else_in_its_group(scene: Scene) -> None:
    scene.produce(records(40))
    beat = timedelta(seconds=1)
    with group_member(scene, {"client.id": "a-tool"}):
        error = start_fails(scene, heartbeat_interval=beat)
    assert isinstance(error, GroupInUseError)
    assert f"{scene.application_id!r} has live members: a-tool on" in str(error)
    assert "Stop them, or use another application id" in str(error)

    with driver_elsewhere(scene):
        error = start_fails(scene, heartbeat_interval=beat)
    assert isinstance(error, AnotherDriverError)
    assert "host far-away" in str(error)
    # That one is silent now, though its group has not given it up.
    with Run(scene, heartbeat_interval=beat) as run:
        another = AppProcess(scene)
        assert another.process.wait(60) == 1
        assert "error another_driver: " in another.text()
        assert f"process {os.getpid()}" in another.text()
        assert isinstance(start_fails(scene), AnotherDriverError)
        run.wait_committed(40)
    assert_exact(scene)


@contextlib.contextmanager
def group_member(scene: Scene, properties: dict[str, str]) -> Iterator[None]:
    """A live member of the application's consumer group."""
    consumer = Consumer(
        {
            "bootstrap.servers": scene.bootstrap,
            "group.id": scene.application_id,
            "enable.auto.commit": False,
            **properties,
        }
    )
    joined = threading.Event()
    consumer.subscribe([scene.source], on_assign=lambda *_: joined.set())

    def poll() -> bool:
        consumer.poll(0.05)
        return joined.is_set()

    wait_until(poll, what="the consumer joined")
    try:
        yield
    finally:
        consumer.close()


@contextlib.contextmanager
def driver_elsewhere(scene: Scene) -> Iterator[None]:
    """What can be seen in Kafka of a driver on another machine."""
    producer = Producer({"bootstrap.servers": scene.bootstrap})
    stop = threading.Event()

    def beat(number: int) -> None:
        record = DriverRecord(generation=1, host="far-away", pid=1, process_start=0.0, beat=number)
        producer.produce(f"{scene.application_id}-commits", record.encode(), b"driver", 0)
        assert producer.flush(30) == 0

    def beat_on() -> None:
        number = 1
        while not stop.wait(0.05):
            number += 1
            beat(number)

    thread = threading.Thread(target=beat_on)
    with group_member(scene, {"group.instance.id": f"{scene.application_id}-driver"}):
        beat(1)  # As a driver does: its record is there before anybody can look for it.
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()


# Spark dies, and Ctrl-C.


def test_the_end_of_sparks_jvm_is_told_at_once_and_costs_no_record(scene: Scene) -> None:
    app = AppProcess(scene)
    try:
        app.wait_running()
        children = psutil.Process(app.process.pid).children()
        [jvm] = [each for each in children if "SparkSubmit" in " ".join(each.cmdline())]
        jvm.kill()
        # There is nothing to do: no job finds it out.
        assert app.process.wait(120) != 0, app.text()
        assert f"Spark's JVM has ended (process {jvm.pid}, by signal 9)" in app.text()
        assert "accumulators" not in app.text()
        wait_until(lambda: not started_by(app), what="all its processes had ended")
    finally:
        app.kill()
    total = scene.produce(records(200))
    with Run(scene) as run:
        run.wait_committed(total)
    assert_exact(scene)


def test_ctrl_c_at_any_moment_ends_in_order(scene: Scene) -> None:
    total = scene.produce(records(20_000))
    app = AppProcess(scene)
    try:
        app.wait_for(lambda: "state rebalancing" in app.text(), what="it was starting")
        # To the whole group, as `timeout` and systemd do it: what it started must not end before.
        os.killpg(app.process.pid, signal.SIGTERM)
        assert app.process.wait(120) == 0, app.text()
        assert "Traceback" not in app.text()
        wait_until(lambda: not started_by(app), what="all its processes had ended")
    finally:
        app.kill()
    interrupt(scene, lambda event: isinstance(event, BatchEnded))
    done = scene.committed()
    assert 0 < done < total
    shutil.rmtree(scene.state_dir)
    interrupt(scene, lambda event: isinstance(event, Rebalanced))
    assert scene.committed() == done
    with Run(scene) as run:
        run.wait_committed(total)
    assert_exact(scene)


def interrupt(scene: Scene, when: Callable[[Event], bool]) -> None:
    """Run the application in the main thread, with a Ctrl-C at the first such event."""
    app = Run(scene, slice_records_max=500).app
    pressed: list[Event] = []

    def press(event: Event) -> None:
        if when(event) and not pressed:
            pressed.append(event)
            os.kill(os.getpid(), signal.SIGINT)

    app.on_event(press)
    app.run()
    assert pressed
    assert app.state is ps.ApplicationState.NOT_RUNNING
    assert instances_here() == []


def started_by(app: AppProcess) -> list[psutil.Process]:
    """What runs with the environment that the application was given: instances, Java, workers."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get("PENSTOCK_CRASH_DIR") == str(app.crash_dir):
                found.append(process)
    return found
