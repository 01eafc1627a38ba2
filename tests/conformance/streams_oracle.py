"""Answers of a real KafkaStreams: a broker and a Java process, for as long as they are wanted."""

from __future__ import annotations

import json
import subprocess
import tempfile
import threading
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from penstock.local.broker import EmbeddedKafka, KafkaOptions
from penstock.local.jars import STREAMS, classpath, ensure
from penstock.local.java import find_java
from tests.conformance.oracle import SOURCES
from tests.conformance.streams_cases import StreamsCase

Answer = dict[str, Any]  # see Streams.java

# Streams.java gives up sooner, and says on what.
_CASE_SECONDS_MAX = 300


class StreamsOracle:
    """Runs cases in Kafka Streams on an embedded broker.

    with StreamsOracle() as oracle:
        answer = oracle.ask(case)
    """

    def __init__(self) -> None:
        self._stack = ExitStack()
        with ExitStack() as stack:
            memory = Path("/dev/shm")
            directory = stack.enter_context(
                tempfile.TemporaryDirectory(
                    prefix="penstock-streams-", dir=memory if memory.is_dir() else None
                )
            )
            options = KafkaOptions(directory=Path(directory) / "kafka")
            kafka = stack.enter_context(EmbeddedKafka(options))
            self._process = _start(directory, kafka.bootstrap_servers)
            stack.callback(self._end)
            self._stack = stack.pop_all()

    def __enter__(self) -> Self:
        """The processes run already."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the processes and remove their files."""
        self._stack.close()

    def ask(self, case: StreamsCase) -> Answer:
        """One case's answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        # A process that hangs is killed, and then there is no line.
        watch = threading.Timer(_CASE_SECONDS_MAX, self._process.kill)
        watch.start()
        try:
            self._process.stdin.write(json.dumps(case.as_json(), ensure_ascii=False) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        finally:
            watch.cancel()
        if not line:
            raise RuntimeError(
                f"Kafka Streams ended with status {self._process.wait()} in case {case.seed}"
            )
        answer: Answer = json.loads(line)
        return answer

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()


def _start(directory: str, bootstrap: str) -> subprocess.Popen[str]:
    java, jars = str(find_java().program), classpath(ensure(STREAMS))
    classes = f"{directory}/classes"
    compiler = [java, "-m", "jdk.compiler/com.sun.tools.javac.Main"]
    subprocess.run([*compiler, "-cp", jars, "-d", classes, *map(str, SOURCES)], check=True)
    options = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dlog4j2.level=ERROR", "-Xmx1g"]
    command = [java, *options, "-cp", f"{classes}:{jars}", "Streams", bootstrap, directory]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, encoding="utf-8")
