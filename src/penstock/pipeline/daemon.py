"""Spark's Python daemon with our imports done, so that a forked worker starts at once.

Importing takes about a second a worker otherwise. Only imports happen here: a thread, a Kafka
client or a gRPC channel made before the fork would be broken in every worker.
"""

import gc
import importlib

import pandas as pd
import pyspark.daemon
import pyspark.worker

import penstock.pipeline.worker

__all__ = ["pd", "penstock", "pyspark"]

if __name__ == "__main__":
    # What users' functions name as `ps`; by its name, because nothing here may lean on it.
    importlib.import_module("penstock.public")
    # Workers make rows by the million, none in a cycle: looking through them is in vain, and
    # looking through what was imported would copy pages that all workers share.
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    pyspark.daemon.manager()
