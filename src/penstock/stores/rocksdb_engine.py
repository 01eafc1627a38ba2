"""How RocksDB is set up, and the one budget of memory that all stores of a process share."""

from __future__ import annotations

import functools
from dataclasses import dataclass, fields

from rocksdict import (
    BlockBasedOptions,
    Cache,
    DBCompactionStyle,
    DBCompressionType,
    MemtableFactory,
    Options,
    WriteBufferManager,
)

from penstock.config import Compression, Config
from penstock.option_values import imported

_ARENA_BYTES = 128 * 1024
"""A write buffer grows by this much: by RocksDB's own eighth, fifty idle stores hold 100 MiB."""

_FILLING_PARTS = 4
"""A store that is filled has its write buffers in so many parts each: what fits into the
processor's cache is sorted with a seventh less of its time, and flushed while more comes in."""
_FILLING_FILES = 12
"""So many files a store that is filled may have before they are put together: nobody reads it, and
many at once cost less than few again and again. RocksDB holds writes up from 20 on."""


@dataclass(frozen=True, kw_only=True)
class RocksDBSettings:
    """What users may set; see the options of `Config` that begin with `rocksdb_`."""

    memory_bytes: int
    write_buffer_bytes: int
    write_buffers_max: int
    block_bytes: int
    bloom_bits: int
    compression: Compression
    config_setter: str

    @classmethod
    def of(cls, config: Config) -> RocksDBSettings:
        """The part of a config that is about RocksDB."""
        return cls(**{each.name: getattr(config, f"rocksdb_{each.name}") for each in fields(cls)})


class RocksDBEngine:
    """The memory of all stores of a process, and the options of each.

    Of the budget five eighths are blocks, indexes, filters and write buffers, which RocksDB counts;
    a quarter is left to the readers of changelogs, the rest to what nobody counts.
    """

    def __init__(self, settings: RocksDBSettings, *, statistics: bool = False) -> None:
        self.settings = settings
        self._statistics = statistics
        path = settings.config_setter
        self._setter = imported(path, option="rocksdb_config_setter") if path else None
        counted = self.settings.memory_bytes * 5 // 8
        self.cache = Cache(counted)
        # Write buffers are counted in the cache, and push blocks out of it. With a stall a write
        # would wait until others flush, who may never write again.
        self._buffers = WriteBufferManager.new_write_buffer_manager_with_cache(
            counted // 2, False, self.cache
        )

    @property
    def is_over_budget(self) -> bool:
        """Whether write buffers hold more than their part: who has written is to flush, and wait.

        RocksDB flushes by itself, but on a busy machine slower than writes come in.
        """
        return self._buffers.get_usage() > self._buffers.get_buffer_size()

    def options(self, store: str, *, filling: bool = False) -> Options:
        """The options to open a store with; `filling` makes writes fast and reads very slow."""
        settings = self.settings
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_block_based_table_factory(self._blocks())
        options.set_write_buffer_manager(self._buffers)
        options.set_arena_block_size(_ARENA_BYTES)
        parts = _FILLING_PARTS if filling else 1
        options.set_write_buffer_size(settings.write_buffer_bytes // parts)
        options.set_max_write_buffer_number(settings.write_buffers_max * parts)
        options.set_compression_type(getattr(DBCompressionType, settings.compression)())
        options.set_compaction_style(DBCompactionStyle.universal())
        options.set_max_background_jobs(2)
        if filling:
            options.set_level_zero_file_num_compaction_trigger(_FILLING_FILES)
        # A store has one writer, and what it is filled with knows no other way.
        options.set_allow_concurrent_memtable_write(False)
        options.set_is_fd_close_on_exec(True)
        options.set_keep_log_file_num(2)
        options.set_max_log_file_size(1024 * 1024)
        options.set_stats_dump_period_sec(0)
        if self._statistics:
            options.enable_statistics()
        if self._setter is not None:
            self._setter(store, options)
        if filling:
            # Appended as they come, and sorted where the GIL is not held: by the flush.
            options.set_memtable_factory(MemtableFactory.vector())
        return options

    def _blocks(self) -> BlockBasedOptions:
        blocks = BlockBasedOptions()
        blocks.set_block_cache(self.cache)
        blocks.set_block_size(self.settings.block_bytes)
        if self.settings.bloom_bits:
            blocks.set_bloom_filter(self.settings.bloom_bits, False)
        # Outside of the cache they would be outside of the budget.
        blocks.set_cache_index_and_filter_blocks(True)
        blocks.set_pin_l0_filter_and_index_blocks_in_cache(True)
        return blocks


@functools.cache
def default_engine() -> RocksDBEngine:
    """The engine of a process that was not told otherwise."""
    return RocksDBEngine(RocksDBSettings.of(Config()))
