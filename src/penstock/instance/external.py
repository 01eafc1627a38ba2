"""The stores of a task that a database keeps, with where the task stands beside them.

The database is written before the commit record, so that what it says of the task is the truth.
Without an outbox the task's outputs are in Kafka by then; with one they are in the database.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from penstock.changelog.commit_record import CommitRecord
from penstock.changelog.topics import commits_name
from penstock.coordination.ids import TaskId
from penstock.coordination.kept import who_is_ahead
from penstock.errors import ExternalStoreError, FencedError
from penstock.instance import protocol
from penstock.instance.columns import binary_array, int_array
from penstock.instance.protocol import Rejection, TakeOrder
from penstock.instance.writer import Writer
from penstock.observability.crash_points import crash_point
from penstock.serdes.decoders import decoder
from penstock.stores.contract import Change, KeyValueStore, StoreIdentity

if TYPE_CHECKING:
    from penstock.stores.postgres import Database, PostgresStore
    from penstock.stores.postgres_commits import CommitTable, OutboxRow

Headers = list[tuple[str, bytes | None]]


class ExternalStores:
    """What a database keeps of a task; of most tasks nothing."""

    def __init__(self, order: TakeOrder, application_id: str, *, timeout_seconds: float) -> None:
        self._order = order
        self._application_id = application_id
        self._timeout = timeout_seconds
        self._kept = {store.name: store for store in order.stores if store.database is not None}
        self._database: Database | None = None
        self._commits: CommitTable | None = None
        self._stores: dict[str, PostgresStore] = {}

    @property
    def in_use(self) -> bool:
        """Whether there is any such store."""
        return bool(self._kept)

    @property
    def has_outbox(self) -> bool:
        """Whether outputs are kept in the database until they are sent."""
        return any(each.database and each.database.outbox for each in self._kept.values())

    def is_ahead(self, rejected: Sequence[Rejection]) -> bool:
        """Whether the database has a commit of which Kafka refused these records."""
        commits = commits_name(self._application_id)
        late = any(each.topic == commits for each in rejected)
        return self.has_outbox or (self.in_use and late)

    def open(self, record: CommitRecord | None) -> CommitRecord | None:
        """Connect and become the only writer; the database's record, if it is ahead of Kafka's.

        Raises `ExternalStoreError` if the two cannot be of one task, `FencedError` for an owner
        that comes too late.
        """
        if not self.in_use:
            return None
        self.close()
        try:
            from penstock.stores.postgres import Database, PostgresStore
            from penstock.stores.postgres_commits import CommitTable
        except ImportError as error:
            raise ExternalStoreError(
                f"A store is kept in PostgreSQL, and psycopg cannot be used: {error}",
                where={"store": ", ".join(self._kept)},
                hint="Install it where instances run: pip install 'penstock[postgres]'",
            ) from error
        [variable] = {each.database.dsn_variable for each in self._kept.values() if each.database}
        database = Database(variable, timeout_seconds=self._timeout)
        commits = CommitTable(database, application_id=self._application_id, task=self._order.name)
        self._database, self._commits = database, commits
        database.connect(first=self._order.first_taking)
        commits.prepare(outbox=self.has_outbox)
        partition = TaskId.parse(self._order.task).partition
        for name, order in self._kept.items():
            assert order.database is not None
            store = PostgresStore(name, database, table=order.database.table, partition=partition)
            store.prepare()
            self._check_owner(store)
            self._stores[name] = store
        with database.transaction():
            ahead = self._compare(commits, record)
            commits.claim(self._order.epoch)
        return ahead

    def get(self, name: str) -> KeyValueStore | None:
        """The store of that name; None if no database keeps it."""
        return self._stores.get(name)

    def commit(
        self,
        writer: Writer,
        record: CommitRecord,
        changes: dict[str, list[Change]],
        *,
        outputs: Sequence[pa.RecordBatch],
        topics: Sequence[str],
    ) -> None:
        """Between the outputs and the commit record: take what is ours out of the changes, and
        write it, and where the task stands, in one transaction of the database.

        What was sent is committed before, so that no output is missing if this is the end. With an
        outbox nothing was: the outputs are sent now, together with the record that comes next.
        """
        if not self.has_outbox:
            writer.flush()
            writer.commit({}, {})
        crash_point("external.before_database")
        kept = {name: changes.pop(name) for name in self._kept if name in changes}
        assert self._database is not None
        assert self._commits is not None
        with self._database.transaction():
            self._commits.advance(self._order.epoch, record.n, record.encode())
            for name, of_store in kept.items():
                self._stores[name].apply(of_store, offset=None)
            if self.has_outbox:
                self._commits.put(record.n, _outbox_rows(outputs, topics))
            crash_point("external.in_transaction")
        crash_point("external.after_database")
        if not self.has_outbox:
            writer.begin()
        for batch in outputs:
            writer.send(batch, changelogs=[], topics=topics, own=0)

    def send_waiting(self, writer: Writer, n: int) -> None:
        """Send the outputs of commit n that wait in the outbox."""
        assert self._commits is not None
        rows = self._commits.waiting(n) if self.has_outbox else []
        if rows:
            batch, topics = _output_batch(rows)
            writer.send(batch, changelogs=[], topics=topics, own=0)

    def close(self) -> None:
        """Let the connection go."""
        database, self._database = self._database, None
        self._stores = {}
        if database is not None:
            database.close()

    def _check_owner(self, store: PostgresStore) -> None:
        mine = StoreIdentity(
            application_id=self._application_id,
            task="",
            store=store.name,
            changelog_topic="",
            changelog_topic_id="",
        )
        store.set_identity(mine)
        found = store.identity()
        if found is not None and found != mine:
            raise ExternalStoreError(
                f"The table of store {store.name!r} belongs to store {found.store!r} of "
                f"application {found.application_id!r}",
                where={"store": store.name, "task": self._order.task},
                hint="Give the store another table=, or another database",
            )

    def _compare(self, commits: CommitTable, record: CommitRecord | None) -> CommitRecord | None:
        kept = commits.read()
        recorded = record.n if record else 0
        where = {"task": self._order.task, "database": kept.n, "commit record": recorded}
        match who_is_ahead(
            kept=kept.n,
            kept_epoch=kept.epoch,
            recorded=recorded,
            epoch=self._order.epoch,
        ):
            case "level":
                return None
            case "database":
                assert kept.record is not None
                return CommitRecord.decode(kept.record, where=where)
            case "fenced":
                raise FencedError("A newer owner has taken this task in the database", where=where)
            case "database_behind":
                raise ExternalStoreError(
                    "The database lacks commits that Kafka knows of: it was restored from a "
                    "backup, or is another one",
                    where=where,
                    hint="Name the database that the application used; or use a new application "
                    "id, which makes the state anew from the input",
                )
            case "kafka_behind":
                raise ExternalStoreError(
                    "Kafka lacks commits that the database knows of: the commits topic was "
                    "deleted, or another cluster's application has the same id",
                    where=where,
                    hint="Use a new application id and another table=; or, to begin anew, empty "
                    "the store's table and delete the application's rows from penstock_commits",
                )


def _outbox_rows(batches: Sequence[pa.RecordBatch], topics: Sequence[str]) -> list[OutboxRow]:
    from penstock.stores.postgres_commits import OutboxRow

    rows: list[OutboxRow] = []
    for batch in batches:
        _, targets, partitions, keys, values, times, headers = (
            column.to_pylist() for column in batch.columns
        )
        rows += [
            OutboxRow(topics[target], partition, key, value, time, _encoded(some))
            for target, partition, key, value, time, some in zip(
                targets, partitions, keys, values, times, headers, strict=True
            )
        ]
    return rows


def _output_batch(rows: Sequence[OutboxRow]) -> tuple[pa.RecordBatch, list[str]]:
    topics = list(dict.fromkeys(row.topic for row in rows))
    headers = [None if row.headers is None else _decoded(row.headers) for row in rows]
    columns = [
        pa.array([protocol.OUTPUT] * len(rows), pa.uint8()),
        pa.array([topics.index(row.topic) for row in rows], pa.int16()),
        int_array([row.partition for row in rows]),
        binary_array([row.key for row in rows]),
        binary_array([row.value for row in rows]),
        pa.array([row.timestamp for row in rows], pa.int64()),
        pa.array(headers, protocol.HEADERS),
    ]
    return pa.record_batch(columns, schema=protocol.ROWS), topics


def _encoded(headers: list[dict[str, object]] | None) -> bytes | None:
    if headers is None:
        return None
    return msgspec.json.encode([(each["key"], each["value"]) for each in headers])


def _decoded(data: bytes) -> list[dict[str, object]]:
    return [{"key": key, "value": value} for key, value in decoder(Headers).decode(data)]
