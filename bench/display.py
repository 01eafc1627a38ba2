"""The terminal: what goes on now, a line per run, and the table at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

from rich.console import Console
from rich.table import Table
from rich.text import Text

TITLES = {"penstock": "Penstock", "kafka_streams": "Kafka Streams", "quix_streams": "Quix Streams"}


class Terminal:
    """Prints a line per run; keeps one changing line of status where there is a terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._status = console.status("starting")

    def __enter__(self) -> Self:
        self._status.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._status.stop()

    def status(self, text: str) -> None:
        self._status.update(text)

    def warning(self, text: str) -> None:
        self._print("yellow", "", text)

    def figure(self, row: str, system: str, guarantee: str, text: str) -> None:
        self._print("bold", row, f" {system}, {guarantee}: {text}")

    def failure(self, row: str, text: str) -> None:
        self._print("bold red", row, f": {text}")

    def _print(self, style: str, name: str, text: str) -> None:
        # As styled text, not markup: a command line in brackets would be taken for a style.
        line = Text.assemble((name, style), text) if name else Text(text, style)
        self._console.print(line, soft_wrap=True)


def results_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """The rows side by side, as `table_cells` words them."""
    table = Table(title="medians over the rounds")
    header, *lines = table_cells(rows)
    for title in header:
        table.add_column(title, justify="left" if title in ("row", "guarantee") else "right")
    for line in lines:
        table.add_row(*line)
    return table


def table_cells(rows: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """A header and a line per row; the terminal and the README show the same."""
    peers = list(dict.fromkeys(peer for row in rows for peer in row["peers"]))
    header = ["row", "guarantee", "unit", "Penstock", *(TITLES.get(p, p) for p in peers)]
    lines = [[*header, "spread", "exact", "met"]]
    for row in rows:
        cells = [row["name"], row["guarantee"].replace("_", "-"), row["unit"]]
        cells.append(own_cell(row))
        cells += [peer_cell(row, peer) for peer in peers]
        cells += [f"{row['spread']:.0%}", yes(row["exact"]), yes(row["met"])]
        lines.append(cells)
    return lines


def own_cell(row: Mapping[str, Any]) -> str:
    """Penstock's figure, and what it must reach by itself, if that is said.

    >>> own_cell({"penstock": 1.6, "limit": 3.0}), own_cell({"penstock": 2091.0, "least": 2000})
    ('1.6 (at most 3)', '2,091 (at least 2,000)')
    """
    text = number(row["penstock"])
    for word, bound in (("at most", row.get("limit")), ("at least", row.get("least"))):
        if bound is not None:
            text += f" ({word} {bound:,g})"
    return text


def peer_cell(row: Mapping[str, Any], peer: str) -> str:
    """A peer's figure, then Penstock's ratio to it and the target of that ratio, if any."""
    if peer not in row["peers"]:
        return "-"
    text = number(row["peers"][peer])
    if peer in row["ratios"]:
        text += f" (x {row['ratios'][peer]:.2f}"
        if peer in row["targets"]:
            text += f", target {row['targets'][peer]:g}"
        text += ")"
    return text


def number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}"


def yes(value: bool) -> str:
    return "yes" if value else "no"
