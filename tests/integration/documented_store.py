"""The store that docs/custom-stores.md shows, for instances to import."""

from __future__ import annotations

import re
from pathlib import Path

_PAGE = Path(__file__).parents[2] / "docs" / "custom-stores.md"
_shown = re.findall(r"```python\n(.*?)```", _PAGE.read_text(), re.DOTALL)
exec(compile(_shown[0], str(_PAGE), "exec"), globals())
