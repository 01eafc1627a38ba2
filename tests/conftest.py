"""What tests of several folders share."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from penstock.local.broker import EmbeddedKafka, KafkaOptions

if TYPE_CHECKING:
    from tests.postgres_server import PostgresServer

# Java's optimising compiler takes half of two cores in the first minute, and tests end before it
# pays.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

# The same examples in every run: what passes once passes again. `make contract` and its like look
# for new ones.
settings.register_profile("same examples", derandomize=True)
settings.load_profile("same examples")


@pytest.fixture(autouse=True)
def log_as_it_was() -> Iterator[None]:
    """Applications of a test's own process may say how the whole process logs."""
    logger = logging.getLogger("penstock")
    before = (list(logger.handlers), logger.level, logger.propagate)
    yield
    logger.handlers[:], logger.level, logger.propagate = before


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The bootstrap servers of one broker for the whole run; tests use topics of their own."""
    directory: Path = tmp_path_factory.mktemp("kafka")
    with EmbeddedKafka(KafkaOptions(directory=directory)) as broker:
        yield broker.bootstrap_servers


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    """A server for the tests of a module, which start it again if they stop it."""
    # It needs psycopg, which most tests do not.
    from tests.postgres_server import PostgresServer, programs

    found = programs()
    if found is None:
        pytest.skip("PostgreSQL is not installed; on Debian: apt-get install postgresql")
    server = PostgresServer(found)
    yield server
    server.close()
