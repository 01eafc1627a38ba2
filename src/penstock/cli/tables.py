"""Tables that stay readable where a terminal is narrow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

_BETWEEN = "  "
_WRAPPED = 18
"""How narrow a column may become that has several words."""
_NOTHING = ("", "-")


class FittingTable:
    """Rows below each other or, where they do not fit, a block for each: nothing is cut off.

    Names in `right` are of numbers, and those in `wraps` of columns whose words may go into
    several lines.
    """

    def __init__(self, *names: str, right: Iterable[str] = (), wraps: Iterable[str] = ()) -> None:
        self._names = names
        self._right = frozenset(right)
        self._wraps = frozenset(wraps)
        self._rows: list[tuple[str, ...]] = []

    def add_row(self, *cells: str) -> None:
        """Add a row, a cell for each name."""
        self._rows.append(cells)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        columns = {name: cells for name, *cells in zip(self._names, *self._rows, strict=True)}
        told = {name: cells for name, cells in columns.items() if not set(cells) <= set(_NOTHING)}
        for chosen in (columns, told):
            if self._width_min(chosen) <= options.max_width:
                yield self._table(chosen)
                return
        for row in self._rows:
            yield from self._block(row, options.max_width)

    def _width_min(self, columns: dict[str, list[str]]) -> int:
        """The least width in which a table has all its words whole."""
        widths = [self._column_width(name, cells) for name, cells in columns.items()]
        return sum(widths) + len(_BETWEEN) * (len(widths) - 1)

    def _column_width(self, name: str, cells: list[str]) -> int:
        whole = max(map(cell_len, (name, *cells)))
        if name not in self._wraps:
            return whole
        words = (word for cell in cells for word in cell.split())
        return min(whole, max(_WRAPPED, *map(cell_len, (name, *words))))

    def _table(self, columns: dict[str, list[str]]) -> Table:
        table = Table(box=None, pad_edge=False)
        for name in columns:
            # Words of the others are whole: the table is only made where they fit.
            is_whole = name not in self._wraps
            table.add_column(
                Text(name),
                justify="right" if name in self._right else "left",
                no_wrap=is_whole,
                overflow="fold",
            )
        for row in zip(*columns.values(), strict=True):
            table.add_row(*map(Text, row))
        return table

    def _block(self, row: tuple[str, ...], width: int) -> Iterator[Text]:
        facts = [f"{name} {cell}" for name, cell in zip(self._names, row, strict=True)]
        said = [fact for fact, cell in zip(facts, row, strict=True) if cell not in _NOTHING]
        for number, line in enumerate(_flowing([row[0], *said[1:]], width)):
            text = Text(line, overflow="fold")
            if number == 0:
                text.stylize("bold", 0, len(row[0]))
            yield text


def _flowing(facts: Iterable[str], width: int) -> Iterator[str]:
    """As many of them in a line as fit; those after the first begin further in.

    >>> list(_flowing(["ward-7", "process 42", "lag 0"], 20))
    ['ward-7  process 42', '  lag 0']
    """
    line = ""
    for each in facts:
        longer = f"{line}{_BETWEEN}{each}" if line else each
        if line and cell_len(longer) > width:
            yield line
            longer = f"{_BETWEEN}{each}"
        line = longer
    if line:
        yield line
