"""Pages: where an answer ended, in a text that means nothing to anyone else and is checked."""

from __future__ import annotations

import base64
import hashlib
from typing import Annotated

import msgspec

from penstock.errors import PageRefusedError
from penstock.instance.query_messages import Cursor
from penstock.serdes.decoders import decoder

_DIGEST_BYTES = 9
PAGE_TEXT_MAX = 1024 * 1024
"""A page has the last entry's key in it, which may be long."""
# Whoever knows the question can make a page of it: that finds nothing else than the question, but
# no number in it may lead beyond what is there.
_Number = Annotated[int, msgspec.Meta(ge=0)]


class Page(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where to go on: in a partition, behind what the copy there saw last."""

    partition: _Number = 0
    after: Cursor | None = None
    key: _Number = 0
    """Of the keys that are looked up one by one, the first that is to come."""


def page_text(page: Page, asked: bytes) -> str:
    """The page of one question, which is known by all that it `asked`.

    >>> page_of(page_text(Page(partition=3), b"all of counts"), b"all of counts").partition
    3
    """
    data = msgspec.json.encode(page)
    return base64.urlsafe_b64encode(_digest(data, asked) + data).decode()


def page_of(text: str, asked: bytes) -> Page:
    """What such a text says. Raises `PageRefusedError` unless an answer to this question gave it.

    >>> page_of(page_text(Page(), b"all of counts"), b"all of totals")
    Traceback (most recent call last):
    penstock.errors.PageRefusedError: The page is not one that an answer to this question gave. ...
    """
    try:
        raw = base64.b64decode(text[:PAGE_TEXT_MAX].encode("ascii"), altchars=b"-_", validate=True)
        data = raw[_DIGEST_BYTES:]
        if raw[:_DIGEST_BYTES] == _digest(data, asked):
            return decoder(Page).decode(data)
    except (ValueError, msgspec.DecodeError):
        pass
    raise PageRefusedError(
        "The page is not one that an answer to this question gave",
        hint="Give next_page of the last answer with the same question, or begin without one",
    )


def _digest(data: bytes, asked: bytes) -> bytes:
    """Of a page and what it belongs to: with another question it would leave rows out."""
    return hashlib.blake2b(asked + data, digest_size=_DIGEST_BYTES).digest()
