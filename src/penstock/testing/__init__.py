"""Test a topology without Spark, Kafka or Java, with the very operators that run on Spark; and
stores that you bring against the contract of all stores.
"""

from typing import TYPE_CHECKING, Any

from penstock.testing.driver import TopologyTestDriver
from penstock.testing.stores import StoreView
from penstock.testing.topics import InputTopic, OutputTopic, TestRecord

if TYPE_CHECKING:
    from penstock.testing.contract import check_store

__all__ = [
    "InputTopic",
    "OutputTopic",
    "StoreView",
    "TestRecord",
    "TopologyTestDriver",
    "check_store",
]


def __getattr__(name: str) -> Any:
    # It brings RocksDB along, which those who test a topology need not wait for.
    if name == "check_store":
        from penstock.testing.contract import check_store

        return check_store
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
