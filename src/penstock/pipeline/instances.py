"""Starting instances; the user's code, which fills some global stores, goes with them.

It is pickled by Spark's own pickler, as for workers, and so it comes from the process that starts
the instance, through a file that has no name, and never through a socket.

    python -m penstock.pipeline.instances OPTIONS DESCRIPTOR
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from contextlib import AbstractContextManager
from dataclasses import replace

import msgspec

from penstock.instance.global_processing import programs_of
from penstock.instance.http_options import HttpParts
from penstock.instance.process import TOKEN_VARIABLE, InstanceOptions, options_of, run_instance

_PLAIN = "penstock.instance.process"
_WITH_HTTP = "penstock.queries.instances"
_WITH_PROGRAMS = "penstock.pipeline.instances"


def start_instance(
    options: InstanceOptions, *, programs: bytes, stdin: int, stdout: int | None = None
) -> subprocess.Popen[bytes]:
    """Start an instance in a process and a session of its own.

    Its token goes into the environment and not into its command line, which all users can see.
    """
    told = msgspec.json.encode(replace(options, token="")).decode()
    # What is not needed is not loaded: an instance is to be there soon.
    module = _PLAIN if options.http is None else _WITH_HTTP
    command, passed = [sys.executable, "-m", module, told], []
    with contextlib.ExitStack() as stack:
        if programs:
            file = stack.enter_context(tempfile.TemporaryFile())
            file.write(programs)
            file.flush()
            passed = [file.fileno()]
            command = [sys.executable, "-m", _WITH_PROGRAMS, told, str(file.fileno())]
        return subprocess.Popen(
            command,
            stdin=stdin,
            stdout=stdout,
            # What this process can import, its program's neighbours too, an instance can import:
            # suppliers of stores that users bring.
            env={
                **os.environ,
                TOKEN_VARIABLE: options.token,
                "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            },
            pass_fds=passed,
            # Neither Ctrl-C in a terminal nor Spark, which kills a worker with its whole process
            # group, is to end it: it is told to stop, or ends by its lease.
            start_new_session=True,
        )


def serve_http(parts: HttpParts) -> AbstractContextManager[str]:
    """Answer over HTTP, as `queries.instances` does; loaded where it is wanted alone."""
    from penstock.queries import instances

    return instances.serve_http(parts)


def main(arguments: list[str]) -> int:
    """An instance that has programs of the user's to run."""
    # Importing Spark takes a second, which those that only start instances need not wait for.
    from pyspark import cloudpickle

    with os.fdopen(int(arguments[1]), "rb") as file:
        file.seek(0)
        subs, handler = cloudpickle.load(file)
    return run_instance(options_of(arguments), programs_of(subs, handler), serve=serve_http)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
