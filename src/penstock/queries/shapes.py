"""The shapes of requests and answers over HTTP, as the OpenAPI document tells them."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Generic, Literal, TypeVar

from fastapi import Path
from pydantic import BaseModel, ConfigDict, Field

from penstock.queries.contract import (
    LIMIT_MAX,
    Answer,
    QuestionKind,
    Role,
    Row,
    Source,
    StoreKind,
)
from penstock.queries.json_values import plain
from penstock.queries.pages import PAGE_TEXT_MAX

T = TypeVar("T")

TIME_MAX = 2**63 - 1
_PARTITION_MAX = 2**31 - 1
KEY_TEXT_MAX = 8 * 1024
STORE_NAME_MAX = 249
HOUR_MS = 3_600_000
_MILLISECOND = timedelta(milliseconds=1)

Time = Annotated[int, Field(ge=0, le=TIME_MAX)]
Partition = Annotated[int, Field(ge=0, le=_PARTITION_MAX)]
Offset = Annotated[int, Field(ge=0, le=TIME_MAX)]
Limit = Annotated[int, Field(ge=1, le=LIMIT_MAX)]
Milliseconds = Annotated[int, Field(ge=1, le=HOUR_MS)]
Page = Annotated[str, Field(max_length=PAGE_TEXT_MAX)]

KeyBound = Annotated[str | None, Field(max_length=KEY_TEXT_MAX)]

StoreName = Annotated[str, Path(description="The store's name.", max_length=STORE_NAME_MAX)]
KeyText = Annotated[str, Path(description="The key, as text.", max_length=KEY_TEXT_MAX)]


class Choice(BaseModel):
    """Which copies may answer, and how long they have."""

    model_config = ConfigDict(extra="forbid")

    stale: bool = Field(False, description="Whether a standby may answer.")
    max_lag: Offset | None = Field(None, description="Records that it may lack.")
    timeout_ms: Milliseconds = Field(5_000, description="How long to wait for an answer.")


class Scan(Choice):
    """Which part of the rows is wanted, and in which order."""

    reverse: bool = Field(False, description="From the last to the first.")
    partition: Partition | None = Field(None, description="Of this partition alone.")
    limit: Limit = Field(1_000, description="How many rows at most.")
    page: Page | None = Field(None, description="Go on where an answer's next_page says.")


class KeyChoice(Choice):
    """Which of a key's values is wanted."""

    as_of: Time | None = Field(None, description="As it was then (ms); of versioned stores.")


class WindowChoice(Scan):
    """Which windows of a key are wanted."""

    start: Time | None = Field(None, description="Windows that begin then or later (ms).")
    end: Time | None = Field(None, description="Windows that begin then or earlier (ms).")


class WindowsChoice(WindowChoice):
    """Which windows are wanted, and of which keys."""

    lower: KeyBound = Field(None, description="From this key on.")
    upper: KeyBound = Field(None, description="Up to and with this key.")


class RangeChoice(Scan):
    """Which keys are wanted."""

    lower: KeyBound = Field(None, description="From this key on.")
    upper: KeyBound = Field(None, description="Up to and with this key.")
    prefix: KeyBound = Field(None, description="Keys that begin with this; without the others.")


class QueryBody(Scan):
    """A question, with which copies may answer it."""

    kind: QuestionKind
    keys: list[Any] = Field([], max_length=LIMIT_MAX)
    lower: Any = None
    upper: Any = None
    prefix: Any = None
    start: Time | None = None
    end: Time | None = None
    as_of: Time | None = None
    position: dict[Annotated[str, Field(pattern="^[0-9]{1,9}$")], Offset] = Field(
        {}, description="By partition, what a standby must hold at least.", max_length=100_000
    )
    as_text: bool = Field(False, description="Keys are texts, read as those in addresses are.")


class RowShape(BaseModel):
    """A key with what a store holds for it."""

    key: Any
    value: Any
    timestamp: int | None
    start: int | None
    end: int | None


class SourceShape(BaseModel):
    """Who answered for a partition, and how fresh."""

    partition: int
    instance: str
    role: Role
    position: int | None
    age_ms: int


class RowsShape(BaseModel):
    """Rows, who gave them, and how to go on."""

    rows: list[RowShape]
    sources: list[SourceShape]
    next_page: str | None


class StoreShape(BaseModel):
    """A store that can be asked."""

    name: str
    kind: StoreKind
    partitions: int
    is_global: bool
    logged: bool
    key: str
    value: str


class StoresShape(BaseModel):
    """All stores."""

    stores: list[StoreShape]


class CountShape(BaseModel):
    """About how many entries a store has."""

    approximate_count: int


class KeyShape(BaseModel):
    """Where a key lives."""

    store: str
    partition: int
    active: str
    standbys: list[str]


class LagShape(BaseModel):
    """How far a copy is behind."""

    store: str
    partition: int
    instance: str
    role: Role
    position: int
    end: int
    lag: int


class LagsShape(BaseModel):
    """How far every copy is behind."""

    lags: list[LagShape]


class InstanceShape(BaseModel):
    """An instance that answers, and where."""

    name: str
    url: str


class InstancesShape(BaseModel):
    """All instances that answer."""

    instances: list[InstanceShape]


class HealthShape(BaseModel):
    """Whether the application is as asked."""

    healthy: bool


class PauseShape(BaseModel):
    """Whether the application reads on."""

    paused: bool


class ErrorShape(BaseModel):
    """What went wrong, where, and what to do."""

    code: str
    message: str
    where: dict[str, str]
    hint: str


class Refusal(BaseModel):
    """An answer that says why there is none."""

    ok: Literal[False]
    error: ErrorShape


class Answered(BaseModel, Generic[T]):
    """What was asked for."""

    ok: Literal[True]
    data: T


def values_data(answer: Answer) -> dict[str, Any]:
    """Of an answer's rows only their values, as JSON has them."""
    return {"values": [plain(row.value) for row in answer.rows], **freshness(answer)}


def rows_data(answer: Answer) -> dict[str, Any]:
    """An answer as JSON has it."""
    return {
        "rows": [shown_row(row) for row in answer.rows],
        **freshness(answer),
    }


def shown_row(row: Row) -> Row:
    """A row whose key and value JSON has."""
    return Row(
        key=plain(row.key),
        value=plain(row.value),
        timestamp=row.timestamp,
        start=row.start,
        end=row.end,
    )


def freshness(answer: Answer) -> dict[str, Any]:
    """Who gave an answer, how fresh it is, and how to go on."""
    return {
        "sources": [source_data(source) for source in answer.sources],
        "next_page": answer.next_page,
    }


def source_data(source: Source) -> dict[str, Any]:
    """Who answered for a partition, as JSON has it."""
    return {
        "partition": source.partition,
        "instance": source.instance,
        "role": source.role,
        "position": source.position,
        "age_ms": source.age // _MILLISECOND,
    }
