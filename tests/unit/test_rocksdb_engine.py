"""RocksDB's settings reach every store, and all stores of a process keep within one budget."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from rocksdict import Options

from penstock.config import Config
from penstock.errors import ConfigError
from penstock.stores.rocksdb import RocksDBStore
from penstock.stores.rocksdb_engine import RocksDBEngine, RocksDBSettings

MIB = 1024 * 1024

_MANY_STORES = """
import json, os, random, sys
from pathlib import Path
from penstock.config import Config
from penstock.stores.rocksdb import RocksDBStore
from penstock.stores.rocksdb_engine import RocksDBEngine, RocksDBSettings

directory, stores, budget = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])


def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


before = most = resident()
engine = RocksDBEngine(RocksDBSettings.of(Config(rocksdb_memory_bytes=budget)))
opened = [RocksDBStore(f"s{n}", directory / f"s{n}", engine=engine) for n in range(stores)]
numbers = random.Random(7)
for offset in range(10):
    for store in opened:
        keys = [b"%012d" % numbers.randrange(100_000) for _ in range(2_000)]
        store.apply([(key, numbers.randbytes(200)) for key in keys], offset=offset)
        store.get_many([b"%012d" % numbers.randrange(100_000) for _ in range(200)])
        most = max(most, resident())
for store in opened:
    store.close()
print(json.dumps({"grown": most - before, "written": stores * 10 * 2_000 * 212}))
"""


def test_fifty_stores_keep_within_the_budget(tmp_path: Path) -> None:
    budget = 96 * MIB
    answer = subprocess.run(
        [sys.executable, "-c", _MANY_STORES, str(tmp_path), "50", str(budget)],
        capture_output=True,
        check=True,
        text=True,
    )
    seen = json.loads(answer.stdout)
    assert seen["written"] > 2 * budget
    assert seen["grown"] < budget


def set_no_compaction(store: str, options: Options) -> None:
    """A user's `rocksdb_config_setter`."""
    if store == "quiet":
        options.set_disable_auto_compactions(True)


def _settings_of(directory: Path, name: str, config: Config) -> str:
    store = RocksDBStore(name, directory / name, engine=RocksDBEngine(RocksDBSettings.of(config)))
    store.close()
    return max((directory / name).glob("OPTIONS-*")).read_text()


def test_options_reach_rocksdb(tmp_path: Path) -> None:
    config = Config(
        rocksdb_compression="zstd",
        rocksdb_write_buffer_bytes=MIB,
        rocksdb_write_buffers_max=5,
        rocksdb_block_bytes=8192,
        rocksdb_bloom_bits=0,
        rocksdb_config_setter=f"{__name__}:set_no_compaction",
    )
    text = _settings_of(tmp_path, "quiet", config)
    for line in (
        "compression=kZSTD",
        f"write_buffer_size={MIB}",
        "max_write_buffer_number=5",
        "block_size=8192",
        "filter_policy=nullptr",
        "disable_auto_compactions=true",
    ):
        assert line in text, line
    other = _settings_of(tmp_path, "other", config)
    assert "disable_auto_compactions=false" in other
    assert "filter_policy=bloomfilter" in _settings_of(tmp_path, "plain", Config())


def test_options_reach_a_store_that_is_there(tmp_path: Path) -> None:
    _settings_of(tmp_path, "counts", Config(rocksdb_write_buffer_bytes=MIB))
    text = _settings_of(tmp_path, "counts", Config(rocksdb_write_buffer_bytes=2 * MIB))
    assert f"\n  write_buffer_size={2 * MIB}\n" in text


def test_stores_that_are_opened_again_use_the_shared_memory(tmp_path: Path) -> None:
    engine = RocksDBEngine(RocksDBSettings.of(Config()))
    store = RocksDBStore("counts", tmp_path / "counts")
    store.apply([(b"%05d" % n, b"v" * 100) for n in range(20_000)], offset=1)
    store.close()
    store = RocksDBStore("counts", tmp_path / "counts", engine=engine)
    before = engine.cache.get_usage()
    store.get_many([b"%05d" % n for n in range(20_000)])
    assert engine.cache.get_usage() - before > MIB
    store.close()


@pytest.mark.parametrize("path", ["no_such_module:f", "json:no_such", "json:"])
def test_a_setter_that_cannot_be_imported_is_named(path: str) -> None:
    settings = RocksDBSettings.of(Config(rocksdb_config_setter=path))
    with pytest.raises(ConfigError, match="rocksdb_config_setter"):
        RocksDBEngine(settings)


def test_without_a_setter_nothing_is_imported() -> None:
    RocksDBEngine(RocksDBSettings.of(Config(rocksdb_config_setter="")))


def test_a_budget_that_holds_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="rocksdb_memory_bytes"):
        Config(rocksdb_memory_bytes=MIB)
