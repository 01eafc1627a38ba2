"""What docs/concepts/changelogs.md shows runs, and its defaults are the command's."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from penstock.changelog.topic_plan import KAFKA_DEFAULTS

PAGE = Path(__file__).parents[2] / "docs" / "concepts" / "changelogs.md"


def test_what_is_shown_runs() -> None:
    shown = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert shown
    page: dict[str, Any] = {}
    for each in shown:
        exec(compile(each, str(PAGE), "exec"), page)


def test_defaults_are_kafkas() -> None:
    rows = dict(re.findall(r"^\| `([a-z.]+)` \| ([\d.]+) \|", PAGE.read_text(), re.MULTILINE))
    assert rows == KAFKA_DEFAULTS
