"""Row `lambda_reduce`: the largest value of each key, by a function of the program's language."""

from __future__ import annotations

from functools import cache

from bench.inputs import ReduceInput, shares
from bench.lab import Lab
from bench.rows.throughput import Found, Workload
from bench.systems import Job, System
from bench.verify import differences, long_value, read_all, same_key


def input_for(_: str, records: int) -> ReduceInput:
    """Half the records of row `count`."""
    return ReduceInput(**shares(records // 2))


@cache
def expected(spec: ReduceInput) -> dict[bytes, int]:
    return spec.expected()


def read_back(lab: Lab, _: System, job: Job, spec: ReduceInput) -> Found:
    """The last value of every key must be its largest, in the output and in the changelog."""
    places = {
        "output": read_all(lab.bootstrap_servers, job.output),
        "changelog": lab.changelogs(job)["largest"],
    }
    problems = [
        f"{place} {text}"
        for place, content in places.items()
        for text in differences(content, expected(spec), key=same_key, value=long_value)
    ]
    return Found(places["output"].records, places["changelog"].records, tuple(problems))


WORKLOAD = Workload(
    name="lambda_reduce",
    targets={"kafka_streams": 1.0},
    input_for=input_for,
    read_back=read_back,
)
