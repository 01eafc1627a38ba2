"""The programs that docs/external-stores.md shows are programs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from penstock.testing import TopologyTestDriver

PAGE = Path(__file__).parents[2] / "docs" / "external-stores.md"


def test_what_is_shown_runs() -> None:
    names: dict[str, Any] = {}
    for code in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        exec(compile(code, str(PAGE), "exec"), names)
    driver = TopologyTestDriver(names["app"])
    driver.input_topic("payments", key=str, value=int).pipe_all([("ann", 5), ("ann", -2)])
    assert dict(driver.store("balances")) == {"ann": 3}
    assert names["keeper"].outbox
