"""The first line of the `penstock` command, which loads nothing before it is ready for Ctrl-C.

Loading takes a second, and several on a busy machine: who changes their mind meanwhile should not
see a traceback of half an import.
"""

from __future__ import annotations

import sys

INTERRUPTED = 130
"""The exit code of who was ended by Ctrl-C, as shells have it."""


def main() -> None:
    """Run the command line."""
    try:
        from penstock.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
