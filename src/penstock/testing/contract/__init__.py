"""The contract of stores as a test: `check_store` says which promise a store breaks."""

from penstock.testing.contract.check import check_store

__all__ = ["check_store"]
