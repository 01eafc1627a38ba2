"""What lies beside a group's offsets is what Kafka Streams 4.1.1 writes there, byte for byte."""

from __future__ import annotations

import pytest

from penstock.changelog.offset_metadata import OffsetMetadata

TIME = 1_700_000_000_000


@pytest.mark.parametrize(
    ("said", "text"),
    [
        (OffsetMetadata(), ""),
        (OffsetMetadata(time=TIME), "AgAAAYvP5WgA"),
        (
            OffsetMetadata(time=TIME, kept={"windowed": 12345, "sitzungen-ü": 7}),
            "AgAAAYvP5WgAAAAAAgAAAAh3aW5kb3dlZAAAAAAAADA5AAAADHNpdHp1bmdlbi3DvAAAAAAAAAAH",
        ),
    ],
)
def test_kafka_streams_own_words(said: OffsetMetadata, text: str) -> None:
    assert said.encode() == text
    assert OffsetMetadata.decode(text) == said


def test_older_words_and_those_of_an_idle_partition() -> None:
    assert OffsetMetadata.decode("AQAAAYvP5WgA") == OffsetMetadata(time=TIME)
    assert OffsetMetadata.decode("Av//////////") == OffsetMetadata()


@pytest.mark.parametrize("text", [None, "", "nonsense", "set by hand", "Ag==", "AwAAAYvP5WgA", "ü"])
def test_what_others_write_says_nothing(text: str | None) -> None:
    assert OffsetMetadata.decode(text) == OffsetMetadata()
