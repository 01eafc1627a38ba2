"""Commit and driver records: what is written is read, and nothing else is taken for one."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.changelog.commit_record import (
    ChangelogEnd,
    CommitRecord,
    DriverRecord,
    InputTopic,
)
from penstock.errors import KafkaError

NUMBERS = st.integers(0, 2**62)
NAMES = st.text(max_size=20)
POSITIONS = st.dictionaries(NAMES, st.dictionaries(NUMBERS, NUMBERS, max_size=3), max_size=3)
INPUTS = st.dictionaries(
    NAMES, st.builds(InputTopic, id=NAMES, partitions=st.integers(1, 1000)), max_size=3
)
COMMITS = st.builds(
    CommitRecord,
    n=NUMBERS,
    epoch=st.tuples(NUMBERS, NUMBERS),
    position=POSITIONS,
    previous=POSITIONS,
    inputs=INPUTS,
    changelogs=st.dictionaries(
        NAMES, st.builds(ChangelogEnd, id=NAMES, end=st.integers(-1, 2**62)), max_size=3
    ),
    metadata=st.dictionaries(NAMES, NAMES, max_size=3),
)
DRIVERS = st.builds(
    DriverRecord,
    generation=NUMBERS,
    host=NAMES,
    pid=NUMBERS,
    process_start=st.floats(0, 2e9),
    beat=NUMBERS,
    tasks=st.dictionaries(NAMES, st.integers(1, 1000), max_size=3),
    inputs=INPUTS,
)


@given(COMMITS)
def test_a_commit_record_survives(record: CommitRecord) -> None:
    assert CommitRecord.decode(record.encode()) == record


@given(DRIVERS)
def test_a_driver_record_survives(record: DriverRecord) -> None:
    assert DriverRecord.decode(record.encode()) == record


@given(st.one_of(st.binary(max_size=200), DRIVERS.map(DriverRecord.encode)))
def test_other_bytes_are_a_typed_error(data: bytes) -> None:
    with pytest.raises(KafkaError, match="commits topic"):
        CommitRecord.decode(data)


@pytest.mark.parametrize(
    "change",
    [
        {"n": -1},
        {"n": "1"},
        {"n": 1.5},
        {"epoch": [1]},
        {"position": {"t": {"0": -1}}},
        {"position": {"t": {"x": 1}}},
        {"changelogs": {"s": {"id": "i", "end": -2}}},
        {"surprise": 1},
    ],
)
def test_a_field_out_of_shape_is_a_typed_error(change: dict[str, object]) -> None:
    record = CommitRecord(n=1, epoch=(1, 0), position={}, previous={})
    data = json.dumps({**msgspec.to_builtins(record), **change}).encode()
    with pytest.raises(KafkaError, match="not a CommitRecord") as caught:
        CommitRecord.decode(data, where={"topic": "clinic-commits"})
    assert caught.value.where == {"topic": "clinic-commits"}


def test_a_later_version_is_named_and_not_guessed_at() -> None:
    data = b'{"version": 2, "n": 1, "fields of later": true}'
    with pytest.raises(KafkaError, match="version 2"):
        CommitRecord.decode(data)
