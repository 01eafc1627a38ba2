"""Spark's Python daemon with our imports done, so that a forked worker starts at once.

Importing takes about a second a worker otherwise. Only imports happen here: a thread, a Kafka
client or a gRPC channel made before the fork would be broken in every worker.
"""

import pandas as pd
import pyspark.daemon
import pyspark.worker

import penstock.pipeline.worker

__all__ = ["pd", "penstock", "pyspark"]

if __name__ == "__main__":
    pyspark.daemon.manager()
