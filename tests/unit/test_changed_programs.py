"""What a changed program finds of the times that the one before it left."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

import penstock as ps
from penstock.processors import Limits, RecordRun, SliceResult
from penstock.testing.stores import DriverState
from penstock.topology import SubTopology
from tests.unit.slices import Row, outputs, records

SECOND = timedelta(seconds=1)
WINDOWS: dict[str, Any] = {
    "tumbling": ps.tumbling(SECOND, grace=timedelta(0)),
    "sliding": ps.sliding(SECOND, grace=timedelta(0)),
    "session": ps.session(SECOND, grace=timedelta(0)),
}


def _joined(key: str, value: str, held: str) -> str:
    return held + value


def _merged(key: str, one: str, two: str) -> str:
    return one + two


def _cogrouped(windows: str, *topics: str) -> SubTopology:
    builder = ps.StreamsBuilder()
    streams = [builder.stream(topic.strip("-"), key=str, value=str) for topic in topics]
    groups = [
        (stream.filter(lambda key, value: value != "-") if topic.endswith("-") else stream)
        for topic, stream in zip(topics, streams, strict=True)
    ]
    cogrouped: Any = groups[0].group_by_key().cogroup(_joined)
    for each in groups[1:]:
        cogrouped = cogrouped.cogroup(each.group_by_key(), _joined)
    merger = {"merger": _merged} if windows == "session" else {}
    table = cogrouped.windowed_by(WINDOWS[windows]).aggregate(
        str, "texts", value=str, caching=False, **merger
    )
    table.to_stream().to("out")
    [sub] = builder.build().sub_topologies
    return sub


def _run(
    sub: SubTopology, state: DriverState, metadata: Mapping[str, str], topic: str, row: Row
) -> SliceResult:
    limits = Limits(cache_max_bytes=0, partition_counts={"out": 1})
    run = RecordRun(sub, application_id="app", state=state, limits=limits, metadata=metadata)
    run.process(records([row], topic))
    result = run.finish()
    state.apply(result.changes)
    return result


@pytest.mark.parametrize("windows", WINDOWS)
@pytest.mark.parametrize(
    ("before", "after"),
    [(("a", "b"), ("b", "a")), (("a", "b"), ("c", "b", "a")), (("a-", "b"), ("b", "a-"))],
)
def test_streams_that_are_grouped_together_keep_their_own_times(
    windows: str, before: tuple[str, ...], after: tuple[str, ...]
) -> None:
    """Each stream has a time of its own; another's must not make its records late."""
    old, new = _cogrouped(windows, *before), _cogrouped(windows, *after)
    state = DriverState({spec.name: spec for spec in old.stores})
    first = _run(old, state, {}, "a", Row(0, 30_000, b"k", b"1"))
    second = _run(old, state, first.metadata, "b", Row(0, 5_000, b"k", b"2"))
    # b goes on at its own pace, far behind a; in a a record of that time is late.
    third = _run(new, state, second.metadata, "b", Row(1, 5_000, b"other", b"3"))
    assert not third.dropped
    fourth = _run(new, state, third.metadata, "a", Row(1, 5_000, b"other", b"4"))
    assert fourth.dropped == {"late": 1}
    assert not outputs(fourth)
