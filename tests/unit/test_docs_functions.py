"""The programs that docs/functions.md shows are programs, and its list of functions is complete."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path

import pytest

from penstock.topology.expressions.kernels import EAGER, LAZY

PAGE = Path(__file__).parents[2] / "docs" / "functions.md"
WRITTEN = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "intdiv": "DIV",
    "mod": "%",
    "neg": "-x",
    "eq": "=",
    "neq": "<>",
    "lt": "<",
    "lte": "<=",
    "gt": ">",
    "gte": ">=",
    "nullsafeeq": "<=>",
    "isnull": "NULL",
}


def test_what_is_shown_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("functions_page")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    snippets = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    for code in snippets:
        exec(compile(code, str(PAGE), "exec"), vars(module))
    assert len(snippets) == 3


def test_every_function_is_listed() -> None:
    listed = PAGE.read_text().split("What can be used:")[1].split("Anything else")[0].lower()
    missing = [name for name in (*EAGER, *LAZY) if WRITTEN.get(name, name).lower() not in listed]
    assert missing == []
