"""A key-value store whose entries lie in a table of PostgreSQL, one table for all tasks.

This module imports psycopg, an extra of the package: nobody imports it who needs no such store.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, LiteralString, TypeVar

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from penstock.errors import (
    ExternalStoreError,
    ExternalStoreUnreachableError,
    TaskNotHereError,
)
from penstock.stores.contract import (
    Change,
    Entry,
    StoreIdentity,
    pages,
    split_stored_value,
    stored_value,
)

BATCH_ROWS = 10_000
BATCH_BYTES = 16 * 1024 * 1024
"""Of one statement: how many keys or rows it has at most, and about how many bytes of them."""
_CREATING = 0x70656E73746F636B
"""The advisory lock under which tables are made: two who make the same one fail otherwise."""
_MAY_GO_AWAY = ("08", "40", "53", "57", "58", "25006", "55P03")
"""SQLSTATEs, or how they begin: no connection, conflicts, resources, operators, the system, a
standby server, a lock that was not to be had."""
_NO_RIGHT = ("42501", "28")
_LIMIT = "54000"
"""The only limit that a statement of ours can meet is that of the table's index."""

_PATIENCE = 1.2
"""How much longer a silent server is waited for than one of its statements may take."""

_BETWEEN: LiteralString = (
    "SELECT key, value, timestamp FROM {} WHERE partition = %s AND key >= %b "
    "AND (%b::bytea IS NULL OR key < %b) ORDER BY key"
)
_FORWARDS: LiteralString = _BETWEEN + " LIMIT %s"
_BACKWARDS: LiteralString = _BETWEEN + " DESC LIMIT %s"

Params = Sequence[object]
Row = TypeVar("Row")
Done = TypeVar("Done")


class SilentServerError(psycopg.OperationalError):
    """A server that says nothing."""


def patient(
    waiting: Generator[Any, Any, Done],
    seconds: float,
    clock: Callable[[], float] = time.monotonic,
) -> Generator[Any, Any, Done]:
    """What waits for a server, until that has said nothing for so long.

    Raises `SilentServerError` then.
    """
    heard = clock()
    try:
        wanted = next(waiting)
        while True:
            ready = yield wanted
            now = clock()
            if ready:
                heard = now
            elif now - heard > seconds:
                raise SilentServerError(f"it said nothing for {seconds:.0f} seconds")
            wanted = waiting.send(ready)
    except StopIteration as ended:
        done: Done = ended.value
        return done


class _Connection(psycopg.Connection[Any]):
    """A connection that does not wait for ever.

    A server that stands still, or whose disk does, ends none of its statements by itself, and its
    host goes on to acknowledge what it is sent.
    """

    patience = 0.0

    def wait(self, gen: Any, *how: Any, **more: Any) -> Any:
        if not self.patience:
            return super().wait(gen, *how, **more)
        try:
            return super().wait(patient(gen, self.patience), *how, **more)
        except SilentServerError:
            # Whatever was asked may still be answered: nobody may take it for the next answer.
            self.close()
            raise


class Database:
    """One connection, of one task. Any thread may call; statements run one after the other."""

    def __init__(self, dsn_variable: str, *, timeout_seconds: float) -> None:
        self._variable = dsn_variable
        self._timeout = max(timeout_seconds, 2.0)
        self._lock = threading.RLock()
        self._connection: psycopg.Connection[Any] | None = None
        self._where: dict[str, object] = {"dsn_variable": dsn_variable}
        self._secret = ""

    def connect(self, *, first: bool) -> None:
        """Connect. A server that refuses is an error of yours if it is the `first` time; later it
        has let us in before, and is asked again.
        """
        conninfo = self._conninfo()
        try:
            connection = _Connection.connect(conninfo, autocommit=True)
        except psycopg.Error as error:
            raise self._refused(error, conninfo, first=first) from None
        self._connection = connection
        connection.patience = _PATIENCE * self._timeout
        milliseconds = int(self._timeout * 1000)
        with self._mapped():
            # A statement that hangs, and an owner that stands still inside of a transaction, must
            # not hold up those who come after.
            connection.execute(f"SET statement_timeout = {milliseconds}")
            connection.execute(f"SET idle_in_transaction_session_timeout = {milliseconds}")

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """A transaction for as long as the block; inside of another one a part of it."""
        with self._lock, self._mapped(), self._open().transaction():
            yield

    def execute(
        self, query: sql.Composed | LiteralString, params: Params = ()
    ) -> list[tuple[Any, ...]]:
        """Run a statement; the rows, if it gives any."""
        with self._lock, self._mapped():
            cursor = self._open().execute(query, params, binary=True)
            return cursor.fetchall() if cursor.description is not None else []

    def changed(self, query: sql.Composed | LiteralString, params: Params) -> int:
        """Run a statement; how many rows it changed."""
        with self._lock, self._mapped():
            rows: int = self._open().execute(query, params).rowcount
            return rows

    def ensure(self, table: sql.Identifier, columns: LiteralString) -> None:
        """Make a table if it is not there; one that is needs no right to make any."""
        name = table.as_string(None)
        if self.execute("SELECT to_regclass(%s)", [name]) != [(None,)]:
            return
        with self.transaction():
            self.execute("SELECT pg_advisory_xact_lock(%s)", [_CREATING])
            create = sql.SQL("CREATE TABLE IF NOT EXISTS {} ({})")
            self.execute(create.format(table, sql.SQL(columns)))

    def close(self) -> None:
        """Let the connection go; an open transaction is rolled back."""
        # Not under the lock: whoever waits for the server holds it.
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _conninfo(self) -> str:
        text = os.environ.get(self._variable)
        if not text:
            raise ExternalStoreError(
                f"The environment variable {self._variable} is not set where the instance runs",
                where=self._where,
                hint="Set it to a connection string, such as host=... dbname=... user=...; on a "
                f"cluster by spark.executorEnv.{self._variable}",
            )
        try:
            given = conninfo_to_dict(text)
        except psycopg.Error:
            # Its text would repeat what it could not read, a password among it perhaps.
            raise ExternalStoreError(
                f"What {self._variable} holds is not a connection string",
                where=self._where,
                hint="Write host=... dbname=... user=..., or postgresql://user@host/database",
            ) from None
        self._secret = str(given.get("password") or "")
        self._where |= {
            name: given[name] for name in ("host", "port", "dbname", "user") if given.get(name)
        }
        usual: dict[str, Any] = {
            "connect_timeout": int(self._timeout),
            "tcp_user_timeout": int(self._timeout * 1000),
            "keepalives_idle": int(self._timeout),
            "application_name": "penstock",
        }
        conninfo: str = make_conninfo("", **{**usual, **given})
        return conninfo

    def _refused(self, error: psycopg.Error, conninfo: str, *, first: bool) -> ExternalStoreError:
        """libpq gives no code for a connection that failed; so the server is asked how it is."""
        reason = self._text(error)
        accepts = psycopg.pq.PGconn.ping(conninfo.encode()) == psycopg.pq.Ping.OK
        if accepts and first:
            return ExternalStoreError(
                f"PostgreSQL refuses the connection: {reason}",
                where=self._where,
                hint=f"Check user, password and database in {self._variable}, and pg_hba.conf",
            )
        return self._unreachable(reason)

    @contextlib.contextmanager
    def _mapped(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            raise self._error(error) from None

    def _error(self, error: psycopg.Error) -> ExternalStoreError:
        reason, state = self._text(error), error.sqlstate or ""
        gone = self._connection is None or self._connection.closed
        if gone or state.startswith(_MAY_GO_AWAY):
            return self._unreachable(reason)
        if state.startswith(_NO_RIGHT):
            return ExternalStoreError(
                f"PostgreSQL does not let this user do it: {reason}",
                where=self._where,
                hint="GRANT the user CREATE on the schema, or make the tables as "
                "docs/external-stores.md shows and GRANT SELECT, INSERT, UPDATE and DELETE on them",
            )
        if state == _LIMIT:
            return ExternalStoreError(
                f"A key is too long for PostgreSQL's index: {reason}",
                where=self._where,
                hint="Keys of up to 2,600 bytes always fit. Group by a shorter key, such as a "
                "digest of this one, or leave kept_in= out: a store on disk takes any key",
            )
        return ExternalStoreError(
            f"PostgreSQL cannot do what the store needs ({state}): {reason}",
            where=self._where,
            hint="Compare the tables with those in docs/external-stores.md",
        )

    def _unreachable(self, reason: str) -> ExternalStoreUnreachableError:
        return ExternalStoreUnreachableError(
            f"PostgreSQL does not answer: {reason}",
            where=self._where,
            hint="Nothing that was committed is lost; the task goes on when the server does",
        )

    def _text(self, error: psycopg.Error) -> str:
        said = error.diag.message_primary or str(error) or type(error).__name__
        text = " ".join(said.split())
        return text.replace(self._secret, "***") if self._secret else text

    def _open(self) -> psycopg.Connection[Any]:
        if self._connection is None:
            raise TaskNotHereError("The store was closed", where=self._where)
        return self._connection


class PostgresStore:
    """One partition of a store in a table: partition, key, value, timestamp.

    It has no changelog and so no offset; whose it is stands in the table `penstock_stores`.
    """

    def __init__(
        self, name: str, database: Database, *, table: Sequence[str], partition: int
    ) -> None:
        self._name = name
        self._database = database
        self._table = sql.Identifier(*table)
        self._full_name = ".".join(table)
        self._partition = partition
        self._closed = False

    @property
    def name(self) -> str:
        return self._name

    def prepare(self) -> None:
        """Make what tables are missing."""
        self._database.ensure(
            sql.Identifier("penstock_stores"),
            "table_name text PRIMARY KEY, application text NOT NULL, store text NOT NULL",
        )
        self._database.ensure(
            self._table,
            "partition integer NOT NULL, key bytea NOT NULL, value bytea NOT NULL, "
            "timestamp bigint NOT NULL, PRIMARY KEY (partition, key)",
        )

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        # A join, because `= ANY` of many keys may be planned as a look at every row for each.
        query = self._sql(
            "SELECT kept.key, kept.value, kept.timestamp FROM unnest(%b::bytea[]) AS wanted (key) "
            "JOIN {} AS kept ON kept.partition = %s AND kept.key = wanted.key"
        )
        found: dict[bytes, bytes] = {}
        for part in parts(keys, len):
            rows = self._read(query, [part, self._partition])
            found.update((key, stored_value(time, value)) for key, value, time in rows)
        return [found.get(key) for key in keys]

    def apply(self, changes: Iterable[Change], *, offset: int | None) -> None:
        """Write all changes, later ones winning, in one transaction."""
        del offset
        self._check_open()
        latest: Mapping[bytes, bytes | None] = dict(changes)
        gone = [key for key, value in latest.items() if value is None]
        kept = [
            (key, *split_stored_value(value)) for key, value in latest.items() if value is not None
        ]
        delete = self._sql(
            "DELETE FROM {} AS kept USING unnest(%b::bytea[]) AS gone (key) "
            "WHERE kept.partition = %s AND kept.key = gone.key"
        )
        upsert = self._sql(
            "INSERT INTO {} (partition, key, timestamp, value) SELECT %s, * "
            "FROM unnest(%b::bytea[], %b::bigint[], %b::bytea[]) "
            "ON CONFLICT (partition, key) DO UPDATE "
            "SET value = excluded.value, timestamp = excluded.timestamp"
        )
        with self._database.transaction():
            for part in parts(gone, len):
                self._database.changed(delete, [part, self._partition])
            for rows in parts(kept, lambda row: len(row[0]) + len(row[2])):
                columns = [list(column) for column in zip(*rows, strict=True)]
                self._database.changed(upsert, [self._partition, *columns])

    def offset(self) -> int | None:
        self._check_open()
        return None

    def identity(self) -> StoreIdentity | None:
        query = "SELECT application, store FROM penstock_stores WHERE table_name = %s"
        rows = self._read(query, [self._full_name])
        if not rows:
            return None
        [(application, store)] = rows
        return StoreIdentity(
            application_id=application,
            task="",
            store=store,
            changelog_topic="",
            changelog_topic_id="",
        )

    def set_identity(self, identity: StoreIdentity) -> None:
        self._check_open()
        self._database.changed(
            "INSERT INTO penstock_stores (table_name, application, store) VALUES (%s, %s, %s) "
            "ON CONFLICT DO NOTHING",
            [self._full_name, identity.application_id, identity.store],
        )

    def caught_up_at(self) -> int | None:
        self._check_open()
        return None

    def set_caught_up_at(self, now_ms: int) -> None:
        del now_ms
        self._check_open()

    def range(
        self, lower: bytes | None = None, upper: bytes | None = None, *, limit: int
    ) -> list[Entry]:
        return self._between(_FORWARDS, lower, upper, limit)

    def range_back(
        self, lower: bytes | None = None, upper: bytes | None = None, *, limit: int
    ) -> list[Entry]:
        """As `backward.BackwardStore` says."""
        return self._between(_BACKWARDS, lower, upper, limit)

    def _between(
        self, query: LiteralString, lower: bytes | None, upper: bytes | None, limit: int
    ) -> list[Entry]:
        rows = self._read(self._sql(query), [self._partition, lower or b"", upper, upper, limit])
        return [(key, stored_value(time, value)) for key, value, time in rows]

    def all(self, *, page_size: int = 1000) -> Iterator[Entry]:
        return pages(self, page_size)

    def approximate_num_entries(self) -> int:
        """How many keys there are: all of them are counted."""
        query = self._sql("SELECT count(*) FROM {} WHERE partition = %s")
        [(count,)] = self._read(query, [self._partition])
        return int(count)

    def flush(self) -> None:
        """Nothing is left to do: what was applied is committed."""
        self._check_open()

    def close(self) -> None:
        """The connection is the task's, and stays."""
        self._closed = True

    def _sql(self, query: LiteralString) -> sql.Composed:
        return sql.SQL(query).format(self._table)

    def _read(self, query: sql.Composed | LiteralString, params: Params) -> list[tuple[Any, ...]]:
        self._check_open()
        return self._database.execute(query, params)

    def _check_open(self) -> None:
        if self._closed:
            raise TaskNotHereError("The store was closed", where={"store": self._name})


def parts(rows: Iterable[Row], size_of: Callable[[Row], int]) -> Iterator[list[Row]]:
    """The rows, so many at a time as one statement may carry.

    >>> list(parts([b"a", b"b" * BATCH_BYTES, b"c"], len)) == [[b"a", b"b" * BATCH_BYTES], [b"c"]]
    True
    """
    part: list[Row] = []
    size = 0
    for row in rows:
        part.append(row)
        size += size_of(row)
        if len(part) == BATCH_ROWS or size >= BATCH_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part
