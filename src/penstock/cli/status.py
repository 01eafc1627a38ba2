"""`penstock status`: a running application at a glance."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Annotated

import msgspec
import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from penstock.cli.answers import counted, print_answer, print_error
from penstock.cli.loading import AppFile
from penstock.cli.running import ApplicationId, Json, Running, StateDir, console
from penstock.cli.tables import FittingTable
from penstock.coordination.states import ApplicationState
from penstock.driver.overview import InstanceOverview, Overview, TaskOverview
from penstock.errors import ApplicationUnreachableError

_BAR_WIDTH = 24
_STYLES = {ApplicationState.RUNNING: "bold green", ApplicationState.REBALANCING: "bold yellow"}


def status(
    app: AppFile = "",
    application: ApplicationId = "",
    state_dir: StateDir = None,
    watch: Annotated[bool, typer.Option("--watch", help="Follow it until Ctrl-C.")] = False,
    interval: Annotated[
        float, typer.Option(min=0.1, max=3600, help="Seconds between two looks.")
    ] = 1.0,
    json: Json = False,
) -> None:
    running = Running(app, application, state_dir)
    if not watch:
        overview = running.overview()
        if json:
            print_answer("", msgspec.to_builtins(overview), as_json=True)
        else:
            console().print(shown(overview))
        return
    try:
        if json:
            _follow(running.overview, interval)
        else:
            _watch(running.overview, interval)
    except KeyboardInterrupt:
        return


def _follow(ask: Callable[[], Overview], interval: float) -> None:
    """One object a line, for programs."""
    overview = ask()
    while True:
        print_answer("", msgspec.to_builtins(overview), as_json=True)
        time.sleep(interval)
        overview = _asked_until_told(ask, interval, lambda why: print_error(why, as_json=True))


def _watch(ask: Callable[[], Overview], interval: float) -> None:
    before, asked = ask(), time.monotonic()
    with _screen() as show:

        def show_silence(why: ApplicationUnreachableError) -> None:
            show(silent(before, why, time.monotonic() - asked))

        show(shown(before))
        while True:
            time.sleep(interval)
            now, at = _asked_until_told(ask, interval, show_silence), time.monotonic()
            rate = max(now.records - before.records, 0) / (at - asked)
            show(shown(now, rate=rate))
            before, asked = now, at


@contextlib.contextmanager
def _screen() -> Iterator[Callable[[RenderableType], None]]:
    """What shows one look in the place of the last or, where that cannot be, below it."""
    where = console()
    if not where.is_terminal or where.is_dumb_terminal:
        yield lambda look: where.print(look, "")
        return
    with Live(console=where, auto_refresh=False) as live:
        yield lambda look: live.update(look, refresh=True)


def _asked_until_told(
    ask: Callable[[], Overview],
    interval: float,
    tell: Callable[[ApplicationUnreachableError], object],
) -> Overview:
    """The next answer: who watches an application wants to see it come back."""
    while True:
        try:
            return ask()
        except ApplicationUnreachableError as error:
            tell(error)
        time.sleep(interval)


def silent(last: Overview, why: ApplicationUnreachableError, seconds: float) -> RenderableType:
    """The last overview of an application that no longer answers, and since when."""
    told = f"{why.message}. All above is as of {seconds:,.0f} s ago; asking again"
    return Group(shown(last, is_last=True), Text(told, style="bold red"))


def shown(
    overview: Overview, *, rate: float | None = None, is_last: bool = False
) -> RenderableType:
    """An overview as a terminal shows it."""
    parts: list[RenderableType] = [_headline(overview, rate, is_last), _instances(overview)]
    if quiet := overview.kafka_silent_seconds:
        parts.append(Text(f"Kafka has not answered for {quiet:,.0f} s", style="bold red"))
    restoring = [task for task in overview.tasks if task.restores]
    if restoring:
        parts.append(_restores(restoring))
    waiting = [task for task in overview.tasks if task.state in ("unowned", "taking")]
    if waiting:
        names = ", ".join(task.task for task in waiting)
        parts.append(Text(f"Not served yet: {names}", style="yellow"))
    if overview.dropped:
        told = ", ".join(
            f"{count:,} {reason}" for reason, count in sorted(overview.dropped.items())
        )
        parts.append(Text(f"Dropped: {told}", style="yellow"))
    return Group(*parts)


def _headline(overview: Overview, rate: float | None, is_last: bool) -> Text:
    state = "paused" if overview.is_paused else overview.state
    style = _STYLES.get(ApplicationState(overview.state), "bold red")
    if is_last:
        state, style = f"last seen {state}", "bold red"
    line = Text.assemble((overview.application_id, "bold"), "  ", (state, style))
    if overview.waits_for:
        line.append(f": {overview.waits_for}")
    speed = "" if rate is None else f" ({rate:,.0f}/s)"
    line.append(
        f"\n{counted(len(overview.tasks), 'task')} on "
        f"{counted(len(overview.instances), 'instance')}, "
        f"lag {lag_text(total_lag(overview))}; {overview.records:,} records in{speed}, "
        f"{overview.outputs:,} out, {counted(overview.rebalances, 'rebalance')}\n"
        f"driver {overview.host} process {overview.pid}, generation {overview.generation}, "
        f"{overview.processing_guarantee}, Kafka {overview.bootstrap_servers}"
    )
    return line


def _instances(overview: Overview) -> FittingTable:
    numbers = ("standbys", "warm-ups", "lag")
    words = ("about", "tasks")
    table = FittingTable(
        "instance", "host", "process", *words, *numbers, right=numbers, wraps=words
    )
    for each in overview.instances:
        own = [task for task in overview.tasks if task.owner == each.name]
        table.add_row(
            each.name,
            each.host,
            str(each.pid),
            _standing(each),
            " ".join(task.task for task in own) or "-",
            str(each.standby),
            str(each.warm_up),
            lag_text(_sum(own)),
        )
    return table


def _standing(each: InstanceOverview) -> str:
    words = ["static"] if each.is_static else []
    words += ["away"] if each.is_away else []
    words += [f"{name}={value}" for name, value in sorted(each.tags.items())]
    return " ".join(words)


def _restores(tasks: list[TaskOverview]) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("restoring", "store", ""):
        table.add_column(name, overflow="fold")
    table.add_column("records", justify="right")
    for task in tasks:
        for each in task.restores:
            whole = max(each.end - each.start, 1)
            done = min(max(each.offset + 1 - each.start, 0), whole)
            bar = ProgressBar(total=whole, completed=done, width=_BAR_WIDTH)
            table.add_row(task.task, each.store, bar, f"{each.restored:,}")
    return table


def total_lag(overview: Overview) -> int:
    """How many records are to be read by all tasks; -1 while that is not known of one."""
    return _sum(overview.tasks)


def _sum(tasks: list[TaskOverview]) -> int:
    lags = [task.lag for task in tasks]
    return -1 if -1 in lags else sum(lags)


def lag_text(lag: int) -> str:
    """A lag in a few characters.

    >>> lag_text(1200), lag_text(-1)
    ('1,200', '?')
    """
    return "?" if lag < 0 else f"{lag:,}"
