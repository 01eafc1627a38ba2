"""The programs that docs/custom-stores.md shows are programs, and its store keeps the contract."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path

import pytest

from penstock.testing import TopologyTestDriver

PAGE = Path(__file__).parents[2] / "docs" / "custom-stores.md"
SNIPPET = re.compile(r"```python\n(.*?)```", re.DOTALL)


def test_what_is_shown_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("custom_stores_page")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    page = vars(module)
    shown = SNIPPET.findall(PAGE.read_text())
    assert len(shown) == 4
    for code in shown:
        exec(compile(code, str(PAGE), "exec"), page)
    driver = TopologyTestDriver(page["app"])
    numbers = driver.input_topic("numbers", key=int, value=str)
    numbers.pipe_all([(n, "x") for n in (1, 64, 1, 65, 64, 2)])
    first = driver.output_topic("first-only", key=int, value=str).read_pairs()
    assert [key for key, _ in first] == [1, 64, 65, 2]
    assert sorted(driver.store("seen-numbers")) == [b"s\x00\x00\x00\x00", b"s\x00\x00\x00\x01"]
