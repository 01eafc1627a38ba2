"""A shell on a terminal, for tests that type what a page shows."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path

from tests.harness import wait_until

PATIENCE_SECONDS = 120.0
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")


class Terminal:
    """A shell on a terminal of its own."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._master, inner = pty.openpty()
        self._shell = subprocess.Popen(
            ["setsid", "--ctty", "bash", "--norc", "--noprofile", "--noediting", "-i"],
            stdin=inner,
            stdout=inner,
            stderr=inner,
            cwd=folder,
            env=environment,
        )
        os.close(inner)
        self._said = b""
        self._marks = 0
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        self.type("stty -echo cols 250")
        self.run("PS1=; true")

    def type(self, line: str) -> None:
        """Type a line, and wait for nothing."""
        os.write(self._master, f"{line}\n".encode())

    def run(self, line: str) -> str:
        """Type a line; what it says until it ends, which it must do well."""
        before = len(self.said)
        self.type(line)
        said = self._until_prompt(before)
        assert said.endswith("=0"), f"{line}\n{said}"
        return said

    def interrupt(self) -> str:
        """Press Ctrl-C; what is said after it."""
        before = len(self.said)
        os.write(self._master, b"\x03")
        return self._until_prompt(before)

    def wait_for(self, text: str, *, looks: int = -1) -> None:
        """Until that is on the screen, and the status was shown more often than that."""

        def is_shown() -> bool:
            return text in self.said and self.looks > looks

        wait_until(is_shown, what=f"{text!r} was said", seconds=PATIENCE_SECONDS)

    @property
    def said(self) -> str:
        """All that was on the screen."""
        return _CONTROL.sub("", self._said.decode(errors="replace"))

    @property
    def looks(self) -> int:
        """How often the status was shown so far."""
        return self.said.count("\ndriver ")

    def close(self) -> None:
        self._shell.send_signal(signal.SIGHUP)
        self._shell.wait(PATIENCE_SECONDS)
        self._reader.join(PATIENCE_SECONDS)
        os.close(self._master)

    def _until_prompt(self, before: int) -> str:
        self._marks += 1
        mark = f"mark-{self._marks}"
        self.type(f"echo; echo {mark}=$?")
        # Looked for everywhere: while half an escape is read the screen seems to have more on it.
        ended = re.compile(rf"{mark}=\d+")
        wait_until(
            lambda: ended.search(self.said) is not None,
            what="the command ended",
            seconds=PATIENCE_SECONDS,
        )
        found = ended.search(self.said)
        assert found is not None
        return self.said[before : found.end()]

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._master, 65536)
            except OSError:
                return
            if not data:
                return
            self._said += data
