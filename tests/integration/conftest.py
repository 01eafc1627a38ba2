"""What tests of the whole path share: one Spark session, because starting one takes seconds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.config import Config


@pytest.fixture(scope="package")
def spark() -> Iterator[None]:
    """A Spark session that applications of this process find and leave running."""
    from penstock.local.jars import SPARK_KAFKA, ensure
    from penstock.pipeline.session import open_session

    session = open_session("penstock-tests", Config(), ensure(SPARK_KAFKA))
    yield
    session.close()
