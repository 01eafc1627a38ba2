"""Figures that several pages give are those of the page that says how they were measured."""

from __future__ import annotations

import re

from tests.unit.test_docs_snippets import ROOT

CONCEPTS = ROOT / "docs" / "concepts"


def seconds_to_restore() -> list[str]:
    """The column of the table on restores."""
    table = (CONCEPTS / "changelogs.md").read_text().split("### Measured")[1]
    return re.findall(r"\| ([\d.]+) s \|$", table, re.MULTILINE)


def test_restores_take_as_long_as_was_measured() -> None:
    slow, quick, compacted = sorted(map(float, seconds_to_restore()), reverse=True)
    for page in (CONCEPTS / "kinds-of-stores.md", ROOT / "docs" / "sizing.md"):
        told = " ".join(page.read_text().split())
        assert f"3,010,000 records took {quick:g} to {slow:g} s" in told or (
            f"3,010,000 changelog records took {quick:g} to {slow:g} s on two cores" in told
            and f"(20,000 records) {compacted:g} s" in told
        )


def test_a_small_commit_costs_what_was_measured() -> None:
    page = (CONCEPTS / "internal-and-external.md").read_text()
    [row] = re.findall(r"^\| commit 100 keys \|(.*)\|$", page, re.MULTILINE)
    found = [float(each) for each in re.findall(r"[\d.]+", row)]
    sizing = (ROOT / "docs" / "sizing.md").read_text()
    assert f"[{min(found):g} to {max(found):g} ms]" in sizing
