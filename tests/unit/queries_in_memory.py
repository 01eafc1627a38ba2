"""An application's state in dicts, to be asked as a real one is; and a service of it."""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from penstock.coordination.states import ApplicationState
from penstock.errors import QuestionRefusedError, StoreUnavailableError, UnknownStoreError
from penstock.queries.access import Access
from penstock.queries.catalogue import AskedStore, Catalogue
from penstock.queries.contract import (
    Answer,
    Bound,
    KeyMetadata,
    PartitionLag,
    Question,
    Row,
    Source,
    StoreDescription,
    StoreKind,
    StoreSize,
)
from penstock.queries.gate import AsgiApp
from penstock.queries.instances import instance_service
from penstock.queries.limits import Limits
from penstock.queries.live import LiveQueries
from penstock.queries.probes import Controls, Probes
from penstock.queries.service import service
from penstock.serdes import serde_of
from penstock.topology import StoreSpec

READ = "read-canary-5f0c1d3b7a924e68b1d2c3e4"
ADMIN = "admin-canary-91be27d04c6f4a3586aa10bb"
WINDOW_MS = 60_000
ENTRY_BYTES = 64


@dataclass(frozen=True)
class Patient:
    """A key, or a value, of two parts."""

    ward: str
    bed: int


@dataclass(frozen=True, kw_only=True)
class Shelf:
    """A store: its entries by key, and by start where it has windows or versions."""

    kind: StoreKind
    key: Any
    value: Any
    entries: dict[tuple[Any, int | None], Any] = field(default_factory=dict)


def shelves() -> dict[str, Shelf]:
    """A store of each kind, and keys of each type."""
    ann, bob = Patient("A", 1), Patient("B", 2)
    return {
        "counts": Shelf(
            kind="key_value",
            key=str,
            value=int,
            entries={(k, None): i for i, k in enumerate("abcdef")},
        ),
        "odd": Shelf(
            kind="key_value",
            key=bytes,
            value=float,
            entries={(b"a", None): float("nan"), (b"\xff/", None): float("inf")},
        ),
        "patients": Shelf(
            kind="key_value",
            key=Patient,
            value=Patient,
            entries={(ann, None): bob, (bob, None): ann},
        ),
        "ids": Shelf(
            kind="key_value",
            key=UUID,
            value=datetime,
            entries={(UUID(int=1), None): datetime(2026, 1, 1, tzinfo=UTC)},
        ),
        "numbers": Shelf(kind="key_value", key=int, value=bytes, entries={(7, None): b"\x00\x01"}),
        "rates": Shelf(
            kind="window",
            key=str,
            value=int,
            entries={("a", 0): 60, ("a", WINDOW_MS): 61, ("b", 0): 70},
        ),
        "visits": Shelf(kind="session", key=str, value=int, entries={("a", 5): 1, ("a", 500): 2}),
        "prices": Shelf(
            kind="versioned", key=str, value=int, entries={("tea", 100): 3, ("tea", 200): 4}
        ),
    }


_KINDS = {
    "key_value": {"get", "range", "prefix", "all"},
    "window": {"fetch", "fetch_range", "fetch_all", "all"},
    "session": {"fetch", "fetch_range", "all"},
    "versioned": {"get", "as_of", "all"},
}


class InMemoryQueries:
    """Every store has one partition, and an active copy that is always there."""

    def __init__(self) -> None:
        self.shelves = shelves()
        self.asked: list[tuple[str, Question, Bound, timedelta]] = []
        self.counted: list[tuple[str, Bound, timedelta]] = []
        self.raises: Exception | None = None

    def opened(self) -> LiveQueries:
        """As a driver opens it."""
        live = LiveQueries(state=lambda: ApplicationState.RUNNING)
        live.open(self)
        return live

    @functools.cached_property
    def catalogue(self) -> Catalogue:
        return Catalogue(
            AskedStore(
                spec=StoreSpec(
                    name=name, key_serde=serde_of(each.key), value_serde=serde_of(each.value)
                ),
                sub_topology=0,
                partitions=1,
            )
            for name, each in self.shelves.items()
        )

    def present(self) -> list[str]:
        return ["i-0"]

    def prepare(self, store: str, question: Question) -> None:
        """There is no socket on which to ask."""

    def stores(self) -> list[StoreDescription]:
        return [
            StoreDescription(
                name=name,
                kind=each.kind,
                partitions=1,
                is_global=False,
                logged=True,
                key=serde_of(each.key).name,
                value=serde_of(each.value).name,
            )
            for name, each in sorted(self.shelves.items())
        ]

    def ask(
        self,
        store: str,
        question: Question,
        *,
        bound: Bound = Bound(),  # noqa: B008 - frozen
        timeout: timedelta = timedelta(seconds=5),
    ) -> Answer:
        self.asked.append((store, question, bound, timeout))
        if self.raises is not None:
            raise self.raises
        shelf = self._shelf(store)
        if question.kind not in _KINDS[shelf.kind]:
            raise QuestionRefusedError(f"A {shelf.kind} store does not answer {question.kind!r}")
        if question.kind in ("get", "as_of"):
            return self._answer([self._latest(shelf, key, question) for key in question.keys])
        rows = self._scan(shelf, question)
        begin = 0
        if question.page is not None:
            if not question.page.startswith("page-") or not question.page[5:].isdecimal():
                raise QuestionRefusedError("That page is none of ours")
            begin = int(question.page[5:][:9])
        end = begin + question.limit
        return self._answer(rows[begin:end], f"page-{end}" if end < len(rows) else None)

    def approximate_count(
        self,
        store: str,
        *,
        bound: Bound = Bound(),  # noqa: B008 - frozen
        timeout: timedelta = timedelta(seconds=5),
    ) -> int:
        self.counted.append((store, bound, timeout))
        return len(self._shelf(store).entries)

    def sized_stores(self) -> list[str]:
        return sorted(self.shelves)

    def size(self, store: str, *, bound: Bound = Bound()) -> StoreSize:  # noqa: B008
        if self.raises is not None:
            raise self.raises
        entries = self.approximate_count(store, bound=bound)
        return StoreSize(entries=entries, bytes=entries * ENTRY_BYTES)

    def key_metadata(self, store: str, key: Any) -> KeyMetadata:
        self._shelf(store)
        return KeyMetadata(store=store, partition=0, active="instance-0", standbys=("instance-1",))

    def lags(self) -> list[PartitionLag]:
        return [
            PartitionLag(
                store="counts",
                partition=0,
                instance="instance-1",
                role="standby",
                position=4,
                end=9,
            )
        ]

    def _shelf(self, store: str) -> Shelf:
        if store not in self.shelves:
            raise UnknownStoreError(f"There is no store {store!r}")
        return self.shelves[store]

    def _latest(self, shelf: Shelf, key: Any, question: Question) -> Row:
        starts = [
            start or 0
            for each, start in shelf.entries
            if each == key and (question.as_of is None or (start or 0) <= question.as_of)
        ]
        if not starts:
            return Row(key=key, value=None)
        start = max(starts) if shelf.kind == "versioned" else None
        return Row(key=key, value=shelf.entries[key, start], timestamp=17, start=start)

    def _scan(self, shelf: Shelf, question: Question) -> list[Row]:
        serde = serde_of(shelf.key)

        def wanted(key: Any, start: int | None) -> bool:
            data = serde.serialize(key)
            limits = [
                question.lower is None or data >= serde.serialize(question.lower),
                question.upper is None or data <= serde.serialize(question.upper),
                question.prefix is None or data.startswith(serde.serialize(question.prefix)),
                not question.keys or key in question.keys,
                start is None or question.start is None or start >= question.start,
                start is None or question.end is None or start <= question.end,
                question.partition in (None, 0),
            ]
            return all(limits)

        rows = [
            Row(
                key=key,
                value=value,
                timestamp=17,
                start=start,
                end=None if start is None else start + WINDOW_MS,
            )
            for (key, start), value in shelf.entries.items()
            if wanted(key, start)
        ]
        rows.sort(key=lambda row: (serde.serialize(row.key), row.start or 0))
        return rows[::-1] if question.reverse else rows

    def _answer(self, rows: list[Row], next_page: str | None = None) -> Answer:
        source = Source(
            partition=0, instance="instance-0", role="active", position=41, age=timedelta(0)
        )
        return Answer(rows=rows, sources=[source], next_page=next_page)


class Paused:
    """An application that can be paused."""

    def __init__(self) -> None:
        self.is_paused = False

    def controls(self) -> Controls:
        return Controls(
            pause=lambda: setattr(self, "is_paused", True),
            resume=lambda: setattr(self, "is_paused", False),
            is_paused=lambda: self.is_paused,
        )


def made_service(
    queries: InMemoryQueries | None = None,
    *,
    limits: Limits | None = None,
    ready: Callable[[], bool] = lambda: True,
    paused: Paused | None = None,
    hosts: Sequence[str] = (),
) -> AsgiApp:
    """The service of it, with everything on."""
    queries = queries or InMemoryQueries()
    return service(
        queries.opened(),
        access=Access.of({READ: "read", ADMIN: "admin"}, hosts=hosts),
        probes=Probes(live=lambda: True, ready=ready),
        limits=limits,
        metrics=lambda: b"penstock_up 1\n",
        controls=(paused or Paused()).controls(),
    )


def made_instance_service(queries: InMemoryQueries | None = None) -> AsgiApp:
    """What an instance would serve of it."""
    return instance_service(
        (queries or InMemoryQueries()).opened(),
        access=Access.of({READ: "read", ADMIN: "admin"}),
        is_ready=lambda: True,
        metrics=lambda: b"penstock_up 1\n",
        limits=Limits(),
        instances=lambda: {"instance-0": "http://127.0.0.1:1"},
    )


_RUNNER = asyncio.Runner()
"""One loop for all requests: making one takes longer than most answers."""


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What a request got."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def request(
    app: AsgiApp,
    method: str,
    path: str,
    *,
    token: str | None = READ,
    body: Any = None,
    headers: Mapping[str, str] | None = None,
    raw: bytes | None = None,
) -> Reply:
    """Send one request to an ASGI application, without a socket."""
    return _RUNNER.run(_request(app, method, path, token, body, headers or {}, raw))


def requests_at_once(app: AsgiApp, paths: Sequence[str]) -> list[Reply]:
    """Send many requests that read before any of them is answered."""

    async def all_of_them() -> list[Reply]:
        return await asyncio.gather(
            *(_request(app, "GET", path, READ, None, {}, None) for path in paths)
        )

    return _RUNNER.run(all_of_them())


async def _request(
    app: AsgiApp,
    method: str,
    path: str,
    token: str | None,
    body: Any,
    more: Mapping[str, str],
    raw: bytes | None,
) -> Reply:
    content = raw if raw is not None else b"" if body is None else json.dumps(body).encode()
    headers = {"host": "localhost:80", "content-type": "application/json", **more}
    if token is not None:
        headers["authorization"] = f"Bearer {token}"
    bare, _, query = path.partition("?")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": bare,
        "raw_path": bare.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": content, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return Reply(
        status=sent[0]["status"],
        headers={name.decode(): value.decode() for name, value in sent[0]["headers"]},
        body=b"".join(each.get("body", b"") for each in sent[1:]),
    )


def unavailable() -> StoreUnavailableError:
    return StoreUnavailableError("Nobody answered", where={"store": "counts"}, hint="Wait")
