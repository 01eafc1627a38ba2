"""What a caller hears when its instance goes away in the middle of a call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.errors import InstanceError, InstanceUnreachableError
from penstock.instance import protocol
from penstock.instance.client import Client, ClientCache
from penstock.instance.protocol import CommitHeader, ReadHeader, Reply
from penstock.instance.server import Server

TOKEN = "t"
READ = ReadHeader(task="0_0", epoch=(1, 1), n=1, store="counts")
COMMIT = CommitHeader(task="0_0", epoch=(1, 1), n=1, start={}, end={}, stores=[], topics=[], rows=0)
KEY = pa.record_batch([pa.array([b"k"], pa.binary())], schema=protocol.QUESTIONS["get"])
VALUE = pa.record_batch([pa.array([b"v"], pa.binary())], schema=protocol.VALUES)


class Cut(Server):
    """A server whose answers are cut off: before the values, or between values and reply."""

    def __init__(self, location: str, *, after_values: bool) -> None:
        super().__init__(location, token=TOKEN, actions={})
        self._after_values = after_values

    def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        reader.read_all()
        if self._after_values:
            writer.begin(protocol.VALUES)
            writer.write_batch(VALUE)


@pytest.fixture(params=[False, True], ids=["before the values", "before the reply"])
def client(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Client]:
    location = f"grpc+unix://{tmp_path}/s.sock"
    server = Cut(location, after_values=request.param)
    client = Client(location, token=TOKEN, timeout_seconds=10.0)
    yield client
    client.close()
    server.shutdown()


def test_a_read_that_is_cut_off_is_an_instance_out_of_reach(client: Client) -> None:
    with pytest.raises(InstanceUnreachableError, match="No answer from"):
        client.read(READ, KEY)


def test_a_commit_that_is_cut_off_is_an_instance_out_of_reach(tmp_path: Path) -> None:
    location = f"grpc+unix://{tmp_path}/s.sock"
    server = Cut(location, after_values=False)
    client = Client(location, token=TOKEN, timeout_seconds=10.0)
    with pytest.raises(InstanceUnreachableError, match="No answer from"):
        client.commit(COMMIT, [])
    client.close()
    server.shutdown()


def test_an_instance_that_is_not_there_is_out_of_reach(tmp_path: Path) -> None:
    client = Client(f"grpc+unix://{tmp_path}/none.sock", token=TOKEN, timeout_seconds=10.0)
    calls: list[Callable[[], object]] = [
        lambda: client.read(READ, KEY),
        lambda: client.commit(COMMIT, []),
        lambda: client.call("status", Reply(status="ok"), Reply),
    ]
    for call in calls:
        with pytest.raises(InstanceUnreachableError):
            call()
    client.close()


class Buggy(Server):
    """A server with a bug."""

    def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        reader.read_all()
        raise KeyError("no such thing")


def test_a_bug_of_the_instance_is_told_and_not_taken_for_an_instance_out_of_reach(
    tmp_path: Path,
) -> None:
    location = f"grpc+unix://{tmp_path}/s.sock"
    server = Buggy(location, token=TOKEN, actions={})
    client = Client(location, token=TOKEN, timeout_seconds=10.0)
    with pytest.raises(InstanceError, match="KeyError: 'no such thing'") as raised:
        client.commit(COMMIT, [])
    assert not isinstance(raised.value, InstanceUnreachableError)
    client.close()
    server.shutdown()


def test_a_client_that_another_thread_drops_meanwhile_is_one_all_the_same() -> None:
    cache = ClientCache()

    class Dropped(dict[str, Client]):
        """Whoever looks whether there is one loses it in the next moment."""

        def __contains__(self, location: object) -> bool:
            found = super().__contains__(location)
            self.clear()
            return found

        def get(self, location: str, default: Any = None) -> Any:
            found = super().get(location, default)
            self.clear()
            return found

    location = "grpc+tcp://127.0.0.1:1"
    cache._clients = Dropped()
    first = cache.get(location, token=TOKEN, timeout_seconds=1.0)
    assert cache.get(location, token=TOKEN, timeout_seconds=1.0) is first
    cache.drop(location)
    first.close()
