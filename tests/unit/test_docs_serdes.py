"""The programs that docs/serdes.md shows are programs."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "serdes.md"
SNIPPET = re.compile(r"(<!-- needs: (?P<needs>\w+) -->\n)?```python\n(?P<code>.*?)```", re.DOTALL)


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A module for the page's names: its classes are found where they say that they are."""
    module = types.ModuleType("serdes_page")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return vars(module)


def run(page: dict[str, Any], *, needs: str | None) -> int:
    """Run the page's snippets in its order, those that need something else left out."""
    shown = [each for each in SNIPPET.finditer(PAGE.read_text()) if each["needs"] in (None, needs)]
    for each in shown:
        exec(compile(each["code"], str(PAGE), "exec"), page)
    return len(shown)


def test_what_is_shown_runs(page: dict[str, Any]) -> None:
    assert run(page, needs=None) == 5


def test_what_is_shown_of_registries_runs(page: dict[str, Any]) -> None:
    assert run(page, needs="registry") == 6
