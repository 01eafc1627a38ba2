"""Every public name of Kafka Streams is in the docs: with a counterpart that exists, or why not."""

from __future__ import annotations

import importlib
import inspect
import re
from collections import Counter
from dataclasses import fields
from functools import cache
from typing import Any

import pytest

import penstock
from penstock.cli import COMMANDS
from penstock.config import _OLD_NAMES as OLD_NAMES
from penstock.config import Config
from penstock.errors import ConfigError
from penstock.kafka_names import sort_properties
from penstock.option_values import with_new_names
from tools import site_pages

OPTIONS = {each.name for each in fields(Config)}
ROWS = [row for group in site_pages.table_groups() for row in site_pages.covered(group["rows"])]
HERE = sorted({each for _, here, _ in ROWS for each in here.split(", ") if each})


@cache
def found(name: str) -> Any:
    """What a name below `penstock` stands for."""
    thing: Any = penstock
    for part in name.split("."):
        if not hasattr(thing, part) and inspect.ismodule(thing):
            importlib.import_module(f"{thing.__name__}.{part}")
        thing = getattr(thing, part)
    return thing


def test_every_name_of_kafka_streams_is_there_once() -> None:
    listed = Counter(name for names, _, _ in ROWS for name in names)
    assert {name for name, count in listed.items() if count > 1} == set()
    assert set(site_pages.API) - set(listed) == set()
    # A class whose methods all have rows may have one for itself too.
    assert set(listed) - set(site_pages.API) == set()


def test_what_has_no_counterpart_has_a_reason() -> None:
    assert [names for names, here, note in ROWS if not here and not note] == []


SETTINGS = [
    (name.removeprefix("config "), here, note)
    for [name, *_], here, note in ROWS
    if name.startswith("config ")
]


@pytest.mark.parametrize(("name", "here", "note"), SETTINGS, ids=[each[0] for each in SETTINGS])
def test_a_setting_of_java_becomes_what_the_table_says(name: str, here: str, note: str) -> None:
    if name == "application.id":
        return
    # A prefix stands before a name.
    given = {with_new_names({name: "x"}, OLD_NAMES).popitem()[0] + "x" * name.endswith("."): "x"}
    of_kafka = {each.metadata["kafka"]: each.name for each in fields(Config)}
    groups = {each.removesuffix("*"): own for each, own in of_kafka.items() if each[-1] == "*"}
    if note.startswith("refused"):
        with pytest.raises(ConfigError, match=re.escape(note.partition(": ")[2])):
            sort_properties(given, of_kafka, groups)
        return
    found = sort_properties(given, of_kafka, groups)
    became = {*found.options, *(each for each, settings in found.groups.items() if settings)}
    assert {f"Config.{each}" for each in became} == ({here} if here else set())
    told = [f"no effect: {why}" for why in found.ignored.values()]
    assert told == ([] if here else [note])


@pytest.mark.parametrize("name", HERE)
def test_every_counterpart_exists(name: str) -> None:
    command = re.fullmatch(r"penstock ([a-z-]+)", name)
    keyword = re.fullmatch(r"([\w.]+)\((\w+)=\)", name)
    if command:
        assert command[1] in COMMANDS
    elif name.startswith("Config.") and name.removeprefix("Config.") in OPTIONS:
        pass
    elif keyword:
        assert keyword[2] in inspect.signature(found(keyword[1])).parameters
    elif name in ("Record.timestamp", "Windowed.start", "Windowed.end"):
        own, _, attribute = name.partition(".")
        assert attribute in found(own).__annotations__
    else:
        assert found(name) is not None
