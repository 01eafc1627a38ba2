"""The `.checkpoint` file: Kafka's format to the letter, replaced whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import StateDirectoryError
from penstock.stores.checkpoint_file import (
    OFFSET_UNKNOWN,
    format_checkpoint,
    parse_checkpoint,
    read_checkpoint,
    write_checkpoint,
)

TOPICS = st.from_regex(r"[A-Za-z0-9._-]{1,249}", fullmatch=True)
OFFSETS = st.dictionaries(
    st.tuples(TOPICS, st.integers(0, 100_000)),
    st.one_of(st.integers(0, 2**63 - 1), st.just(OFFSET_UNKNOWN)),
    max_size=20,
)


@given(OFFSETS)
def test_what_is_written_is_read(offsets: dict[tuple[str, int], int]) -> None:
    assert parse_checkpoint(format_checkpoint(offsets)) == offsets


@given(st.text(max_size=200))
def test_any_text_is_offsets_or_a_value_error(text: str) -> None:
    try:
        offsets = parse_checkpoint(text)
    except ValueError:
        return
    assert parse_checkpoint(format_checkpoint(offsets)) == offsets


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0",
        "0\n",
        "0\n1\n",
        "1\n0\n",
        "0\n1\ntopic 0\n",
        "0\n1\ntopic 0 1 2\n",
        "0\n1\ntopic zero 1\n",
        "0\n2\ntopic 0 1\n",
        "0\n0\ntopic 0 1\n",
        "0\n-1\n",
        "0\n1\ntopic 0 ٣\n",
        "0\n1\ntopic 0 1_0\n",
    ],
)
def test_malformed_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"version|lines|fields|number"):
        parse_checkpoint(text)


def test_a_reader_splits_on_any_white_space_and_skips_other_negative_offsets() -> None:
    text = "0\n3\na  0\t1\nb 1 -4\nc 2 -1\n"
    assert parse_checkpoint(text) == {("a", 0): 1, ("b", 1): OFFSET_UNKNOWN}


def test_a_writer_refuses_other_negative_offsets() -> None:
    with pytest.raises(ValueError, match="-1"):
        format_checkpoint({("a", 0): -1})


def test_the_file_comes_goes_and_leaves_no_draft(tmp_path: Path) -> None:
    path = tmp_path / ".checkpoint"
    assert read_checkpoint(path) == {}
    write_checkpoint(path, {("app-counts-changelog", 3): 4711})
    assert path.read_text() == "0\n1\napp-counts-changelog 3 4711\n"
    assert read_checkpoint(path) == {("app-counts-changelog", 3): 4711}
    write_checkpoint(path, {("app-counts-changelog", 3): 4712})
    assert [entry.name for entry in tmp_path.iterdir()] == [".checkpoint"]
    write_checkpoint(path, {})
    assert list(tmp_path.iterdir()) == []


def test_a_malformed_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / ".checkpoint"
    path.write_text("0\n5\n")
    with pytest.raises(StateDirectoryError, match="malformed") as caught:
        read_checkpoint(path)
    assert caught.value.where["path"] == path
