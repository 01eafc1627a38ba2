"""One window without an end; what is before its start is in none."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

import penstock as ps
from penstock.errors import TopologyError
from penstock.testing import TopologyTestDriver
from penstock.topology import TimeWindows
from penstock.topology.windows import LONG_MAX


def counts(windows: TimeWindows) -> TopologyTestDriver:
    app = ps.Application("endless")
    grouped = app.stream("in", key=str, value=str).group_by_key()
    grouped.windowed_by(windows).count("counts").to_stream().to("out")
    return TopologyTestDriver(app)


def test_it_begins_when_it_is_told_to() -> None:
    driver = counts(ps.unlimited(start=datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)))
    topic = driver.input_topic("in", key=str, value=str)
    for time in (999, 1000, 10**15, 1001, 0):
        topic.pipe("a", "v", timestamp=time)
    # However late: it never closes.
    assert dict(driver.store("counts")) == {ps.Windowed("a", 1000, LONG_MAX): 3}
    assert driver.dropped == {}


def test_without_a_start_it_begins_with_time() -> None:
    driver = counts(ps.unlimited())
    driver.input_topic("in", key=str, value=str).pipe("a", "v", timestamp=0)
    assert dict(driver.store("counts")) == {ps.Windowed("a", 0, LONG_MAX): 1}


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(TopologyError, match="of no time zone"):
        ps.unlimited(start=datetime(2020, 1, 1))  # noqa: DTZ001
    with pytest.raises(TopologyError, match="begins at -1 ms"):
        ps.unlimited(start=-1)
    grouped = ps.StreamsBuilder().stream("in", key=str, value=str).group_by_key()
    with pytest.raises(TopologyError, match="never closes"):
        grouped.windowed_by(ps.unlimited()).emit_on_window_close()
