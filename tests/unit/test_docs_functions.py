"""The list of functions on docs/functions.md is complete."""

from __future__ import annotations

from pathlib import Path

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


def test_every_function_is_listed() -> None:
    listed = PAGE.read_text().split("What can be used:")[1].split("Anything else")[0].lower()
    missing = [name for name in (*EAGER, *LAZY) if WRITTEN.get(name, name).lower() not in listed]
    assert missing == []
