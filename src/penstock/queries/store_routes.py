"""The routes that ask about stores: from text and JSON to a `Question`, and its answer back."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import Annotated, Any

from fastapi import Query, Request, Response

from penstock.errors import QueryLimitError, QuestionRefusedError
from penstock.queries.arrow_rows import ARROW_STREAM, encode_rows
from penstock.queries.contract import Answer, Bound, Question
from penstock.queries.json_values import (
    VALUES_JSON,
    encode_json,
    key_of_json,
    key_of_text,
    keys_of_json,
)
from penstock.queries.limits import Limits
from penstock.queries.loop_lines import LoopLines
from penstock.queries.question_threads import QuestionThreads
from penstock.queries.served import ServedQueries
from penstock.queries.shapes import (
    Choice,
    CountShape,
    KeyChoice,
    KeyShape,
    KeyText,
    LagsShape,
    QueryBody,
    RangeChoice,
    RowsShape,
    Scan,
    StoreName,
    StoreShape,
    StoresShape,
    WindowChoice,
    WindowsChoice,
    freshness,
    rows_data,
    values_data,
)
from penstock.serdes import Serde

_FEW_KEYS = 64
"""So many are made text between two requests; more are in a thread."""
JSON = "application/json"
Endpoint = Callable[..., Coroutine[Any, Any, Response]]

_VALUES = {
    "type": "object",
    "required": ["ok", "data"],
    "properties": {
        "ok": {"const": True},
        "data": {
            "type": "object",
            "required": ["values", "sources", "next_page"],
            "properties": {"values": {"type": "array", "items": {}}},
        },
    },
}
ROWS: dict[int | str, dict[str, Any]] = {
    200: {
        "content": {
            ARROW_STREAM: {"schema": {"type": "string", "format": "binary"}},
            VALUES_JSON: {"schema": _VALUES},
        },
        "description": "Rows: JSON, or if `Accept` says so only their values, or an Arrow stream "
        "of their bytes.",
    }
}


class StoreRoutes:
    """What can be asked about stores; each public method but `table` and `values` is a route."""

    rows_shape = RowsShape

    def __init__(
        self,
        queries: ServedQueries,
        threads: QuestionThreads,
        lines: LoopLines,
        limits: Limits,
    ) -> None:
        self._queries = queries
        self._threads = threads
        self._lines = lines
        self._limits = limits

    def table(self) -> list[tuple[str, Endpoint, Any]]:
        """Path, function and shape of the answer of each."""
        store = "/v1/stores/{store}"
        return [
            ("/v1/stores", self.list_stores, StoresShape),
            (store, self.describe_store, StoreShape),
            (f"{store}/count", self.count, CountShape),
            (f"{store}/keys/{{key:path}}", self.get, RowsShape),
            (f"{store}/metadata/{{key:path}}", self.key_metadata, KeyShape),
            (f"{store}/windows/{{key:path}}", self.fetch, RowsShape),
            (f"{store}/windows", self.fetch_range, RowsShape),
            (f"{store}/range", self.range, RowsShape),
            (f"{store}/all", self.all, RowsShape),
            (f"{store}/query", self.query, RowsShape),
            ("/v1/lags", self.lags, LagsShape),
        ]

    async def list_stores(self) -> Response:
        """All stores of the application."""
        found = await self._threads.answer(self._queries.stores)
        return json_answer({"stores": [asdict(each) for each in found]})

    async def describe_store(self, store: StoreName) -> Response:
        """One store."""
        self._queries.spec_of(store)
        found = await self._threads.answer(self._queries.stores)
        return json_answer(next(asdict(each) for each in found if each.name == store))

    async def count(self, store: StoreName, choice: Annotated[Choice, Query()]) -> Response:
        """About how many entries a store has."""
        self._queries.spec_of(store)
        bound, timeout = _bound(choice), self._timeout(choice)
        number = await self._threads.answer(
            lambda: self._queries.approximate_count(store, bound=bound, timeout=timeout), timeout
        )
        return json_answer({"approximate_count": number})

    async def key_metadata(self, store: StoreName, key: KeyText) -> Response:
        """Where a key lives: its partition, and the instances that hold it."""
        wanted = key_of_text(self._queries.spec_of(store).key_serde, key)
        found = await self._threads.answer(lambda: self._queries.key_metadata(store, wanted))
        return json_answer(asdict(found))

    async def lags(self) -> Response:
        """How far every copy of every store is behind its changelog."""
        found = await self._threads.answer(self._queries.lags)
        return json_answer({"lags": [{**asdict(each), "lag": each.lag} for each in found]})

    async def get(
        self,
        request: Request,
        store: StoreName,
        key: KeyText,
        choice: Annotated[KeyChoice, Query()],
    ) -> Response:
        """The value of a key, now or as of a time; null if there is none."""
        wanted = key_of_text(self._queries.spec_of(store).key_serde, key)
        kind = "get" if choice.as_of is None else "as_of"
        question = Question(kind=kind, keys=(wanted,), as_of=choice.as_of)  # type: ignore[arg-type]
        return await self._rows(request, store, question, choice)

    async def fetch(
        self,
        request: Request,
        store: StoreName,
        key: KeyText,
        choice: Annotated[WindowChoice, Query()],
    ) -> Response:
        """The windows or sessions of a key that begin within a time; its versions valid then."""
        wanted = key_of_text(self._queries.spec_of(store).key_serde, key)
        question = Question(
            kind="fetch", keys=(wanted,), start=choice.start, end=choice.end, **_scan(choice)
        )
        return await self._rows(request, store, question, choice)

    async def fetch_range(
        self, request: Request, store: StoreName, choice: Annotated[WindowsChoice, Query()]
    ) -> Response:
        """The windows or sessions of all keys, or of a range, that begin within a time."""
        serde = self._queries.spec_of(store).key_serde
        question = Question(
            kind="fetch_range",
            lower=_end(serde, choice.lower),
            upper=_end(serde, choice.upper),
            start=choice.start,
            end=choice.end,
            **_scan(choice),
        )
        return await self._rows(request, store, question, choice)

    async def range(
        self, request: Request, store: StoreName, choice: Annotated[RangeChoice, Query()]
    ) -> Response:
        """The keys of a range, or with a prefix, and their values."""
        serde = self._queries.spec_of(store).key_serde
        lower, upper, prefix = choice.lower, choice.upper, choice.prefix
        if prefix is not None and (lower is not None or upper is not None):
            raise QuestionRefusedError(
                "A prefix is asked for alone", hint="Leave lower and upper out"
            )
        question = Question(
            kind="range" if prefix is None else "prefix",
            lower=_end(serde, lower),
            upper=_end(serde, upper),
            prefix=_end(serde, prefix),
            **_scan(choice),
        )
        return await self._rows(request, store, question, choice)

    async def all(
        self, request: Request, store: StoreName, choice: Annotated[Scan, Query()]
    ) -> Response:
        """Everything that a store holds."""
        self._queries.spec_of(store)
        return await self._rows(request, store, Question(kind="all", **_scan(choice)), choice)

    async def query(self, request: Request, store: StoreName, body: QueryBody) -> Response:
        """Any question, also about many keys at once; it changes nothing."""
        serde = self._queries.spec_of(store).key_serde
        self._check_number(body.keys)
        question = Question(
            kind=body.kind,
            keys=_given_keys(serde, body),
            lower=None if body.lower is None else _given(serde, body.lower, body),
            upper=None if body.upper is None else _given(serde, body.upper, body),
            prefix=None if body.prefix is None else _given(serde, body.prefix, body),
            start=body.start,
            end=body.end,
            as_of=body.as_of,
            **_scan(body),
        )
        position = {int(partition): offset for partition, offset in body.position.items()}
        return await self._rows(request, store, question, body, position)

    async def values(
        self, store: str, keys: Sequence[Any], bound: Bound, timeout_ms: int, media: str
    ) -> Response:
        """What `query` answers to a question for no more than the values of these keys."""
        serde = self._queries.spec_of(store).key_serde
        self._check_number(keys)
        question = Question(kind="get", keys=tuple(keys_of_json(serde, keys)))
        timeout = min(timedelta(milliseconds=timeout_ms), self._limits.timeout)
        if len(keys) <= _FEW_KEYS and not bound.lets_standbys and not self._lines.is_busy:
            prepared = self._queries.prepare(store, question)
            if prepared is not None:
                began = time.monotonic()
                answer = await self._lines.answer(prepared, timeout / 2)
                if answer is not None:
                    return self._response(self._rendered(store, answer, media), media)
                timeout -= timedelta(seconds=time.monotonic() - began)
        return await self._answered(store, question, bound, timeout, media)

    async def _rows(
        self,
        request: Request,
        store: str,
        question: Question,
        choice: Choice,
        position: Mapping[int, int] | None = None,
    ) -> Response:
        media = media_of(request.headers.get("accept", ""))
        return await self._answered(
            store, question, _bound(choice, position), self._timeout(choice), media
        )

    async def _answered(
        self, store: str, question: Question, bound: Bound, timeout: timedelta, media: str
    ) -> Response:
        def asked() -> bytes:
            # In the thread that asks: ten thousand rows are not made text between two requests.
            answer = self._queries.ask(store, question, bound=bound, timeout=timeout)
            return self._rendered(store, answer, media)

        return self._response(await self._threads.answer(asked, timeout), media)

    def _rendered(self, store: str, answer: Answer, media: str) -> bytes:
        if media == ARROW_STREAM:
            return self._arrow(store, answer)
        data = values_data(answer) if media == VALUES_JSON else rows_data(answer)
        return encode_json({"ok": True, "data": data})

    def _response(self, content: bytes, media: str) -> Response:
        if len(content) > self._limits.response_bytes:
            raise QueryLimitError(
                f"The answer has more than {self._limits.response_bytes} bytes",
                hint="Ask for fewer rows: limit, and next_page to go on",
            )
        return Response(content, media_type=media)

    def _check_number(self, keys: Sequence[Any]) -> None:
        if len(keys) > self._limits.keys:
            raise QueryLimitError(f"There are more than {self._limits.keys} keys")

    def _timeout(self, choice: Choice) -> timedelta:
        return min(timedelta(milliseconds=choice.timeout_ms), self._limits.timeout)

    def _arrow(self, store: str, answer: Answer) -> bytes:
        spec = self._queries.spec_of(store)
        facts = {
            "store": store,
            "key": spec.key_serde.name,
            "value": spec.value_serde.name,
            **freshness(answer),
        }
        return encode_rows(
            answer, key_serde=spec.key_serde, value_serde=spec.value_serde, facts=facts
        )


def json_answer(data: Mapping[str, Any]) -> Response:
    """What was asked for, as JSON."""
    return Response(encode_json({"ok": True, "data": data}), media_type="application/json")


def media_of(accept: str) -> str:
    """How rows are told to who accepts this.

    >>> media_of("*/*"), media_of("application/vnd.penstock.values+json")
    ('application/json', 'application/vnd.penstock.values+json')
    """
    return next((each for each in (ARROW_STREAM, VALUES_JSON) if each in accept), JSON)


def _bound(choice: Choice, position: Mapping[int, int] | None = None) -> Bound:
    return Bound(stale=choice.stale, max_lag=choice.max_lag, position=dict(position or {}))


def _scan(choice: Scan) -> dict[str, Any]:
    return {
        "reverse": choice.reverse,
        "partition": choice.partition,
        "limit": choice.limit,
        "page": choice.page,
    }


def _end(serde: Serde[Any], text: str | None) -> Any:
    return None if text is None else key_of_text(serde, text)


def _given_keys(serde: Serde[Any], body: QueryBody) -> tuple[Any, ...]:
    if body.as_text:
        return tuple(_given(serde, each, body) for each in body.keys)
    return tuple(keys_of_json(serde, body.keys))


def _given(serde: Serde[Any], value: Any, body: QueryBody) -> Any:
    if not body.as_text:
        return key_of_json(serde, value)
    if not isinstance(value, str):
        raise QuestionRefusedError("With as_text, keys are texts")
    return key_of_text(serde, value)
