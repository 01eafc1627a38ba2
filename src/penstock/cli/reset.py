"""`penstock reset`: an application starts over, from positions that you choose."""

from __future__ import annotations

import dataclasses
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.answers import print_answer, print_progress
from penstock.cli.loading import load_application
from penstock.coordination.resets import Kind, Target, parse_duration
from penstock.driver.reset import Reset, ResetPlan, remove_state, state_directories
from penstock.errors import ConfigError


def reset(
    application: Annotated[str, typer.Argument(help="A Python file, and a name: app.py[:app]")],
    to_earliest: Annotated[
        bool, typer.Option("--to-earliest", help="To the start of the input; the default.")
    ] = False,
    to_latest: Annotated[
        bool, typer.Option("--to-latest", help="To the end of the input: skip all there is.")
    ] = False,
    to_offset: Annotated[
        int | None, typer.Option(min=0, help="To this offset of each partition.")
    ] = None,
    to_datetime: Annotated[
        str | None, typer.Option(help="To the first records of a time: 2026-01-31T00:00:00Z.")
    ] = None,
    by_duration: Annotated[
        str | None, typer.Option(help="To so long ago: 90s, 15m, 2h, 1d or P1DT2H.")
    ] = None,
    shift_by: Annotated[
        int | None, typer.Option(help="So many records on or, if negative, back.")
    ] = None,
    bootstrap_servers: Annotated[str, typer.Option(help="Where Kafka listens.")] = "",
    state_dir: Annotated[Path | None, typer.Option(help="Where the state is.")] = None,
    state_only: Annotated[
        bool, typer.Option("--state-only", help="Only remove the state on this machine's disk.")
    ] = False,
    execute: Annotated[
        bool, typer.Option("--execute", help="Do it; else it is only said what would be done.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    target = _target(
        earliest=to_earliest or None,
        latest=to_latest or None,
        offset=to_offset,
        time=None if to_datetime is None else _milliseconds(to_datetime),
        back=None if by_duration is None else _back(by_duration, time.time()),
        shift=shift_by,
    )
    app = load_application(application)
    config = dataclasses.replace(app.config, state_dir=state_dir or app.config.state_dir)
    if bootstrap_servers:
        config = dataclasses.replace(config, bootstrap_servers=bootstrap_servers)
    if state_only:
        found = tuple(state_directories(config.state_dir, app.application_id))
        plan = ResetPlan(
            application_id=app.application_id,
            positions={},
            standing={},
            topics=(),
            directories=found,
        )
        if execute:
            remove_state(found)
    else:
        tool = Reset(app.application_id, app.build(), config)
        plan = tool.plan(target)
        if execute:
            print_progress(f"Resetting {app.application_id}")
            tool.carry_out(plan)
    print_answer(_text(plan, executed=execute), _data(plan, executed=execute), as_json=json)


def _target(**given: int | None) -> Target:
    """The one that was asked for.

    >>> _target(earliest=None, shift=-5)
    Target(kind='shift', number=-5)
    """
    chosen = {name: value for name, value in given.items() if value is not None}
    if len(chosen) > 1:
        options = ", ".join(sorted(chosen))
        raise ConfigError(f"Positions cannot go to several places: {options}", hint="Choose one")
    if not chosen:
        return Target()
    [(name, value)] = chosen.items()
    kinds: dict[str, Kind] = {
        "earliest": "earliest",
        "latest": "latest",
        "offset": "offset",
        "time": "time",
        "back": "time",
        "shift": "shift",
    }
    return Target(kind=kinds[name], number=int(value))


def _milliseconds(text: str) -> int:
    """A time as people write it, in milliseconds; without a zone it is UTC.

    >>> _milliseconds("1970-01-01T00:00:01Z")
    1000
    """
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigError(f"{text!r} is no time", hint="Use 2026-01-31T00:00:00Z") from error
    return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


def _back(text: str, now: float) -> int:
    return int((now - parse_duration(text).total_seconds()) * 1000)


def _text(plan: ResetPlan, *, executed: bool) -> str:
    would = "" if executed else "would be "
    lines = [
        f"{topic}-{partition}: {plan.standing.get((topic, partition), '-')} -> {offset}"
        for (topic, partition), offset in sorted(plan.positions.items())
    ]
    lines += [f"{would}deleted, and made anew: {name}" for name in plan.topics]
    lines += [f"{would}removed: {path}" for path in plan.directories]
    if not lines:
        lines = ["There is nothing to remove"]
    if not executed:
        lines.append("Nothing was changed. Add --execute to do it.")
    elif plan.positions:
        lines.append("Done. On other machines: penstock reset --state-only --execute")
    return "\n".join(lines)


def _data(plan: ResetPlan, *, executed: bool) -> dict[str, object]:
    positions: dict[str, dict[int, dict[str, int | None]]] = {}
    for (topic, partition), offset in sorted(plan.positions.items()):
        before = plan.standing.get((topic, partition))
        positions.setdefault(topic, {})[partition] = {"from": before, "to": offset}
    return {
        "application_id": plan.application_id,
        "executed": executed,
        "positions": positions,
        "topics": list(plan.topics),
        "directories": [str(path) for path in plan.directories],
    }
