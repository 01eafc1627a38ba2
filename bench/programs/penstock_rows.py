"""The rows' topologies with Penstock, one of them until SIGTERM."""

from __future__ import annotations

import argparse
import json
import time
from datetime import timedelta

import penstock as ps
from penstock.driver.events import CopiesChanged, Rebalanced

ONE_MINUTE = ps.tumbling(timedelta(minutes=1), grace=timedelta(seconds=5))
TEN_SECONDS = ps.join_window(timedelta(seconds=10), grace=timedelta(seconds=5))


def count(app: ps.Application, options: argparse.Namespace) -> None:
    records = app.stream(options.input, key=bytes, value=bytes)
    records.group_by_key().count("counts").to_stream().to(options.output)


def windowed_count(app: ps.Application, options: argparse.Namespace) -> None:
    records = app.stream(options.input, key=bytes, value=bytes)
    counts = records.group_by_key().windowed_by(ONE_MINUTE).count("counts")
    counts.suppress(ps.until_window_closes(), name="final").to_stream().to(options.output)


def lambda_reduce(app: ps.Application, options: argparse.Namespace) -> None:
    largest = (
        app.stream(options.input, key=str, value=int)
        .group_by_key()
        .reduce(lambda largest, value: value if value > largest else largest, "largest")
    )
    largest.to_stream().to(options.output)


def stream_table_join(app: ps.Application, options: argparse.Namespace) -> None:
    rows = app.table(options.other, "rows", key=str, value=str)
    records = app.stream(options.input, key=str, value=str)
    records.join(rows, lambda value, row: f"{value}+{row}", value=str).to(options.output)


def stream_stream_join(app: ps.Application, options: argparse.Namespace) -> None:
    right = app.stream(options.other, key=str, value=str)
    left = app.stream(options.input, key=str, value=str)
    pairs = left.join(right, lambda a, b: f"{a}+{b}", TEN_SECONDS, value=str, name="pairs")
    pairs.to(options.output)


def join_count(app: ps.Application, options: argparse.Namespace) -> None:
    """How many records of each key met a row of the table; its state moves while it runs."""
    rows = app.table(options.other, "rows", key=bytes, value=bytes)
    met = app.stream(options.input, key=bytes, value=bytes).join(
        rows, lambda value, row: value, value=bytes
    )
    met.group_by_key().count("counts").to_stream().to(options.output)
    app.on_event(print_places)


def print_places(event: object) -> None:
    """Who owns which task, and how much standbys lack, as bench/rows/failover.py reads it."""
    if isinstance(event, Rebalanced):
        for move in event.rebalance.active_moves:
            print(f"owner {move.task.partition} {move.target}", flush=True)
    elif isinstance(event, CopiesChanged):
        lags = [lag for copies in event.lags.values() for lag in copies.values()]
        print(f"lags {time.time():.3f} {json.dumps(lags)}", flush=True)


class RestorePrinter(ps.RestoreListener):
    """Prints what restores tell, as bench/restores.py reads it."""

    def on_restore_start(
        self, partition: ps.TopicPartition, store: str, starting_offset: int, ending_offset: int
    ) -> None:
        self.say("start", partition, 0)

    def on_restore_end(self, partition: ps.TopicPartition, store: str, total_restored: int) -> None:
        self.say("end", partition, total_restored)

    def on_restore_suspended(
        self, partition: ps.TopicPartition, store: str, total_restored: int
    ) -> None:
        self.say("suspended", partition, total_restored)

    def say(self, what: str, partition: ps.TopicPartition, records: int) -> None:
        now_ms = time.time_ns() // 1_000_000
        print(f"restore {what} {partition.partition} {records} {now_ms}", flush=True)


TOPOLOGIES = {
    each.__name__: each
    for each in (
        *(count, windowed_count, lambda_reduce, stream_table_join, stream_stream_join),
        join_count,
    )
}


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in (
        "bootstrap-servers",
        "application-id",
        "input",
        "output",
        "guarantee",
        "state-dir",
        "topology",
        "other",
    ):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--commit-interval-ms", type=int, required=True)
    options = parser.parse_args()
    app = ps.Application(
        options.application_id,
        bootstrap_servers=options.bootstrap_servers,
        processing_guarantee=options.guarantee,
        commit_interval=timedelta(milliseconds=options.commit_interval_ms),
        state_dir=options.state_dir,
    )
    TOPOLOGIES[options.topology](app, options)
    app.set_restore_listener(RestorePrinter())
    app.run()


if __name__ == "__main__":
    main()
