"""What tests of the whole path share: one Spark session, because starting one takes seconds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.config import Config
from tests.guarded_kafka import Guarded, guarded_kafka


@pytest.fixture(scope="package")
def spark() -> Iterator[None]:
    """A Spark session that applications of this process find and leave running."""
    from penstock.local.jars import SPARK_KAFKA, ensure
    from penstock.pipeline.session import open_session

    session = open_session("penstock-tests", Config(), ensure(SPARK_KAFKA))
    yield
    session.close()


@pytest.fixture(scope="package")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """A broker that wants to know who calls, in several ways."""
    with guarded_kafka(tmp_path_factory.mktemp("guarded")) as found:
        yield found
