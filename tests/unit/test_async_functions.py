"""Goal: what would have to be awaited is refused when the topology is built, with its step."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import pytest

import penstock as ps
from penstock.errors import TopologyError
from penstock.testing import TopologyTestDriver

Write = Callable[[Any], object]
_STORE = ps.key_value_store("held", key=str, value=str)


async def _later(*_given: Any) -> Any:
    return "later"


async def _one_by_one(value: str) -> AsyncIterator[str]:
    yield value


class AsyncCall:
    async def __call__(self, key: str, value: str) -> bool:
        return key == value


class AsyncProcess(ps.Processor[str, str, str, str]):
    async def process(self, record: Any) -> None:  # type: ignore[override]
        del record


class AsyncInit(ps.Processor[str, str, str, str]):
    async def init(self, context: Any) -> None:  # type: ignore[override]
        del context


class AsyncClose(ps.Processor[str, str, str, str]):
    async def close(self) -> None:  # type: ignore[override]
        pass


class AsyncTransformer(ps.ValueTransformer[str, str, str]):
    async def transform(self, key: str, value: str | None) -> str | None:  # type: ignore[override]
        return key + (value or "")


class AsyncSerde(ps.Serde[str]):
    name = "slow"

    async def serialize(self, value: str) -> bytes:  # type: ignore[override]
        return value.encode()

    def deserialize(self, data: bytes) -> str:
        return data.decode()


class AsyncShape:
    def __init__(self, store: Any) -> None:
        self.store = store

    async def flush(self) -> None:
        pass


def _stream(builder: Any) -> Any:
    return builder.stream("in", key=str, value=str)


def _table(builder: Any) -> Any:
    return builder.table("rows", key=str, value=str)


def _listened(value: Any) -> Write:
    return lambda b: b.stream("in", key=str, value=value, name="read")


def _bytes_of(text: str) -> bytes:
    return text.encode()


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (
            lambda b: _stream(b).process(AsyncProcess, name="p"),
            "The process of the processor of step p is",
        ),
        (
            lambda b: _stream(b).process(lambda: AsyncProcess(), name="p"),  # noqa: PLW0108
            "The process of the processor of step p is",
        ),
        (
            lambda b: _stream(b).process_values(AsyncInit, name="p"),
            "The init of the processor of step p is",
        ),
        (
            lambda b: _stream(b).process(AsyncClose, name="p"),
            "The close of the processor of step p is",
        ),
        (
            lambda b: b.add_global_store("topic", _STORE, AsyncProcess, name="g"),
            "The process of the processor of step g is",
        ),
        (
            lambda b: _table(b).transform_values(AsyncTransformer, value=str, name="t"),
            "The transform of the transformer of step t is",
        ),
        (lambda b: _stream(b).process(_later, name="p"), "The supplier of step p is"),
        (lambda b: _stream(b).filter(AsyncCall(), name="f"), "The predicate of step f is"),
        (
            lambda b: _stream(b).filter(functools.partial(_later, 1), name="f"),
            "The predicate of step f is",
        ),
        (
            lambda b: _stream(b).flat_map_values(_one_by_one, value=str, name="f"),
            "The mapper of step f is",
        ),
        (
            _listened(ps.serde(_later, bytes.decode, name="mine")),
            "The to_bytes of serde 'mine' of step read is",
        ),
        (
            _listened(ps.serde(_bytes_of, _later, name="mine")),
            "The from_bytes of serde 'mine' of step read is",
        ),
        (_listened(AsyncSerde()), "The serialize of serde 'slow' of step read is"),
        (
            lambda b: b.add_state_store(
                ps.key_value_store("held", key=str, value=ps.serde(_later, _later))
            ),
            "The to_bytes of serde 'custom' of store 'held' is",
        ),
        (
            lambda b: b.add_state_store(ps.custom_store("shaped", AsyncShape)),
            "The flush of what the store 'shaped' is made of is",
        ),
    ],
)
def test_async_is_refused_where_it_stands(write: Write, message: str) -> None:
    with pytest.raises(TopologyError, match=message) as caught:
        write(ps.StreamsBuilder())
    assert "async function, which nobody awaits" in caught.value.message
    assert "Write it with def" in caught.value.hint


def test_a_batch_object_that_is_called_async_is_refused() -> None:
    with pytest.raises(TopologyError, match="is an async function"):
        ps.batch(AsyncCall())


def test_a_default_timestamp_extractor_that_is_async_is_refused_with_its_source() -> None:
    app = ps.Application("app", default_timestamp_extractor=_later)
    app.stream("in", key=str, value=str, name="read")
    with pytest.raises(TopologyError, match="The timestamp of step read is an async"):
        app.build()


def test_async_listeners_are_refused() -> None:
    app = ps.Application("app")
    for listen in (app.on_event, app.on_state_change, app.on_restore_start, app.on_restore_end):
        with pytest.raises(TopologyError, match="listener is an async function"):
            listen(_later)


class AsyncPunctuator(ps.Processor[str, str, str, str]):
    def init(self, context: ps.ProcessorContext) -> None:
        context.schedule(timedelta(seconds=1), "stream_time", _later)


class OddClock(ps.Processor[str, str, str, str]):
    def init(self, context: ps.ProcessorContext) -> None:
        context.schedule(timedelta(seconds=1), "bogus", print)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("processor", "message"),
    [
        (AsyncPunctuator, "What step p schedules is an async function"),
        (OddClock, "The step p schedules a call by 'bogus'. Use one of"),
    ],
)
def test_a_punctuator_that_cannot_be_called_is_refused_when_it_is_scheduled(
    processor: Any, message: str
) -> None:
    builder = ps.StreamsBuilder()
    _stream(builder).process(processor, name="p")
    with pytest.raises(TopologyError, match=message):
        TopologyTestDriver(builder.build()).input_topic("in", key=str, value=str).pipe("a", "b")


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda b: _stream(b).process(lambda: None, name="p"), "no processor: NoneType has no in"),
        (lambda b: _stream(b).process(str, name="p"), "no processor: str has no init"),
        (
            lambda b: _stream(b).process(ps.Processor(), name="p"),
            "supplier of step p is a Processor, which cannot be called. Pass the processor's class",
        ),
        (
            lambda b: _table(b).transform_values(ps.Processor, value=str, name="t"),
            "no transformer: Processor has no transform",
        ),
    ],
)
def test_a_supplier_that_makes_no_processor_is_refused(write: Write, message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        write(ps.StreamsBuilder())


def test_a_supplier_that_works_only_where_it_runs_is_not_refused() -> None:
    ready: list[ps.Processor[str, str, str, str]] = []
    builder = ps.StreamsBuilder()
    _stream(builder).process(lambda: ready[0], name="p")
    assert builder.build().sub_topologies
