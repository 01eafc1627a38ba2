"""What an instance's process loads."""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
import sys
import pyarrow as pa
from penstock.instance.process import keep_pandas_out

keep_pandas_out()
assert pa.array([1]).to_numpy().tolist() == [1]
assert "pandas" not in sys.modules
import pandas
assert pa.table({"a": [1]}).to_pandas().shape == (1, 1)
"""


def test_arrow_does_not_load_pandas_in_the_first_commit() -> None:
    subprocess.run([sys.executable, "-c", _PROGRAM], check=True)
