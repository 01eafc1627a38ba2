"""`penstock records send` and `records read`: a topic's records, by the program's types."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import confluent_kafka
import typer
from confluent_kafka import Producer

from penstock.changelog.kafka_failures import kafka_error, refusals_named, unreachable
from penstock.changelog.topic_admin import TopicAdmin
from penstock.cli.answers import counted, print_answer, print_progress
from penstock.cli.loading import AppFile, load_application
from penstock.cli.progress import Bar
from penstock.cli.record_lines import Encoded, encode_lines, encode_text, record_line, written
from penstock.config import Config
from penstock.driver.setup import check_broker
from penstock.errors import ConfigError, TopicMissingError, UsageError
from penstock.examples.catalogue import ExampleTopic, inputs_of, outputs_of
from penstock.examples.watching import Result, Watcher

records = typer.Typer(no_args_is_help=True)

Topic = Annotated[str, typer.Argument(help="A topic that the program reads or writes.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]

_FLUSH_SECONDS = 30.0
_ROOM_SECONDS = 0.5
_STANDARD_INPUT = "-"


@records.command(
    "send",
    help="Send records to a topic, with keys and values of the program's types.",
    epilog="Example: penstock records send app.py pulse-events ann=71 bob=64",
)
def send(
    application: AppFile,
    topic: Topic,
    pairs: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE...", help="Texts, numbers or JSON.")
    ] = None,
    file: Annotated[
        str,
        typer.Option(
            metavar="PATH",
            help="Send those of a file, or of standard input with -: one a line, as `records "
            "read` prints them, which is KEY, two blanks, VALUE; (deleted) is no value. A text "
            "with a line break or two blanks is a JSON string.",
        ),
    ] = "",
    json: Json = False,
) -> None:
    if bool(pairs) == bool(file):
        raise UsageError(
            "There are records to send here and in a file" if file else "There is nothing to send",
            hint="Give KEY=VALUE, or --file PATH",
        )
    config, found = _topic(application, topic)
    if file:
        encoded = encode_lines(found, _lines(file), name=file)
    else:
        encoded = [encode_pair(found, pair) for pair in pairs or ()]
    _send(config, topic, encoded)
    told = f"{counted(len(encoded), 'record')} sent to {topic}."
    print_answer(told, {"sent": len(encoded)}, as_json=json)


@records.command(
    "read",
    help="Print a topic's committed records, from its start to its end.",
    epilog="Example: penstock records read app.py pulse-totals",
)
def read(application: AppFile, topic: Topic, json: Json = False) -> None:
    config, found = _topic(application, topic)
    results: list[Result] = []
    # Told to stop at once, it reads to where the topic ends now.
    Watcher({topic: found}, config, f"{topic}-viewer").run(lambda: True, results.append)
    pairs = [(written(found.key, each.key), written(found.value, each.value)) for each in results]
    if not results and not json:
        print_progress(f"There are no committed records in {topic} yet")
        return
    text = "\n".join(record_line(found, each.key, each.value) for each in results)
    print_answer(text, {"records": [list(pair) for pair in pairs]}, as_json=json)


def encode_pair(topic: ExampleTopic, pair: str) -> Encoded:
    """The bytes of a `key=value` as the topic's types have it. Raises `ConfigError`."""
    key, equals, value = pair.partition("=")
    if not equals:
        raise UsageError(f"{pair!r} is no record", hint="Write key=value")
    return encode_text(topic.key, key, topic.name), encode_text(topic.value, value, topic.name)


def _lines(file: str) -> list[str]:
    try:
        text = sys.stdin.read() if file == _STANDARD_INPUT else Path(file).read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise UsageError(f"It cannot be read: {reason}", where={"file": file}) from error
    # Not by `splitlines`, which also ends lines where texts may go on.
    return [line.removesuffix("\r") for line in text.split("\n")]


def _topic(application: str, topic: str) -> tuple[Config, ExampleTopic]:
    app = load_application(application)
    known = {**outputs_of(app), **inputs_of(app)}
    if topic not in known:
        raise ConfigError(
            f"The program neither reads nor writes the topic {topic!r}",
            hint=f"Its topics are: {', '.join(sorted(known))}",
        )
    check_broker(app.config)
    if topic not in TopicAdmin(app.config).describe([topic]):
        raise TopicMissingError(
            "The topic does not exist",
            where={"topic": topic},
            hint=f"Create it with `penstock topics create {application}`",
        )
    return app.config, known[topic]


def _send(config: Config, topic: str, encoded: list[Encoded]) -> None:
    failed: list[confluent_kafka.KafkaError] = []

    def delivered(error: confluent_kafka.KafkaError | None, _: object) -> None:
        if error is not None:
            failed.append(error)

    with refusals_named():
        producer = Producer(config.client_properties(partitioner="murmur2_random"))
    with Bar("Sending") as bar:
        for key, value in bar.over(encoded, len(encoded)):
            while True:
                try:
                    producer.produce(topic, value, key, on_delivery=delivered)
                    break
                except BufferError:
                    # A long file: it waits until some of it is with the broker.
                    producer.poll(_ROOM_SECONDS)
        left = producer.flush(_FLUSH_SECONDS)
    if failed:
        raise kafka_error(
            failed[0], doing="take a record", bootstrap_servers=config.bootstrap_servers
        )
    if left:
        raise unreachable(config.bootstrap_servers)
