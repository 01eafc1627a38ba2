"""`python -m tests.conformance.record_assignments`: keep the real assignor's answers.

It asks Kafka Streams' high-availability assignor, which takes seconds;
test_recorded_assignments.py compares with its answers without Java.
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from penstock.local.jars import STREAMS, classpath, ensure
from penstock.local.java import find_java
from tests.conformance.assignment_cases import AssignmentCase, make_assignment_case

SOURCE = Path(__file__).parent / "assignor" / "Assignor.java"
RECORDED = Path(__file__).parent / "recorded" / "assignments.json.gz"
SEEDS = 600

Answer = dict[str, Any]  # see Assignor.java


def recorded_assignments() -> Iterator[tuple[AssignmentCase, Answer]]:
    """The recorded cases with their answers."""
    with gzip.open(RECORDED, "rt", encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            yield AssignmentCase.from_json(row["case"]), row["answer"]


def ask(cases: Iterable[AssignmentCase]) -> list[Answer]:
    """Kafka Streams' answers."""
    java, jars = str(find_java().program), classpath(ensure(STREAMS))
    questions = "".join(json.dumps(case.as_json()) + "\n" for case in cases)
    with tempfile.TemporaryDirectory(prefix="penstock-assignor-") as classes:
        compiler = [java, "-m", "jdk.compiler/com.sun.tools.javac.Main", "-nowarn"]
        subprocess.run([*compiler, "-cp", jars, "-d", classes, str(SOURCE)], check=True)
        command = [java, "-Dlog4j2.level=OFF", "-cp", f"{classes}:{jars}", "Assignor"]
        done = subprocess.run(
            command, input=questions, stdout=subprocess.PIPE, encoding="utf-8", check=True
        )
    return [json.loads(line) for line in done.stdout.splitlines()]


def main(arguments: list[str] | None = None) -> None:
    """Write the recorded set anew."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--into", type=Path, default=RECORDED, help="the file to write")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="how many seeds")
    options = parser.parse_args(arguments)
    cases = [make_assignment_case(seed) for seed in range(options.seeds)]
    answers = ask(cases)
    # No time and no name in the file: the same answers are the same bytes.
    with (
        options.into.open("wb") as file,
        gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed,
    ):
        for case, answer in zip(cases, answers, strict=True):
            row = {"case": case.as_json(), "answer": answer}
            packed.write(json.dumps(row).encode() + b"\n")
    print(f"{len(cases)} cases, {options.into.stat().st_size} bytes")


if __name__ == "__main__":
    main()
