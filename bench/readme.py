"""`python -m bench.readme`: put the latest results into README.md, between its two marks."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.display import table_cells
from bench.errors import BenchError
from bench.lab import QUIET_SHARE
from bench.results import LATEST, read

README = Path(__file__).parent.parent / "README.md"
START = "<!-- bench:start -->"
END = "<!-- bench:end -->"
LEGEND = (
    "Medians over interleaved rounds (with a spread of 0 %, one run); in brackets what Penstock "
    "must reach by itself, and beside a peer its ratio to that one, and the ratio's target. "
    "`exact`: every result of every run was compared with what the input must give."
)
AGAIN = (
    "To make them again: `make bench`, or one row with `make bench ROW=count`. "
    "How it is measured: [bench/README.md](bench/README.md)."
)


def section(document: Mapping[str, Any]) -> str:
    """The results in Markdown: table, machine, versions, and how to make them again."""
    header, *lines = table_cells(document["rows"])
    table = [header, ["---"] * len(header), *lines]
    machine = document["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in document["versions"].items())
    dates = sorted({row["date"] for row in document["rows"] if "date" in row})
    period = dates[0] if len(dates) < 2 else f"{dates[0]} to {dates[-1]}"
    measured = (
        f"Measured {period} on {machine['cores']} cores ({machine['cpu']}), "
        f"{machine['memory_gib']:g} GiB, {machine['os']}, the broker {machine['broker']}; "
        f"{commits(document)}; {versions}."
    )
    for cpu, names in elsewhere(document).items():
        measured += f" On another machine ({cpu}): {', '.join(names)}."
    busy = [row["name"] for row in document["rows"] if row.get("others_share_max", 0) > QUIET_SHARE]
    if busy:
        names = ", ".join(dict.fromkeys(busy))
        measured += f" Other work ran on the machine meanwhile, so these say little: {names}."
    return "\n".join(
        [*("| " + " | ".join(cells) + " |" for cells in table), "", LEGEND, "", measured, "", AGAIN]
    )


def commits(document: Mapping[str, Any]) -> str:
    """At which commits the rows were measured.

    >>> commits({"commit": "7c", "rows": [{"name": "a", "commit": "5f"}, {"name": "b"}]})
    'commits 5f (a), 7c (b)'
    """
    found: dict[str, dict[str, None]] = {}
    for row in document["rows"]:
        found.setdefault(row.get("commit", document["commit"]), {})[row["name"]] = None
    return "commits " + ", ".join(f"{name} ({', '.join(each)})" for name, each in found.items())


def elsewhere(document: Mapping[str, Any]) -> dict[str, list[str]]:
    """The rows that were measured on other processors than the latest, by processor.

    >>> rows = [{"name": "a", "cpu": "old"}, {"name": "b", "cpu": "new"}, {"name": "c"}]
    >>> elsewhere({"machine": {"cpu": "new"}, "rows": rows})
    {'old': ['a']}
    """
    here = document["machine"]["cpu"]
    found: dict[str, list[str]] = {}
    for row in document["rows"]:
        names = found.setdefault(row.get("cpu", here), [])
        if row["name"] not in names:
            names.append(row["name"])
    found.pop(here, None)
    return found


def spliced(text: str, inside: str) -> str:
    """The text with what lies between the marks replaced; raise when the marks are not there."""
    before, start, rest = text.partition(START)
    _, end, after = rest.partition(END)
    if not start or not end:
        raise BenchError(f"README.md lacks {START} and {END}: put both where the table should be")
    return f"{before}{START}\n{inside}\n{END}{after}"


def main() -> int:
    document = read(LATEST)
    if document is None:
        print(f"There are no results in {LATEST.name}: run `make bench` first", file=sys.stderr)
        return 1
    README.write_text(spliced(README.read_text(), section(document)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
