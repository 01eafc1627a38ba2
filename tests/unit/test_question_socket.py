"""Questions on a plain socket: who may ask, and what becomes of what goes wrong."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from penstock.errors import InstanceUnreachableError
from penstock.instance.question_socket import LENGTH, QuestionLine, QuestionSocket, framed
from penstock.queries.contract import Answer
from penstock.queries.loop_lines import LoopLines
from penstock.queries.prepared import Prepared

TOKEN = "canary-4cc0be7b92d14c5e"
SECONDS = 20.0
SOON = timedelta(seconds=SECONDS)
NOTHING = Answer(rows=[], sources=[])


@contextmanager
def listening(directory: Path, answer: Callable[[bytes], bytes]) -> Iterator[Path]:
    listener = QuestionSocket(directory, token=TOKEN, answer=answer)
    try:
        yield directory / "questions.sock"
    finally:
        listener.close()


def line(path: Path, token: str = TOKEN) -> QuestionLine:
    return QuestionLine(path, token=token)


def in_loop(lines: LoopLines, *calls: tuple[Path, bytes], token: str = TOKEN) -> list[bytes]:
    """What is told to a question of these calls; empty if there is no answer."""
    told: list[bytes] = []

    def finish(bodies: object) -> Answer:
        told.extend(bodies)  # type: ignore[arg-type]
        return NOTHING

    prepared = Prepared(calls=list(calls), token=token, finish=finish)
    asyncio.run(lines.answer(prepared, SOON))
    return told


def test_answers_come_whole_however_large_they_are(tmp_path: Path) -> None:
    with listening(tmp_path, lambda body: body[::-1]) as path:
        asked = line(path)
        for size in (1, 5_000, 3_000_000):
            body = os.urandom(size)
            assert asked.ask(body, SECONDS) == body[::-1]
            assert in_loop(LoopLines(4), (path, body)) == [body[::-1]]


def test_only_the_user_can_open_it_and_only_with_the_token(tmp_path: Path) -> None:
    asked: list[bytes] = []
    with listening(tmp_path, lambda body: asked.append(body) or b"x") as path:  # type: ignore[func-returns-value]
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        for wrong in ("x" * len(TOKEN), TOKEN[:-1] + "x", "x" * 100):
            with pytest.raises(InstanceUnreachableError) as error:
                line(path, wrong).ask(b"?", SECONDS)
            assert TOKEN not in str(error.value)
            assert in_loop(LoopLines(4), (path, b"?"), token=wrong) == []
        assert not asked


def test_one_who_says_too_much_is_hung_up_on(tmp_path: Path) -> None:
    with listening(tmp_path, lambda body: body) as path, socket.socket(socket.AF_UNIX) as stranger:
        stranger.settimeout(SECONDS)
        stranger.connect(str(path))
        stranger.sendall(TOKEN.encode() + LENGTH.pack(2**32 - 1))
        assert stranger.recv(1) == b""
        assert line(path).ask(b"?", SECONDS) == b"?"


def test_an_answer_that_cannot_be_made_is_empty_and_the_next_one_is_not(tmp_path: Path) -> None:
    def answer(body: bytes) -> bytes:
        if body == b"bad":
            raise ValueError("of ours")
        return body

    with listening(tmp_path, answer) as path:
        asked, lines = line(path), LoopLines(4)
        assert asked.ask(b"bad", SECONDS) == b""
        assert asked.ask(b"good", SECONDS) == b"good"
        assert in_loop(lines, (path, b"good"), (path, b"bad")) == []


def test_what_comes_too_late_is_not_taken_for_the_next_answer(tmp_path: Path) -> None:
    over = threading.Event()

    def answer(body: bytes) -> bytes:
        if body == b"slow":
            over.wait(SECONDS)
        return body

    with listening(tmp_path, answer) as path:
        asked = line(path)
        with pytest.raises(InstanceUnreachableError):
            asked.ask(b"slow", 0.01)
        over.set()
        assert asked.ask(b"next", SECONDS) == b"next"


def test_one_that_has_ended_is_told_of(tmp_path: Path) -> None:
    with listening(tmp_path, lambda body: body) as path:
        asked = line(path)
        assert asked.ask(b"?", SECONDS) == b"?"
    with pytest.raises(InstanceUnreachableError):
        asked.ask(b"?", SECONDS)
    with pytest.raises(InstanceUnreachableError):
        line(path).ask(b"?", SECONDS)
    assert in_loop(LoopLines(4), (path, b"?")) == []


def test_one_that_had_no_file_left_for_a_caller_answers_the_next(tmp_path: Path) -> None:
    listener = QuestionSocket(tmp_path, token=TOKEN, answer=lambda body: body)
    real, failures = listener._listener, [OSError(errno.EMFILE, "Too many open files")] * 2

    class Flaky:
        def accept(self) -> Any:
            if failures:
                raise failures.pop()
            return real.accept()

        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

    listener._listener = cast(Any, Flaky())
    path = tmp_path / "questions.sock"
    # The first is let in by the call that waits already.
    assert line(path).ask(b"first", SECONDS) == b"first"
    assert line(path).ask(b"next", SECONDS) == b"next"
    assert not failures
    listener.close()


def test_where_one_of_several_has_ended_the_others_are_waited_for_no_more(tmp_path: Path) -> None:
    over, gone = threading.Event(), tmp_path / "gone.sock"

    async def tasks_left(path: Path) -> int:
        prepared = Prepared(calls=[(path, b"?"), (gone, b"?")], token=TOKEN, finish=lambda _: None)
        assert await LoopLines(4).answer(prepared, SOON) is None
        return len(asyncio.all_tasks() - {asyncio.current_task()})

    def answer(body: bytes) -> bytes:
        over.wait(SECONDS)
        return body

    with listening(tmp_path, answer) as path:
        assert asyncio.run(tasks_left(path)) == 0
        over.set()


def test_many_ask_at_once_and_each_gets_its_own(tmp_path: Path) -> None:
    with listening(tmp_path, lambda body: body * 2) as path:
        asked, wrong = line(path), []

        def ask(number: int) -> None:
            for each in range(50):
                body = b"%d-%d" % (number, each)
                if asked.ask(body, SECONDS) != body * 2:
                    wrong.append(body)

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert not wrong


def test_after_a_fork_a_connection_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with listening(tmp_path, lambda body: body) as path:
        asked = line(path)
        asked.ask(b"?", SECONDS)
        [before] = asked._idle
        monkeypatch.setattr(os, "getpid", lambda: -1)
        asked.ask(b"?", SECONDS)
        assert before not in asked._idle


def test_a_message_begins_with_its_length() -> None:
    assert framed(b"ab") == b"\x00\x00\x00\x02ab"
