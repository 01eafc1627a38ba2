"""Run one program that ends when the process that asked for it ends: `leash.py PROGRAM ARGS`.

The asker holds the other end of this process's standard input. When it goes away, however it goes,
the kernel closes that pipe, and the program is killed. A death signal (PR_SET_PDEATHSIG) set by the
asker would not do: it fires when the *thread* that started the child ends, so a broker started from
a worker thread would die with that thread, and it exists on Linux alone. Here it is only the second
line, from this process to the program, for the case that the leash itself is killed.

Run as a script with `-I -S`, so it imports the standard library alone and is there in 20 ms.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading

_PR_SET_PDEATHSIG = 1


def main(command: list[str]) -> int:
    """Run the command on the leash; return its exit status, negative for a signal."""
    inherited = tuple(int(fd) for fd in os.environ.pop("PENSTOCK_LEASH_FDS", "").split())
    # Loaded before the fork: between fork and exec as little as possible may run.
    prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None
    program = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        pass_fds=inherited,
        # Safe here: this process has one thread so far.
        preexec_fn=(lambda: prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)) if prctl else None,  # noqa: PLW1509
    )
    signal.signal(signal.SIGTERM, lambda *_: program.terminate())
    threading.Thread(target=_kill_at_end_of_input, args=(program,), daemon=True).start()
    return program.wait()


def _kill_at_end_of_input(program: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(OSError):
        while os.read(0, 1):
            pass
    program.kill()


if __name__ == "__main__":
    status = main(sys.argv[1:])
    # Not sys.exit: that would wait for the thread that reads standard input.
    os._exit(status if status >= 0 else 128 - status)
