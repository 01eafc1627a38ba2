"""The defaults on docs/concepts/changelogs.md are the command's."""

from __future__ import annotations

import re
from pathlib import Path

from penstock.changelog.topic_plan import KAFKA_DEFAULTS

PAGE = Path(__file__).parents[2] / "docs" / "concepts" / "changelogs.md"


def test_defaults_are_kafkas() -> None:
    rows = dict(re.findall(r"^\| `([a-z.]+)` \| ([\d.]+) \|", PAGE.read_text(), re.MULTILINE))
    assert rows == KAFKA_DEFAULTS
