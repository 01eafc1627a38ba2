"""Find a Java that Spark and Kafka can run on."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import JavaMissingError

JAVA_VERSION_MIN = 17
_ANSWER_SECONDS_MAX = 30
_INSTALL_HINT = (
    f"Install Java {JAVA_VERSION_MIN} or later (on Debian or Ubuntu: "
    "apt-get install openjdk-17-jre-headless) and put it on PATH, or set JAVA_HOME"
)


@dataclass(frozen=True)
class Java:
    """A Java runtime: the program and its major version."""

    program: Path
    version: int


def find_java(environment: Mapping[str, str] | None = None) -> Java:
    """Return the Java that this environment runs, at least version 17.

    JAVA_HOME wins over PATH, as it does in Spark: two parts of one application on two Javas would
    be a puzzle to debug. Raises `JavaMissingError`.
    """
    environment = os.environ if environment is None else environment
    program = _program(environment)
    if program is None:
        raise JavaMissingError("no java on PATH, and JAVA_HOME is not set", hint=_INSTALL_HINT)
    version = parse_version(_version_text(program))
    if version is None or version < JAVA_VERSION_MIN:
        found = "answers no version" if version is None else f"is version {version}"
        raise JavaMissingError(
            f"java {found}, Spark needs {JAVA_VERSION_MIN} or later",
            where={"program": program},
            hint=_INSTALL_HINT,
        )
    return Java(program, version)


def parse_version(text: str) -> int | None:
    """Return the major version that `java -version` printed, or None.

    >>> parse_version('openjdk version "17.0.15" 2025-04-15')
    17
    >>> parse_version('java version "1.8.0_392"')
    8
    """
    match = re.search(r'version "(\d+)(?:\.(\d+))?', text)
    if match is None:
        return None
    first, second = int(match[1]), match[2]
    # Up to Java 8 the major version was the second number.
    return int(second) if first == 1 and second is not None else first


def _program(environment: Mapping[str, str]) -> Path | None:
    home = environment.get("JAVA_HOME")
    if home:
        return Path(home) / "bin" / "java"
    found = shutil.which("java", path=environment.get("PATH"))
    return Path(found) if found else None


def _version_text(program: Path) -> str:
    try:
        answer = subprocess.run(
            [program, "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_ANSWER_SECONDS_MAX,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JavaMissingError(
            "java cannot be run", where={"program": program}, hint=_INSTALL_HINT
        ) from error
    return answer.stderr + answer.stdout
