"""A store as a table of the Spark session that this process has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession

from penstock.errors import LocalPartsError
from penstock.pipeline.store_source import StoreSource


def first_rows(sql: str, *, application: str, store: str, state_dir: Path) -> list[dict[str, Any]]:
    """What a query gives over a store of a running application, named `store` in it.

    Raises `LocalPartsError` if this process has no Spark session, or no longer.
    """
    context = SparkContext._active_spark_context  # noqa: SLF001 - no public way
    if context is None:
        # Not made here: it would outlive whoever asks.
        raise LocalPartsError("This process has no Spark session")
    spark = SparkSession(context)
    spark.dataSource.register(StoreSource)
    table = (
        spark.read.format("penstock")
        .option("application", application)
        .option("store", store)
        .option("state_dir", str(state_dir))
        .load()
    )
    return [row.asDict() for row in spark.sql(sql, store=table).collect()]
