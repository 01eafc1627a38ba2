"""The programs that docs/topology-changes.md shows are programs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs" / "topology-changes.md"


def test_what_is_shown_runs() -> None:
    shown = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(shown) == 2
    page: dict[str, Any] = {}
    for each in shown:
        exec(compile(each, str(PAGE), "exec"), page)
