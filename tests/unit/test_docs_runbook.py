"""The runbook has an entry for every error."""

from __future__ import annotations

import tomllib

from penstock.errors import PenstockError
from tools import site_pages

ENTRIES = tomllib.loads(site_pages.RUNBOOK.read_text())


def test_every_error_has_an_entry() -> None:
    missing = [
        kind.__name__
        for kind in site_pages.error_classes(PenstockError)
        if set(ENTRIES.get(kind.__name__, {})) != {"when", "do"}
    ]
    assert missing == []


def test_the_page_shows_them_with_their_codes() -> None:
    page = site_pages.errors()
    assert "## BrokerUnreachableError\n\n`broker_unreachable`. " in page
    assert page.count("**Do:**") == len(site_pages.error_classes(PenstockError))
