"""`penstock records` and `penstock topics create` as far as they need no broker."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cli import main
from penstock.cli.record_lines import encode_lines, record_line
from penstock.cli.records import encode_pair
from penstock.errors import ConfigError
from penstock.examples.catalogue import ExampleTopic
from penstock.serdes import BytesSerde, JsonSerde, LongSerde, StringSerde

PROGRAM = """
import penstock as ps

app = ps.Application("cli-records", bootstrap_servers="{address}")
app.stream("in", key=str, value=int).group_by_key().count("counts").to_stream().to("out")
"""


@dataclass(frozen=True)
class Beat:
    """A heart beat."""

    bpm: int


def test_keys_and_values_are_of_the_topics_types() -> None:
    numbers = ExampleTopic("in", StringSerde(), LongSerde())
    assert encode_pair(numbers, "ann=71") == (b"ann", (71).to_bytes(8, "big"))
    assert encode_pair(ExampleTopic("in", LongSerde(), BytesSerde()), "1=a=b")[1] == b"a=b"
    beats = ExampleTopic("in", StringSerde(), JsonSerde(Beat))
    assert encode_pair(beats, 'ann={"bpm":71}') == (b"ann", b'{"bpm":71}')
    for wrong in ("ann", "ann=x", "ann=1.5"):
        with pytest.raises(ConfigError):
            encode_pair(numbers, wrong)
    with pytest.raises(ConfigError, match="bpm"):
        encode_pair(beats, 'ann={"bpm":"x"}')


def test_a_files_lines_are_what_read_prints() -> None:
    beats = ExampleTopic("in", StringSerde(), JsonSerde(Beat))
    records = [("ann", Beat(71)), ("bob with a blank", Beat(64)), ("eve", None)]
    lines = [record_line(beats, key, beat) for key, beat in records]
    assert lines[0] == 'ann  {"bpm":71}'
    assert encode_lines(beats, [*lines, ""], name="beats.txt") == [
        (b"ann", b'{"bpm":71}'),
        (b"bob with a blank", b'{"bpm":64}'),
        (b"eve", None),
    ]
    numbers = ExampleTopic("in", StringSerde(), LongSerde())
    assert encode_lines(numbers, ["ann\t71"], name="-") == [(b"ann", (71).to_bytes(8, "big"))]


# Line breaks of all kinds, blanks, what a terminal obeys, and what reads like something else.
ODD = ["\n", "\r\n", "\u2028", "\x85", "\t", "  ", " ", '"', "\\", "\\n", "\x1b[2J", "\U000e0001"]
ODD += ["(deleted)", "0x61", "0x", '"a', '""', "{", "=", "\x00", "a", "ü"]
TEXTS = st.one_of(st.text(), st.lists(st.sampled_from(ODD)).map("".join))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXTS,
    lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner),
    max_leaves=5,
)


@given(key=st.none() | TEXTS, value=st.none() | st.binary() | TEXTS.map(str.encode))
def test_what_read_prints_send_takes_back(key: str | None, value: bytes | None) -> None:
    topic = ExampleTopic("in", StringSerde(), BytesSerde())
    line = record_line(topic, key, value)
    assert line.isprintable()
    sent = (None if key is None else key.encode(), value)
    assert encode_lines(topic, [line], name="-") == [sent]


@given(key=JSON.filter(lambda found: found is not None), value=st.none() | st.integers(-9, 9))
def test_what_is_json_is_taken_back_too(key: object, value: int | None) -> None:
    topic = ExampleTopic("in", JsonSerde(object), LongSerde())
    line = record_line(topic, key, value)
    assert line.isprintable()
    [(read, number)] = encode_lines(topic, [line], name="-")
    assert read is not None
    assert topic.key.deserialize(read) == key
    assert number == (None if value is None else LongSerde().serialize(value))


def test_plain_texts_stand_as_they_are() -> None:
    topic = ExampleTopic("in", StringSerde(), BytesSerde())
    assert record_line(topic, "ann lee", b'C:\\new "x"') == 'ann lee  C:\\new "x"'
    assert record_line(topic, "two\nlines", b"\xff\x00") == '"two\\nlines"  0xff00'
    # Who writes a file by hand need not know of quotation marks.
    assert encode_lines(topic, ['"so  said', 'a  "b" and c'], name="-") == [
        (b'"so', b"said"),
        (b"a", b'"b" and c'),
    ]


def test_a_line_that_is_no_record_is_named() -> None:
    numbers = ExampleTopic("in", StringSerde(), LongSerde())
    with pytest.raises(ConfigError, match=r"'bob 64' is no record \(file beats.txt, line 3\)"):
        encode_lines(numbers, ["ann  71", "", "bob 64"], name="beats.txt")
    with pytest.raises(ConfigError, match="line 2, topic in") as wrong:
        encode_lines(numbers, ["ann  71", "bob  many"], name="beats.txt")
    assert "'many' does not fit the topic: it is no JSON" in wrong.value.message


def run(*words: str) -> object:
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    return ended.value.code


def test_what_is_missing_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"127.0.0.1:{closed.getsockname()[1]}"
    path = tmp_path / "program_records.py"
    path.write_text(PROGRAM.format(address=address))
    send = ("records", "send", str(path), "in")
    assert run(*send) == 2
    assert "nothing to send" in capsys.readouterr().err
    assert run(*send, "a=1", "--file", "-") == 2
    assert "here and in a file" in capsys.readouterr().err
    assert run("records", "read", str(path), "other") == 1
    assert "Its topics are: in, out" in capsys.readouterr().err
    for words in (["topics", "create", str(path)], ["records", "send", str(path), "in", "a=1"]):
        assert run(*words) == 3
        assert f"Nothing answers at {address}" in capsys.readouterr().err
