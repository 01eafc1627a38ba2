"""A key-value store of limited size: what was not used for longest makes room for the next."""

from __future__ import annotations

from collections import OrderedDict

from penstock.processors.depth_first.state import KeyValueState, Row, Stored
from penstock.processors.records import ScanReader
from penstock.topology import StoreSpec

_SEQUENCE_BYTES = 8


class LruState(KeyValueState):
    """Reading or writing a key makes it the most recent one; an eviction is a tombstone.

    All of it is read at the first use in a slice: which key goes depends on all the others.
    """

    def __init__(
        self, spec: StoreSpec, reader: ScanReader, rows: list[Row], recency: KeyValueState
    ) -> None:
        super().__init__(spec.name, reader, rows)
        assert spec.max_entries is not None
        self._max_entries = spec.max_entries
        self._recency = recency
        self._order: OrderedDict[bytes, None] = OrderedDict()
        self._used: dict[bytes, None] = {}
        self._next = 0
        self._loaded = False

    def prefetch(self, keys: object) -> None:
        """Read everything, whatever is asked for."""
        del keys
        self._load()

    def get(self, key: bytes) -> Stored | None:
        self._load()
        stored = self._known.get(key)
        if stored is not None:
            self._use(key)
        return stored

    def put(self, key: bytes, value: bytes | None, timestamp: int) -> None:
        self._load()
        super().put(key, value, timestamp)
        if value is None:
            self._order.pop(key, None)
            self._used.pop(key, None)
            return
        self._use(key)
        # More than one goes where the limit was lowered, or there was none before.
        while len(self._order) > self._max_entries:
            eldest, _ = self._order.popitem(last=False)
            self._used.pop(eldest, None)
            super().put(eldest, None, timestamp)
            self.log(eldest, None, timestamp)

    def finish(self) -> None:
        """Leave the order of use for the next slice."""
        for number, key in enumerate(self._used, start=self._next):
            data = number.to_bytes(_SEQUENCE_BYTES, "big")
            self._recency.log(key, data, 0)
        for key in self._written:
            if self._known[key] is None:
                self._recency.log(key, None, 0)

    def _use(self, key: bytes) -> None:
        self._order[key] = None
        self._order.move_to_end(key)
        self._used.pop(key, None)
        self._used[key] = None

    def _load(self) -> None:
        if self._loaded:
            return
        self._loaded = True
        used = {
            key: int.from_bytes(stored.value, "big")
            for key, stored in self._recency.range(None, None)
        }
        found = list(self.range(None, None))
        # A key that nobody used since the store was restored comes before all others.
        found.sort(key=lambda each: (used.get(each[0], -1), each[1].timestamp, each[0]))
        for key, stored in found:
            self._known[key] = stored
            self._order[key] = None
        self._next = max(used.values(), default=-1) + 1
