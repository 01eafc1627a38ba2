"""The programs that the README shows are programs."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"


def test_the_first_program_passes_the_test_that_is_shown_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, test = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)
    assert program.startswith("# pulse_monitor.py\n")
    (tmp_path / "pulse_monitor.py").write_text(program)
    (tmp_path / "shown_test.py").write_text(test)
    monkeypatch.syspath_prepend(tmp_path)
    # Set and taken away again, so that what the import puts there is removed in the end.
    monkeypatch.setitem(sys.modules, "pulse_monitor", None)
    del sys.modules["pulse_monitor"]
    runpy.run_path(str(tmp_path / "shown_test.py"))["test_beats_are_counted"]()
