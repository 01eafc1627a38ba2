"""`python -m tests.conformance.record`: keep cases with Kafka Streams' answers for `make test`.

The recorded set is what test_recorded.py replays without Java, spread over all pairs of stateful
operators.
"""

from __future__ import annotations

import gzip
import itertools
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.conformance.cases import STATEFUL, Case, make_case
from tests.conformance.oracle import Oracle
from tests.conformance.pipeline_cases import pipeline_cases
from tests.conformance.pipeline_programs import program_cases
from tests.conformance.processor_cases import KINDS, cells, make_processor_case
from tests.conformance.store_commands import StoreCase, make_store_case
from tests.conformance.windowed_cases import SHAPES, make_windowed_case

RECORDED = Path(__file__).parent / "recorded" / "cases.json.gz"
PIPELINE = RECORDED.with_name("pipeline.json.gz")
STORES = RECORDED.with_name("stores.json.gz")
WINDOWED = RECORDED.with_name("windowed.json.gz")
PROCESSORS = RECORDED.with_name("processors.json.gz")
# Far from the seeds that people try by hand, and one for each pair of stateful operators.
FIRST_SEED = 1_000_192
SEEDS = 256
STORE_SEEDS = 120
PROCESSOR_CASES = 60
WINDOWED_CASES = 3 * len(SHAPES)


def recorded() -> Iterator[tuple[Case, dict[str, Any]]]:
    """The recorded cases with their answers."""
    return _read(RECORDED)


def recorded_for_pipeline() -> Iterator[tuple[Case, dict[str, Any]]]:
    """The cases that also run through Spark and Kafka, with their answers."""
    return _read(PIPELINE)


def recorded_windowed() -> Iterator[tuple[Case, dict[str, Any]]]:
    """The cases whose keys stay windowed, with their answers."""
    return _read(WINDOWED)


def recorded_processors() -> Iterator[tuple[Case, dict[str, Any]]]:
    """The cases with processors, with their answers."""
    return _read(PROCESSORS)


def recorded_stores() -> Iterator[tuple[StoreCase, dict[str, Any]]]:
    """What processors do with their stores, with what Kafka Streams' answer."""
    for case, answer in _rows(STORES):
        yield StoreCase.from_json(case), answer


def main() -> None:
    """Write the recorded sets anew."""
    cases = [make_case(seed) for seed in range(FIRST_SEED, FIRST_SEED + SEEDS)]
    RECORDED.parent.mkdir(exist_ok=True)
    with Oracle() as oracle:
        _write(RECORDED, oracle.ask_all(cases))
        _write(PIPELINE, oracle.ask_all([*pipeline_cases(), *program_cases()]))
        _write(WINDOWED, oracle.ask_all(map(make_windowed_case, range(WINDOWED_CASES))))
        _write(PROCESSORS, oracle.ask_all(map(make_processor_case, _processor_seeds())))
        stores = (make_store_case(seed) for seed in range(STORE_SEEDS))
        _write(STORES, ((case, oracle.ask_stores(case)) for case in stores))


def _processor_seeds() -> list[int]:
    """Seeds in which kinds of processors, operators, and which comes first, take turns."""
    places = {cell: place for place, cell in enumerate(cells())}
    kinds, sides = itertools.cycle(KINDS), itertools.cycle((False, True))
    turns = zip(kinds, itertools.cycle(STATEFUL), sides, range(PROCESSOR_CASES), strict=False)
    first = FIRST_SEED // len(places) * len(places)
    return [first + places[kind, operator, behind] for kind, operator, behind, _ in turns]


def _read(path: Path) -> Iterator[tuple[Case, dict[str, Any]]]:
    for case, answer in _rows(path):
        yield Case.from_json(case), answer


def _rows(path: Path) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            yield row["case"], row["answer"]


def _write(path: Path, answered: Iterable[tuple[Case | StoreCase, dict[str, Any]]]) -> None:
    count = 0
    # No time and no name in the file: the same answers are the same bytes.
    with path.open("wb") as file, gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed:
        for case, answer in answered:
            row = {"case": case.as_json(), "answer": answer}
            packed.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")
            count += 1
    print(f"{path.name}: {count} cases, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
