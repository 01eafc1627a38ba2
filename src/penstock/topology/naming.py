"""Names: what is allowed, and what internal topics are called. All durable things hang on these."""

from __future__ import annotations

import re

from penstock.errors import TopologyError

NAME_LENGTH_MAX = 249
_ALLOWED = re.compile(r"[A-Za-z0-9._-]+")
_FORBIDDEN = re.compile(r"[^A-Za-z0-9_-]+")


def check_name(name: str, what: str) -> str:
    """The name, if Kafka would take it as (part of) a topic's name; else `TopologyError`.

    >>> check_name("pulse-counts", "store")
    'pulse-counts'
    """
    if not _ALLOWED.fullmatch(name) or name in (".", ".."):
        raise TopologyError(
            f"The {what} name {name!r} cannot be used",
            hint="Use letters, digits, '.', '_' and '-', as in Kafka's topic names",
        )
    if len(name) > NAME_LENGTH_MAX:
        raise TopologyError(
            f"The {what} name {name[:20]}... has {len(name)} characters",
            hint=f"Kafka's topic names have at most {NAME_LENGTH_MAX}",
        )
    return name


def pattern_name(pattern: re.Pattern[str]) -> str:
    """What is named after a source with a pattern: the pattern's text, as far as Kafka allows it.

    >>> pattern_name(re.compile("orders-[a-z]+"))
    'orders-a-z'
    """
    return _FORBIDDEN.sub("-", pattern.pattern).replace("--", "-").strip("-") or "pattern"


def repartition_base(name: str) -> str:
    """The repartition topic of a grouping, without the application; the suffix is never doubled."""
    return name if name.endswith("-repartition") else f"{name}-repartition"


def repartition_topic(application_id: str, base: str) -> str:
    """The full name of an internal topic: `<application_id>-<name>`.

    >>> repartition_topic("monitoring", "counts-repartition")
    'monitoring-counts-repartition'
    """
    return check_name(f"{application_id}-{base}", "repartition topic")


def changelog_topic(application_id: str, store: str) -> str:
    """The full name of a store's changelog: `<application_id>-<store>-changelog`."""
    return check_name(f"{application_id}-{store}-changelog", "changelog topic")
