"""Where Spark looks for data sources that it was not told of: packages named `pyspark_...`."""

from penstock.pipeline.store_source import StoreSource as DefaultSource

__all__ = ["DefaultSource"]
