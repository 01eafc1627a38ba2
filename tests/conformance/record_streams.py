"""`python -m tests.conformance.record_streams`: keep a real KafkaStreams' answers for `make test`.

It runs each case on an embedded broker, which takes some minutes; test_recorded_streams.py replays
them without Java.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.conformance.streams_cases import KINDS, StreamsCase, make_streams_case
from tests.conformance.streams_oracle import StreamsOracle

RECORDED = Path(__file__).parent / "recorded" / "streams.json.gz"
SEEDS = 9 * len(KINDS)
# Besides the first ones: tables of which only what is looked up stays in a cache that overflows.
MORE_SEEDS = (790, 3772)


def recorded_streams() -> Iterator[tuple[StreamsCase, dict[str, Any]]]:
    """The recorded cases with their answers."""
    with gzip.open(RECORDED, "rt", encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            yield StreamsCase.from_json(row["case"]), row["answer"]


def main(arguments: list[str] | None = None) -> None:
    """Write the recorded set anew."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--into", type=Path, default=RECORDED, help="the file to write")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="how many seeds")
    options = parser.parse_args(arguments)
    # No time and no name in the file: the same answers are the same bytes.
    with (
        StreamsOracle() as oracle,
        options.into.open("wb") as file,
        gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed,
    ):
        for case in map(make_streams_case, (*range(options.seeds), *MORE_SEEDS)):
            row = {"case": case.as_json(), "answer": oracle.ask(case)}
            packed.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")
            print(f"{case.seed} {case.kind}", flush=True)
    print(f"{options.seeds + len(MORE_SEEDS)} cases, {options.into.stat().st_size} bytes")


if __name__ == "__main__":
    main()
