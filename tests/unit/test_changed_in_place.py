"""An aggregator may change its aggregate in place, as is usual in Python: results are the same."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import penstock as ps
from penstock.testing import TestRecord, TopologyTestDriver

_KIND = list[str]


def _ms(count: int) -> timedelta:
    return timedelta(milliseconds=count)


_WINDOWS: dict[str, Any] = {
    "none": None,
    "tumbling": ps.tumbling(_ms(8), grace=_ms(20)),
    "hopping": ps.hopping(_ms(8), advance=_ms(4), grace=_ms(20)),
    "sliding": ps.sliding(_ms(8), grace=_ms(20)),
    "session": ps.session(_ms(4), grace=_ms(20)),
}


def _added(_key: str, value: str, held: list[str]) -> list[str]:
    return [*held, value]


def _added_in_place(_key: str, value: str, held: list[str]) -> list[str]:
    held.append(value)
    return held


def _merged(_key: str, one: list[str], two: list[str]) -> list[str]:
    return [*one, *two]


def _merged_in_place(_key: str, one: list[str], two: list[str]) -> list[str]:
    two[:0] = one
    return two


def _taken(_key: str, value: list[str], held: list[str]) -> list[str]:
    return [each for each in held if each not in value]


def _taken_in_place(_key: str, value: list[str], held: list[str]) -> list[str]:
    held[:] = [each for each in held if each not in value]
    return held


def _joined(_key: str, value: list[str], held: list[str]) -> list[str]:
    return sorted([*held, *value])


def _joined_in_place(_key: str, value: list[str], held: list[str]) -> list[str]:
    held += value
    held.sort()
    return held


def _records() -> list[tuple[str, str, int]]:
    chance = random.Random(3)
    return [(chance.choice("ab"), str(number), chance.randint(0, 40)) for number in range(60)]


def _sent(build: Callable[[ps.Application], Any], cache: int) -> list[TestRecord[bytes, bytes]]:
    app = ps.Application("lists", statestore_cache_max_bytes=cache)
    build(app).to_stream().to("out")
    driver = TopologyTestDriver(app)
    topic = driver.input_topic("in", key=str, value=str)
    for key, value, time in _records():
        topic.pipe(key, value, timestamp=time)
    return driver.output_topic("out", key=bytes, value=bytes).read_all()


def _lists(app: ps.Application, windows: str, at_close: bool, in_place: bool) -> Any:
    grouped: Any = app.stream("in", key=str, value=str).group_by_key()
    if _WINDOWS[windows] is not None:
        grouped = grouped.windowed_by(_WINDOWS[windows])
        grouped = grouped.emit_on_window_close() if at_close else grouped
    options: dict[str, Any] = {"value": _KIND}
    if windows == "session":
        options["merger"] = _merged_in_place if in_place else _merged
    return grouped.aggregate(list, _added_in_place if in_place else _added, "lists", **options)


@pytest.mark.parametrize("cache", [0, 10_000_000])
@pytest.mark.parametrize(
    ("windows", "at_close"),
    [(windows, at_close) for windows in _WINDOWS for at_close in (False, windows != "none")],
)
def test_windows(windows: str, at_close: bool, cache: int) -> None:
    """Sliding windows begin with what others are, and tables behind ask what a row was."""

    def rows(in_place: bool) -> list[Any]:
        def build(app: ps.Application) -> Any:
            lists = _lists(app, windows, at_close, in_place)
            return lists.filter(lambda key, held: len(held) % 3 != 1)

        return _sent(build, cache)

    assert rows(in_place=True) == rows(in_place=False)


@pytest.mark.parametrize("cache", [0, 10_000_000])
@pytest.mark.parametrize("windows", ["none", "hopping", "sliding", "session"])
def test_groups_of_rows(windows: str, cache: int) -> None:
    """What is taken out of a group is what was put in."""

    def rows(in_place: bool) -> list[Any]:
        folds = (_joined_in_place, _taken_in_place) if in_place else (_joined, _taken)

        def build(app: ps.Application) -> Any:
            groups = _lists(app, windows, at_close=False, in_place=in_place).group_by(
                lambda key, held: (held[0] if held else "0", held), key=str, value=_KIND
            )
            table = groups.aggregate(list, *folds, "groups", value=_KIND)
            return table.filter(lambda key, held: len(held) % 2 == 0)

        return _sent(build, cache)

    assert rows(in_place=True) == rows(in_place=False)


def test_versions() -> None:
    def rows(in_place: bool) -> list[Any]:
        def build(app: ps.Application) -> Any:
            stream: Any = app.stream("in", key=str, value=str)
            lists = stream.group_by_key().aggregate(
                list,
                _added_in_place if in_place else _added,
                ps.versioned_store("lists", history_retention=_ms(50)),
                value=_KIND,
            )
            return lists.filter(lambda key, held: len(held) % 3 != 1)

        return _sent(build, 0)

    assert rows(in_place=True) == rows(in_place=False)
