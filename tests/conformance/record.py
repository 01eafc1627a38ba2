"""`python -m tests.conformance.record`: keep cases with Kafka Streams' answers for `make test`.

The recorded set is what test_recorded.py replays without Java, spread over all pairs of stateful
operators.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.conformance.cases import Case, make_case
from tests.conformance.oracle import Oracle
from tests.conformance.pipeline_cases import SEEDS as PIPELINE_SEEDS
from tests.conformance.pipeline_cases import make_pipeline_case

RECORDED = Path(__file__).parent / "recorded" / "cases.json.gz"
PIPELINE = RECORDED.with_name("pipeline.json.gz")
# Far from the seeds that people try by hand, and one for each pair of stateful operators.
FIRST_SEED = 1_000_192
SEEDS = 256


def recorded() -> Iterator[tuple[Case, dict[str, Any]]]:
    """The recorded cases with their answers."""
    return _read(RECORDED)


def recorded_for_pipeline() -> Iterator[tuple[Case, dict[str, Any]]]:
    """The cases that also run through Spark and Kafka, with their answers."""
    return _read(PIPELINE)


def main() -> None:
    """Write the recorded sets anew."""
    cases = [make_case(seed) for seed in range(FIRST_SEED, FIRST_SEED + SEEDS)]
    RECORDED.parent.mkdir(exist_ok=True)
    with Oracle() as oracle:
        _write(RECORDED, cases, oracle)
        _write(PIPELINE, [make_pipeline_case(seed) for seed in PIPELINE_SEEDS], oracle)


def _read(path: Path) -> Iterator[tuple[Case, dict[str, Any]]]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            yield Case.from_json(row["case"]), row["answer"]


def _write(path: Path, cases: list[Case], oracle: Oracle) -> None:
    # No time and no name in the file: the same answers are the same bytes.
    with path.open("wb") as file, gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed:
        for case, answer in oracle.ask_all(cases):
            row = {"case": case.as_json(), "answer": answer}
            packed.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")
    print(f"{path.name}: {len(cases)} cases, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
