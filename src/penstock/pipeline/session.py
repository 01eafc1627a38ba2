"""The Spark session that an application runs on."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyspark
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from penstock.config import Config
from penstock.errors import ConfigError
from penstock.hidden import SECRET_VALUES, SECRET_WORDS, is_secret, without_secrets
from penstock.local.class_archive import ClassArchive
from penstock.local.java import find_java

_SETTINGS = {
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.enabled": "false",
    "spark.scheduler.mode": "FAIR",
    # A job over planned ranges must keep one partition per input partition: coalescing or splitting
    # them would interleave a task's rows.
    "spark.sql.adaptive.enabled": "false",
    # Kafka is not in this list, so it is read through the newer of Spark's two interfaces: a small
    # job takes 240 ms instead of 400.
    "spark.sql.sources.useV1SourceList": "avro,csv,json,orc,parquet,text",
    "spark.python.daemon.module": "penstock.pipeline.daemon",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    # The largest number turns the limit off. With a limit, Spark 4.2 measures the whole batch after
    # each row, which takes time quadratic in its rows (a list column is walked from its start:
    # 400,000 rows took 20 s). Slices are bounded in bytes by the planner instead.
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
    "spark.sql.execution.pythonUDF.arrow.enabled": "true",
    "spark.driver.memory": "1g",
    # A worker that waits for a commit is not stuck.
    "spark.task.maxFailures": "4",
    "spark.sql.shuffle.partitions": "1",
    "spark.locality.wait": "0s",
}
# Ten times Java's own thresholds for its optimising compiler. It compiles thousands of Spark's
# planning methods otherwise, and small jobs wait for it: in the first minute they took 840 ms
# instead of 320. What runs once per row passes these thresholds too: `make bench ROW=count` was no
# slower.
_COMPILER = (
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:Tier4BackEdgeThreshold=400000",
)
# Java's usual collector treats arrays of some hundred KiB, as Kafka's fetches and Arrow's columns
# are, as a case of its own, and marks the whole heap again and again for them: of a count at half
# its capacity that took a third of the JVM's processor time.
_COLLECTOR = "-XX:+UseParallelGC"
_CHOOSES_COLLECTOR = re.compile(r"-XX:[+-]Use\w+GC\b")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*(\d+)")
_DRIVER_JAVA, _EXECUTOR_JAVA = "spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions"

_JAVA_ENVIRONMENT = (
    *("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS"),
    *("SPARK_SUBMIT_OPTS", "PYSPARK_SUBMIT_ARGS"),
)
_LOOPBACK, _ADDRESS = "127.0.0.1", "SPARK_LOCAL_IP"

_threads = threading.local()


@dataclass(frozen=True)
class Session:
    """A Spark session, and what the driver wants to know of it."""

    spark: SparkSession
    owned: bool
    """Whether we started it, and so end it."""

    @property
    def cores(self) -> int:
        """How many Spark tasks can run at once."""
        return int(self.spark.sparkContext.defaultParallelism)

    @property
    def on_one_machine(self) -> bool:
        """Whether executors and driver are one process."""
        return _is_local(str(self.spark.sparkContext.master))

    @property
    def executors_asked_for(self) -> int | None:
        """How many executors there are to be, where that was said."""
        context = self.spark.sparkContext
        found = _LOCAL_CLUSTER.match(str(context.master))
        if found:
            return int(found[1])
        if str(self.spark.conf.get("spark.dynamicAllocation.enabled", "false")) == "true":
            return None
        asked = context.getConf().get("spark.executor.instances", "")
        return int(asked) if asked else None

    @property
    def driver_host(self) -> str:
        """The address at which executors find the driver."""
        if str(self.spark.sparkContext.master).startswith("local-cluster"):
            return "127.0.0.1"
        return str(self.spark.conf.get("spark.driver.host"))

    def how_ended(self) -> str:
        """How Spark's JVM ended, if it was ours to start and is not there any more; else ""."""
        process = getattr(SparkContext._gateway, "proc", None)  # noqa: SLF001 - no public way
        status = None if process is None else process.poll()
        if process is None or status is None:
            return ""
        how = f"by signal {-status}" if status < 0 else f"with exit status {status}"
        return f"process {process.pid}, {how}"

    def close(self) -> None:
        """Stop Spark, if it was ours to start."""
        if not self.owned:
            return
        if not self.how_ended():
            self.spark.stop()
            return
        # Nobody answers. What PySpark remembers of it would be in the way of the next session.
        with contextlib.suppress(OSError, Py4JError):
            self.spark.stop()
        SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001
        SparkContext._active_spark_context = None  # noqa: SLF001


def open_session(application_id: str, config: Config, jars: Sequence[Path]) -> Session:
    """The session, started if this process has none.

    Under `spark-submit` its settings win over ours. Raises `ConfigError` under Spark Connect:
    planning, job groups and the Kafka source's options need a driver in this process.
    """
    if os.environ.get("SPARK_REMOTE") or "spark.remote" in config.spark:
        raise ConfigError(
            "Spark Connect cannot run an application",
            hint="Run on a classic master (local[*,4], spark://..., yarn, k8s), without "
            "SPARK_REMOTE",
        )
    _use_this_python()
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    builder = SparkSession.builder.appName(application_id)
    settings = _settings(config.spark, jars, submitted=submitted)
    said = {**_submitted(), **config.spark} if submitted else {**config.spark}
    master = said.get("spark.master", "") if submitted else config.master
    settings |= loopback(master, said, os.environ)
    if not submitted:
        settings["spark.master"] = config.master
    for name, value in settings.items():
        builder = builder.config(name, value)
    # Not `getActiveSession`: that is the calling thread's, and whoever made it may be another one.
    found = SparkContext._active_spark_context is not None  # noqa: SLF001 - no public way
    had_jvm = SparkContext._gateway is not None  # noqa: SLF001
    logging.getLogger("py4j").setLevel(logging.WARNING)
    if not had_jvm and not submitted:
        _start_jvm(settings, quiet=not _wants_log(config.spark))
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF" if not _wants_log(config.spark) else "WARN")
    # It would print a traceback when the JVM ends, which the driver tells in its own words.
    server: Any = spark.sparkContext._accumulatorServer  # noqa: SLF001
    server.handle_error = lambda *_: None
    if submitted or had_jvm:
        # The driver's class loader was made before our jars were known.
        for jar in jars:
            spark.sql(f"ADD JAR '{jar}'")
    return Session(spark, owned=not found)


def loopback(
    master: str, said: Mapping[str, str], environment: Mapping[str, str]
) -> dict[str, str]:
    """Settings that keep Spark from listening to other machines, where it needs none."""
    if not _is_local(master) or _ADDRESS in environment:
        return {}
    names = ("spark.driver.bindAddress", "spark.driver.host")
    return {name: _LOOPBACK for name in names if name not in said}


def _is_local(master: str) -> bool:
    return master == "local" or master.startswith("local[")


def _submitted() -> dict[str, str]:
    """What `spark-submit` was told."""
    SparkContext._ensure_initialized()  # noqa: SLF001 - its settings are the JVM's, which is there
    return dict(SparkConf().getAll())


def use_added_jars(spark: SparkSession) -> None:
    """Let the calling thread's twin in the JVM see jars that were added later, once.

    `ADD JAR` does so for the thread that runs it alone, and jobs have threads of their own.
    """
    if getattr(_threads, "spark", None) is not spark:
        java = spark.sparkContext._jvm.java.lang  # type: ignore[union-attr]  # noqa: SLF001
        loader = spark._jsparkSession.sharedState().jarClassLoader()  # noqa: SLF001
        java.Thread.currentThread().setContextClassLoader(loader)
        _threads.spark = spark


def _use_this_python() -> None:
    """Workers run the system's Python unless told; it would lack our packages."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    own = str(Path(sys.executable).parent)
    if own not in os.environ.get("PATH", "").split(os.pathsep):
        os.environ["PATH"] = own + os.pathsep + os.environ.get("PATH", "")


def _wants_log(spark: Mapping[str, str]) -> bool:
    return bool(spark.get("spark.penstock.log") or os.environ.get("PENSTOCK_SPARK_LOG"))


def _settings(spark: Mapping[str, str], jars: Sequence[Path], *, submitted: bool) -> dict[str, str]:
    """Spark's settings: the user's win, but Java's options are added to ours."""
    settings = {**_SETTINGS, "spark.jars": ",".join(str(jar) for jar in jars)}
    driver = executor = [*_COMPILER, *([] if _wants_log(spark) else [_quiet_log()])]
    if not submitted:
        # Not through spark.jars alone: classes from a loader of Spark's own are never archived.
        settings["spark.driver.extraClassPath"] = os.pathsep.join(str(jar) for jar in jars)
        driver = driver + driver_archive(find_java().program, jars).options()
        driver = driver + collector(spark, os.environ)
    settings |= spark
    settings |= _redaction(spark)
    for name, options in ((_DRIVER_JAVA, driver), (_EXECUTOR_JAVA, executor)):
        settings[name] = " ".join([*options, spark.get(name, "")]).strip()
    return {name: value for name, value in settings.items() if value}


def collector(spark: Mapping[str, str], environment: Mapping[str, str]) -> list[str]:
    """Which collector the driver's JVM is told to use: none if somebody else says so.

    A JVM that is told of two does not start.
    """
    said = [spark.get(name, "") for name in (_DRIVER_JAVA, "spark.driver.defaultJavaOptions")]
    said += [environment.get(name, "") for name in _JAVA_ENVIRONMENT]
    home = environment.get("SPARK_HOME") or Path(pyspark.__file__).parent
    defaults = Path(environment.get("SPARK_CONF_DIR") or Path(home, "conf"), "spark-defaults.conf")
    with contextlib.suppress(OSError):
        said.append(defaults.read_text(errors="replace"))
    return [] if any(map(_CHOOSES_COLLECTOR.search, said)) else [_COLLECTOR]


def _redaction(spark: Mapping[str, str]) -> dict[str, str]:
    """What Spark hides in its pages, event log and plans: what the user says, and our words."""
    ours = {
        # Spark looks for it in names and in values.
        "spark.redaction.regex": f"(?i){SECRET_WORDS}|{SECRET_VALUES}",
        # The options of a source in a plan have words of their own.
        "spark.sql.redaction.options.regex": f"(?i)url|{SECRET_WORDS}",
    }
    return {
        name: f"{spark[name]}|{words}" if name in spark else words for name, words in ours.items()
    }


def _start_jvm(settings: Mapping[str, str], *, quiet: bool) -> None:
    """Start the JVM with all but the secrets: PySpark puts every setting on its command line.

    The session gives it the rest.
    """
    public = SparkConf(loadDefaults=False)
    for name, value in settings.items():
        # Java's own options have no other way in: what is in them is for all to see.
        if name == _DRIVER_JAVA or (not is_secret(name) and without_secrets(value) == value):
            public.set(name, value)
    # In a session of its own: a SIGTERM for the whole group, as `timeout` and systemd send it, is
    # for the driver, which ends in order only while Spark is there. Spark goes with the driver: it
    # sees the end of its input.
    own: dict[str, object] = {"start_new_session": True}
    if quiet:
        # It greets before any setting can silence it. Ours stays: others write to it meanwhile.
        own["stderr"] = subprocess.DEVNULL
    with _pages_here(settings):
        gateway = launch_gateway(public, own)  # type: ignore[no-untyped-call]
    SparkContext._ensure_initialized(gateway=gateway)  # noqa: SLF001 - no public way


@contextlib.contextmanager
def _pages_here(settings: Mapping[str, str]) -> Iterator[None]:
    """Have Spark's pages, where somebody turns them on, on the loopback if the rest of Spark is.

    They look at no setting for that, and without the variable other machines reach them.
    """
    if _ADDRESS in os.environ or settings.get("spark.driver.bindAddress") != _LOOPBACK:
        yield
        return
    os.environ[_ADDRESS] = _LOOPBACK
    try:
        yield
    finally:
        # Another session of this process may be a cluster's.
        del os.environ[_ADDRESS]


def driver_archive(java: Path, jars: Sequence[Path]) -> ClassArchive:
    """The archive of the classes of Spark's driver."""
    home = Path(pyspark.__file__).parent
    return ClassArchive(
        "spark", (str(java.resolve()), str(home), pyspark.__version__, *map(str, jars))
    )


def _quiet_log() -> str:
    """Silence from the first line on: Spark prints warnings before a level can be set."""
    quiet = Path(__file__).with_name("quiet-log4j2.properties")
    return f"-Dlog4j2.configurationFile={quiet.as_uri()}"
