"""`penstock bootstrap`: fill a store from a table of history before the application runs."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec
import typer

from penstock.cli.answers import print_answer
from penstock.cli.loading import AppFile, load_application
from penstock.cli.progress import Bar
from penstock.coordination.history import parse_offsets
from penstock.errors import BootstrapError, UsageError

_KINDS = ("parquet", "table", "topic")


def bootstrap(
    application: AppFile,
    store: Annotated[str, typer.Option(help="The store to fill.")],
    history: Annotated[
        str, typer.Option("--from", help="parquet:/path, table:database.name or topic:NAME.")
    ],
    key: Annotated[str, typer.Option(help="The column of keys.")] = "key",
    value: Annotated[str, typer.Option(help="The column of values; null deletes.")] = "value",
    timestamp: Annotated[str | None, typer.Option(help="The column of times.")] = None,
    window_start: Annotated[
        str | None, typer.Option(help="For windows and sessions: the column of their start.")
    ] = None,
    window_end: Annotated[
        str | None, typer.Option(help="For sessions: the column of their end.")
    ] = None,
    offsets: Annotated[
        str | None,
        typer.Option(
            help="Where the stream goes on: topic:partition=offset,... or earliest, latest, or a "
            "time (2026-01-31T00:00:00Z). Without it: where the group stands."
        ),
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace all that the store holds.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    _check(history, offsets)
    app = load_application(application)
    with Bar(f"Filling {store}") as bar:
        bar.show(0)
        result = app.bootstrap(
            store,
            history,
            key=key,
            value=value,
            timestamp=timestamp,
            window_start=window_start,
            window_end=window_end,
            offsets=offsets,
            replace=replace,
        )
    lines = [f"{result.store}: {result.entries:,} entries in {result.seconds:.1f} s"]
    lines += [
        f"  goes on at {topic} partition {partition} offset {offset}"
        for topic, partitions in sorted(result.position.items())
        for partition, offset in sorted(partitions.items())
    ]
    if result.empty_stores:
        lines.append(f"  of the same tasks, still empty: {', '.join(result.empty_stores)}")
    print_answer("\n".join(lines), msgspec.to_builtins(result), as_json=json)


def _check(history: str, offsets: str | None) -> None:
    """Refuse at once what is written wrongly: Spark takes a while to start."""
    kind, _, name = history.partition(":")
    if kind not in _KINDS or not name:
        raise UsageError(
            f"--from is {history!r}", hint="Write parquet:/path, table:database.name or topic:NAME"
        )
    if offsets is not None and offsets not in ("earliest", "latest") and not _is_time(offsets):
        try:
            parse_offsets(offsets)
        except BootstrapError as error:
            raise UsageError(f"--offsets: {error.message}", hint=error.hint) from error


def _is_time(text: str) -> bool:
    if text.isdigit():
        return True  # in milliseconds
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True
