"""Questions in threads: so many at once, so many that wait, and none for ever."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, TypeVar

from penstock.errors import ServiceBusyError, StoreUnavailableError
from penstock.queries.limits import Limits

T = TypeVar("T")
_GRACE = timedelta(seconds=1)
"""Whoever answers keeps to the deadline itself, and says more when it is missed."""


class QuestionThreads:
    """Runs what blocks beside the event loop; belongs to that loop's thread.

    The way to a thread and back is most of what a small question costs: the loop is woken once.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._threads = ThreadPoolExecutor(limits.at_once, thread_name_prefix="penstock-queries")
        self._most = limits.at_once + limits.waiting
        self._under_way = 0

    async def answer(self, ask: Callable[[], T], timeout: timedelta | None = None) -> T:
        """What `ask` returns. Raises `ServiceBusyError`, `StoreUnavailableError`."""
        if self._under_way >= self._most:
            raise ServiceBusyError(
                f"{self._most} questions are being answered or wait", hint="Ask again in a moment"
            )
        given = min(timeout or self._limits.timeout, self._limits.timeout)
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[T] = loop.create_future()
        self._under_way += 1
        self._threads.submit(self._ask, loop, answered, ask)
        late = loop.call_later((given + _GRACE).total_seconds(), _give_up, answered, given)
        try:
            return await answered
        finally:
            late.cancel()

    def _ask(
        self,
        loop: asyncio.AbstractEventLoop,
        answered: asyncio.Future[T],
        ask: Callable[[], T],
    ) -> None:
        """In a thread: ask, and tell the loop."""
        result, error = None, None
        try:
            result = ask()
        except Exception as raised:  # noqa: BLE001 - told to whoever asked
            error = raised
        # A loop that was closed meanwhile has nobody left to tell.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(self._end, answered, result, error)

    def _end(self, answered: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
        # One that is late counts until now: a thread cannot be stopped.
        self._under_way -= 1
        if answered.done():
            return
        if error is None:
            answered.set_result(result)
        else:
            # A future does not take StopIteration, which a function of a user's may raise.
            is_odd = isinstance(error, StopIteration)
            answered.set_exception(RuntimeError(repr(error)) if is_odd else error)


def _give_up(answered: asyncio.Future[Any], given: timedelta) -> None:
    if not answered.done():
        answered.set_exception(
            StoreUnavailableError(
                f"There was no answer within {given.total_seconds():g} seconds",
                hint="Ask again, for less, or with a longer timeout_ms",
            )
        )
