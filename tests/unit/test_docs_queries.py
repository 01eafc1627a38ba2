"""The programs that docs/queries.md shows are programs."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path

import pytest

from penstock import errors
from penstock.errors import StoreUnavailableError

PAGE = Path(__file__).parents[2] / "docs" / "queries.md"
SNIPPET = re.compile(r"```python\n(.*?)```", re.DOTALL)


def test_what_is_shown_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("queries_page")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    page = vars(module)
    shown = SNIPPET.findall(PAGE.read_text())
    assert len(shown) == 3
    for code in shown:
        exec(compile(code, str(PAGE), "exec"), page)
    # Each asks, and is told that the application does not run.
    for ask in (page["look"], page["look_closely"], lambda: page["where_is"]("ann")):
        with pytest.raises(StoreUnavailableError):
            ask()


def test_every_error_of_a_query_is_named() -> None:
    text = PAGE.read_text()
    kinds = [each for each in vars(errors).values() if isinstance(each, type)]
    for kind in kinds:
        if issubclass(kind, errors.QueryError):
            assert kind.__name__ in text
