"""`python -m bench [ROW]`: run the benchmark, or one row of it; exit 1 if a target is missed."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from bench import results
from bench.display import Terminal, results_table
from bench.errors import BenchError
from bench.lab import Lab, Settings
from bench.machine import commit, machine, versions
from bench.rows import ROWS
from bench.systems import System, kafka_streams, penstock, quix_streams
from penstock.local.broker import EmbeddedKafka, KafkaOptions
from penstock.local.jars import STREAMS, ensure

REPOSITORY = Path(__file__).parent.parent
BROKER_HEAP_MIB = 1024
RECORDS_HELP = "measured in row count; the other rows of throughput scale with it"


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    settings = Settings(
        rounds=options.rounds,
        records=options.records,
        seconds=options.seconds,
        systems=tuple(options.systems),
        quix_processes=options.quix_processes,
        stories=tuple(options.stories),
    )
    # A log file has no width of its own; a table that is cut off there says nothing.
    console = Console() if sys.stdout.isatty() else Console(width=160)
    names = [options.row] if options.row else list(ROWS)
    failed = False
    # As on Ctrl-C: the systems, the broker and their files are cleared up on the way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with laboratory(options, settings, console) as lab:
        document = results.read(results.LATEST)
        rows: list[dict[str, Any]] = []
        for name in names:
            try:
                made_rows = ROWS[name](lab)
                busiest = lab.take_busiest()
                made = [described(row, lab, busiest=busiest) for row in made_rows]
            except BenchError as error:
                lab.display.failure(name, str(error))
                failed = True
                continue
            rows += made
            # After each row: an hour of figures must not hang on the last row's luck.
            document = keep(document, made, lab, console)
    if rows:
        console.print(results_table(rows))
    return 1 if failed or not all(row["met"] for row in rows) else 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    full = Settings()
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("row", nargs="?", default="", metavar="ROW", help=", ".join(ROWS))
    parser.add_argument("--rounds", type=int, default=full.rounds)
    parser.add_argument("--records", type=int, default=full.records, help=RECORDS_HELP)
    parser.add_argument("--seconds", type=int, default=full.seconds, help="measured, row latency")
    parser.add_argument("--systems", nargs="+", default=list(full.systems), choices=full.systems)
    parser.add_argument("--quix-processes", type=int, default=full.quix_processes)
    parser.add_argument("--stories", nargs="+", default=[], help="of row failover, such as child")
    parser.add_argument("--bootstrap-servers", default="", help="a broker that runs already")
    options = parser.parse_args(arguments)
    if options.row and options.row not in ROWS:
        parser.error(f"there is no row {options.row!r}: rows are {', '.join(ROWS)}")
    return options


@contextmanager
def laboratory(options: argparse.Namespace, settings: Settings, console: Console) -> Iterator[Lab]:
    """Get the systems ready, start a broker, and clear up afterwards."""
    with (
        tempfile.TemporaryDirectory(prefix="penstock-bench-") as name,
        Terminal(console) as display,
    ):
        directory = Path(name)
        display.status("getting the systems ready")
        systems = prepared(settings, directory)
        display.status("starting Kafka")
        with broker(options.bootstrap_servers, directory / "kafka") as bootstrap_servers:
            yield Lab(
                bootstrap_servers=bootstrap_servers,
                systems=systems,
                directory=directory,
                display=display,
                settings=settings,
            )


def prepared(settings: Settings, directory: Path) -> dict[str, System]:
    """Install and compile what the chosen systems need."""
    names = settings.systems
    systems: dict[str, System] = {}
    if "penstock" in names:
        systems["penstock"] = penstock.system()
    if "kafka_streams" in names:
        systems["kafka_streams"] = kafka_streams.system(
            list(ensure(STREAMS)), directory / "classes"
        )
    if "quix_streams" in names:
        systems["quix_streams"] = quix_streams.system(
            REPOSITORY / ".venv-bench", processes=settings.quix_processes
        )
    return systems


@contextmanager
def broker(bootstrap_servers: str, directory: Path) -> Iterator[str]:
    if bootstrap_servers:
        yield bootstrap_servers
        return
    with EmbeddedKafka(KafkaOptions(directory=directory, heap_mib=BROKER_HEAP_MIB)) as kafka:
        yield kafka.bootstrap_servers


def described(row: results.Row, lab: Lab, *, busiest: float) -> dict[str, Any]:
    """The row with what is needed to judge it later, when other rows have been run again."""
    settings = {system.name: system.settings for system in lab.systems.values()}
    return {
        **row.to_json(),
        "settings": settings,
        "others_share_max": round(busiest, 2),
        "commit": commit(REPOSITORY),
        "date": datetime.now(UTC).date().isoformat(),
    }


def keep(
    document: dict[str, Any] | None, rows: list[dict[str, Any]], lab: Lab, console: Console
) -> dict[str, Any] | None:
    """Write the rows to the results file, unless this was less than the benchmark."""
    if lab.settings != Settings():
        console.print("Not kept: fewer rounds, records, seconds or systems than the benchmark has.")
        return document
    document = results.merged(
        document,
        rows,
        commit=commit(REPOSITORY),
        machine=machine(),
        versions=versions(lab.systems),
    )
    results.write(results.LATEST, document)
    return document


if __name__ == "__main__":
    sys.exit(main())
