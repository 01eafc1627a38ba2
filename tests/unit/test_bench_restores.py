"""Rows of restores: what listeners print, and what the changelogs that are restored hold."""

from __future__ import annotations

import argparse

import pytest

import penstock as ps
from bench.inputs import BLOB_BYTES, BlobsChangelog, CountsChangelog, Probes, blob, key_bytes
from bench.programs.penstock_rows import TOPOLOGIES, RestorePrinter
from bench.restores import Restored, restored
from bench.rows.restore import PROBES, Run, changelog_for, row
from bench.rows.snapshot import Figures, rows
from bench.rows.snapshot import changelog_for as blobs_for
from penstock.testing import TopologyTestDriver

LINES = ["restore start 0 0 1000", "restore start 1 0 1200", "restore end 1 70 1500"]


def test_restores_count_from_the_first_start_to_the_last_end() -> None:
    assert restored("\n".join(LINES), partitions=2) is None
    log = "\n".join(["INFO of something", *LINES, "restore end 0 30 3000"])
    assert restored(log, partitions=2) == Restored(seconds=2.0, records=100)


def test_a_restore_that_moves_goes_on_and_ends_once() -> None:
    moved = ["restore suspended 0 10 1300", "restore start 0 0 1400"]
    assert restored("\n".join([*LINES, *moved]), partitions=2) is None
    log = "\n".join([*LINES, *moved, "restore end 0 20 3000"])
    assert restored(log, partitions=2) == Restored(seconds=2.0, records=100)


def test_the_program_prints_what_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    printer = RestorePrinter()
    partition = ps.TopicPartition("changelog", 0)
    printer.on_restore_start(partition, "counts", 0, 5)
    printer.on_restore_suspended(partition, "counts", 2)
    printer.on_restore_end(partition, "counts", 5)
    found = restored(capsys.readouterr().out, partitions=1)
    assert found is not None
    assert found.records == 7


def test_the_benchmark_restores_1_4_million_records_and_a_gibibyte() -> None:
    assert changelog_for(4_000_000).records == 1_400_000
    assert blobs_for(4_000_000).records * BLOB_BYTES == 2**30


def test_changelogs_have_each_key_once() -> None:
    counts = [m for chunk in CountsChangelog(records=2000).chunks() for m in chunk]
    assert sorted(message["key"] for message in counts) == [key_bytes(n) for n in range(2000)]
    assert counts[0]["key"] != key_bytes(0)
    blobs = {m["key"]: m["value"] for chunk in BlobsChangelog(records=50).chunks() for m in chunk}
    assert blobs == {key_bytes(n): blob(n) for n in range(50)}
    assert len(blob(1)) == BLOB_BYTES


def test_a_probe_of_an_empty_store_counts_one() -> None:
    """So that a restore of nothing is not taken for exact."""
    [load] = Probes(warmup=0, measured=10, tail=0).loads
    app = ps.Application("bench")
    TOPOLOGIES["count"](app, argparse.Namespace(input=load.topic, output="out"))
    driver = TopologyTestDriver(app)
    for chunk in load.chunks():
        for message in chunk:
            topic = driver.input_topic(load.topic, key=bytes, value=bytes)
            topic.pipe(message["key"], message["value"])
    found = driver.output_topic("out", key=bytes, value=int).read_pairs()
    assert found == [(key_bytes(n), 1) for n in range(10)]
    assert all(CountsChangelog(records=1).count(n) > 0 for n in range(PROBES.total))


def test_a_restore_that_is_as_fast_meets_its_target() -> None:
    ours, theirs = Run(Restored(2.0, 100), ()), Run(Restored(2.1, 100), ())
    changelog, runs = CountsChangelog(records=100), {"penstock": [ours], "kafka_streams": [theirs]}
    made = row("restore", runs, changelog)
    assert made.met()
    assert made.targets == {"kafka_streams": 1.0}
    assert row("restore_at_start", runs, changelog).targets == {}
    wrong = Run(Restored(1.0, 99), ("99 records were restored, not 100",))
    assert not row("restore", {"penstock": [wrong]}, changelog).met()


def test_a_snapshot_takes_a_tenth_of_a_replay_and_an_intact_disk_a_second() -> None:
    figures = Figures(seconds={"penstock": [0.9], "kafka_streams": [10.0]}, opening=[0.8])
    assert [(each.name, each.met()) for each in rows(figures, BlobsChangelog(records=1))] == [
        ("snapshot", True),
        ("start_1gib", True),
    ]
    figures.problems.append("a value is wrong")
    assert not any(each.met() for each in rows(figures, BlobsChangelog(records=1)))
