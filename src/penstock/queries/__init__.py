"""Interactive queries: what an application's stores hold, asked while it runs.

>>> from penstock.queries import Client
>>> client = Client("http://127.0.0.1:8080", token="...")  # doctest: +SKIP
>>> client.get("pulse-counts", "ann")  # doctest: +SKIP
72
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.queries.contract import Answer, Bound, Queries, Question, Row, Source

if TYPE_CHECKING:
    from penstock.queries.client import AsyncClient, Client

__all__ = ["Answer", "AsyncClient", "Bound", "Client", "Queries", "Question", "Row", "Source"]


def __getattr__(name: str) -> Any:
    # What speaks HTTP is imported by those alone who ask over it.
    if name in ("AsyncClient", "Client"):
        from penstock.queries import client

        return getattr(client, name)
    raise AttributeError(name)
