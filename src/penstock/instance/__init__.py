"""The process that holds the stores, and how workers and the driver speak to it."""

from __future__ import annotations

import os

# gRPC writes a line to standard error for whoever hangs up in the middle of a handshake. What
# matters of it comes as an error.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
