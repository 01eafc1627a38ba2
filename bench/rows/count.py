"""Row `count`: records per second of a count per key, in steady state, every count verified."""

from __future__ import annotations

from functools import cache

from bench.inputs import CountInput, shares
from bench.lab import Lab
from bench.rows.throughput import Found, Workload
from bench.systems import COMMIT_INTERVAL_MS, Job, System
from bench.verify import differences, long_value, read_all, same_key


def input_for(system: str, records: int) -> CountInput:
    """The same shape for every system; a slow one gets a twentieth of the records."""
    return CountInput(**shares(records // 20 if system == "quix_streams" else records))


@cache
def expected_counts(spec: CountInput) -> dict[bytes, int]:
    return spec.expected()


def read_back(lab: Lab, system: System, job: Job, spec: CountInput) -> Found:
    """How many records output and changelog hold, and where their last values are wrong."""
    expected = expected_counts(spec)
    output = read_all(lab.bootstrap_servers, job.output)
    changelog = read_all(lab.bootstrap_servers, system.changelog(job))
    wrong = differences(output, expected, key=same_key, value=long_value)
    wrong_state = differences(
        changelog, expected, key=system.changelog_key, value=system.changelog_value
    )
    problems = [f"output {text}" for text in wrong] + [f"changelog {text}" for text in wrong_state]
    return Found(output.records, changelog.records, tuple(problems))


WORKLOAD = Workload(
    name="count",
    targets={"kafka_streams": 2.0, "quix_streams": 10.0},
    guarantees=tuple(COMMIT_INTERVAL_MS),
    systems=("penstock", "kafka_streams", "quix_streams"),
    input_for=input_for,
    read_back=read_back,
)
