"""Rows `stream_table_join` and `stream_stream_join`: records joined by a function per pair."""

from __future__ import annotations

from functools import cache

from bench.inputs import StreamJoinInput, TableJoinInput, shares
from bench.lab import Lab
from bench.rows.throughput import Found, Workload
from bench.systems import Job, System
from bench.verify import Fingerprint, committed, fingerprint

TARGETS = {"kafka_streams": 1.0}


def table_input_for(_: str, records: int) -> TableJoinInput:
    """A quarter of the records of row `count` meet the table, whose rows come before all."""
    parts = shares(records // 4)
    keys = TableJoinInput.keys
    return TableJoinInput(**{**parts, "warmup": parts["warmup"] + keys})


def streams_input_for(_: str, records: int) -> StreamJoinInput:
    """3/20 of the records of row `count`, half of them in each stream."""
    return StreamJoinInput(**shares(records * 3 // 20))


@cache
def expected(spec: TableJoinInput | StreamJoinInput) -> Fingerprint:
    return spec.expected()


def read_back(lab: Lab, _: System, job: Job, spec: TableJoinInput | StreamJoinInput) -> Found:
    """The output must be the joined pairs, each once, in whatever order."""
    output = fingerprint(committed(lab.bootstrap_servers, job.output))
    written = sum(content.records for content in lab.changelogs(job).values())
    return Found(output.records, written, wrong_pairs(output, expected(spec)))


def wrong_pairs(found: Fingerprint, right: Fingerprint) -> tuple[str, ...]:
    if found == right:
        return ()
    if found.records != right.records:
        return (f"output has {found.records:,} pairs instead of {right.records:,}",)
    return (f"output has {right.records:,} pairs as it should, but not the right ones",)


WITH_TABLE: Workload[TableJoinInput] = Workload(
    name="stream_table_join", targets=TARGETS, input_for=table_input_for, read_back=read_back
)
OF_STREAMS: Workload[StreamJoinInput] = Workload(
    name="stream_stream_join", targets=TARGETS, input_for=streams_input_for, read_back=read_back
)
