"""Beside a task's data, in the same transactions: where it stands, and what it has yet to send."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from psycopg import sql

from penstock.errors import FencedError
from penstock.stores.postgres import Database, parts


@dataclass(frozen=True, kw_only=True)
class Kept:
    """What the database says of a task; without a `record` nothing was ever committed."""

    epoch: tuple[int, int]
    n: int
    record: bytes | None


class OutboxRow(NamedTuple):
    """An output that waits to be sent."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: bytes | None


class CommitTable:
    """The row of one task in `penstock_commits`, and its rows in `penstock_outbox`."""

    def __init__(self, database: Database, *, application_id: str, task: str) -> None:
        self._database = database
        self._id = (application_id, task)

    def prepare(self, *, outbox: bool) -> None:
        """Make what tables are missing."""
        self._database.ensure(
            sql.Identifier("penstock_commits"),
            "application text NOT NULL, task text NOT NULL, generation bigint NOT NULL, "
            "owner bigint NOT NULL, n bigint NOT NULL, record json, "
            "PRIMARY KEY (application, task)",
        )
        if outbox:
            self._database.ensure(
                sql.Identifier("penstock_outbox"),
                "application text NOT NULL, task text NOT NULL, n bigint NOT NULL, "
                "index integer NOT NULL, topic text NOT NULL, partition integer NOT NULL, "
                "key bytea, value bytea, timestamp bigint NOT NULL, headers bytea, "
                "PRIMARY KEY (application, task, n, index)",
            )

    def read(self) -> Kept:
        """What the database says of the task, which nobody else changes in this transaction."""
        self._database.changed(
            "INSERT INTO penstock_commits (application, task, generation, owner, n) "
            "VALUES (%s, %s, 0, 0, 0) ON CONFLICT DO NOTHING",
            self._id,
        )
        [(generation, owner, n, record)] = self._database.execute(
            "SELECT generation, owner, n, record::text FROM penstock_commits "
            "WHERE application = %s AND task = %s FOR UPDATE",
            self._id,
        )
        known = None if record is None else record.encode()
        return Kept(epoch=(generation, owner), n=n, record=known)

    def claim(self, epoch: tuple[int, int]) -> None:
        """From now on only this owner writes."""
        self._database.changed(
            "UPDATE penstock_commits SET generation = %s, owner = %s "
            "WHERE application = %s AND task = %s",
            [*epoch, *self._id],
        )

    def advance(self, epoch: tuple[int, int], n: int, record: bytes) -> None:
        """Write where the task stands, before anything else of its transaction.

        Raises `FencedError` if another owner has come: the row is then no longer this one's.
        """
        changed = self._database.changed(
            "UPDATE penstock_commits SET n = %s, record = %s::text::json WHERE application = %s "
            "AND task = %s AND generation = %s AND owner = %s AND n = %s",
            [n, record.decode(), *self._id, *epoch, n - 1],
        )
        if changed != 1:
            raise FencedError(
                "A newer owner has taken this task in the database",
                where={"task": self._id[1], "epoch": epoch},
            )

    def put(self, n: int, rows: Sequence[OutboxRow]) -> None:
        """Replace what was sent by what is to be sent with commit n."""
        self._database.changed(
            "DELETE FROM penstock_outbox WHERE application = %s AND task = %s", self._id
        )
        index = 0
        for part in parts(rows, _size):
            indices = list(range(index, index + len(part)))
            index += len(part)
            columns = [list(column) for column in zip(*part, strict=True)]
            self._database.changed(
                "INSERT INTO penstock_outbox (application, task, n, index, topic, partition, key, "
                "value, timestamp, headers) SELECT %s, %s, %s, * FROM unnest(%b::integer[], "
                "%s::text[], %b::integer[], %b::bytea[], %b::bytea[], %b::bigint[], %b::bytea[])",
                [*self._id, n, indices, *columns],
            )

    def waiting(self, n: int) -> list[OutboxRow]:
        """What is to be sent with commit n, in order."""
        rows = self._database.execute(
            "SELECT topic, partition, key, value, timestamp, headers FROM penstock_outbox "
            "WHERE application = %s AND task = %s AND n = %s ORDER BY index",
            [*self._id, n],
        )
        return [OutboxRow(*row) for row in rows]


def _size(row: OutboxRow) -> int:
    return len(row.topic) + sum(len(each or b"") for each in (row.key, row.value, row.headers))
