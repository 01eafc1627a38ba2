"""Kafka Streams in Java, from its released jars."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from bench.errors import BenchError
from bench.systems import PROGRAMS, Job, System
from penstock.local.java import find_java

THREADS = 2
# One gibibyte, all of it from the start: the stores are outside the heap, and a heap that grows
# during the run would be measured with it.
JVM = ["-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:+AlwaysPreTouch"]


def system(jars: list[Path], classes: Path) -> System:
    """The system, its program compiled into `classes`."""
    class_path = os.pathsep.join([*map(str, jars), str(classes)])
    compile_program(class_path, classes)

    def commands(job: Job) -> list[list[str]]:
        program = [str(find_java().program), *JVM, "-cp", class_path, "KafkaStreamsRows"]
        return [[*program, *job.arguments(), *job.choice(), "--threads", str(THREADS)]]

    return System(
        name="kafka_streams",
        title="Kafka Streams",
        version=version(jars),
        settings=f"{THREADS} threads, RocksDB, cache 10 MiB, {' '.join(JVM)}",
        commands=commands,
    )


def compile_program(class_path: str, classes: Path) -> None:
    classes.mkdir(parents=True, exist_ok=True)
    source = PROGRAMS / "KafkaStreamsRows.java"
    # By its module: many runtimes hold the compiler without having a javac on PATH.
    compiler = [str(find_java().program), "-m", "jdk.compiler/com.sun.tools.javac.Main"]
    done = subprocess.run(
        [*compiler, "-cp", class_path, "-d", str(classes), str(source)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise BenchError(
            f"{source.name} cannot be compiled:\n{done.stdout}{done.stderr}\n"
            "A Java development kit, 17 or later, is needed"
        )


def version(jars: list[Path]) -> str:
    for jar in jars:
        if jar.name.startswith("kafka-streams-"):
            return jar.stem.removeprefix("kafka-streams-")
    raise BenchError("the jars of Kafka Streams are not among the JVM parts")
