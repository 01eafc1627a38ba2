"""The yardstick: Kafka Streams' processing, one record at a time and depth first, in plain Python.

Written for clarity, from the semantics and not from the code under test: dictionaries, recursion,
and a record cache that is a line-by-line account of what a cache does.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from penstock import topology as t


@dataclass
class Row:
    offset: int
    timestamp: int
    key: Any
    value: Any
    headers: list[tuple[str, bytes]] | None = None
    old: Any = None


@dataclass
class Entry:
    value: bytes | None
    timestamp: int
    size: int
    context: Row | None  # None: put there by a read


@dataclass
class DepthFirst:
    """Runs a sub-topology; `store` maps store -> key bytes -> (value bytes, timestamp)."""

    sub: t.SubTopology
    topic: str
    store: dict[str, dict[bytes, tuple[bytes, int]]]
    cache_max_bytes: int
    changes: list[tuple[str, bytes, bytes | None, int]] = field(default_factory=list)
    outputs: list[tuple[str, bytes | None, bytes | None, int, Any]] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        cached = [s.name for s in self.sub.stores if s.caching]
        self.share = self.cache_max_bytes // max(len(cached), 1)
        self.caches: dict[str, dict[bytes, Entry]] = {}
        self.dirty: dict[str, list[bytes]] = {}
        if self.share:
            self.caches = {name: {} for name in cached}
            self.dirty = {name: [] for name in cached}

    def record(self, row: Row) -> None:
        if row.timestamp < 0:
            self.dropped["negative_timestamp"] += 1
            return
        source = self.sub.sources[0]
        key = None if row.key is None else source.key_serde.deserialize(row.key)
        value = None if row.value is None else source.value_serde.deserialize(row.value)
        self.forward(source, Row(row.offset, row.timestamp, key, value, row.headers))

    def finish(self) -> None:
        for node in self.sub.nodes:
            if isinstance(node, t.AggregateNode) and node.store in self.caches:
                self.flush(node, None)

    def forward(self, node: t.Node, row: Row) -> None:
        for child in node.children:
            self.visit(self.sub.by_name[child], row)

    def visit(self, node: t.Node, row: Row) -> None:
        key, value = row.key, row.value
        match node:
            case t.SinkNode():
                self.outputs.append(
                    (
                        node.topic,
                        None if key is None else node.key_serde.serialize(key),
                        None if value is None else node.value_serde.serialize(value),
                        row.timestamp,
                        row.headers,
                    )
                )
            case t.FilterNode():
                if bool(node.predicate(key, value)) != node.negate:
                    self.forward(node, row)
            case t.DropNullKeyNode():
                if key is None:
                    self.dropped["null_key"] += 1
                else:
                    self.forward(node, row)
            case t.MapValuesNode():
                self.pass_on(node, row, key, node.mapper(value))
            case t.MapNode():
                self.pass_on(node, row, *node.mapper(key, value))
            case t.SelectKeyNode():
                self.pass_on(node, row, node.selector(key, value), value)
            case t.AggregateNode():
                self.aggregate(node, row)
            case t.FlatMapValuesNode() | t.FlatMapNode() | t.SplitNode():
                self.divide(node, row)
            case t.TableFilterNode() | t.TableMapValuesNode():
                self.change_table(node, row)
            case _:
                self.forward(node, row)

    def change_table(self, node: t.TableFilterNode | t.TableMapValuesNode, row: Row) -> None:
        def step(value: Any) -> Any:
            if value is None:
                return None
            if isinstance(node, t.TableMapValuesNode):
                return node.mapper(value)
            return value if bool(node.predicate(row.key, value)) != node.negate else None

        new, old = step(row.value), step(row.old)
        if new is not None or old is not None or isinstance(node, t.TableMapValuesNode):
            self.forward(node, Row(row.offset, row.timestamp, row.key, new, row.headers, old))

    def divide(self, node: t.Node, row: Row) -> None:
        key, value = row.key, row.value
        match node:
            case t.FlatMapValuesNode():
                for each in node.mapper(value):
                    self.pass_on(node, row, key, each)
            case t.FlatMapNode():
                for pair in node.mapper(key, value):
                    self.pass_on(node, row, *pair)
            case t.SplitNode():
                for child in node.children:
                    branch = self.sub.by_name[child]
                    assert isinstance(branch, t.BranchNode)
                    if branch.predicate is None or branch.predicate(key, value):
                        self.forward(branch, row)
                        break

    def pass_on(self, node: t.Node, row: Row, key: Any, value: Any) -> None:
        self.forward(node, Row(row.offset, row.timestamp, key, value, row.headers))

    def aggregate(self, node: t.AggregateNode, row: Row) -> None:
        spec = self.sub.store(node.store)
        if row.key is None or (row.value is None and node.kind != "latest"):
            self.dropped["null_key" if row.key is None else "null_value"] += 1
            return
        key = spec.key_serde.serialize(row.key)
        found = self.read(node, key)
        old = None if found is None else spec.value_serde.deserialize(found[0])
        timestamp = row.timestamp if found is None else max(row.timestamp, found[1])
        if node.kind == "count":
            new = (old or 0) + 1
        elif node.kind == "reduce":
            new = row.value if old is None else node.aggregator(old, row.value)
        elif node.kind == "latest":
            new, timestamp = row.value, row.timestamp
        else:
            new = node.aggregator(row.key, row.value, node.initializer() if old is None else old)
        data = None if new is None else spec.value_serde.serialize(new)
        if node.store in self.caches:
            self.write_cache(node, key, data, timestamp, row)
        else:
            self.write_store(
                node.store, key, data, timestamp if data is not None else row.timestamp
            )
            if old is None and node.kind in ("count", "aggregate"):
                # Kafka Streams hands on what it started from as the old value.
                old = node.initializer() if node.initializer else 0
            self.forward(node, Row(row.offset, timestamp, row.key, new, row.headers, old))

    def read(self, node: t.AggregateNode, key: bytes) -> tuple[bytes, int] | None:
        below = self.store.setdefault(node.store, {}).get(key)
        if node.store not in self.caches:
            return below
        cache = self.caches[node.store]
        if key in cache:
            entry = cache[key] = cache.pop(key)
            return None if entry.value is None else (entry.value, entry.timestamp)
        if below is not None:
            # A context as any other, with an empty topic.
            size = len(key) + 24 + 1 + 8 + len(below[0]) + 8 + 8 + 0 + 4
            cache[key] = Entry(below[0], below[1], size, None)
            self.evict(node)
        return below

    def write_cache(
        self, node: t.AggregateNode, key: bytes, data: bytes | None, timestamp: int, row: Row
    ) -> None:
        headers = sum(len(k) + len(v) for k, v in row.headers or [])
        size = len(key) + 24 + 1 + (0 if data is None else 8 + len(data))
        size += 8 + 8 + len(self.topic) + 4 + headers
        cache, dirty = self.caches[node.store], self.dirty[node.store]
        cache.pop(key, None)
        cache[key] = Entry(data, timestamp, size, row)
        if key in dirty:
            dirty.remove(key)
        dirty.append(key)
        self.evict(node)

    def evict(self, node: t.AggregateNode) -> None:
        cache = self.caches[node.store]
        while cache and sum(entry.size for entry in cache.values()) > self.share:
            eldest = next(iter(cache))
            entry = cache.pop(eldest)
            if eldest in self.dirty[node.store]:
                self.flush(node, (eldest, entry))

    def flush(self, node: t.AggregateNode, evicted: tuple[bytes, Entry] | None) -> None:
        cache, dirty = self.caches[node.store], self.dirty[node.store]
        entries = [] if evicted is None else [evicted]
        entries += [(key, cache[key]) for key in dirty if evicted is None or key != evicted[0]]
        dirty.clear()
        spec = self.sub.store(node.store)
        for key, entry in entries:
            if entry.value is None:
                cache.pop(key, None)
        for key, entry in entries:
            assert entry.context is not None
            if entry.value is None and key not in self.store.setdefault(node.store, {}):
                continue
            time = entry.timestamp if entry.value is not None else entry.context.timestamp
            below = self.store.setdefault(node.store, {}).get(key)
            self.write_store(node.store, key, entry.value, time)
            value = None if entry.value is None else spec.value_serde.deserialize(entry.value)
            row = Row(
                entry.context.offset,
                time,
                spec.key_serde.deserialize(key),
                value,
                entry.context.headers,
                None if below is None else spec.value_serde.deserialize(below[0]),
            )
            self.forward(node, row)

    def write_store(self, store: str, key: bytes, data: bytes | None, timestamp: int) -> None:
        self.changes.append((store, key, data, timestamp))
        if data is None:
            self.store.setdefault(store, {}).pop(key, None)
        else:
            self.store.setdefault(store, {})[key] = (data, timestamp)
