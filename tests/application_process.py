"""The application that tests start, kill and start again; an argument names its topology."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import penstock as ps
from penstock.driver.events import Event, Notice, Rebalanced, StateChanged


def count(app: ps.Application, source: str, results: str) -> None:
    app.stream(source, key=bytes, value=bytes).group_by_key().count("counts").to_stream().to(
        results
    )


def rekeyed_count(app: ps.Application, source: str, results: str) -> None:
    stream = app.stream(source, key=str, value=str)
    stream.group_by(lambda key, value: value, key=str).count("counts").to_stream().to(results)


def raising(app: ps.Application, source: str, results: str) -> None:
    def explode(value: str) -> str:
        if value == "bad":
            raise RuntimeError("this value is bad")
        return value

    stream = app.stream(source, key=str, value=str).map_values(explode, value=str)
    stream.group_by_key().count("counts").to_stream().to(results)


def numbers(app: ps.Application, source: str, results: str) -> None:
    app.stream(source, key=str, value=int).group_by_key().count("counts").to_stream().to(results)


TOPOLOGIES: dict[str, Callable[[ps.Application, str, str], None]] = {
    each.__name__: each for each in (count, rekeyed_count, raising, numbers)
}


def show(event: Event) -> None:
    if isinstance(event, StateChanged):
        print(f"state {event.new}", flush=True)
    elif isinstance(event, Notice):
        print(f"notice {event.text}", flush=True)
    elif isinstance(event, Rebalanced):
        print(event.rebalance, flush=True)


def main() -> None:
    order: dict[str, Any] = json.loads(sys.argv[1])
    options = order["options"]
    for name in list(options):
        if name.endswith(("_interval", "_timeout")):
            options[name] = timedelta(milliseconds=options[name])
    app = ps.Application(order["application_id"], **options)
    TOPOLOGIES[order["topology"]](app, order["source"], order["results"])
    app.on_event(show)
    try:
        app.run()
    except ps.PenstockError as error:
        print(f"error {error.code}: {error}", flush=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
