"""Count per key with Quix Streams, until SIGTERM. Runs in the peers' own environment."""

from __future__ import annotations

import argparse

from quixstreams import Application, State  # type: ignore[import-not-found]


def count(_: bytes, state: State) -> bytes:
    total = state.get("count", 0) + 1
    state.set("count", total)
    return int(total).to_bytes(8, "big")


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
    app = Application(
        broker_address=options.bootstrap_servers,
        consumer_group=options.application_id,
        auto_offset_reset="earliest",
        commit_interval=options.commit_interval_ms / 1000,
        processing_guarantee=options.guarantee.replace("_", "-"),
        state_dir=options.state_dir,
        loglevel="WARNING",
    )
    source = app.topic(options.input, key_deserializer="bytes", value_deserializer="bytes")
    sink = app.topic(options.output, key_serializer="bytes", value_serializer="bytes")
    app.dataframe(source).apply(count, stateful=True).to_topic(sink)
    app.run()


if __name__ == "__main__":
    main()
