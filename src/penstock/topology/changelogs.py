"""What `logging=` says of a store: whether it has a changelog, and the settings of that topic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from penstock.errors import TopologyError
from penstock.option_values import NOT_OUR_TIMES, brokers_times

RecoverFrom = Literal["changelog", "input"]
"""What a store that is lost is made from again."""
Logging = bool | Mapping[str, str]
"""True or False; or settings of the changelog topic, by Kafka's names, for a store that has one."""


def is_logged(logging: Logging) -> bool:
    """Whether a store has a changelog; settings, even none, ask for one.

    >>> is_logged({}), is_logged(False)
    (True, False)
    """
    return logging is not False


def changelog_config(logging: Logging, store: str) -> dict[str, str]:
    """The settings of a store's changelog that differ from the usual ones.

    >>> changelog_config({"segment.bytes": "536870912"}, "counts")
    {'segment.bytes': '536870912'}

    Raises `TopologyError` for a setting that is not text, for Kafka knows no other kind, and for
    one with which what is restored would not be what was there.
    """
    if isinstance(logging, bool):
        return {}
    if not isinstance(logging, Mapping):
        raise TopologyError(
            f"The store {store!r} has logging={logging!r}",
            hint='Write True, False, or settings: logging={"segment.bytes": "1048576"}',
        )
    for name, setting in logging.items():
        if not isinstance(setting, str):
            raise TopologyError(
                f"The changelog of store {store!r} is to have {name}={setting!r}, which is no text",
                hint=f'Write logging={{"{name}": "{setting}"}}',
            )
    if brokers_times(logging):
        raise TopologyError(
            f"The changelog of store {store!r} is to have {NOT_OUR_TIMES}", hint="Leave it out"
        )
    return dict(logging)
