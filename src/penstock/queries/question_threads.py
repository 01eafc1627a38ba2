"""Questions in threads: so many at once, so many that wait, and none for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from typing import Any, TypeVar

from penstock.errors import ServiceBusyError, StoreUnavailableError
from penstock.queries.limits import Limits

T = TypeVar("T")
_GRACE = timedelta(seconds=1)
"""Whoever answers keeps to the deadline itself, and says more when it is missed."""


class QuestionThreads:
    """Runs what blocks beside the event loop; belongs to that loop's thread."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._threads = ThreadPoolExecutor(limits.at_once, thread_name_prefix="penstock-queries")
        self._most = limits.at_once + limits.waiting
        self._under_way: set[Future[Any]] = set()

    async def answer(self, ask: Callable[[], T], timeout: timedelta | None = None) -> T:
        """What `ask` returns. Raises `ServiceBusyError`, `StoreUnavailableError`."""
        if len(self._under_way) >= self._most:
            raise ServiceBusyError(
                f"{self._most} questions are being answered or wait", hint="Ask again in a moment"
            )
        given = min(timeout or self._limits.timeout, self._limits.timeout)
        future = self._threads.submit(ask)
        # A thread that is late still counts, until it is done: it cannot be stopped.
        self._under_way.add(future)
        loop = asyncio.get_running_loop()
        future.add_done_callback(
            lambda done: loop.is_closed() or loop.call_soon_threadsafe(self._discard, done)
        )
        try:
            async with asyncio.timeout((given + _GRACE).total_seconds()):
                return await asyncio.wrap_future(future)
        except TimeoutError:
            raise StoreUnavailableError(
                f"There was no answer within {given.total_seconds():g} seconds",
                hint="Ask again, for less, or with a longer timeout_ms",
            ) from None

    def _discard(self, done: Future[Any]) -> None:
        self._under_way.discard(done)
