"""The settings that Spark is started with, and what is known of its executors."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.pipeline import session
from penstock.pipeline.executors import _is_running
from penstock.pipeline.session import Session, collector, loopback


@pytest.mark.parametrize("master", ["local", "local[*,4]", "local[2]"])
def test_on_one_machine_spark_listens_to_that_machine_alone(master: str) -> None:
    assert loopback(master, {}, {}) == {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
    }


@pytest.mark.parametrize("master", ["spark://host:7077", "yarn", "k8s://https://host"])
def test_a_cluster_must_reach_the_driver(master: str) -> None:
    assert loopback(master, {}, {}) == {}


def test_what_the_user_says_of_addresses_counts() -> None:
    assert loopback("local[*]", {"spark.driver.host": "10.0.0.5"}, {}) == {
        "spark.driver.bindAddress": "127.0.0.1"
    }
    assert loopback("local[*]", {}, {"SPARK_LOCAL_IP": "10.0.0.5"}) == {}


@pytest.mark.parametrize(
    ("bound", "said", "expected"),
    [
        ("127.0.0.1", None, "127.0.0.1"),
        ("127.0.0.1", "10.0.0.5", "10.0.0.5"),
        ("10.0.0.5", None, None),
    ],
)
def test_sparks_pages_listen_where_spark_does(
    bound: str, said: str | None, expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str | None] = []

    def launch(conf: Any, options: Any) -> None:
        told.append(os.environ.get("SPARK_LOCAL_IP"))

    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)
    if said is not None:
        monkeypatch.setenv("SPARK_LOCAL_IP", said)
    monkeypatch.setattr(session, "launch_gateway", launch)
    monkeypatch.setattr(session.SparkContext, "_ensure_initialized", lambda **_: None)
    session._start_jvm({"spark.driver.bindAddress": bound}, quiet=True)
    assert told == [expected]
    assert os.environ.get("SPARK_LOCAL_IP") == said


@pytest.mark.parametrize(
    ("master", "settings", "expected"),
    [
        ("local-cluster[3,1,1024]", {}, 3),
        ("yarn", {"spark.executor.instances": "12"}, 12),
        ("spark://host:7077", {}, None),
        (
            "yarn",
            {"spark.executor.instances": "2", "spark.dynamicAllocation.enabled": "true"},
            None,
        ),
    ],
)
def test_how_many_executors_are_to_come_is_known_where_it_was_said(
    master: str, settings: dict[str, str], expected: int | None
) -> None:
    context = SimpleNamespace(master=master, getConf=lambda: settings)
    spark: Any = SimpleNamespace(sparkContext=context, conf=settings)
    assert Session(spark, owned=False).executors_asked_for == expected


@pytest.mark.parametrize(
    ("spark", "environment"),
    [
        ({"spark.driver.extraJavaOptions": "-Xss2m -XX:+UseZGC"}, {}),
        ({"spark.driver.defaultJavaOptions": "-XX:+UseG1GC"}, {}),
        ({}, {"JDK_JAVA_OPTIONS": "-XX:+UseSerialGC"}),
        ({}, {"JAVA_TOOL_OPTIONS": "-XX:-UseParallelGC"}),
    ],
)
def test_a_collector_that_somebody_chose_is_left_alone(
    spark: dict[str, str], environment: dict[str, str]
) -> None:
    # With two of them Java does not start.
    assert collector(spark, environment) == []


def test_one_that_the_machine_has_for_all_is_left_alone_too(tmp_path: Path) -> None:
    environment = {"SPARK_CONF_DIR": str(tmp_path)}
    defaults = tmp_path / "spark-defaults.conf"
    defaults.write_text("spark.driver.memory 2g")
    assert collector({}, environment) == ["-XX:+UseParallelGC"]
    defaults.write_text("spark.driver.defaultJavaOptions -XX:+UseG1GC")
    assert collector({}, environment) == []


def test_java_is_told_of_a_collector_for_large_arrays() -> None:
    options = {"spark.driver.extraJavaOptions": "-XX:+UseStringDeduplication -Xss2m"}
    assert collector(options, {"JDK_JAVA_OPTIONS": "-Xmx2g"}) == ["-XX:+UseParallelGC"]


def test_an_executor_whose_instance_is_dead_gets_another_though_its_number_is_anothers(
    tmp_path: Path,
) -> None:
    marker = tmp_path / "started"
    assert not _is_running(marker)
    command = [sys.executable, "-c", "print(flush=True); input()", "ward-1"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()  # Until it has begun, it has no command.
        marker.write_text(f"{process.pid} ward-1")
        assert _is_running(marker)
        marker.write_text(f"{process.pid} ward-0")
        assert not _is_running(marker)
        marker.write_text(f"{process.pid} ward-1")
        process.kill()
        # Dead, and not asked for its end yet.
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert not _is_running(marker)
    # The first process is another user's, or a container's own.
    marker.write_text("1 ward-1")
    assert not _is_running(marker)


def test_the_end_of_sparks_jvm_is_told_and_closing_leaves_nothing_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def stop() -> None:
        raise ConnectionRefusedError

    process = subprocess.Popen(["sleep", "60"])
    monkeypatch.setattr(session.SparkContext, "_gateway", SimpleNamespace(proc=process))
    monkeypatch.setattr(session.SparkContext, "_jvm", object())
    monkeypatch.setattr(session.SparkContext, "_active_spark_context", object())
    spark: Any = SimpleNamespace(stop=stop)
    found = Session(spark, owned=True)
    assert found.how_ended() == ""
    process.kill()
    process.wait()
    assert found.how_ended() == f"process {process.pid}, by signal 9"
    found.close()
    assert session.SparkContext._gateway is None
    assert session.SparkContext._active_spark_context is None
    # Of a JVM that somebody else started nobody here knows.
    monkeypatch.setattr(session.SparkContext, "_gateway", SimpleNamespace(proc=None))
    assert found.how_ended() == ""
