"""Which of a slice's outputs Kafka refused, from what it said of them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError as NativeError

from penstock.errors import ProductionError
from penstock.instance.protocol import Rejection
from penstock.instance.rejections import rejected_rows, rejection, to_be_judged
from penstock.processors.records import OUTPUTS_SCHEMA


def refused(code: int, topic: str, key: bytes | None, value: bytes | None) -> Rejection:
    found = rejection(NativeError(code), topic, key, value)
    assert found is not None
    return found


def outputs(*rows: tuple[str, bytes | None, bytes | None]) -> pa.RecordBatch:
    columns: dict[str, Any] = {
        "topic": pa.array([row[0] for row in rows]).dictionary_encode(),
        "partition": pa.array([0] * len(rows), pa.int32()),
        "key": pa.array([row[1] for row in rows], pa.binary()),
        "value": pa.array([row[2] for row in rows], pa.binary()),
        "timestamp": pa.array([0] * len(rows), pa.int64()),
        "headers": pa.nulls(len(rows), OUTPUTS_SCHEMA.field("headers").type),
    }
    return pa.RecordBatch.from_arrays(
        [columns[name] for name in OUTPUTS_SCHEMA.names], schema=OUTPUTS_SCHEMA
    )


def test_a_record_is_known_again_by_its_bytes() -> None:
    rows = outputs(("a", b"k", b"v"), ("b", b"k", b"v"), ("a", None, b"v"), ("a", b"k", None))
    invalid = refused(NativeError.INVALID_RECORD, "a", None, b"v")
    assert list(rejected_rows(rows, [invalid])) == [2]


def test_what_is_larger_than_a_record_that_is_too_large_is_too_large() -> None:
    rows = outputs(
        ("a", b"k", b"1" * 5), ("a", b"k", b"2" * 4), ("a", b"kk", b"3" * 4), ("b", b"k", b"4" * 9)
    )
    large = refused(NativeError.MSG_SIZE_TOO_LARGE, "a", b"k", b"1" * 5)
    found = rejected_rows(rows, [large])
    assert list(found) == [0, 2]
    assert "max.message.bytes" in found[0].hint
    assert found[2].where == {"topic": "a", "error": "MSG_SIZE_TOO_LARGE", "bytes": 6}


def test_a_topic_that_is_not_there_takes_none_of_its_records() -> None:
    rows = outputs(("a", b"k", b"v"), ("b", b"k", b"v"), ("a", None, None))
    found = rejected_rows(rows, [refused(NativeError.UNKNOWN_TOPIC_OR_PART, "a", b"k", b"v")])
    assert list(found) == [0, 2]
    assert found[0].hint.startswith("Create the topic")


def test_a_change_of_a_store_is_never_left_out() -> None:
    large = refused(NativeError.MSG_SIZE_TOO_LARGE, "app-counts-changelog", b"k", b"v")
    with pytest.raises(ProductionError, match=r"a change of a store.*app-counts-changelog"):
        rejected_rows(outputs(("a", b"k", b"v")), [large])


def test_no_handler_is_asked_where_a_topic_may_not_be_written() -> None:
    denied = refused(NativeError.TOPIC_AUTHORIZATION_FAILED, "a", b"k", b"v")
    with pytest.raises(ProductionError, match="Allow the application's user"):
        rejected_rows(outputs(("a", b"k", b"v")), [denied])


def test_what_may_pass_later_is_no_rejection() -> None:
    for code in (NativeError.NOT_LEADER_FOR_PARTITION, NativeError._MSG_TIMED_OUT):
        assert rejection(NativeError(code), "a", b"k", b"v") is None


def test_records_beside_one_without_a_key_are_not_to_blame() -> None:
    keyed = refused(NativeError.INVALID_RECORD, "a", b"k", b"v")
    keyless = refused(NativeError.INVALID_RECORD, "a", None, b"v")
    elsewhere = refused(NativeError.INVALID_RECORD, "b", b"k", b"v")
    assert to_be_judged([keyed, keyless, elsewhere], ()) == [keyless, elsewhere]


def test_an_own_topic_that_is_gone_is_not_for_the_handler() -> None:
    gone = refused(NativeError.UNKNOWN_TOPIC_OR_PART, "app-counts-changelog", b"k", b"v")
    assert to_be_judged([gone], ["app-counts-changelog"]) == []
    assert to_be_judged([gone], ["app-other-changelog"]) == [gone]
