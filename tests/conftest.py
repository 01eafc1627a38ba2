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
from tests.areas import place_in_run, report, seconds_by_area

if TYPE_CHECKING:
    from tests.postgres_server import PostgresServer

# Java's optimising compiler takes half of two cores in the first minute, and tests end before it
# pays.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

# The same examples in every run: what passes once passes again. `make contract` and its like look
# for new ones. However long one takes: a machine may be busy.
settings.register_profile("same examples", derandomize=True, deadline=None)
settings.load_profile("same examples")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first, so that the workers end at the same time; `make test` keeps this order."""
    items.sort(key=lambda item: place_in_run(item.nodeid.partition("::")[0]))


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Of a run by several workers: how much of its time each part of Penstock took."""
    workers: int | None = config.getoption("numprocesses", None)
    if not workers:
        return
    reports = [each for kind in terminalreporter.stats.values() for each in kind]
    durations = [
        (each.nodeid.partition("::")[0], each.duration)
        for each in reports
        if isinstance(each, pytest.TestReport)
    ]
    terminalreporter.section("minutes by area")
    for line in report(seconds_by_area(durations), workers=workers):
        terminalreporter.write_line(line)


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
