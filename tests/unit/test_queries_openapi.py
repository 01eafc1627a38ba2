"""What Schemathesis makes of the OpenAPI document: no request that it thinks of ends in a 5xx."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import hypothesis
import schemathesis
from schemathesis.checks import not_a_server_error
from schemathesis.python import asgi
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from penstock.instance.query_answers import findings
from penstock.instance.query_messages import StoreAnswer, StoreQuestion
from penstock.queries.asking import StoreQueries
from penstock.queries.catalogue import AskedStore, Catalogue
from penstock.queries.contract import Answer, Question, Source
from penstock.serdes import serde_of
from penstock.serdes.windowed import session_key, window_key
from penstock.stores.contract import KeyValueStore, stored_value, version_key
from penstock.stores.memory import MemoryStore
from penstock.stores.segments import SegmentedStore
from penstock.stores.versioned import VersionsStore
from penstock.topology import StoreSpec
from tests.unit.queries_in_memory import (
    ADMIN,
    WINDOW_MS,
    InMemoryQueries,
    Shelf,
    made_service,
    shelves,
)

CASES = 1_000
RETENTION_MS = 3_600_000


class Planned(StoreQueries):
    """Real questions and answers, of partitions that are here and not at instances."""

    def __init__(self, kept: dict[str, Shelf]) -> None:
        self.catalogue = Catalogue(
            AskedStore(
                spec=StoreSpec(
                    name=name,
                    key_serde=serde_of(each.key),
                    value_serde=serde_of(each.value),
                    kind=each.kind,
                    retention_ms=RETENTION_MS,
                    window_ms=WINDOW_MS,
                ),
                sub_topology=0,
                partitions=2,
            )
            for name, each in kept.items()
        )
        self.kept = {name: [_store(each), _store(each)] for name, each in kept.items()}
        for name, shelf in kept.items():
            self._fill(name, shelf)

    def _fill(self, name: str, shelf: Shelf) -> None:
        asked = self.catalogue.find(name)
        for (key, start), value in shelf.entries.items():
            data, begin = asked.key_bytes(key), start or 0
            names = {
                "key_value": data,
                "versioned": version_key(data, begin),
                "window": window_key(data, begin),
                "session": session_key(data, begin, begin + 1),
            }
            stored = stored_value(begin, serde_of(shelf.value).serialize(value))
            [partition] = asked.partitions_of([key], [data])
            self.kept[name][partition].apply([(names[shelf.kind], stored)], offset=0)

    def _calls(self, *_: Any) -> list[Any]:
        return []

    def _ask_partition(
        self, store: AskedStore, partition: int, message: StoreQuestion, *_: Any
    ) -> tuple[StoreAnswer, Source]:
        part = findings(self.kept[store.spec.name][partition], message)
        source = Source(
            partition=partition, instance="i", role="active", position=0, age=timedelta()
        )
        return StoreAnswer(found=part.found, after=part.after), source


def _store(shelf: Shelf) -> KeyValueStore:
    inner = MemoryStore("kept")
    if shelf.kind == "key_value":
        return inner
    if shelf.kind == "versioned":
        return VersionsStore(inner, retention_ms=RETENTION_MS, segment_ms=60_000)
    return SegmentedStore(inner, kind=shelf.kind, retention_ms=RETENTION_MS, segment_ms=60_000)


class PlannedQueries(InMemoryQueries):
    """Those of an application whose questions are planned and answered as everywhere."""

    def __init__(self) -> None:
        super().__init__()
        self.planned = Planned(self.shelves)

    def ask(self, store: str, question: Question, **_: Any) -> Answer:
        return self.planned.ask(store, question)


APP = made_service(PlannedQueries(), hosts=[asgi.HOST])
SCHEMA = schemathesis.openapi.from_asgi("/openapi.json", APP)
CHECKS: list[Any] = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
SEEN: list[int] = []


@schemathesis.hook
def map_path_parameters(context: Any, path_parameters: dict[str, Any] | None) -> Any:
    """Mostly stores that there are: others end in 404 before anything can go wrong."""
    del context
    if path_parameters and "store" in path_parameters:
        names = sorted(shelves())
        number = sum(str(path_parameters["store"]).encode("utf-8", "replace"))
        if number % 8:
            path_parameters["store"] = names[number % len(names)]
    return path_parameters


def test_no_request_ends_in_a_server_error() -> None:
    operations = [each.ok() for each in SCHEMA.get_all_operations()]
    # One without parameters has one case.
    shaped = [each for each in operations if each.path_parameters or each.query or each.body]
    each_gets = CASES // len(shaped) + 1
    with asgi.get_client(APP) as client:
        client.headers["authorization"] = f"Bearer {ADMIN}"
        for operation in operations:
            ask(operation, client, each_gets)
    assert len(SEEN) >= CASES
    assert {200, 400, 404} <= set(SEEN)


def ask(operation: Any, client: Any, cases: int) -> None:

    @hypothesis.settings(
        max_examples=cases,
        database=None,
        derandomize=True,
        deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
        phases=[hypothesis.Phase.generate],
    )
    @hypothesis.given(case=operation.as_strategy())
    def check(case: Any) -> None:
        response = case.call(session=client)
        case.validate_response(response, checks=CHECKS)
        SEEN.append(response.status_code)

    check()
