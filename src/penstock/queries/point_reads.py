"""The question that is asked most, the value of one key, answered on a shorter way.

FastAPI's way takes a millisecond of the driver's processor, and another goes into the call to the
instance. Here a plain `GET /v1/stores/{store}/keys/{key}` is answered without the former, and those
that come while others are being answered share the latter. Whatever is out of the ordinary, an
error included, goes the usual way.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import time
from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
from typing import Any

from penstock.errors import PenstockError
from penstock.queries.catalogue import AskedStore
from penstock.queries.contract import TIMEOUT, Answer, Question, Row, Source
from penstock.queries.gate import GRANTED, AsgiApp, AsgiScope, Done, Receive, Send
from penstock.queries.json_values import VALUES_JSON, encode_json, key_of_text
from penstock.queries.limits import Limits
from penstock.queries.loop_lines import LoopLines
from penstock.queries.question_threads import QuestionThreads
from penstock.queries.served import ServedQueries
from penstock.queries.shapes import KEY_TEXT_MAX, freshness, shown_row

_BEFORE = "/v1/stores/"
_BETWEEN = "/keys/"
_VALUES = VALUES_JSON.encode()
_KINDS = ("key_value", "versioned")
_AT_ONCE = 2
"""Calls for one store: while one is under way, the next gathers keys."""
_PATIENCE_SECONDS = 0.01
"""How long a few keys wait beside a call that has more: it may be stuck."""
_KEYS_MAX = 200
_log = logging.getLogger("penstock.queries")
_now = time.monotonic
Told = Callable[[bytes | None], None]
"""Gets the body of an answer; None if there is none here. Called in the event loop's thread."""
_BEGIN = b'{"ok":true,"data":{"rows":['
_MILLISECOND = timedelta(milliseconds=1)
_TIMEOUT = timedelta(seconds=1)
"""Whoever has no answer by then asks on the usual way, with what is left of its deadline."""


class PointReads:
    """An ASGI application in front of the routes, behind the gate."""

    def __init__(
        self,
        app: AsgiApp,
        queries: ServedQueries,
        threads: QuestionThreads,
        lines: LoopLines,
        limits: Limits,
    ) -> None:
        self._app = app
        self._queries = queries
        self._threads = threads
        self._lines = lines
        self._limits = limits
        self._gathering: dict[str, _Gathering] = {}

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Answer a plain point read; let all else through."""
        named = _plain_read(scope)
        if named is None:
            await self._app(scope, receive, send)
            return
        began = _now()
        content = await self._answer(*named)
        if content is None:
            await self._app(_with_the_rest(scope, began), receive, send)
            return
        headers = [
            (b"content-length", b"%d" % len(content)),
            (b"content-type", b"application/json"),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": content})

    def start(self, scope: AsgiScope, done: Done) -> bool:
        """Whether a request is a plain read, which is then asked for: as `gate.Start` says."""
        named, began = _plain_read(scope), _now()
        if named is None:
            return False

        def answered(content: bytes | None) -> None:
            # Asked for already: with what is left of its time it goes the usual way.
            done(
                content,
                scope if content is not None else _with_the_rest(scope, began, is_spent=True),
            )

        return self._ask(*named, answered)

    async def _answer(self, store: str, text: str) -> bytes | None:
        answered: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()

        def told(content: bytes | None) -> None:
            if not answered.done():
                answered.set_result(content)

        return await answered if self._ask(store, text, told) else None

    def _ask(self, store: str, text: str, told: Told) -> bool:
        """Whether the key is one that is asked for here; `told` gets the answer, once it is there,
        or None if it is to be asked for otherwise.
        """
        catalogue = self._queries.catalogue()
        if catalogue is None:
            return False
        try:
            asked = catalogue.find(store)
            if asked.spec.kind not in _KINDS:
                return False
            key = key_of_text(asked.spec.key_serde, text)
        except PenstockError:
            return False
        self._gather(asked).ask(key, told)
        return True

    def _gather(self, asked: AskedStore) -> _Gathering:
        name = asked.spec.name
        found = self._gathering.get(name)
        if found is None or found.asked is not asked:
            # A driver that opened anew has another catalogue.
            found = self._gathering[name] = _Gathering(
                asked, self._queries, self._threads, self._lines, self._limits.response_bytes
            )
        return found


def _with_the_rest(scope: AsgiScope, began: float, *, is_spent: bool = False) -> AsgiScope:
    """A plain read for the usual way, with what is left of the time if some of it was spent."""
    spent = timedelta(seconds=_now() - began)
    if spent < _MILLISECOND and not is_spent:
        return scope
    left = max((TIMEOUT - spent) // _MILLISECOND, 1)
    return {**scope, "query_string": b"timeout_ms=%d" % left}


def _plain_read(scope: AsgiScope) -> tuple[str, str] | None:
    """The store and the key's text, if the request is for no more than the value now."""
    if scope["type"] != "http" or scope["method"] != "GET" or scope["query_string"]:
        return None
    path: str = scope["path"]
    store, between, key = path.removeprefix(_BEFORE).partition(_BETWEEN)
    if not path.startswith(_BEFORE) or not between or not key or "/" in store:
        return None
    if len(key) > KEY_TEXT_MAX or "read" not in scope.get(GRANTED, ()):
        return None
    wants_other = any(
        name == b"accept" and (b"json" not in value or _VALUES in value)
        for name, value in scope["headers"]
    )
    return None if wants_other else (store, key)


def calls_now(waiting: int, under_way: Collection[int], *, is_late: bool = False) -> bool:
    """Whether so many keys are asked for now, beside calls for so many.

    A call costs as much as thirty keys: beside another one it waits until it has as many, but not
    for long.

    >>> [calls_now(1, []), calls_now(1, [8]), calls_now(1, [8], is_late=True), calls_now(8, [8])]
    [True, False, True, True]
    """
    if not waiting or len(under_way) >= _AT_ONCE:
        return False
    return is_late or waiting >= max(under_way, default=0)


class _Gathering:
    """The keys of one store that wait for the next call. Belongs to the event loop's thread."""

    def __init__(
        self,
        asked: AskedStore,
        queries: ServedQueries,
        threads: QuestionThreads,
        lines: LoopLines,
        bytes_max: int,
    ) -> None:
        self.asked = asked
        self._lines = lines
        self._bytes_max = bytes_max
        self._queries = queries
        self._threads = threads
        self._waiting: list[tuple[Any, Told]] = []
        self._calls: dict[asyncio.Task[None], int] = {}
        """Each with how many keys it asks for."""
        self._is_due = False
        self._late: asyncio.TimerHandle | None = None

    def ask(self, key: Any, told: Told) -> None:
        """Ask for one key, and tell the answer."""
        self._waiting.append((key, told))
        if not self._is_due:
            # Not at once: what came in the same moment over other connections goes along.
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._call)

    def _call(self, is_late: bool = False) -> None:
        self._is_due = False
        if self._late is not None:
            self._late.cancel()
            self._late = None
        loop, waiting = asyncio.get_running_loop(), len(self._waiting)
        if not calls_now(waiting, self._calls.values(), is_late=is_late):
            if waiting and len(self._calls) < _AT_ONCE:
                self._late = loop.call_later(_PATIENCE_SECONDS, self._call, True)
            return
        taken, self._waiting = self._waiting[:_KEYS_MAX], self._waiting[_KEYS_MAX:]
        task = loop.create_task(self._answer_all(taken))
        self._calls[task] = len(taken)
        task.add_done_callback(self._ended)
        if self._waiting:
            self._call()

    async def _answer_all(self, taken: list[tuple[Any, Told]]) -> None:
        keys = [key for key, _ in taken]
        contents: Sequence[bytes | None] = [None] * len(keys)
        # What fails is asked for again, each alone, and told then.
        with contextlib.suppress(Exception):
            contents = await self._look_up(keys)
        for (_, told), content in zip(taken, contents, strict=True):
            is_too_large = content is not None and len(content) > self._bytes_max
            try:
                told(None if is_too_large else content)
            except Exception:  # noqa: BLE001 - one connection's: all others wait for theirs
                _log.exception("An answer could not be handed over")

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._calls[task]
        self._call()

    async def _look_up(self, keys: list[Any]) -> list[bytes | None]:
        """Ask for all of them, and make each its own answer."""
        name, question = self.asked.spec.name, Question(kind="get", keys=tuple(keys))
        prepared = None if self._lines.is_busy else self._queries.prepare(name, question)
        if prepared is not None:
            answer = await self._lines.answer(prepared, _TIMEOUT)
            return [None] * len(keys) if answer is None else self._contents(keys, answer)

        def asked() -> list[bytes | None]:
            return self._contents(keys, self._queries.ask(name, question, timeout=_TIMEOUT))

        return await self._threads.answer(asked, _TIMEOUT)

    def _contents(self, keys: list[Any], answer: Answer) -> list[bytes | None]:
        data = [self.asked.key_bytes(key) for key in keys]
        partitions = self.asked.partitions_of(keys, data)
        # All keys of a partition share what is said of who answered.
        ends = {source.partition: _end(source) for source in answer.sources}
        # Of very large values not all come at once.
        found = [
            _content(row, ends[partition])
            for row, partition in zip(answer.rows, partitions, strict=False)
        ]
        return [*found, *itertools.repeat(None, len(keys) - len(found))]


def _content(row: Row, end: bytes) -> bytes:
    """What the usual way would have sent."""
    return b"".join((_BEGIN, encode_json(shown_row(row)), b"],", end))


def _end(source: Source) -> bytes:
    """What comes behind the row."""
    told = encode_json(freshness(Answer(rows=[], sources=[source], next_page=None)))
    return told.removeprefix(b"{") + b"}"
