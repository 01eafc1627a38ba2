"""The examples through Spark and Kafka, two at a time, against the test driver."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.changelog.topic_admin import TopicAdmin
from penstock.cli import main
from penstock.config import Config
from penstock.examples.catalogue import Example, find_example
from penstock.examples.data import InputRecord
from penstock.examples.running import ExampleRun, Listeners
from penstock.examples.sending import Sender, create_missing_topics
from penstock.examples.topic_configs import CHANGELOG
from penstock.examples.watching import Result
from penstock.processors import partitions_of
from penstock.testing import TopologyTestDriver
from tests.harness import Scene

pytestmark = pytest.mark.usefixtures("spark")

MINUTE_MS = 60_000
RECORDS_PER_SECOND = 1000
"""Faster than the data's own times, which nothing here asks about."""


Sent = list[tuple[InputRecord, int]]
"""Records with the times that they were sent with."""


@dataclass
class Played:
    """What went into a run of an example, and what came out."""

    sent: Sent = field(default_factory=list)
    results: list[Result] = field(default_factory=list)

    def by_key(self, topic: str) -> dict[Any, list[Any]]:
        return by_key((each.key, each.value) for each in self.results if each.topic == topic)


def play(name: str, kafka: str, directory: Path, *, records: int) -> tuple[Example, Played]:
    """Run an example on its first records, with every update of every key."""
    example = find_example(name)
    played = Played()
    run = ExampleRun(
        example,
        kafka,
        directory / example.name,
        records=records,
        rate=RECORDS_PER_SECOND,
        listeners=Listeners(
            on_sent=lambda record, timestamp: played.sent.append((record, timestamp)),
            on_result=played.results.append,
        ),
        options={"statestore_cache_max_bytes": 0},
    )
    summary = run.run()
    assert summary.settled
    assert (records, summary.sent) == (len(played.sent),) * 2
    assert summary.results == len(played.results)
    return example, played


def driven(example: Example, sent: Sent, topic: str) -> dict[Any, list[Any]]:
    """What the test driver writes to a topic for the same records."""
    driver = TopologyTestDriver(example.application())
    topics = {
        each.name: driver.input_topic(each.name, key=each.key, value=each.value)
        for each in example.inputs.values()
    }
    for record, timestamp in sent:
        topics[record.topic].pipe(record.key, record.value, timestamp=timestamp)
    output = example.outputs[topic]
    return by_key(driver.output_topic(topic, key=output.key, value=output.value).read_pairs())


def by_key(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, list[Any]]:
    found: dict[Any, list[Any]] = defaultdict(list)
    for key, value in pairs:
        found[key].append(value)
    return dict(found)


def check_patients(played: Played) -> None:
    """Partitions have clocks of their own, so more or fewer minutes are closed than in one."""
    beats: Counter[tuple[Any, int]] = Counter()
    readings: dict[tuple[Any, int], float] = {}
    latest: dict[Any, int] = defaultdict(int)
    for record, timestamp in played.sent:
        minute = (record.key, timestamp // MINUTE_MS * MINUTE_MS)
        if record.topic == "pulse-events":
            beats[minute] += 1
            latest[record.key] = max(latest[record.key], timestamp)
        else:
            readings[minute] = record.value
    found = played.by_key("heart-rates")
    rates = {(minute.key, minute.start): rates for minute, rates in found.items()}
    assert rates == {minute: [beats[minute]] for minute in rates}
    assert rates.keys() >= {
        minute for minute in beats if minute[1] + MINUTE_MS + 5_000 <= latest[minute[0]]
    }
    expected = Counter(
        (patient, rate, readings[patient, start])
        for (patient, start), [rate] in rates.items()
        if rate >= 100 and readings[patient, start] >= 100.4
    )
    alerts = [each for each in played.results if each.topic == "alerts"]
    assert Counter((a.key, a.value.heart_rate, a.value.temperature) for a in alerts) == expected
    assert {alert.key for alert in alerts} == {"patient-02", "patient-07"}


def test_examples_do_on_kafka_and_spark_what_they_do_in_the_driver(
    kafka: str, tmp_path: Path
) -> None:
    def monitoring() -> None:
        # 90 seconds of data: the first minute closes, the second one does not.
        check_patients(play("patient-monitoring", kafka, tmp_path, records=1130)[1])

    def patients() -> None:
        # The second one reads what the first one was sent.
        check_recent(kafka, tmp_path, before=check_tombstones(kafka, tmp_path))

    together(monitoring, patients)
    together(
        lambda: check_topic_configs(kafka, tmp_path),
        lambda: check_leaderboard(kafka, tmp_path),
        lambda: check_words(kafka, tmp_path),
    )


def together(*checks: Callable[[], object]) -> None:
    """Some examples at once: each of them waits for Kafka and for processes most of the time."""
    with ThreadPoolExecutor(max_workers=2) as pool:
        for check in [pool.submit(each) for each in checks]:
            check.result()


def check_topic_configs(kafka: str, directory: Path) -> None:
    counted, totals = play("topic-configs", kafka, directory, records=30)
    assert totals.by_key("beat-totals") == driven(counted, totals.sent, "beat-totals")
    changelog = "topic-configs-beat-counts-changelog"
    settings = TopicAdmin(Config(bootstrap_servers=kafka)).describe([changelog])[changelog].config
    assert {name: settings[name] for name in CHANGELOG} == CHANGELOG


def check_tombstones(kafka: str, directory: Path) -> Sent:
    """What was sent is returned."""
    reduced, patients = play("tombstone", kafka, directory, records=30)
    in_house = driven(reduced, patients.sent, "patients-in-house")
    assert patients.by_key("patients-in-house") == in_house
    logged = Scene(kafka, directory).read("tombstone-patients-changelog")
    assert by_key((row.key, row.value) for row in logged) == {
        key.encode(): [value and value.encode() for value in values]
        for key, values in patients.by_key("patients-in-house").items()
    }
    return patients.sent


def check_words(kafka: str, directory: Path) -> None:
    words, text = play("word-count", kafka, directory, records=30)
    assert text.by_key("word-totals") == driven(words, text.sent, "word-totals")


def check_recent(kafka: str, directory: Path, *, before: Sent) -> None:
    """Each partition has ten places of its own. `before` is in the topic already."""
    recent, events = play("recent", kafka, directory, records=30)
    count = TopicAdmin(Config(bootstrap_servers=kafka)).partition_count("patient-events")
    assert count is not None
    expected: dict[Any, list[Any]] = {}
    sent = [*before, *events.sent]
    keys = pa.array([str(record.key).encode() for record, _ in sent], pa.binary())
    partitions = partitions_of(keys, count).tolist()
    for partition in range(count):
        own = [each for each, where in zip(sent, partitions, strict=True) if where == partition]
        expected |= driven(recent, own, "recent-totals")
    assert events.by_key("recent-totals") == expected
    assert events.by_key("recent-totals-by-hand") == expected


def check_leaderboard(kafka: str, directory: Path) -> None:
    """A score that comes before its game's title is joined with nothing: so titles come first."""
    example, config = find_example("leaderboard"), Config(bootstrap_servers=kafka)
    create_missing_topics(example, config)
    titles = {}
    Sender(example, config).run(
        lambda: False,
        records_max=3,
        on_sent=lambda record, _: titles.update({record.key: record.value}),
    )
    _, played = play("leaderboard", kafka, directory, records=30)
    best = defaultdict(list)
    for record, _ in played.sent:
        if record.topic == "scores":
            best[titles[record.value.game]].append(record.value.points)
    boards = {title: found[-1] for title, found in played.by_key("leaderboards").items()}
    points = {title: [score.points for score in board] for title, board in boards.items()}
    assert points == {title: sorted(each, reverse=True)[:3] for title, each in best.items()}


def test_test_data_goes_to_any_kafka(kafka: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--bootstrap-servers", kafka, "--rate", "2000", "--records", "50", "--json"]
    with pytest.raises(SystemExit) as ended:
        main(["produce-test-data", "visit-sketch", *arguments])
    assert ended.value.code == 0
    answer = json.loads(capsys.readouterr().out)
    example = find_example("visit-sketch")
    topics = sorted([*example.inputs, *example.outputs])
    data = {"example": "visit-sketch", "sent": 50, "created": topics}
    assert answer == {"ok": True, "data": data}
    expected = [
        (str(record.key).encode(), record.value.encode())
        for record in islice(example.test_data(), 50)
    ]
    rows = Scene(kafka, Path()).read("page-visits")
    assert sorted((row.key, row.value) for row in rows) == sorted(expected)
