"""What lies beside a group's offsets is what Kafka Streams 4.1.1 writes there, byte for byte."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.changelog.offset_metadata import OffsetMetadata, offset_metadata

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


@pytest.mark.parametrize("kept", [{}, {"a": 1}, {"ab": 5, "sitzungen-ü": 7}])
@given(behind=st.binary(max_size=20))
def test_what_the_client_reads_behind_the_end_is_left_out(
    kept: dict[str, int], behind: bytes
) -> None:
    said = OffsetMetadata(time=TIME, kept=kept)
    if not kept:
        # Few bytes look like a list of names; those that do are as good as a list.
        assert OffsetMetadata.decode_overrun(said.encode().encode() + behind).time == TIME
    else:
        assert OffsetMetadata.decode_overrun(said.encode().encode() + behind) == said


def test_bytes_that_are_no_text_reach_the_decoder() -> None:
    class Overrun:
        @property
        def metadata(self) -> str:
            return b"AgAAAYvP5WgA\xd1".decode()

    assert offset_metadata(Overrun()) == OffsetMetadata(time=TIME)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", [None, "", "nonsense", "set by hand", "Ag==", "AwAAAYvP5WgA", "ü"])
def test_what_others_write_says_nothing(text: str | None) -> None:
    assert OffsetMetadata.decode(text) == OffsetMetadata()
