"""`penstock tasks`: every task of a running application, one line each."""

from __future__ import annotations

import msgspec

from penstock.cli.answers import print_answer
from penstock.cli.loading import AppFile
from penstock.cli.running import ApplicationId, Json, Running, StateDir, console
from penstock.cli.status import lag_text
from penstock.cli.tables import FittingTable
from penstock.driver.overview import CopyOverview, TaskOverview


def tasks(
    app: AppFile = "",
    application: ApplicationId = "",
    state_dir: StateDir = None,
    json: Json = False,
) -> None:
    found = Running(app, application, state_dir).overview().tasks
    if json:
        print_answer("", {"tasks": msgspec.to_builtins(found)}, as_json=True)
        return
    console().print(_table(found))


def _table(found: list[TaskOverview]) -> FittingTable:
    numbers = ("commits", "lag")
    words = ("position", "copies (lag)")
    names = ("task", "sub-topology", "state", "owner", "epoch")
    table = FittingTable(*names, *numbers, *words, right=numbers, wraps=words)
    for task in found:
        table.add_row(
            task.task,
            task.sub_topology,
            task.state,
            task.owner or "-",
            ".".join(map(str, task.epoch)),
            f"{task.commits:,}",
            lag_text(task.lag),
            _position(task.position),
            ", ".join(_copy(each) for each in task.copies) or "-",
        )
    return table


def _position(position: dict[str, dict[int, int]]) -> str:
    """Where a task stands, in a few characters.

    >>> _position({"beats": {0: 12}})
    'beats-0:12'
    """
    inputs = [(t, p, offset) for t, found in position.items() for p, offset in found.items()]
    return " ".join(f"{topic}-{p}:{offset}" for topic, p, offset in sorted(inputs)) or "-"


def _copy(copy: CopyOverview) -> str:
    return f"{copy.role} {copy.instance} ({lag_text(copy.lag)})"
