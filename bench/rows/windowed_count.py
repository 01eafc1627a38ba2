"""Row `windowed_count`: counts per key and minute, each emitted once, when its window closes."""

from __future__ import annotations

from functools import cache

from bench.inputs import WindowedInput, shares
from bench.lab import Lab
from bench.rows.throughput import Found, Workload
from bench.systems import Job, System
from bench.verify import (
    Content,
    differences,
    long_value,
    read_all,
    same_key,
    window_of_changelog_key,
)


def input_for(_: str, records: int) -> WindowedInput:
    """A quarter of the records of row `count`."""
    return WindowedInput(**shares(records // 4))


@cache
def expected(spec: WindowedInput) -> tuple[dict[bytes, int], dict[bytes, int]]:
    """The final counts of the closed windows, and those of all windows."""
    return spec.closed(), spec.counts()


def read_back(lab: Lab, _: System, job: Job, spec: WindowedInput) -> Found:
    """Each closed window must be in the output exactly once, each window in the changelog."""
    closed, counts = expected(spec)
    output = read_all(lab.bootstrap_servers, job.output)
    changelogs = lab.changelogs(job)
    problems = wrong_output(output, closed)
    problems += [
        f"changelog {text}"
        for text in differences(
            changelogs["counts"], counts, key=window_of_changelog_key, value=long_value
        )
    ]
    written = sum(content.records for content in changelogs.values())
    return Found(output.records, written, tuple(problems))


def wrong_output(output: Content, closed: dict[bytes, int]) -> list[str]:
    """Where the output is not one right count for each closed window."""
    wrong = differences(output, closed, key=same_key, value=long_value)
    repeated = output.records - len(output.last)
    if repeated:
        wrong.append(f"has {repeated} results too many: a window closes once")
    return [f"output {text}" for text in wrong]


WORKLOAD = Workload(
    name="windowed_count",
    targets={"kafka_streams": 2.0},
    input_for=input_for,
    read_back=read_back,
)
