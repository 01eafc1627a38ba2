"""Count per key with Penstock, until SIGTERM."""

from __future__ import annotations

import argparse
from datetime import timedelta

import penstock as ps


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in (
        "bootstrap-servers",
        "application-id",
        "input",
        "output",
        "guarantee",
        "state-dir",
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
    (
        app.stream(options.input, key=bytes, value=bytes)
        .group_by_key()
        .count("counts")
        .to_stream()
        .to(options.output)
    )
    app.run()


if __name__ == "__main__":
    main()
