"""A store in PostgreSQL against plain models: one dictionary for each partition of its table.

It has no changelog, so that it has no offset to go on from: what was committed is there, whoever
ends, and what was not is gone.
"""

from __future__ import annotations

import contextlib
import itertools
from typing import ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from penstock.stores.contract import Change, StoreIdentity, stored_value
from penstock.stores.postgres import Database, PostgresStore

DSN_VARIABLE = "PENSTOCK_CONTRACT_DSN"
"""Where the server is, for the machine and for whoever runs it."""

# Few bytes, so that keys are often prefixes of each other; and some that text would not hold.
KEYS = st.lists(st.sampled_from([0x00, 0x01, 0x61, 0xFF]), max_size=4).map(bytes)
VALUES = st.none() | st.builds(stored_value, st.integers(0, 2**63 - 1), st.binary(max_size=3))
CHANGES = st.lists(st.tuples(KEYS, VALUES), max_size=30)
PARTITIONS = (0, 7)
_tables = itertools.count()


class CrashError(Exception):
    """The owner ends here."""


class PostgresMachine(RuleBasedStateMachine):
    """Two tasks' parts of one table, which never see each other's entries."""

    connection: ClassVar[Database | None] = None
    """Kept from one example to the next: to connect takes longer than a statement."""

    def __init__(self) -> None:
        super().__init__()
        # A table of its own for each example, made as the first task makes it.
        self.table = f"checked_{next(_tables)}"
        self.models: dict[int, dict[bytes, bytes]] = {each: {} for each in PARTITIONS}
        self.identity: StoreIdentity | None = None
        self.database = self.connection or self.connected()
        self.open()

    @classmethod
    def connected(cls) -> Database:
        cls.connection = Database(DSN_VARIABLE, timeout_seconds=10)
        cls.connection.connect(first=True)
        return cls.connection

    def open(self) -> None:
        self.stores = {
            each: PostgresStore("checked", self.database, table=[self.table], partition=each)
            for each in PARTITIONS
        }
        for store in self.stores.values():
            store.prepare()

    def remember(self, partition: int, changes: list[Change]) -> None:
        for key, value in changes:
            if value is None:
                self.models[partition].pop(key, None)
            else:
                self.models[partition][key] = value

    @rule(partition=st.sampled_from(PARTITIONS), changes=CHANGES)
    def apply(self, partition: int, changes: list[Change]) -> None:
        self.stores[partition].apply(iter(changes), offset=3)
        self.remember(partition, changes)

    @rule(changes=st.lists(CHANGES, max_size=3), fails=st.booleans())
    def apply_in_one_transaction(self, changes: list[list[Change]], fails: bool) -> None:
        """As a commit does, with what goes with it: all of it is there, or none."""
        with contextlib.suppress(CrashError), self.database.transaction():
            for each in changes:
                self.stores[0].apply(each, offset=None)
            if fails:
                raise CrashError
        if not fails:
            for each in changes:
                self.remember(0, each)

    @rule(changes=CHANGES)
    def lose_the_connection(self, changes: list[Change]) -> None:
        """In the middle of a transaction, which nobody commits any more."""
        with contextlib.suppress(CrashError), self.database.transaction():
            self.stores[0].apply(changes, offset=None)
            self.database.close()
            raise CrashError
        self.database = self.connected()
        self.open()

    @rule(partition=st.sampled_from(PARTITIONS), keys=st.lists(KEYS, max_size=30))
    def get_many(self, partition: int, keys: list[bytes]) -> None:
        model = self.models[partition]
        assert self.stores[partition].get_many(keys) == [model.get(key) for key in keys]

    @rule(
        partition=st.sampled_from(PARTITIONS),
        lower=st.none() | KEYS,
        upper=st.none() | KEYS,
        limit=st.integers(0, 10),
    )
    def scan_some(
        self, partition: int, lower: bytes | None, upper: bytes | None, limit: int
    ) -> None:
        inside = [
            (key, value)
            for key, value in sorted(self.models[partition].items())
            if (lower is None or key >= lower) and (upper is None or key < upper)
        ]
        assert self.stores[partition].range(lower, upper, limit=limit) == inside[:limit]
        found = self.stores[partition].range_back(lower, upper, limit=limit)
        assert found == inside[::-1][:limit]

    @rule(application=st.sampled_from(["clinic", "other"]))
    def identify(self, application: str) -> None:
        """Whose the table is says who came first."""
        owner = StoreIdentity(
            application_id=application,
            task="",
            store="checked",
            changelog_topic="",
            changelog_topic_id="",
        )
        self.stores[7].set_identity(owner)
        self.identity = self.identity or owner
        assert [each.identity() for each in self.stores.values()] == [self.identity] * 2

    @rule(partition=st.sampled_from(PARTITIONS), page_size=st.integers(1, 5))
    def scan_all(self, partition: int, page_size: int) -> None:
        store, model = self.stores[partition], self.models[partition]
        assert list(store.all(page_size=page_size)) == sorted(model.items())
        assert store.approximate_num_entries() == len(model)
        assert (store.offset(), store.caught_up_at()) == (None, None)

    @invariant()
    def every_part_is_as_its_model(self) -> None:
        for partition, store in self.stores.items():
            assert store.range(limit=1_000) == sorted(self.models[partition].items())
