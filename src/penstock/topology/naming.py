"""Names: what is allowed, and what internal topics are called. All durable things hang on these."""

from __future__ import annotations

import re
from functools import lru_cache

from penstock.errors import TopologyError

NAME_LENGTH_MAX = 249
_ALLOWED = re.compile(r"[A-Za-z0-9._-]+")
_PLACES = (".", "..")
_FORBIDDEN = re.compile(r"[^A-Za-z0-9_-]+")


def is_name(name: str) -> bool:
    """Whether Kafka would take it as a topic's name.

    >>> is_name("pulse-counts"), is_name("pulse/counts")
    (True, False)
    """
    fits = len(name) <= NAME_LENGTH_MAX and name not in _PLACES
    return fits and _ALLOWED.fullmatch(name) is not None


def check_name(name: str, what: str, **where: object) -> str:
    """The name, if Kafka would take it as (part of) a topic's name; else `TopologyError`.

    >>> check_name("pulse-counts", "store")
    'pulse-counts'
    """
    if not isinstance(name, str):
        raise TopologyError(
            f"The {what} name {name!r} is no text",
            where=where,
            hint=f"Write it as a text: {allowed_name(str(name))!r}, for example",
        )
    # A store's directory lies beside files of ours whose names begin with a dot.
    hides = what == "store" and name.startswith(".")
    if not _ALLOWED.fullmatch(name) or name in _PLACES or hides:
        raise TopologyError(
            f"The {what} name {name!r} cannot be used",
            where=where,
            hint="Use letters, digits, '.', '_' and '-', as in Kafka's topic names: "
            f"{allowed_name(name)!r}, for example",
        )
    if len(name) > NAME_LENGTH_MAX:
        raise TopologyError(
            f"The {what} name {name[:20]}... has {len(name)} characters",
            where=where,
            hint=f"Kafka's topic names have at most {NAME_LENGTH_MAX}",
        )
    return name


def allowed_name(name: str) -> str:
    """A name like this one that can be used.

    >>> allowed_name("../counts/of words")
    'counts-of-words'
    """
    return _FORBIDDEN.sub("-", name).strip("-.")[:NAME_LENGTH_MAX] or "a-name"


def pattern_name(pattern: re.Pattern[str]) -> str:
    """What is named after a source with a pattern: the pattern's text, as far as Kafka allows it.

    >>> pattern_name(re.compile("orders-[a-z]+"))
    'orders-a-z'
    """
    return _FORBIDDEN.sub("-", pattern.pattern).replace("--", "-").strip("-") or "pattern"


def changelog_base(store: str) -> str:
    """A store's changelog, without the application's id in front."""
    return f"{store}-changelog"


def repartition_base(name: str) -> str:
    """The repartition topic of a grouping, without the application; the suffix is never doubled."""
    return name if name.endswith("-repartition") else f"{name}-repartition"


@lru_cache(maxsize=1024)  # Every slice asks for the names of its topics.
def repartition_topic(application_id: str, base: str) -> str:
    """The full name of an internal topic: `<application_id>-<name>`.

    >>> repartition_topic("monitoring", "counts-repartition")
    'monitoring-counts-repartition'
    """
    return check_name(f"{application_id}-{base}", "repartition topic")


def changelog_topic(application_id: str, store: str) -> str:
    """The full name of a store's changelog: `<application_id>-<store>-changelog`."""
    return check_name(f"{application_id}-{store}-changelog", "changelog topic")
