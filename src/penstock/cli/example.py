"""`penstock example list` and `penstock example run NAME`."""

from __future__ import annotations

import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.answers import counted, print_answer, print_progress
from penstock.cli.choices import completed_from
from penstock.cli.results import result_line, shown_key
from penstock.examples.catalogue import EXAMPLES, Example, find_example
from penstock.examples.running import ExampleRun, Listeners, Summary
from penstock.examples.watching import Result
from penstock.local.broker import EmbeddedKafka, KafkaOptions

SECONDS_WITHOUT_TERMINAL = 30.0

Name = Annotated[
    str,
    typer.Argument(
        autocompletion=completed_from(EXAMPLES), help="Its name, as `penstock example list` has it."
    ),
]

example = typer.Typer(no_args_is_help=True)


@example.command(
    "list",
    help="Print each example's name, and what it shows.",
    epilog="Example: penstock example list",
)
def list_examples(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    width = max(len(name) for name in EXAMPLES)
    lines = [f"{each.name:{width}}  {each.line}" for each in EXAMPLES.values()]
    facts = [
        {
            "name": each.name,
            "line": each.line,
            "file": str(each.file),
            "inputs": list(each.inputs),
            "outputs": list(each.outputs),
        }
        for each in EXAMPLES.values()
    ]
    print_answer("\n".join(lines), {"examples": facts}, as_json=json)


@example.command(
    "run",
    help="Run an example on a Kafka and Spark of its own, with test data.",
    epilog="Example: penstock example run word-count --seconds 10",
)
def run_example(
    name: Name,
    seconds: Annotated[
        float | None, typer.Option(min=0, help="End by itself so long after the first result.")
    ] = None,
    records: Annotated[
        int | None, typer.Option(min=1, help="End when the results of so many records are there.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object at the end.")] = False,
) -> None:
    chosen = find_example(name)
    if seconds is None and (json or not sys.stdout.isatty()):
        seconds = SECONDS_WITHOUT_TERMINAL
    latest: dict[str, dict[str, Any]] = defaultdict(dict)

    def show(result: Result) -> None:
        latest[result.topic][shown_key(result.key)] = result.value
        if not json:
            print(result_line(result), flush=True)

    summary = run_on_own_kafka(
        chosen,
        seconds=seconds,
        records=records,
        listeners=Listeners(on_result=show),
        report=print_progress,
    )
    print_answer(
        f"{chosen.name}: {counted(summary.sent, 'record')} sent, "
        f"{counted(summary.results, 'result')}.",
        {"example": chosen.name, **vars(summary), "latest": latest},
        as_json=json,
    )


def run_on_own_kafka(
    chosen: Example,
    *,
    seconds: float | None,
    records: int | None = None,
    listeners: Listeners,
    report: Callable[[str], None],
) -> Summary:
    """Run an example on a Kafka that lives as long as the run, and leave nothing behind."""
    with tempfile.TemporaryDirectory(prefix="penstock-example-") as directory:
        report("Starting a real Apache Kafka ...")
        options = KafkaOptions(directory=Path(directory) / "kafka", report=report)
        with EmbeddedKafka(options) as kafka:
            report(f"Kafka listens at {kafka.bootstrap_servers}; starting Spark ...")
            if chosen.time_scale > 1:
                report(pace_line(chosen))
            run = ExampleRun(
                chosen,
                kafka.bootstrap_servers,
                Path(directory) / "state",
                seconds=seconds,
                records=records,
                listeners=listeners,
            )
            return run.run()


def pace_line(chosen: Example) -> str:
    """How the example's clock runs.

    >>> pace_line(EXAMPLES["patient-monitoring"])
    'Time runs 20 times faster than the wall clock: a minute of test data takes 3 s'
    """
    return (
        f"Time runs {chosen.time_scale} times faster than the wall clock: "
        f"a minute of test data takes {60 / chosen.time_scale:g} s"
    )
