"""Stores that users bring: refused by name, failing by name, and with a shape of their own."""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.errors import (
    CustomStoreError,
    StateDiskFullError,
    StoreDamagedError,
    TaskNotHereError,
    TopologyError,
    UserFunctionError,
)
from penstock.examples.catalogue import find_example
from penstock.examples.visit_sketch import CountMinSketch
from penstock.instance.open_stores import shaped
from penstock.instance.protocol import StoreOrder
from penstock.serdes.windowed import window_key
from penstock.stores.contract import KeyValueStore, WindowStore
from penstock.stores.custom import CustomStore, missing_methods, open_custom
from penstock.stores.memory import MemoryStore
from penstock.testing import TopologyTestDriver
from penstock.topology.manifest import manifest_of


class Plain:
    """The least that a store can be: no copies, and no deletion of a range."""

    def __init__(self, name: str, directory: Path) -> None:
        inner = MemoryStore(name)
        offered = ("apply", "offset", "identity", "set_identity", "caught_up_at", "get_many")
        more = ("set_caught_up_at", "flush", "close", "range", "all", "approximate_num_entries")
        for method in (*offered, *more):
            setattr(self, method, getattr(inner, method))
        self.name = name


class Failing(MemoryStore):
    """Fails in every method but those with which it is opened."""

    def __init__(self, name: str, directory: Path) -> None:
        super().__init__(name)

    def get_many(self, keys: object) -> list[bytes | None]:
        raise OSError("no answer")

    def apply(self, changes: object, *, offset: int | None) -> None:
        raise KeyError("apply")

    def flush(self) -> None:
        raise OSError("no room")

    def close(self) -> None:
        raise OSError("already gone")


class Damaged(MemoryStore):
    """Knows that its bytes are not what was written."""

    def __init__(self, name: str, directory: Path) -> None:
        super().__init__(name)

    def get_many(self, keys: object) -> list[bytes | None]:
        raise StoreDamagedError("a bad checksum")


class Inherits(KeyValueStore):
    """Takes from the protocol what it does not have."""

    def __init__(self, name: str, directory: Path) -> None:
        pass


class OwnWindows(MemoryStore):
    """Arranges windows by itself: by start, without regard to retention."""

    def __init__(self, name: str, directory: Path) -> None:
        super().__init__(name)

    def fetch(self, key: bytes, first: int, last: int) -> Iterator[tuple[bytes, bytes]]:
        for found, value in self.range(window_key(key, first), None, limit=100):
            if found[:-12] == key and int.from_bytes(found[-12:-4], "big") <= last:
                yield found, value


def raises(name: str, directory: Path) -> KeyValueStore:
    raise PermissionError(13, "not yours")


HERE = __name__
NUMBER = 7


def opened(name: str, directory: Path, **options: Any) -> CustomStore:
    return open_custom(f"{HERE}:{name}", "counts", directory / "counts", task="0_3", **options)


@pytest.mark.parametrize(
    ("supplier", "said"),
    [
        ("no_such_module:Store", "'no_such_module:Store' of the store counts cannot be had"),
        (f"{HERE}:Nothing", f"'{HERE}:Nothing' of the store counts cannot be had"),
        (f"{HERE}:NUMBER", "cannot be called"),
        (f"{HERE}:raises", "cannot open the store counts: PermissionError"),
        ("builtins:print", "lacks name, apply"),
        (f"{HERE}:Inherits", "lacks name, apply, offset, identity"),
    ],
)
def test_what_is_no_store_is_refused_by_its_name(tmp_path: Path, supplier: str, said: str) -> None:
    with pytest.raises(CustomStoreError, match="counts") as refused:
        open_custom(supplier, "counts", tmp_path / "counts", task="0_3")
    assert said in str(refused.value)
    assert refused.value.where["supplier"] == supplier
    assert refused.value.where["task"] == "0_3"
    assert refused.value.hint


def test_a_full_disk_is_not_the_suppliers_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mkdir(path: Path, **_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(Path, "mkdir", mkdir)
    with pytest.raises(StateDiskFullError):
        open_custom(f"{HERE}:Failing", "counts", tmp_path / "counts", task="0_3")


def test_a_module_that_fails_on_import_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_supplier.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(CustomStoreError, match=r"broken_supplier:S.*ZeroDivisionError"):
        open_custom("broken_supplier:S", "counts", tmp_path / "counts", task="0_3")


def test_a_method_that_raises_is_named_with_store_and_task(tmp_path: Path) -> None:
    store = opened("Failing", tmp_path)
    calls = {
        "get_many": lambda: store.get_many([b"a"]),
        "apply": lambda: store.apply([], offset=1),
        "flush": store.flush,
        "close": store.close,
    }
    for method, call in calls.items():
        with pytest.raises(CustomStoreError, match=f"The method {method} of the store counts") as e:
            call()
        facts = {"store": "counts", "task": "0_3", "method": method}
        assert facts.items() <= e.value.where.items()
    store.close()
    with pytest.raises(TaskNotHereError):
        store.offset()


def test_what_a_store_says_in_our_words_is_not_changed(tmp_path: Path) -> None:
    with pytest.raises(StoreDamagedError, match="a bad checksum"):
        opened("Damaged", tmp_path).get_many([b"a"])


def test_a_store_without_extras_has_them_all_the_same(tmp_path: Path) -> None:
    store = opened("Plain", tmp_path)
    store.apply([(b"%03d" % n, b"v") for n in range(2500)], offset=1)
    store.delete_range(b"001", b"999")
    assert [key for key, _ in store.all()][:2] == [b"000", b"999"]
    assert not store.offers_checkpoints
    with pytest.raises(CustomStoreError, match="checkpoint"):
        store.checkpoint(tmp_path / "copy")


def test_windows_lie_in_a_users_store_as_in_ours(tmp_path: Path) -> None:
    order = StoreOrder(name="counts", kind="window", retention_ms=100, segment_ms=60)
    windows = shaped(opened("Plain", tmp_path), order)
    assert isinstance(windows, WindowStore)
    windows.apply([(window_key(b"a", 0), b"1"), (window_key(b"a", 60), b"2")], offset=1)
    assert [value for _, value in windows.fetch(b"a", 0, 99)] == [b"1", b"2"]
    windows.apply([(window_key(b"b", 500), b"3")], offset=2)
    assert list(windows.fetch(b"a", 0, 99)) == []
    assert len(list(windows.all())) == 1


def test_a_users_store_may_arrange_windows_by_itself(tmp_path: Path) -> None:
    order = StoreOrder(name="counts", kind="window", retention_ms=100, segment_ms=60)
    windows = shaped(opened("OwnWindows", tmp_path), order)
    assert isinstance(windows, WindowStore)
    windows.apply([(window_key(b"a", 0), b"1"), (window_key(b"a", 60), b"2")], offset=1)
    assert [value for _, value in windows.fetch(b"a", 0, 59)] == [b"1"]
    with pytest.raises(CustomStoreError, match="lacks fetch_times"):
        opened("OwnWindows", tmp_path / "again", finds_by_time=True)


def test_another_supplier_is_another_layout() -> None:
    order = StoreOrder(name="counts", supplier="mine:Store")
    assert order.layout == "key_value supplier=mine:Store"
    assert StoreOrder.of_layout("counts", order.layout).supplier == "mine:Store"


def test_our_own_stores_lack_nothing() -> None:
    assert missing_methods(MemoryStore("a")) == []


def test_every_store_of_the_dsl_can_have_a_supplier() -> None:
    builder = ps.StreamsBuilder()
    one, hour = "mine:Store", timedelta(hours=1)
    words = builder.stream("words", key=str, value=str)
    grouped = words.group_by_key()
    windows = grouped.windowed_by(ps.tumbling(hour, grace=timedelta(0)))
    grouped.count("a", supplier=one)
    grouped.reduce(lambda x, y: y, "b", supplier=one)
    grouped.aggregate(str, lambda k, v, a: a, "c", supplier=one)
    grouped.max("d", supplier=one)
    windows.count("e", supplier=one)
    windows.reduce(lambda x, y: y, "f", supplier=one)
    windows.aggregate(str, lambda k, v, a: a, "g", supplier=one)
    grouped.cogroup(lambda k, v, a: a).aggregate(str, "h", value=str, supplier=one)
    table = builder.table("rows", "i", key=str, value=str, supplier=one)
    table.group_by(lambda k, v: (v, k), key=str, value=str).count("j", supplier=one)
    words.to_table("k", supplier=one)
    versions = ps.versioned_store("l", history_retention=hour, supplier=one)
    builder.table("prices", versions, key=str, value=str).to_stream().to("changes")
    for number, made in enumerate(
        [
            ps.key_value_store("p0", key=str, value=int, supplier=one),
            ps.window_store("p1", key=str, value=int, retention=hour, window=hour, supplier=one),
            ps.session_store("p2", key=str, value=int, retention=hour, supplier=one),
            ps.custom_store("p3", dict, supplier=one),
        ]
    ):
        builder.add_state_store(made)
        words.process(Noting, stores=[f"p{number}"])
    stores = {store.name: store.supplier for store in builder.build().stores}
    assert stores.keys() == {*"abcdefghijkl", "p0", "p1", "p2", "p3"}
    assert set(stores.values()) == {one}


def test_a_global_store_has_no_supplier_and_no_shape_of_its_own() -> None:
    for made in (
        ps.key_value_store("seen", key=str, value=int, supplier="mine:Store"),
        ps.custom_store("seen", dict),
    ):
        with pytest.raises(TopologyError, match="seen"):
            ps.StreamsBuilder().add_global_store("words", made, Noting)


# Stores with a shape of their own.


class Notes:
    """Keeps words by number, in a format of its own."""

    def __init__(self, store: ps.SliceStore, *, prefix: bytes = b"n") -> None:
        self.store = store
        self.prefix = prefix
        self.waiting: list[str] = []

    def note(self, word: str) -> None:
        if word == "bad":
            raise ValueError("a bad word")
        self.waiting.append(word)

    def drop_first(self) -> None:
        [(key, _), *_] = self.store.range(self.prefix, None)
        self.store.delete(key)

    def all(self) -> list[str]:
        return [value.decode() for _, value in self.store.range()] + self.waiting

    def flush(self) -> None:
        last = max((key for key, _ in self.store.range()), default=self.prefix + b"-1")
        number = int(last[len(self.prefix) :]) + 1
        for word in self.waiting:
            key = self.prefix + b"%03d" % number
            assert self.store.get_many([key]) == [None]
            self.store.put(key, word.encode())
            assert self.store.get_many([key, b"x"]) == [word.encode(), None]
            number += 1


class Noting(ps.Processor[str, str, str, str]):
    def process(self, record: ps.Record[str, str]) -> None:
        notes = self.context.store("notes")
        if record.value == "drop":
            notes.drop_first()
        else:
            notes.note(record.value)
        self.context.forward(record.with_value(",".join(notes.all())))


def noting(made_of: Any = Notes, **options: Any) -> ps.StreamsBuilder:
    builder = ps.StreamsBuilder()
    builder.add_state_store(ps.custom_store("notes", made_of, **options))
    words = builder.stream("words", key=str, value=str)
    words.process(Noting, stores=["notes"], key=str, value=str).to("noted")
    return builder


@pytest.mark.parametrize("made_of", [Notes, f"{HERE}:Notes"])
def test_a_store_with_a_shape_of_its_own_keeps_what_it_likes(made_of: Any) -> None:
    driver = TopologyTestDriver(noting(made_of, prefix=b"w").build())
    words = driver.input_topic("words", key=str, value=str)
    for word in ("a", "b", "drop", "c"):
        words.pipe("k", word, timestamp=5)
    noted = driver.output_topic("noted", key=str, value=str).read_pairs()
    assert [value for _, value in noted] == ["a", "a,b", "b", "b,c"]
    assert dict(driver.store("notes")) == {b"w001": b"b", b"w002": b"c"}


def test_what_a_store_of_ones_own_raises_is_the_functions_fault() -> None:
    driver = TopologyTestDriver(noting().build())
    with pytest.raises(UserFunctionError, match="a bad word"):
        driver.input_topic("words", key=str, value=str).pipe("k", "bad")
    with pytest.raises(UserFunctionError, match="unexpected keyword argument"):
        TopologyTestDriver(noting(width=3).build())


def test_a_class_that_cannot_be_imported_is_named() -> None:
    with pytest.raises(TopologyError, match=r"'notes' is made of 'no_such_module:Notes'"):
        TopologyTestDriver(noting("no_such_module:Notes").build())


def test_another_class_is_another_format_of_the_changelog() -> None:
    facts = [
        manifest_of(noting(made_of).build(), "app").stores["notes"][1]
        for made_of in (Notes, f"{HERE}:Notes", f"{HERE}:Others")
    ]
    assert facts[0] == facts[1] != facts[2]


# The example: a count-min sketch.


class Bytes:
    """A slice's store, in a dictionary."""

    name = "visits"

    def __init__(self) -> None:
        self.held: dict[bytes, bytes] = {}
        self.puts: Counter[bytes] = Counter()

    def get_many(self, keys: Iterable[bytes]) -> list[bytes | None]:
        return [self.held.get(key) for key in keys]

    def put(self, key: bytes, value: bytes, timestamp: int | None = None) -> None:
        self.held[key] = value
        self.puts[key] += 1

    def delete(self, key: bytes, timestamp: int | None = None) -> None:
        del self.held[key]

    def range(self, lower: bytes | None = None, upper: bytes | None = None) -> Any:
        return iter(sorted(self.held.items()))


def test_estimates_are_never_too_low_and_seldom_much_too_high() -> None:
    store = Bytes()
    visits = [record.key or "" for record in islice(find_example("visit-sketch").test_data(), 3000)]
    for start in range(0, len(visits), 100):
        sketch = CountMinSketch(store, width=512)
        for page in visits[start : start + 100]:
            sketch.add(page)
        sketch.flush()
    counts = Counter(visits)
    sketch = CountMinSketch(store, width=512)
    errors = [sketch.estimate(page) - count for page, count in counts.items()]
    assert min(errors) >= 0
    # By the theory of it: e / width of all visits, save for one page in fifty.
    assert sorted(errors)[int(len(errors) * 0.98)] <= 2.72 / 512 * len(visits)
    # Each chunk at most once in a slice.
    assert max(store.puts.values()) <= 30


def test_a_sketch_of_other_sizes_is_refused() -> None:
    store = Bytes()
    sketch = CountMinSketch(store, width=512)
    sketch.add("/")
    sketch.flush()
    with pytest.raises(ValueError, match="depth=4, width=512, chunk=32"):
        CountMinSketch(store, width=256).estimate("/")


def test_the_example_counts_visits() -> None:
    example = find_example("visit-sketch")
    driver = TopologyTestDriver(example.application())
    records = list(islice(example.test_data(), 300))
    topic = driver.input_topic("page-visits", key=str, value=str)
    for record in records:
        topic.pipe(record.key, record.value, timestamp=record.at_ms)
    last = dict(driver.output_topic("visit-estimates", key=str, value=int).read_pairs())
    counts = Counter(record.key for record in records)
    assert last.keys() == counts.keys()
    assert all(last[page] >= count for page, count in counts.items())
    assert last["/page/1"] < counts["/page/1"] + 20
    held = driver.store("visits")
    assert {key[:1] for key in held} == {b"h", b"c"}
    assert all(len(held[key]) == 4 * 32 for key in held if key[:1] == b"c")
