"""A changelog that is written again, after a recovery that was cut off, holds what the store does.

Of the first recovery it has all that was there when that ended, and nobody takes it out: the second
one begins with empty stores.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.pipeline.orders import Address, BatchOrder, SliceOrder
from penstock.processors import Limits, RecordRun, SliceRun
from penstock.processors.choice import start_slice
from penstock.testing.stores import DriverState
from penstock.topology import SubTopology
from tests.unit.slices import Row, changes, records


def _ms(count: int) -> timedelta:
    return timedelta(milliseconds=count)


class Piece(NamedTuple):
    """A record of one of the inputs."""

    offset: int
    time: int
    other: bool
    key: str
    value: str | None


def _stream(builder: ps.StreamsBuilder) -> ps.KStream[str, str]:
    return builder.stream("in", key=str, value=str)


def _final(builder: ps.StreamsBuilder) -> None:
    windows = ps.tumbling(_ms(10), grace=_ms(5))
    table = _stream(builder).group_by_key().windowed_by(windows).count("counts")
    table.suppress(ps.until_window_closes(), name="final").to_stream().to("out")


def _delayed(limit: Any) -> Callable[[ps.StreamsBuilder], None]:
    def program(builder: ps.StreamsBuilder) -> None:
        table = _stream(builder).group_by_key().count("counts")
        wait = ps.until_time_limit(_ms(7), limit)
        table.suppress(wait, name="calm").to_stream().to("out")

    return program


def _waiting(builder: ps.StreamsBuilder) -> None:
    versions = ps.versioned_store("versions", history_retention=_ms(1_000))
    table = builder.table("table", versions, key=str, value=str)
    _stream(builder).join(table, lambda a, b: f"{a}{b}", value=str, grace=_ms(7), name="wait").to(
        "out"
    )


def _outer(builder: ps.StreamsBuilder) -> None:
    other = builder.stream("table", key=str, value=str)
    within = ps.join_window(_ms(5), grace=_ms(5))
    _stream(builder).outer_join(other, lambda a, b: f"{a}{b}", within, value=str, name="pair").to(
        "out"
    )


def _sessions(builder: ps.StreamsBuilder) -> None:
    windows = ps.session(_ms(6), grace=_ms(10))
    table = _stream(builder).group_by_key().windowed_by(windows).count("counts")
    table.to_stream().to("out")


def _recent(builder: ps.StreamsBuilder) -> None:
    _stream(builder).group_by_key().count("counts", max_entries=2).to_stream().to("out")


def _filtered(builder: ps.StreamsBuilder) -> None:
    table = _stream(builder).to_table("latest").filter(lambda _, value: value != "x", store="some")
    table.to_stream().to("out")


PROGRAMS: dict[str, Callable[[ps.StreamsBuilder], None]] = {
    "final": _final,
    "delayed": _delayed(ps.unbounded()),
    "delayed, few": _delayed(ps.max_records(2)),
    "waiting": _waiting,
    "outer": _outer,
    "sessions": _sessions,
    "recent": _recent,
    "filtered": _filtered,
}

PIECES = st.lists(
    st.tuples(
        st.booleans(),
        st.sampled_from(["a", "b", "aa"]),
        st.sampled_from(["a", "x", None]),
        st.sampled_from([0, 1, 2, 5, 12]),
    ),
    min_size=2,
    max_size=16,
)


def _limits(sub: SubTopology, *, reads_again: bool) -> Limits:
    """What a job lets the slices of such a task do."""
    slice_order = SliceOrder(
        task="0_0",
        epoch=(1, 1),
        n=1,
        start={},
        end={},
        address=Address(host="", unix_location="", tcp_location=""),
        reads_again=reads_again,
    )
    counts = dict.fromkeys(sub.output_topics("app"), 4)
    order = BatchOrder(
        application_id="app",
        sub_topology=b"",
        slices={0: slice_order},
        limits=Limits(cache_max_bytes=10_000, partition_counts=counts),
        token="t",
        timeout_seconds=1,
    )
    return order.limits_of(slice_order)


def _read(sub: SubTopology, slices: list[list[Piece]], changelog: DriverState) -> DriverState:
    """What a task that begins with empty stores has in them at the end."""
    limits = _limits(sub, reads_again=True)
    state = DriverState({spec.name: spec for spec in sub.stores})
    metadata: dict[str, str] = {}
    for pieces in slices:
        run = start_slice(
            sub,
            application_id="app",
            state=state,
            limits=limits,
            metadata=metadata,
            partition=0,
            now_ms=0,
        )
        for topic, rows in _inputs(sub, pieces).items():
            run.process(records(rows, topic))
        result = run.finish()
        metadata = dict(result.metadata)
        state.apply(result.changes)
        changelog.apply(result.changes)
    return state


def _inputs(sub: SubTopology, pieces: list[Piece]) -> dict[str, list[Row]]:
    topics = sorted({topic for source in sub.sources for topic in source.topics})
    found: dict[str, list[Row]] = {}
    for offset, time, other, key, value in pieces:
        row = Row(offset, time, key.encode(), None if value is None else value.encode())
        found.setdefault(topics[-1] if other else topics[0], []).append(row)
    return found


@pytest.mark.parametrize("name", PROGRAMS)
@given(drawn=PIECES, size=st.integers(1, 4), cut=st.integers(1, 15))
@settings(max_examples=40, deadline=None)
def test_a_changelog_that_is_written_again_is_the_store(
    name: str, drawn: list[tuple[bool, str, str | None, int]], size: int, cut: int
) -> None:
    builder = ps.StreamsBuilder()
    PROGRAMS[name](builder)
    [sub] = builder.build().sub_topologies
    pieces, time = [], 0
    for offset, (other, key, value, step) in enumerate(drawn):
        # Of several inputs the order must not depend on what is read together.
        time = time + step + 1 if len(sub.sources) > 1 else 4 * step + offset
        pieces.append(Piece(offset, time, other, key, value))
    changelog = DriverState({spec.name: spec for spec in sub.stores})
    slices = [pieces[first : first + size] for first in range(0, min(cut, len(pieces)), size)]
    _read(sub, slices, changelog)
    # It was cut off. Who takes the task next may read all of it at once.
    state = _read(sub, [pieces], changelog)
    for spec in sub.stores:
        if spec.kind != "versioned":
            assert changelog.of(spec.name) == state.of(spec.name), spec.name


def test_what_comes_and_goes_is_deleted_only_when_it_is_read_again() -> None:
    builder = ps.StreamsBuilder()
    _final(builder)
    [sub] = builder.build().sub_topologies
    rows = [Row(0, 1, b"a", b""), Row(1, 50, b"b", b"")]
    buffer = next(spec.name for spec in sub.stores if spec.name != "counts")
    for kind in (SliceRun, RecordRun):
        deleted = []
        for reads_again in (False, True):
            run = kind(
                sub,
                application_id="app",
                state=DriverState({spec.name: spec for spec in sub.stores}),
                limits=_limits(sub, reads_again=reads_again),
                metadata={},
            )
            run.process(records(rows))
            found = [(each[0], each[2]) for each in changes(run.finish())]
            deleted.append(found.count((buffer, None)))
        assert deleted == [0, 1]
