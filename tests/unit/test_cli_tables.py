"""Tables on terminals of any width: nothing is cut off, and nothing is taken for markup."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from penstock.cli.tables import FittingTable


def shown(width: int, *, tasks: str = "0_0 0_1", name: str = "instance.1") -> list[str]:
    table = FittingTable("instance", "process", "tasks", "lag", right=["lag"], wraps=["tasks"])
    table.add_row(name, "28571", tasks, "1,200")
    table.add_row("second", "4726", "-", "0")
    where = Console(file=io.StringIO(), width=width, highlight=False)
    where.print(table)
    assert isinstance(where.file, io.StringIO)
    lines = [line.rstrip() for line in where.file.getvalue().splitlines()]
    assert max(map(len, lines)) <= width
    return lines


def test_where_there_is_room_it_is_a_table() -> None:
    assert shown(80) == [
        "instance    process  tasks      lag",
        "instance.1  28571    0_0 0_1  1,200",
        "second      4726     -            0",
    ]


def test_where_there_is_none_each_row_is_a_block() -> None:
    assert shown(24) == [
        "instance.1",
        "  process 28571",
        "  tasks 0_0 0_1",
        "  lag 1,200",
        "second  process 4726",
        "  lag 0",
    ]


def test_a_column_that_says_nothing_goes_before_the_table_does() -> None:
    assert shown(34, tasks="-")[0] == "instance    process  tasks    lag"
    assert shown(30, tasks="-")[0] == "instance    process    lag"


def test_many_words_go_into_several_lines_of_the_table() -> None:
    many = " ".join(f"0_{number}" for number in range(9))
    lines = shown(50, tasks=many)
    assert lines[0].startswith("instance    process  tasks")
    assert " ".join(lines).count("0_") == 9


@pytest.mark.parametrize("width", [8, 24, 40, 80])
def test_nothing_is_lost_or_taken_for_markup(width: int) -> None:
    text = "".join("".join(shown(width, name="[red]ward-7-instance-0.1")).split())
    assert "[red]ward-7-instance-0.1" in text
    assert "28571" in text


@pytest.mark.parametrize("width", range(20, 100, 3))
def test_two_columns_that_wrap_lose_nothing(width: int) -> None:
    position = "clinic-orders-by-customer-repartition-0:1204"
    table = FittingTable("task", "position", "copies", wraps=["position", "copies"])
    table.add_row("0_0", f"{position} {position}", "standby instance-1 (0)")
    where = Console(file=io.StringIO(), width=width, highlight=False)
    where.print(table)
    assert isinstance(where.file, io.StringIO)
    assert "\N{HORIZONTAL ELLIPSIS}" not in where.file.getvalue()
