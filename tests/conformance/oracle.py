"""Kafka Streams' answers: a Java process that runs cases for as long as this one wants."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from penstock.local.jars import STREAMS, classpath, ensure
from penstock.local.java import find_java
from tests.conformance.cases import Case
from tests.conformance.store_commands import StoreCase

SOURCES = sorted((Path(__file__).parent / "oracle").glob("*.java"))
Answer = dict[str, Any]  # outputs: per record {topic: rows}; stores: {name: rows}; error, at

# The cases that wait in the pipe while one runs: enough that neither side waits for the other.
_AHEAD = 4


class Oracle:
    """Runs cases in Kafka Streams' TopologyTestDriver.

    with Oracle() as oracle:
        answer = oracle.ask(case)
    """

    def __init__(self) -> None:
        # Each case opens a database or two: in memory that takes a tenth of the time.
        memory = Path("/dev/shm")
        self._directory = tempfile.TemporaryDirectory(
            prefix="penstock-oracle-", dir=memory if memory.is_dir() else None
        )
        java, jars = str(find_java().program), classpath(ensure(STREAMS))
        classes = f"{self._directory.name}/classes"
        compiler = [java, "-m", "jdk.compiler/com.sun.tools.javac.Main"]
        subprocess.run([*compiler, "-cp", jars, "-d", classes, *map(str, SOURCES)], check=True)
        # Few threads and a short warm-up: the other side runs on the same cores.
        options = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dlog4j2.level=OFF", "-Xmx1g"]
        command = [java, *options, "-cp", f"{classes}:{jars}", "Oracle", self._directory.name]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, encoding="utf-8"
        )
        self._reader = ThreadPoolExecutor(1)

    def __enter__(self) -> Self:
        """The process runs already."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the process and remove its stores."""
        self._process.kill()
        self._process.wait()
        self._reader.shutdown()
        self._directory.cleanup()

    def ask(self, case: Case, **options: Any) -> Answer:
        """One case's answer; `options` go to Oracle.java with it."""
        self._send(case, **options)
        # Through the reader, behind the answers that are still to come.
        return self._reader.submit(self._receive).result()

    def ask_all(self, cases: Iterable[Case], **options: Any) -> Iterator[tuple[Case, Answer]]:
        """The cases with their answers, in order; the next ones run while one is looked at."""
        waiting = []
        for case in cases:
            self._send(case, **options)
            waiting.append((case, self._reader.submit(self._receive)))
            if len(waiting) > _AHEAD:
                first, answer = waiting.pop(0)
                yield first, answer.result()
        for case, answer in waiting:
            yield case, answer.result()

    def ask_stores(self, case: StoreCase) -> Answer:
        """What a store answers to a processor's commands."""
        self._write(case.as_json())
        return self._reader.submit(self._receive).result()

    def _send(self, case: Case, **options: Any) -> None:
        self._write({**case.as_json(), **options})

    def _write(self, question: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(question, ensure_ascii=False) + "\n")
        self._process.stdin.flush()

    def _receive(self) -> Answer:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"The oracle ended with status {self._process.wait()}")
        answer: Answer = json.loads(line)
        return answer
