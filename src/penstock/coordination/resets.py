"""Where a reset puts an application's positions: Kafka Streams' choices, as pure functions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from penstock.errors import ConfigError

Input = tuple[str, int]
Kind = Literal["earliest", "latest", "offset", "time", "shift"]

_ISO = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?)?")
_SHORT = re.compile(r"(\d+)([smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


_INTERNAL = re.compile(
    r"commits|.+-(?:changelog|repartition|subscription-(?:registration|response)-topic)"
    r"|(?:.+-)?KTABLE-FK-JOIN-SUBSCRIPTION-(?:REGISTRATION|RESPONSE)-\d+-topic"
)
"""Behind an application's id: our commits topic, and what Kafka Streams' reset tool looks for."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """What was asked for; `number` is an offset, a time in milliseconds, or how far to shift."""

    kind: Kind = "earliest"
    number: int = 0


def parse_duration(text: str) -> timedelta:
    """A duration, in Kafka's words or in short. Raises `ConfigError`.

    >>> parse_duration("P1DT2H"), parse_duration("90m")
    (datetime.timedelta(days=1, seconds=7200), datetime.timedelta(seconds=5400))
    """
    short, found = _SHORT.fullmatch(text), _ISO.fullmatch(text)
    try:
        if short:
            return timedelta(**{_UNITS[short[2]]: int(short[1])})
        if found and any(found.groups()):
            days, hours, minutes, seconds = (int(each or 0) for each in found.groups())
            return timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    except (OverflowError, ValueError):
        pass  # Longer than there can be.
    raise ConfigError(f"{text!r} is no duration", hint="Use 90s, 15m, 2h, 1d, or P1DT2H30M")


def new_positions(
    target: Target,
    ranges: Mapping[Input, tuple[int, int]],
    *,
    group: Mapping[Input, int],
    at_time: Mapping[Input, int],
) -> dict[Input, int]:
    """The offset of each input: what was asked for, as far as the log holds it.

    `group` is where the application stands, and `at_time` the first offset of the target's time,
    -1 where no record is that late.

    >>> ranges = {("beats", 0): (3, 20)}
    >>> new_positions(Target(kind="shift", number=-5), ranges, group={("beats", 0): 9}, at_time={})
    {('beats', 0): 4}
    >>> new_positions(Target(kind="offset", number=99), ranges, group={}, at_time={})
    {('beats', 0): 20}
    """
    found = {}
    for each, (start, end) in ranges.items():
        late = at_time.get(each, -1)
        wanted = {
            "earliest": start,
            "latest": end,
            "offset": target.number,
            "time": end if late < 0 else late,
            "shift": group.get(each, start) + target.number,
        }[target.kind]
        found[each] = min(max(wanted, start), end)
    return found


def is_internal_name(application_id: str, topic: str) -> bool:
    """Whether a topic's name is that of an internal topic of the application.

    >>> is_internal_name("clinic", "clinic-counts-changelog")
    True
    >>> is_internal_name("clinic", "clinic-results")
    False
    """
    tail = topic.removeprefix(f"{application_id}-")
    return tail != topic and _INTERNAL.fullmatch(tail) is not None


@dataclass(frozen=True, kw_only=True)
class ToldByName:
    """Topics whose names are those of internal topics of an application."""

    own: tuple[str, ...]
    doubtful: tuple[tuple[str, str], ...]
    """Those that another application, whose id is longer, may have made; with its id."""


def internal_by_name(
    application_id: str, topics: Iterable[str], *, others: Iterable[str]
) -> ToldByName:
    """The internal topics of an application, of which nothing but names is known.

    `others` are consumer groups. One of `clinic-two` makes `clinic-two-counts-changelog` doubtful
    as a topic of `clinic`: it may be that of its store `two-counts`, or of the other application.

    >>> topics = ["clinic-counts-changelog", "clinic-two-counts-changelog", "clinic-two-commits"]
    >>> told = internal_by_name("clinic", [*topics, "clinic-results"], others=[])
    >>> told.own, told.doubtful
    (('clinic-counts-changelog',), (('clinic-two-counts-changelog', 'clinic-two'),))
    """
    names = sorted(topics)
    commits = (name.removesuffix("-commits") for name in names if name.endswith("-commits"))
    longer = sorted(each for each in {*others, *commits} if each.startswith(f"{application_id}-"))
    own: list[str] = []
    doubtful: list[tuple[str, str]] = []
    for name in names:
        if not is_internal_name(application_id, name):
            continue
        other = next((each for each in longer if name.startswith(f"{each}-")), None)
        if other is None:
            own.append(name)
        else:
            doubtful.append((name, other))
    return ToldByName(own=tuple(own), doubtful=tuple(doubtful))
