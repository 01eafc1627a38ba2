"""How a table's own store is kept can be said on every step of a table that has one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import penstock as ps
from penstock.errors import TopologyError
from penstock.testing import TopologyTestDriver

Write = Callable[..., Any]


class Twice(ps.ValueTransformer[str, str, str]):
    """Says everything twice."""

    def transform(self, key: str, value: str | None) -> str | None:
        del key
        return None if value is None else value * 2


def _join(left: str | None, right: str | None) -> str:
    return f"{left}+{right}"


def _not_x(_key: str, value: str) -> bool:
    return value != "x"


STEPS: dict[str, Write] = {
    "filter": lambda one, two, **options: one.filter(_not_x, "kept", **options),
    "filter_not": lambda one, two, **options: one.filter_not(_not_x, "kept", **options),
    "map_values": lambda one, two, **options: one.map_values(
        str.upper, "kept", value=str, **options
    ),
    "transform_values": lambda one, two, **options: one.transform_values(
        Twice, "kept", value=str, **options
    ),
    "join": lambda one, two, **options: one.join(two, _join, "kept", value=str, **options),
    "left_join": lambda one, two, **options: one.left_join(
        two, _join, "kept", value=str, **options
    ),
    "outer_join": lambda one, two, **options: one.outer_join(
        two, _join, "kept", value=str, **options
    ),
    "foreign_join": lambda one, two, **options: one.join(
        two, _join, "kept", foreign_key=str.lower, value=str, **options
    ),
    "foreign_left_join": lambda one, two, **options: one.left_join(
        two, _join, "kept", foreign_key=str.lower, value=str, **options
    ),
}


def _built(step: str, dsl_store: Any = "rocksdb", **options: Any) -> ps.StreamsBuilder:
    builder = ps.StreamsBuilder(dsl_store=dsl_store)
    one = builder.table("one", "ones", key=str, value=str)
    two = builder.table("two", "twos", key=str, value=str)
    STEPS[step](one, two, **options).to_stream().to("out")
    return builder


def _kept(step: str, dsl_store: Any = "rocksdb", **options: Any) -> Any:
    stores = _built(step, dsl_store, **options).build().stores
    return next(store for store in stores if store.name == "kept")


@pytest.mark.parametrize("step", STEPS)
def test_the_store_is_kept_as_was_said(step: str) -> None:
    plain = _kept(step)
    assert (plain.caching, plain.logging, plain.persistent) == (True, True, True)
    assert plain.recover_from == "changelog"
    said = _kept(step, caching=False, logging=False, persistent=False)
    assert (said.caching, said.logging, said.persistent) == (False, False, False)
    assert _kept(step, "memory").persistent is False
    assert _kept(step, "memory", persistent=True).persistent is True
    config = {"segment.bytes": "1048576"}
    assert _kept(step, logging=config).changelog_config == config
    with pytest.raises(TopologyError, match="what is restored other times than before"):
        _kept(step, logging={"message.timestamp.type": "LogAppendTime"})


@pytest.mark.parametrize("step", [each for each in STEPS if each != "transform_values"])
def test_a_store_of_the_users_own(step: str) -> None:
    held = _kept(step, supplier="tests.unit.test_custom_stores:open_store")
    assert held.supplier == "tests.unit.test_custom_stores:open_store"


@pytest.mark.parametrize("step", [each for each in STEPS if not each.startswith("foreign")])
def test_one_that_recovers_from_its_input(step: str) -> None:
    assert _kept(step, recover_from="input").recover_from == "input"


@pytest.mark.parametrize("step", STEPS)
def test_results_and_rows_are_the_same_however_it_is_kept(step: str) -> None:
    answers = []
    for options in ({}, {"caching": False}, {"persistent": False, "logging": False}):
        driver = TopologyTestDriver(_built(step, **options).build())
        one, two = (driver.input_topic(name, key=str, value=str) for name in ("one", "two"))
        one.pipe_all([("a", "B"), ("b", "x"), ("a", "x")])
        two.pipe_all([("a", "1"), ("b", "2"), ("x", "3")])
        one.pipe_all([("a", "B"), ("b", None)])
        two.pipe("a", None)
        told = driver.output_topic("out", key=str, value=str).read_pairs()
        # As in Kafka Streams a cache is silent of the deletion of what never was.
        seen = [(key, value) for key, value in told if value is not None]
        answers.append((seen, dict(driver.store("kept"))))
    assert answers[0] == answers[1] == answers[2]
    assert answers[0][0]
