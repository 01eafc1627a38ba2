"""A store as a table in Spark: `spark.read.format("penstock")`.

    counts = (
        spark.read.format("penstock")
        .option("application", "patient-monitoring")
        .option("store", "pulse-counts")
        .load()
    )

A Spark partition reads a task's partition of the store. Spark finds the format by itself where this
package is installed; else `spark.dataSource.register(StoreSource)` tells it.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from penstock.config import usual_state_dir
from penstock.errors import ConfigError, UnknownStoreError
from penstock.option_values import imported
from penstock.pipeline.store_tables import (
    KeyFilter,
    LiveTable,
    SnapshotChoice,
    SnapshotTable,
    StoreShape,
    StoreTable,
    matching,
    serde_named,
    typed,
)
from penstock.queries.contract import LIMIT_MAX, Bound
from penstock.queries.driver_file import read_driver_file
from penstock.serdes import Serde
from penstock.serdes.decoders import decoder
from penstock.serdes.scalars import (
    BytesSerde,
    IntegerSerde,
    LongSerde,
    ShortSerde,
    StringSerde,
)
from penstock.topology import StoreSpec
from penstock.topology.naming import check_name

FORMAT = "penstock"
_OPTIONS = frozenset(
    {
        "application",
        "store",
        "state_dir",
        "url",
        "token",
        "token_file",
        "ca_file",
        "certificate_file",
        "key_file",
        "stale",
        "max_lag",
        "snapshot",
        "snapshot_number",
        "snapshot_time",
        "program",
        "key",
        "value",
        "keys",
        "lower",
        "upper",
        "prefix",
        "pushdown",
    }
)
_CHOICES = ("keys", "lower", "upper", "prefix")
_EVERYTHING = KeyFilter()
_PUSHING = "pyspark.sql.worker.data_source_pushdown_filters"
_TRUE = {"true": True, "false": False}
# Of these, a value that is equal has equal bytes; of others (-0.0 and 0.0) it may have not.
_LOOKED_UP = (StringSerde, BytesSerde, LongSerde, IntegerSerde, ShortSerde)
# Of these, bytes are ordered as Spark orders values; negative numbers come after the others.
_ORDERED = (StringSerde, BytesSerde)


class StoreSource(DataSource):
    """A store of an application, as it is now or as it was in a snapshot."""

    @classmethod
    def name(cls) -> str:
        """What `format` is given."""
        return FORMAT

    def schema(self) -> StructType:
        """The columns, by the store's kind and serdes."""
        return from_arrow_schema(self._table().shape().schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        """What reads it. Raises `ConfigError` if another schema is asked for."""
        table = self._table()
        shape = table.shape()
        if schema != from_arrow_schema(shape.schema):
            raise ConfigError(
                "The columns of a store are what they are",
                hint="Leave .schema(...) out, and select or cast what you want",
            )
        wanted = chosen(self.options, shape.key)
        takes_filters = _flag(self.options, "pushdown") and _filters_are_asked()
        return (FilteringReader if takes_filters else StoreReader)(table, shape, wanted)

    def _table(self) -> StoreTable:
        return table_of(self.options)


class StoreReader(DataSourceReader):
    """Reads a store; on the way to the workers it is pickled with all that it needs."""

    def __init__(self, table: StoreTable, shape: StoreShape, wanted: KeyFilter) -> None:
        self._table = table
        self._shape = shape
        self._wanted = wanted

    def partitions(self) -> list[InputPartition]:
        """One for each partition of the store."""
        return [InputPartition(number) for number in self._shape.partitions]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a partition."""
        number = int(partition.value)
        for rows in self._table.read(self._shape, number, self._wanted):
            for batch in typed(rows, self._shape, number):
                yield matching(batch, self._wanted)


class FilteringReader(StoreReader):
    """One that asks only for the keys that a query wants.

    To be asked for by option: Spark 4.2 keeps what a table's reader was told for one query, and
    uses it in the next that has no filter, and where a query names the table twice. Rows would be
    missing in silence.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Ask for the keys that filters leave; Spark looks through all of them again."""
        self._wanted = pushed(filters, self._shape.key, self._wanted)
        return filters


def _filters_are_asked() -> bool:
    """Whether Spark will push filters down.

    Where `spark.sql.python.filterPushdown.enabled` is false, as it is by default, Spark refuses
    readers that could take them. A process that Spark starts to push them has this module.
    """
    main = getattr(sys.modules["__main__"], "__spec__", None)
    return _PUSHING in sys.modules or (main is not None and main.name == _PUSHING)


def chosen(options: Mapping[str, str], serde: Serde[Any]) -> KeyFilter:
    """The keys that options ask for. Raises `ConfigError`."""
    given = [name for name in _CHOICES if name in options]
    if "keys" not in options:
        if given and not isinstance(serde, _ORDERED):
            raise ConfigError(
                f"Option {given[0]} is for keys that are texts or bytes", hint="Filter in Spark"
            )
        values = {name: _key(options[name], serde, name) for name in given}
        return KeyFilter(**values)
    try:
        listed = decoder(list[Any]).decode(options["keys"])
    except msgspec.DecodeError as error:
        raise ConfigError(
            f"Option keys is no list: {error}", hint="""Write JSON, such as '["ann", "bob"]'"""
        ) from error
    if len(given) > 1 or len(listed) > LIMIT_MAX:
        raise ConfigError(f"Option keys stands alone, and has at most {LIMIT_MAX} of them")
    # One that is named twice has no more rows than others: it is a table.
    return KeyFilter(keys=tuple(dict.fromkeys(_key(each, serde, "keys") for each in listed)))


def _key(given: Any, serde: Serde[Any], option: str) -> Any:
    if not isinstance(serde, _LOOKED_UP):
        raise ConfigError(
            f"Keys of the serde {serde.name!r} cannot be said by option {option}",
            hint="Filter in Spark",
        )
    kind = str if isinstance(serde, _ORDERED) else int
    if type(given) is not kind:
        raise ConfigError(f"Option {option} has {given!r}, which is no key of this store")
    return str(given).encode() if isinstance(serde, BytesSerde) else given


def pushed(
    filters: Iterable[Filter], serde: Serde[Any], wanted: KeyFilter = _EVERYTHING
) -> KeyFilter:
    """What filters say of the key, where the store can be asked for that."""
    for each in filters:
        if getattr(each, "attribute", None) != ("key",):
            continue
        match each:
            case EqualTo(value=value) if isinstance(serde, _LOOKED_UP) and value is not None:
                wanted = _only(wanted, (value,))
            case In(value=values) if isinstance(serde, _LOOKED_UP):
                there = tuple(dict.fromkeys(value for value in values if value is not None))
                wanted = _only(wanted, there) if len(there) <= LIMIT_MAX else wanted
            case GreaterThan(value=value) | GreaterThanOrEqual(value=value) if isinstance(
                serde, _ORDERED
            ):
                wanted = replace(wanted, lower=_highest(wanted.lower, value))
            case LessThan(value=value) | LessThanOrEqual(value=value) if isinstance(
                serde, _ORDERED
            ):
                wanted = replace(wanted, upper=_lowest(wanted.upper, value))
            case StringStartsWith(value=value) if isinstance(serde, StringSerde):
                wanted = replace(wanted, prefix=_longer(wanted.prefix, value))
    return wanted


def _only(wanted: KeyFilter, keys: tuple[Any, ...]) -> KeyFilter:
    plain = tuple(_plain(key) for key in keys)
    kept = plain if wanted.keys is None else tuple(key for key in plain if key in wanted.keys)
    return replace(wanted, keys=kept)


def _highest(bound: Any, value: Any) -> Any:
    return _plain(value) if bound is None else max(bound, _plain(value))


def _lowest(bound: Any, value: Any) -> Any:
    return _plain(value) if bound is None else min(bound, _plain(value))


def _longer(prefix: str | None, value: str) -> str:
    """Of two beginnings the one that says more; where no key has both, Spark drops all rows."""
    return value if prefix is None or value.startswith(prefix) else prefix


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, bytearray) else value


def table_of(options: Mapping[str, str]) -> StoreTable:
    """The table that options of a read name. Raises `ConfigError`."""
    for name in options:
        if name not in _OPTIONS:
            near = difflib.get_close_matches(name, _OPTIONS, n=1)
            hint = (
                f"Did you mean {near[0]!r}?" if near else f"There is: {', '.join(sorted(_OPTIONS))}"
            )
            raise ConfigError(f"The format {FORMAT} has no option {name!r}", hint=hint)
    store = check_name(_required(options, "store"), "store")
    spec = _spec(options["program"], store) if "program" in options else None
    key = spec.key_serde if spec is not None else _named(options, "key")
    value = spec.value_serde if spec is not None else _named(options, "value")
    if "snapshot" in options:
        return SnapshotTable(
            location=options["snapshot"],
            application_id=check_name(_required(options, "application"), "application"),
            store=store,
            key=key or BytesSerde(),
            value=value or BytesSerde(),
            window_ms=None if spec is None or spec.duplicates else spec.window_ms,
            retention_ms=None if spec is None else spec.retention_ms,
            choice=_snapshot(options),
        )
    for name in ("snapshot_number", "snapshot_time"):
        if name in options:
            raise ConfigError(
                f"Option {name} is for snapshots", hint='Say where: .option("snapshot", ...)'
            )
    url, token, ca_file = _address(options)
    return LiveTable(
        url=url,
        token=token,
        store=store,
        ca_file=ca_file,
        certificate_file=options.get("certificate_file"),
        key_file=options.get("key_file"),
        serdes=(key, value),
        bound=_bound(options),
    )


def _address(options: Mapping[str, str]) -> tuple[str, str, str | None]:
    """Where the application answers, and the token that it wants."""
    ca_file = options.get("ca_file")
    if "url" not in options:
        directory = Path(options["state_dir"]) if "state_dir" in options else usual_state_dir()
        found = read_driver_file(directory, _required(options, "application"))
        return found.url, found.token, ca_file or found.certificate or None
    if "token_file" in options:
        try:
            token = Path(options["token_file"]).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise ConfigError(
                f"Option token_file names a file that cannot be read: {error.strerror}",
                where={"file": options["token_file"]},
            ) from error
        return options["url"], token, ca_file
    return options["url"], _required(options, "token"), ca_file


def _snapshot(options: Mapping[str, str]) -> SnapshotChoice:
    """Which snapshot options ask for."""
    number, time = options.get("snapshot_number", "0"), options.get("snapshot_time")
    if not number.isdecimal():
        raise ConfigError(
            f"Option snapshot_number is {number!r}", hint="0 is the newest, 1 the one before it"
        )
    return SnapshotChoice(number=int(number), until_ms=None if time is None else _moment(time))


def _moment(text: str) -> int:
    """Milliseconds since 1970, of those or of a time as ISO 8601 writes it.

    >>> _moment("2026-01-01T00:00:00Z"), _moment("1767225600000")
    (1767225600000, 1767225600000)
    """
    if text.isdecimal():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise ConfigError(
            f"Option snapshot_time is {text!r}",
            hint="Write milliseconds, or such as 2026-01-01T00:00:00Z, with its zone",
        )
    return int(moment.timestamp() * 1000)


def _bound(options: Mapping[str, str]) -> Bound:
    lag = options.get("max_lag")
    if lag is not None and not lag.isdecimal():
        raise ConfigError("Option max_lag is no number")
    return Bound(stale=_flag(options, "stale"), max_lag=None if lag is None else int(lag))


def _flag(options: Mapping[str, str], name: str) -> bool:
    text = options.get(name, "false").lower()
    if text not in _TRUE:
        raise ConfigError(f"Option {name} is {text!r}", hint="Use true or false")
    return _TRUE[text]


def _named(options: Mapping[str, str], part: str) -> Serde[Any] | None:
    return serde_named(options[part]) if part in options else None


def _spec(program: str, store: str) -> StoreSpec:
    """The store in a program, which knows its types."""
    stores: Iterable[StoreSpec] = imported(program, option="program").build().stores
    by_name = {each.name: each for each in stores}
    if store not in by_name:
        raise UnknownStoreError(
            f"{program} has no store {store!r}",
            hint=f"It has: {', '.join(sorted(by_name)) or 'none'}",
        )
    return by_name[store]


def _required(options: Mapping[str, str], name: str) -> str:
    if not options.get(name):
        raise ConfigError(
            f"Option {name} is missing", hint=f'Write .option("{name}", ...) before load()'
        )
    return options[name]
