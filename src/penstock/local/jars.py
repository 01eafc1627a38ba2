"""Get the JVM parts: pinned jars, downloaded once into the user's cache by pyspark's own Ivy.

    paths = ensure(SPARK_KAFKA)
    session = SparkSession.builder.config("spark.jars", ",".join(map(str, paths)))

Ivy is there wherever Spark is, knows the public repository by itself and obeys Java's proxy
settings (`JAVA_TOOL_OPTIONS`), so that neither Maven nor an address is needed. A machine without a
network gets a directory with the jars in `PENSTOCK_JARS`.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from xml.sax.saxutils import quoteattr

from penstock.errors import JvmPartsUnavailableError
from penstock.local.java import find_java
from penstock.local.pinned import BROKER, SPARK_KAFKA, STREAMS, Jar, JarSet

__all__ = [
    "BROKER",
    "SPARK_KAFKA",
    "STREAMS",
    "Jar",
    "JarSet",
    "classpath",
    "ensure",
    "jar_directory",
]

_FETCH_SECONDS_MAX = 900
# The second attempt finds in Ivy's cache what the first one got: a lost connection costs one jar.
_FETCH_ATTEMPTS = 2
_NAMED_IN_MESSAGE_MAX = 5
_LOOK_SECONDS = 0.3

_IVY_SETTINGS = """<ivysettings>
  <settings defaultResolver="central"/>
  <caches defaultCacheDir="${penstock.jars}/cache"/>
  <resolvers><ibiblio name="central" m2compatible="true"/></resolvers>
</ivysettings>
"""


def silent(message: str) -> None:
    """Report to nobody."""


def unwatched(done: int, total: int) -> None:
    """Tell nobody how far a download is."""


def ensure(
    jar_set: JarSet,
    *,
    directory: Path | None = None,
    report: Callable[[str], None] = silent,
    progress: Callable[[int, int], None] = unwatched,
) -> tuple[Path, ...]:
    """Return the set's files, in the set's order, downloading those that are not there yet.

    A file counts as there when its SHA-256 is the pinned one. `report` hears one sentence before a
    download, `progress` now and then how many files of how many are there. Raises
    `JvmPartsUnavailableError`, and `JavaMissingError` where a download needs Java.
    """
    target = directory if directory is not None else jar_directory()
    if _missing(jar_set.jars, target):
        with _locked(target):
            # Another process may have fetched them while this one waited for the lock.
            missing = _missing(jar_set.jars, target)
            if missing:
                report(f"Fetching {len(missing)} jars for {jar_set.name} into {target} (once)")
                _fetch(missing, target, progress)
    return tuple(target / jar.file_name for jar in jar_set.jars)


def classpath(paths: Sequence[Path]) -> str:
    """Return the value for java's `-cp`."""
    return os.pathsep.join(str(path) for path in paths)


def jar_directory() -> Path:
    """Return where jars are kept: `$PENSTOCK_JARS`, else `penstock/jars` in the user's cache."""
    given = os.environ.get("PENSTOCK_JARS")
    if given:
        return Path(given).expanduser().absolute()
    return cache_directory() / "jars"


def cache_directory() -> Path:
    """Return Penstock's part of the user's cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache) / "penstock"


def _missing(jars: Sequence[Jar], target: Path) -> list[Jar]:
    return [jar for jar in jars if not _verified(jar, target)]


def _verified(jar: Jar, target: Path) -> bool:
    """Whether the file has the pinned bytes; hashed once, then known by size and time of change."""
    path = target / jar.file_name
    try:
        status = path.stat()
    except OSError:
        return False
    note = target / ".verified" / jar.file_name
    expected = f"{jar.sha256} {status.st_size} {status.st_mtime_ns}"
    if _read(note) == expected:
        return True
    if _sha256(path) != jar.sha256:
        return False
    _write_note(note, expected)
    return True


def _read(path: Path) -> str | None:
    try:
        return path.read_text()
    except OSError:
        return None


def _write_note(note: Path, text: str) -> None:
    try:
        note.parent.mkdir(exist_ok=True)
        note.write_text(text)
    except OSError:
        return  # A directory that is read-only is as good; its jars are hashed each time.


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _locked(target: Path) -> Iterator[None]:
    """Hold the directory for one process, so that two first runs do not download side by side."""
    try:
        target.mkdir(parents=True, exist_ok=True)
        lock = (target / ".lock").open("w")
    except OSError as error:
        raise JvmPartsUnavailableError(
            f"jars cannot be kept: {error.strerror}",
            where={"directory": target},
            hint="Set PENSTOCK_JARS to a directory that can be written, or that has the jars",
        ) from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch(jars: Sequence[Jar], target: Path, progress: Callable[[int, int], None]) -> None:
    """Download into a directory of its own, verify, and only then move to where jars are used.

    A kill at any moment leaves no half-written jar under a name that is trusted.
    """
    java = find_java()
    stage = Path(tempfile.mkdtemp(prefix=".fetch-", dir=target))
    try:
        failure = "nothing was tried"
        with _watched(stage, jars, progress):
            for _ in range(_FETCH_ATTEMPTS):
                failure = _run_ivy(java.program, jars, stage)
                if not failure:
                    break
        wrong = [jar for jar in jars if not _verified(jar, stage)]
        for jar in jars:
            if jar not in wrong:
                (stage / jar.file_name).replace(target / jar.file_name)
        if wrong:
            raise _unavailable(wrong, target, failure)
    finally:
        shutil.rmtree(stage, ignore_errors=True)


@contextmanager
def _watched(
    stage: Path, jars: Sequence[Jar], progress: Callable[[int, int], None]
) -> Iterator[None]:
    """Look now and then how many jars are there, for as long as the block: Ivy does not say."""
    ended = threading.Event()

    def look() -> None:
        while True:
            progress(fetched(stage, jars), len(jars))
            if ended.wait(_LOOK_SECONDS):
                return

    watcher = threading.Thread(target=look, name="penstock-fetching", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()


def fetched(stage: Path, jars: Sequence[Jar]) -> int:
    """How many of these jars Ivy has brought so far; what it still writes has another name."""
    there = {path.name for path in stage.rglob("*.jar")}
    return sum(jar.file_name in there for jar in jars)


def _run_ivy(java: Path, jars: Sequence[Jar], stage: Path) -> str:
    """Run Ivy; return its last words if it failed, else nothing."""
    (stage / "settings.xml").write_text(_IVY_SETTINGS)
    (stage / "ivy.xml").write_text(_ivy_module(jars))
    command = [
        str(java),
        f"-Dpenstock.jars={stage}",
        # Ivy writes into ~/.ivy2 otherwise.
        f"-Divy.default.ivy.user.dir={stage}",
        *("-cp", str(_ivy_jar()), "org.apache.ivy.Main"),
        *("-settings", str(stage / "settings.xml"), "-ivy", str(stage / "ivy.xml")),
        *("-retrieve", f"{stage}/[artifact]-[revision].[ext]", "-warn"),
    ]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_FETCH_SECONDS_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no end after {_FETCH_SECONDS_MAX} s"
    if done.returncode == 0:
        return ""
    lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    return lines[-1] if lines else f"exit status {done.returncode}"


def _ivy_module(jars: Sequence[Jar]) -> str:
    rows = "\n".join(
        f"<dependency org={quoteattr(jar.group)} name={quoteattr(jar.name)}"
        f' rev={quoteattr(jar.version)} transitive="false" conf="default->master"/>'
        for jar in jars
    )
    return (
        '<ivy-module version="2.0"><info organisation="penstock" module="jars"/>'
        '<configurations><conf name="default"/></configurations>\n'
        f"<dependencies>\n{rows}\n</dependencies></ivy-module>\n"
    )


def _ivy_jar() -> Path:
    # Looked up, not imported: importing pyspark takes a second and belongs to the pipeline.
    package = importlib.util.find_spec("pyspark")
    for place in (package.submodule_search_locations or ()) if package else ():
        for jar in sorted(Path(place, "jars").glob("ivy-*.jar")):
            return jar
    raise JvmPartsUnavailableError(
        "the pyspark package with its jars is not installed",
        hint="Install pyspark from its wheel, or set PENSTOCK_JARS to a directory with the jars",
    )


def _unavailable(jars: Sequence[Jar], target: Path, failure: str) -> JvmPartsUnavailableError:
    names = ", ".join(str(jar) for jar in jars[:_NAMED_IN_MESSAGE_MAX])
    if len(jars) > _NAMED_IN_MESSAGE_MAX:
        names += f" and {len(jars) - _NAMED_IN_MESSAGE_MAX} more"
    reason = f" ({failure})" if failure else ", or have other bytes than the pinned ones"
    return JvmPartsUnavailableError(
        f"{len(jars)} jars could not be downloaded{reason}: {names}",
        where={"directory": target, "jars": len(jars)},
        hint=(
            "Check the network (proxies are Java's: JAVA_TOOL_OPTIONS), or set PENSTOCK_JARS to a "
            "directory that has the jars"
        ),
    )
