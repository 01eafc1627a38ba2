"""`penstock records` and `penstock topics create` as far as they need no broker."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path

import pytest

from penstock.cli import main
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


def run(*words: str) -> object:
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    return ended.value.code


def test_what_is_missing_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"127.0.0.1:{closed.getsockname()[1]}"
    path = tmp_path / "program_records.py"
    path.write_text(PROGRAM.format(address=address))
    assert run("records", "read", str(path), "other") == 1
    assert "Its topics are: in, out" in capsys.readouterr().err
    for words in (["topics", "create", str(path)], ["records", "send", str(path), "in", "a=1"]):
        assert run(*words) == 3
        assert f"Nothing answers at {address}" in capsys.readouterr().err
