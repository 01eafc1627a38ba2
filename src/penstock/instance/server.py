"""The Flight shell: authentication, decoding, encoding. What is done is decided behind it."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import pyarrow as pa
from pyarrow import flight

from penstock.instance import protocol
from penstock.instance.protocol import CommitHeader, Exchange, Message, ReadHeader, Reply
from penstock.instance.tls import TlsFiles

MIDDLEWARE = "token"

Handler = Callable[[bytes], Message]


class Rows(Protocol):
    """What answers reads and commits."""

    def read(self, header: ReadHeader, questions: pa.Table) -> Iterator[pa.RecordBatch | Reply]:
        """The answers in batches; at the end a reply that says whether they are right."""

    def commit(self, header: CommitHeader, batches: Iterator[pa.RecordBatch]) -> Reply:
        """Commit these rows."""


class CutOffError(pa.ArrowException):  # type: ignore[misc]
    """A stream's sender went away before its last row."""


class _Nothing(flight.ServerMiddleware):  # type: ignore[misc]
    """A call that was let in needs nothing further."""


class TokenGate(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Lets in calls that bear the run's token, and no other."""

    def __init__(self, token: str) -> None:
        super().__init__()
        self._expected = f"Bearer {token}"

    def start_call(self, info: Any, headers: Mapping[str, list[str]]) -> flight.ServerMiddleware:
        """Check the token in constant time: answers must not tell how much of it was right."""
        given = next(iter(headers.get("authorization", [])), "")
        if not hmac.compare_digest(given.encode(), self._expected.encode()):
            raise flight.FlightUnauthenticatedError(protocol.WRONG_TOKEN)
        return _Nothing()


class Server(flight.FlightServerBase):  # type: ignore[misc]
    """A Flight server of named actions and, on an instance, of reads and commits."""

    def __init__(
        self,
        location: str,
        *,
        token: str,
        actions: Mapping[str, Handler],
        rows: Rows | None = None,
        tls: TlsFiles | None = None,
    ) -> None:
        certificates = [] if tls is None else [flight.CertKeyPair(*tls.pair())]
        gate = {MIDDLEWARE: TokenGate(token)}
        verified: dict[str, Any] = {}
        if tls is not None and tls.verify_clients:
            verified = {"verify_client": True, "root_certificates": tls.authorities()}
        super().__init__(location, middleware=gate, tls_certificates=certificates, **verified)
        self.location = location
        self._handlers = actions
        self._rows = rows

    def do_action(self, context: Any, action: flight.Action) -> Iterator[flight.Result]:
        """Answer one message with one message."""
        handler = self._handlers.get(action.type)
        if handler is None:
            raise flight.FlightServerError(f"There is no action {action.type!r}")
        yield flight.Result(protocol.encode(handler(action.body.to_pybytes())))

    def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """Answer a read or a commit: the values if it is a read, and then a `Reply`.

        A stream that was cut off looks like any other, but it lacks the reply.
        """
        if self._rows is None:
            raise flight.FlightServerError("There is no state here")
        request = protocol.decode(descriptor.command, Exchange)
        if request.read is not None:
            questions = reader.read_all()
            writer.begin(request.read.answers)
            for part in self._rows.read(request.read, questions):
                if isinstance(part, Reply):
                    writer.write_metadata(protocol.encode(part))
                else:
                    writer.write_batch(part)
        elif request.commit is not None:
            reply = self._rows.commit(request.commit, _whole(reader, request.commit.rows))
            writer.begin(protocol.VALUES)
            writer.write_metadata(protocol.encode(reply))
        else:
            raise flight.FlightServerError("A stream is a read or a commit")


def _whole(reader: Any, rows: int) -> Iterator[pa.RecordBatch]:
    """The batches of a stream. Raises `CutOffError` unless all its rows came.

    Flight ends a stream whose sender was killed as it ends any other. What had come by then,
    changes without their outputs, would be committed.
    """
    missing = rows
    for chunk in reader:
        missing -= chunk.data.num_rows
        yield chunk.data
    if missing:
        raise CutOffError(f"{missing} of {rows} rows are missing: the sender went away")
