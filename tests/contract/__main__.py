"""`python -m tests.contract EXAMPLES`: every kind of store against its model.

The last line is one JSON object; the exit status is 1 if a store differed from its model.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
import traceback
from pathlib import Path

from tests.contract.in_postgres import DSN_VARIABLE
from tests.contract.machines import MACHINES, run
from tests.postgres_server import PostgresServer, programs


def main(arguments: list[str] | None = None) -> int:
    """Run the machines; 0 if every store answered as its model does."""
    parser = argparse.ArgumentParser(prog="python -m tests.contract", description=__doc__)
    parser.add_argument("examples", type=int, help="how many examples of each kind")
    parser.add_argument("--steps", type=int, default=50, help="how many steps an example has")
    options = parser.parse_args(arguments)
    started, failing = time.monotonic(), []
    with contextlib.ExitStack() as stack:
        server = PostgresServer(_programs())
        stack.callback(server.close)
        os.environ[DSN_VARIABLE] = server.dsn()
        for name in MACHINES:
            began = time.monotonic()
            try:
                run(name, examples=options.examples, steps=options.steps)
            except Exception:  # noqa: BLE001 - told, and counted
                traceback.print_exc()
                failing.append(name)
            print(f"{name}: {time.monotonic() - began:.1f} s", flush=True)
    summary = {
        "examples": options.examples,
        "steps": options.steps,
        "kinds": len(MACHINES),
        "failures": len(failing),
        "failing": failing,
        "seconds": round(time.monotonic() - started, 1),
    }
    print(json.dumps(summary))
    return 1 if failing else 0


def _programs() -> Path:
    found = programs()
    if found is None:
        sys.exit("PostgreSQL is not installed; on Debian: apt-get install postgresql")
    return found


if __name__ == "__main__":
    sys.exit(main())
