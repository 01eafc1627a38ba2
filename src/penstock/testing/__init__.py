"""Test a topology without Spark, Kafka or Java, with the very operators that run on Spark; and
stores that you bring against the contract of all stores.
"""

from penstock.testing.contract import check_store
from penstock.testing.driver import TopologyTestDriver
from penstock.testing.stores import StoreView
from penstock.testing.topics import InputTopic, OutputTopic, TestRecord

__all__ = [
    "InputTopic",
    "OutputTopic",
    "StoreView",
    "TestRecord",
    "TopologyTestDriver",
    "check_store",
]
