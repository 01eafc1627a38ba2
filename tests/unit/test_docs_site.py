"""Pages with parts that are made of the code say so to those who read them as files."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path

import pytest

from penstock.console.history import KEPT
from tools import site_pages

DOCS = site_pages.ROOT / "docs"
MADE = re.compile(r"^(<!-- made: \w+ -->|::: )", re.MULTILINE)
PAGES = [page for page in sorted(DOCS.rglob("*.md")) if MADE.search(page.read_text())]


def name_of(page: Path) -> str:
    return str(page.relative_to(DOCS))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_file_says_where_the_whole_page_is(page: Path) -> None:
    built = page.relative_to(DOCS).with_suffix(".html")
    before = MADE.split(page.read_text())[0]
    assert f"Run `make docs`, and open `build/site/{built}`." in before


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_site_does_not_say_it(page: Path) -> None:
    built = site_pages.on_page_markdown(page.read_text())
    assert "build/site" not in built
    assert "file only" not in built
    assert "<!-- made" not in built


PUBLIC = ("penstock", "penstock.testing", "penstock.queries", "penstock.stores")
"""The modules that users import from."""


@pytest.mark.parametrize("name", PUBLIC)
def test_the_reference_has_every_public_name(name: str) -> None:
    told = re.findall(r"^::: (\S+)$", (DOCS / "reference" / "python.md").read_text(), re.MULTILINE)
    assert len(told) == len(set(told))
    own = {each.rpartition(".")[2] for each in told if each.rpartition(".")[0] == name}
    module = importlib.import_module(name)
    assert own == set(module.__all__)
    # What nobody described has nothing to show there.
    assert [each for each in own if not (inspect.getdoc(getattr(module, each)) or "").strip()] == []


def test_the_page_on_the_console_says_how_much_is_kept() -> None:
    told = " ".join((DOCS / "console.md").read_text().split())
    batches, seconds = KEPT["batches"], KEPT["seconds"]
    assert f"(or of the last {batches} batches, if they took less)" in told
    assert f"the last {KEPT['happenings']} lines and {batches} batches" in told
    assert f"lag and memory of the last {seconds} seconds" in told


@pytest.mark.parametrize(
    "page",
    [*sorted((DOCS / "concepts").glob("*.md")), DOCS / "guarantees.md", DOCS / "security.md"],
    ids=name_of,
)
def test_every_concept_has_a_picture_of_its_own(page: Path) -> None:
    shown = re.findall(r"!\[[^\]]+\]\(([^)]+\.svg)\)", page.read_text())
    assert shown
    others = [each for each in sorted((DOCS / "concepts").glob("*.md")) if each != page]
    for each in shown:
        assert (page.parent / each).is_file()
        name = each.rpartition("/")[2]
        assert not [other for other in others if f"/{name})" in other.read_text()], name
