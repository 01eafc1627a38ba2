"""An application that only the console sees: its names and values are as hostile as they can be."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import uvicorn
from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse

import penstock as ps
from penstock.console.history import History
from penstock.console.routes import add_data, add_page
from penstock.errors import PenstockError

TOKEN = "browser-token"
HOSTILE = "<img src=x onerror=\"document.title='owned'\">"


STORES = {"counts": "key_value", "minutes": "window", "visits": "session", "prices": "versioned"}


def overview(*, state: str = "running", owner: str = "instance-0") -> dict[str, Any]:
    copies = [{"instance": "instance-1", "role": "standby", "lag": 7}]
    restores = [
        {"number": 1, "store": "counts", "topic": "t", "partition": 1, "start": 0, "end": 100}
        | {"offset": 49, "restored": 50, "state": "restoring"}
    ]
    task = {"sub_topology": "counts", "epoch": [1, 4], "position": {"beats": {0: 5}}, "lag": 12}
    member = {"host": "here", "pid": 4711, "is_static": False, "is_away": False, "tags": {}}
    load = {"active": 1, "standby": 1, "warm_up": 0}
    return {
        "application_id": f"pulse {HOSTILE}",
        "state": state,
        "is_paused": False,
        "host": "here",
        "pid": 1,
        "generation": 1,
        "processing_guarantee": "exactly_once_v2",
        "bootstrap_servers": "127.0.0.1:9092",
        "records": 1234,
        "changes": 2,
        "outputs": 567,
        "batches": 3,
        "rebalances": 1,
        "dropped": {HOSTILE: 3},
        "memory_bytes": 2**28,
        "stores": {"counts": {"entries": 42, "bytes": 1536}},
        "instances": [
            {"name": name, "memory_bytes": 2**27, **member, **load}
            for name in ("instance-0", "instance-1")
        ],
        "tasks": [
            {
                "task": "0_0",
                "state": "ready" if owner else "unowned",
                "owner": owner,
                "commits": 9,
                **task,
            }
            | {"copies": copies, "restores": []},
            {"task": "0_1", "state": "taking", "owner": "instance-1", "commits": 9, **task}
            | {"copies": [], "restores": restores},
        ],
    }


class FakeApplication:
    """`Watched`, with what a test put there."""

    def __init__(self) -> None:
        self.now = overview()
        self.failure: PenstockError | None = None
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.values: dict[str, Any] = {}
        """What keys have; others have what attacks the page."""
        self.has_owners = True
        """Whether somebody answers as active."""
        builder = ps.StreamsBuilder()
        beats = builder.stream("beats", key=str, value=str)
        beats.group_by_key().count("counts").to_stream().to("out")
        self._topology = builder.build()

    def overview(self) -> Mapping[str, Any]:
        if self.failure is not None:
            raise self.failure
        return self.now

    def topology_svg(self) -> str:
        return self._topology.svg()

    def rates(self) -> Mapping[str, Any]:
        [sub] = self._topology.sub_topologies
        ends = [*sub.sources, *sub.sinks]
        inner = next(node for node in sub.nodes if node not in ends)
        [below] = inner.children
        return {
            "steps": {node.name: 1500.0 for node in ends},
            "edges": [{"from": inner.name, "to": below, "rate": 2.5}],
        }

    def options(self) -> list[Mapping[str, str]]:
        return [{"name": "sasl_password", "value": "(hidden)", "doc": HOSTILE}]

    def topics(self) -> list[Mapping[str, Any]]:
        configs = {"cleanup.policy": "compact"}
        topic = {"name": "beats", "role": "input", "partitions": 10, "records": 12, "bytes": 1536}
        silent = {**topic, "name": "out", "role": "output", "partitions": 1, "bytes": None}
        return [{**each, "configs": configs} for each in (topic, silent)]

    def records(self, topic: str, partition: int, limit: int) -> list[Mapping[str, Any]]:
        record = {"partition": partition, "offset": 11, "timestamp": 1_700_000_000_000}
        return [{**record, "key": HOSTILE, "value": HOSTILE}]

    def groups(self) -> list[Mapping[str, Any]]:
        return [{"topic": "beats", "partition": 0, "position": 5, "end": 17, "lag": 12}]


def _needs_token(request: Request) -> None:
    if request.headers.get("authorization") != f"Bearer {TOKEN}":
        raise HTTPException(401)


def console_app(watched: FakeApplication, history: History) -> FastAPI:
    """The console's routes, and of the queries those that the page asks."""
    app = FastAPI()
    options = {"dependencies": [Depends(_needs_token)]}

    async def in_thread(ask: Callable[[], Any]) -> Any:
        return await asyncio.to_thread(ask)

    add_page(app)
    add_data(app, watched, history, in_thread=in_thread, options=options)

    @app.get("/v1/stores", **options)
    def stores() -> Any:
        store = {"partitions": 2, "is_global": False, "logged": True, "key": "str", "value": "int"}
        found = [{"name": name, "kind": kind, **store} for name, kind in STORES.items()]
        return {"ok": True, "data": {"stores": found}}

    @app.post("/v1/stores/{store}/query", **options)
    def query(store: str, body: dict[str, Any]) -> Any:
        watched.asked.append((store, body))
        if not (watched.has_owners or body["stale"]):
            error = {"message": f"Nobody who may answer did so in time {HOSTILE}", "hint": "Wait"}
            return JSONResponse({"ok": False, "error": error}, 503)
        windowed = STORES[store] in ("window", "session")
        [key] = body.get("keys") or [HOSTILE]
        row = {
            "key": key,
            "value": watched.values.get(key, HOSTILE),
            "timestamp": 1_700_000_000_000,
            "start": 60_000 if windowed else None,
            "end": 120_000 if windowed else None,
        }
        source = {
            "partition": 1,
            "instance": "instance-1",
            "role": "standby",
            "position": 8,
            "age_ms": 30,
        }
        page = "more" if body["kind"] == "all" and "page" not in body else None
        return {"ok": True, "data": {"rows": [row], "sources": [source], "next_page": page}}

    return app


@contextmanager
def served(app: FastAPI) -> Iterator[str]:
    """The address of a server for as long as the block."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        listener.close()
