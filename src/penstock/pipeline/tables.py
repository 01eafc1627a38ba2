"""A store as a table of the Spark session that this process has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from penstock.pipeline.store_source import StoreSource


def first_rows(sql: str, *, application: str, store: str, state_dir: Path) -> list[dict[str, Any]]:
    """What a query gives over a store of a running application, named `store` in it."""
    spark = SparkSession.builder.getOrCreate()
    spark.dataSource.register(StoreSource)
    table = (
        spark.read.format("penstock")
        .option("application", application)
        .option("store", store)
        .option("state_dir", str(state_dir))
        .load()
    )
    return [row.asDict() for row in spark.sql(sql, store=table).collect()]
