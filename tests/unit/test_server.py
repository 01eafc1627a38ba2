"""Who may speak to an instance, and what a stranger can do to it."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from pyarrow import flight

from penstock.errors import InstanceError, InstanceUnreachableError, PartitionCountError
from penstock.instance import protocol
from penstock.instance.client import Client
from penstock.instance.protocol import Beat, BeatReply, CommitHeader, ReadHeader, Reply
from penstock.instance.server import CutOffError, Server


class Echo:
    """Answers reads with the keys, and commits with the number of rows."""

    def __init__(self) -> None:
        self.first_came = threading.Event()
        self.ended = threading.Event()
        self.error: Exception | None = None

    def read(self, header: ReadHeader, questions: pa.Table) -> Iterator[pa.RecordBatch | Reply]:
        keys = questions.column(0).combine_chunks()
        yield pa.record_batch([keys], schema=protocol.VALUES)
        yield Reply(status="ok", n=header.n)

    def commit(self, header: CommitHeader, batches: Iterator[pa.RecordBatch]) -> Reply:
        rows = 0
        try:
            for batch in batches:
                rows += batch.num_rows
                self.first_came.set()
        except Exception as error:
            self.error = error
            raise
        finally:
            self.ended.set()
        return Reply(status="ok", n=rows)


ROWS = pa.record_batch([pa.nulls(1, field.type) for field in protocol.ROWS], schema=protocol.ROWS)


@pytest.fixture
def echo() -> Echo:
    return Echo()


@pytest.fixture
def location(tmp_path: Path, echo: Echo) -> Iterator[str]:
    place = f"grpc+unix://{tmp_path}/s"
    previous = os.umask(0o177)
    actions = {"beat": lambda body: BeatReply(known=bool(protocol.decode(body, Beat).instance))}
    server = Server(place, token="right", actions=actions, rows=echo)
    os.umask(previous)
    yield place
    server.shutdown()


def client(location: str, token: str = "right") -> Client:
    return Client(location, token=token, timeout_seconds=5)


def keys(*found: bytes) -> pa.RecordBatch:
    return pa.record_batch([pa.array(found, pa.binary())], schema=protocol.QUESTIONS["get"])


def test_the_socket_is_for_this_user_alone(location: str) -> None:
    mode = Path(location.removeprefix("grpc+unix://")).stat().st_mode
    assert stat.S_IMODE(mode) & 0o077 == 0


@pytest.mark.parametrize("token", ["", "wrong", "right "])
def test_without_the_token_nothing_is_answered(location: str, token: str) -> None:
    stranger = client(location, token)
    header = ReadHeader(task="0_0", epoch=(1, 1), n=1, store="counts")
    with pytest.raises(InstanceUnreachableError, match="token"):
        stranger.call("beat", Beat(instance="i"), BeatReply)
    with pytest.raises(InstanceUnreachableError):
        stranger.read(header, keys(b"k"))


def test_reads_and_commits_pass(location: str) -> None:
    friend = client(location)
    header = ReadHeader(task="0_0", epoch=(1, 1), n=7, store="counts")
    reply, answers = friend.read(header, keys(b"a", b"b"))
    [values] = [batch.column(0) for batch in answers]
    assert reply.n == 7
    assert values is not None
    assert values.to_pylist() == [b"a", b"b"]
    assert friend.commit(commit_of(3), [ROWS, ROWS, ROWS]).n == 3


def commit_of(rows: int) -> CommitHeader:
    end = {"t": {0: 1}}
    return CommitHeader(
        task="0_0", epoch=(1, 1), n=1, start={}, end=end, stores=[], topics=[], rows=rows
    )


CUT_OFF = """
import sys, time
from tests.unit.test_server import ROWS, client, commit_of

def rows():
    yield ROWS
    print("sent", flush=True)
    time.sleep(60)

client(sys.argv[1]).commit(commit_of(2), rows())
"""


def test_a_commit_whose_sender_is_killed_is_not_taken_for_a_short_one(
    location: str, echo: Echo
) -> None:
    sender = subprocess.Popen(
        [sys.executable, "-c", CUT_OFF, location],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    assert sender.stdout is not None
    assert sender.stdout.readline() == b"sent\n"
    assert echo.first_came.wait(30)
    sender.kill()
    sender.wait()
    assert echo.ended.wait(30)
    assert isinstance(echo.error, CutOffError)
    assert "1 of 2 rows are missing" in str(echo.error)


def test_what_does_not_decode_is_refused(location: str) -> None:
    options = flight.FlightCallOptions(headers=[(b"authorization", b"Bearer right")], timeout=5)
    raw = flight.connect(location)
    for body in (b"", b"\x80\x04cos\nsystem\n", b'{"instance": 5}', b'{"instance":"i","more":1}'):
        with pytest.raises(pa.ArrowException):
            list(raw.do_action(flight.Action("beat", body), options))
    assert client(location).call("beat", Beat(instance="i"), BeatReply).known


def test_errors_keep_their_kind_and_strangers_become_ours() -> None:
    error = PartitionCountError("six, not four", where={"topic": "t"}, hint="Do this")
    again = protocol.error_of(protocol.fault_of(error))
    assert type(again) is PartitionCountError
    assert str(again) == str(error)
    assert type(protocol.error_of(protocol.Fault(kind="SystemExit", message="x"))) is InstanceError
    assert type(protocol.error_of(protocol.Fault(kind="__doc__", message="x"))) is InstanceError


def test_a_message_with_unknown_fields_is_of_another_version() -> None:
    with pytest.raises(InstanceError, match="same version"):
        protocol.decode(msgspec.json.encode({"instance": "i", "new": 1}), Beat)
