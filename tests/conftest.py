"""What tests of several folders share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.local.broker import EmbeddedKafka, KafkaOptions

# Java's optimising compiler takes half of two cores in the first minute, and tests end before it
# pays.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The bootstrap servers of one broker for the whole run; tests use topics of their own."""
    directory: Path = tmp_path_factory.mktemp("kafka")
    with EmbeddedKafka(KafkaOptions(directory=directory)) as broker:
        yield broker.bootstrap_servers
