"""`penstock reset`: an application starts over, from positions that you choose."""

from __future__ import annotations

import dataclasses
import os
import time
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.answers import print_answer, print_progress
from penstock.cli.loading import AppFile, load_application
from penstock.cli.progress import Bar
from penstock.cli.times import FORM, milliseconds
from penstock.cli.usage import as_usage
from penstock.config import Config
from penstock.coordination.resets import Kind, Target, parse_duration
from penstock.driver.reset import LAST_STEP, Reset, ResetPlan, remove_state, state_directories
from penstock.driver.reset_extent import reset_by_name, reset_of_program
from penstock.errors import UsageError


def reset(
    file: AppFile = "",
    application: Annotated[
        str, typer.Option(help="An application by its id, without its program.")
    ] = "",
    input_topics: Annotated[
        str, typer.Option(help="With --application: what it reads, if nobody knows; a,b,c.")
    ] = "",
    internal_topics: Annotated[
        str, typer.Option(help="With --application: its own topics, these alone; a,b,c.")
    ] = "",
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
    if state_only and target is not None:
        raise UsageError(
            "--state-only leaves positions where they are", hint="Leave it out, or the position"
        )
    what = _Wanted(file, application, _listed(input_topics), _listed(internal_topics))
    config = what.config(bootstrap_servers, state_dir)
    if state_only:
        plan = _plan_of_state(config.state_dir, what.application_id)
        if execute:
            remove_state(plan.directories)
    else:
        tool = what.reset(config)
        plan = tool.plan(target or Target())
        if execute:
            print_progress(f"Resetting {what.application_id}")
            with Bar("Resetting") as bar:
                tool.carry_out(plan, lambda step, told: bar.show(step - 1, LAST_STEP, told))
    again = f"penstock reset {what} --state-only --execute"
    print_answer(_text(plan, again, executed=execute), _data(plan, executed=execute), as_json=json)


class _Wanted:
    """The application that is meant: by its program, or by its id."""

    def __init__(
        self, file: str, application_id: str, inputs: list[str], internal: list[str]
    ) -> None:
        if bool(file) == bool(application_id):
            raise UsageError("Which application?", hint="Give app.py, or --application ID")
        if file and (inputs or internal):
            raise UsageError(
                f"{file} says itself which topics it has",
                hint="--input-topics and --internal-topics go with --application",
            )
        self._place = file or f"--application {application_id}"
        self._app = load_application(file) if file else None
        self.application_id = self._app.application_id if self._app else application_id
        self._inputs = inputs
        self._internal = internal

    def __str__(self) -> str:
        return self._place

    def config(self, bootstrap_servers: str, state_dir: Path | None) -> Config:
        """Its options, with what the command line says."""
        config = self._app.config if self._app else Config.build({}, os.environ)
        return dataclasses.replace(
            config,
            state_dir=state_dir or config.state_dir,
            bootstrap_servers=bootstrap_servers or config.bootstrap_servers,
        )

    def reset(self, config: Config) -> Reset:
        """What plans its reset, and does it."""
        if self._app:
            return reset_of_program(self.application_id, self._app.build(), config)
        return reset_by_name(
            self.application_id,
            config,
            input_topics=self._inputs,
            internal_topics=self._internal,
        )


def _plan_of_state(state_dir: Path, application_id: str) -> ResetPlan:
    """What there is to remove on this machine, and nothing else."""
    found = tuple(state_directories(state_dir, application_id))
    return ResetPlan(
        application_id=application_id, positions={}, standing={}, topics=(), directories=found
    )


def _listed(text: str) -> list[str]:
    """Names with commas between them.

    >>> _listed("a, b,,")
    ['a', 'b']
    """
    return [name for each in text.split(",") if (name := each.strip())]


def _target(**given: int | None) -> Target | None:
    """The one that was asked for, if one was.

    >>> _target(earliest=None, shift=-5)
    Target(kind='shift', number=-5)
    """
    chosen = {name: value for name, value in given.items() if value is not None}
    if len(chosen) > 1:
        options = ", ".join(sorted(chosen))
        raise UsageError(f"Positions cannot go to several places: {options}", hint="Choose one")
    if not chosen:
        return None
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

    None is before 1970: to Kafka, negative times are words for something else.

    >>> _milliseconds("1970-01-01T00:00:01Z")
    1000
    """
    try:
        return max(milliseconds(text), 0)
    except (ValueError, OverflowError) as error:
        raise UsageError(f"{text!r} is no time", hint=f"Use {FORM}") from error


def _back(text: str, now: float) -> int:
    with as_usage():
        back = parse_duration(text).total_seconds()
    return max(int((now - back) * 1000), 0)


def _text(plan: ResetPlan, again: str, *, executed: bool) -> str:
    would = "" if executed else "would be "
    lines = [
        f"{topic}-{partition}: {plan.standing.get((topic, partition), '-')} -> {offset}"
        for (topic, partition), offset in sorted(plan.positions.items())
    ]
    lines += [f"{would}deleted, and made anew: {name}" for name in plan.topics]
    lines += [f"{would}removed: {path}" for path in plan.directories]
    if not lines:
        return "\n".join(["There is nothing to remove", *plan.notes])
    lines += plan.notes
    if not executed:
        lines.append("Nothing was changed. Add --execute to do it.")
    elif plan.positions:
        lines.append(f"Done. On other machines: {again}")
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
        "notes": list(plan.notes),
    }
