"""`python -m penstock.local` fetches every JVM part now, so that nothing later waits for a network.

`make test` runs it before the tests, whose time limits know nothing of downloads.
"""

from __future__ import annotations

import sys

from penstock.errors import PenstockError
from penstock.local.jars import BROKER, SPARK_KAFKA, STREAMS, ensure


def main() -> int:
    """Fetch what is missing; return the exit status."""
    try:
        for jar_set in (SPARK_KAFKA, BROKER, STREAMS):
            ensure(jar_set, report=lambda text: print(text, flush=True))  # noqa: T201
    except PenstockError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
