"""Which of a slice's outputs Kafka refused, from what it said of them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError as NativeError

from penstock.errors import ProductionError
from penstock.instance.protocol import Rejection
from penstock.instance.rejections import fitting_batch, rejected_rows, rejection, to_be_judged
from penstock.processors.records import CHANGES_SCHEMA, OUTPUTS_SCHEMA, SliceResult


def refused(code: int, topic: str, *, has_key: bool = True, row: int = -1) -> Rejection:
    found = rejection(NativeError(code), topic, has_key=has_key, row=row)
    assert found is not None
    return found


def result(*rows: tuple[str, bytes | None, bytes | None], changes: int = 0) -> SliceResult:
    """A slice that wants these written, after so many changes of stores."""
    columns: dict[str, Any] = {
        "topic": pa.array([row[0] for row in rows]).dictionary_encode(),
        "partition": pa.array([0] * len(rows), pa.int32()),
        "key": pa.array([row[1] for row in rows], pa.binary()),
        "value": pa.array([row[2] for row in rows], pa.binary()),
        "timestamp": pa.array([0] * len(rows), pa.int64()),
        "headers": pa.array(
            [[{"key": "h", "value": b"12"}]] * len(rows), OUTPUTS_SCHEMA.field("headers").type
        ),
    }
    written = pa.RecordBatch.from_arrays(
        [columns[name] for name in OUTPUTS_SCHEMA.names], schema=OUTPUTS_SCHEMA
    )
    stored = {
        "store": pa.array(["counts"] * changes).dictionary_encode(),
        "key": pa.array([b"k"] * changes, pa.binary()),
        "value": pa.array([b"v"] * changes, pa.binary()),
        "timestamp": pa.array([0] * changes, pa.int64()),
    }
    changed = pa.RecordBatch.from_arrays(
        [stored[name].cast(CHANGES_SCHEMA.field(name).type) for name in CHANGES_SCHEMA.names],
        schema=CHANGES_SCHEMA,
    )
    return SliceResult(changes=changed, outputs=written, dropped={}, metadata={})


def test_an_output_is_known_again_by_its_place_behind_the_changes() -> None:
    rows = result(("a", b"k", b"v"), ("a", b"k", b"v"), ("b", b"kk", b"vv"), changes=3)
    found = rejected_rows(rows, [refused(NativeError.MSG_SIZE_TOO_LARGE, "b", row=5)])
    assert list(found) == [2]
    assert "max.message.bytes" in found[2].hint
    # Its headers count.
    assert found[2].where == {"topic": "b", "error": "MSG_SIZE_TOO_LARGE", "bytes": 7}


def test_a_topic_that_is_not_there_takes_none_of_its_records() -> None:
    rows = result(("a", b"k", b"v"), ("b", b"k", b"v"), ("a", None, None))
    found = rejected_rows(rows, [refused(NativeError.UNKNOWN_TOPIC_OR_PART, "a", row=0)])
    assert list(found) == [0, 2]
    assert found[0].hint.startswith("Create the topic")


def test_a_change_of_a_store_is_never_left_out() -> None:
    large = refused(NativeError.MSG_SIZE_TOO_LARGE, "app-counts-changelog", row=1)
    with pytest.raises(ProductionError, match=r"a change of a store.*app-counts-changelog"):
        rejected_rows(result(("a", b"k", b"v"), changes=2), [large])


def test_no_handler_is_asked_where_a_topic_may_not_be_written() -> None:
    denied = refused(NativeError.TOPIC_AUTHORIZATION_FAILED, "a")
    with pytest.raises(ProductionError, match="Allow the application's user"):
        rejected_rows(result(("a", b"k", b"v")), [denied])


def test_what_may_pass_later_is_no_rejection() -> None:
    for code in (NativeError.NOT_LEADER_FOR_PARTITION, NativeError._MSG_TIMED_OUT):
        assert rejection(NativeError(code), "a", has_key=True) is None


def test_records_beside_one_without_a_key_are_not_to_blame() -> None:
    keyed = refused(NativeError.INVALID_RECORD, "a", row=1)
    keyless = refused(NativeError.INVALID_RECORD, "a", has_key=False, row=2)
    elsewhere = refused(NativeError.INVALID_RECORD, "b", row=3)
    assert to_be_judged([keyed, keyless, elsewhere], ()) == [keyless, elsewhere]


def test_an_own_topic_that_is_gone_is_not_for_the_handler() -> None:
    gone = refused(NativeError.UNKNOWN_TOPIC_OR_PART, "app-counts-changelog")
    assert to_be_judged([gone], ["app-counts-changelog"]) == []
    assert to_be_judged([gone], ["app-other-changelog"]) == [gone]


@pytest.mark.parametrize("code", [NativeError.INVALID_RECORD, NativeError.INVALID_TIMESTAMP])
def test_a_batch_that_is_refused_for_one_of_its_records_is_sent_one_by_one(code: int) -> None:
    several = [refused(code, "a"), refused(code, "a"), refused(code, "b")]
    nobody: Any = None
    assert fitting_batch(nobody, several) == (1, "a")
    assert fitting_batch(nobody, several[1:]) == (0, "")
