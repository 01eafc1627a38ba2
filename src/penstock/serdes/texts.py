"""Which keys and values people read and write as the text that their bytes are."""

from __future__ import annotations

from typing import Any

from penstock.serdes.contract import Serde

_TEXTS = ("string", "bytes", "json")


def is_text(serde: Serde[Any]) -> bool:
    """Whether its bytes are shown, and typed, as they stand; others go through their values.

    >>> from penstock.serdes.scalars import LongSerde, StringSerde
    >>> is_text(StringSerde()), is_text(LongSerde())
    (True, False)
    """
    return serde.name in _TEXTS
