"""Test a topology without Spark, Kafka or Java: the very operators that run on Spark."""

from penstock.testing.driver import TopologyTestDriver
from penstock.testing.stores import StoreView
from penstock.testing.topics import InputTopic, OutputTopic, TestRecord

__all__ = ["InputTopic", "OutputTopic", "StoreView", "TestRecord", "TopologyTestDriver"]
