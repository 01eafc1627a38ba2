"""Every example, on its own test data, in the test driver; and the data itself."""

from __future__ import annotations

import json
import runpy
from collections import Counter, defaultdict
from datetime import timedelta
from itertools import islice, takewhile
from typing import Any

import pytest

import penstock as ps
from penstock.cli import main
from penstock.errors import StoreUnavailableError
from penstock.examples import asking
from penstock.examples.catalogue import EXAMPLES, Example, find_example
from penstock.examples.data import InputRecord
from penstock.examples.patient_monitoring import Alert
from penstock.examples.sending import HEAD_START_MS, Pace
from penstock.examples.topic_configs import CHANGELOG
from penstock.queries.contract import Answer, KeyMetadata, Question, Row, Source
from penstock.testing import TopologyTestDriver

MINUTE_MS = 60_000


def driven(example: Example, records: list[InputRecord]) -> TopologyTestDriver:
    driver = TopologyTestDriver(example.application())
    topics = {
        topic.name: driver.input_topic(topic.name, key=topic.key, value=topic.value)
        for topic in example.inputs.values()
    }
    for record in records:
        topics[record.topic].pipe(record.key, record.value, timestamp=record.at_ms)
    return driver


def pairs(example: Example, driver: TopologyTestDriver, topic: str) -> list[tuple[Any, Any]]:
    output = example.outputs[topic]
    return driver.output_topic(topic, key=output.key, value=output.value).read_pairs()


def first_minutes(example: Example, minutes: float) -> list[InputRecord]:
    end = minutes * MINUTE_MS
    return list(takewhile(lambda record: record.at_ms < end, example.test_data()))


def test_patients_with_a_rapid_heart_and_a_fever_raise_alerts_when_a_minute_closes() -> None:
    example = find_example("patient-monitoring")
    records = first_minutes(example, 3.5)
    driver = driven(example, records)
    assert driver.dropped == {}
    beats = Counter(
        (record.key, record.at_ms // MINUTE_MS * MINUTE_MS)
        for record in records
        if record.topic == "pulse-events" and record.at_ms < 3 * MINUTE_MS
    )
    rates = {
        (minute.key, minute.start): rate for minute, rate in pairs(example, driver, "heart-rates")
    }
    assert rates == beats
    readings = {
        (record.key, record.at_ms // MINUTE_MS * MINUTE_MS): record.value
        for record in records
        if record.topic == "body-temperatures"
    }
    expected = [
        (patient, Alert(rate, readings[patient, minute]))
        for (patient, minute), rate in beats.items()
        if rate >= 100 and readings[patient, minute] >= 100.4
    ]
    alerts = pairs(example, driver, "alerts")
    assert sorted(alerts, key=repr) == sorted(expected, key=repr)
    assert {patient for patient, _ in alerts} == {"patient-02", "patient-07"}


def test_a_minute_stays_open_for_its_grace_and_takes_late_beats() -> None:
    example = find_example("patient-monitoring")
    driver = TopologyTestDriver(example.application())
    beats = driver.input_topic("pulse-events", key=str, value=bytes)
    for at in (0, 59_000, 64_000, 58_000, 64_999):
        beats.pipe("ann", b"", timestamp=at)
    assert pairs(example, driver, "heart-rates") == []
    beats.pipe("ann", b"", timestamp=65_000)
    assert pairs(example, driver, "heart-rates") == [(ps.Windowed("ann", 0, MINUTE_MS), 3)]
    beats.pipe("ann", b"", timestamp=59_000)
    assert driver.dropped.total() == 1


def test_a_count_has_a_changelog_of_its_own_settings() -> None:
    example = find_example("topic-configs")
    driver = driven(example, first_minutes(example, 0.5))
    (store,) = example.application().build().stores
    assert store.changelog_config == CHANGELOG
    totals = Counter(record.key for record in first_minutes(example, 0.5))
    assert dict(driver.store("beat-counts")) == totals
    assert dict(pairs(example, driver, "beat-totals")) == totals


def test_a_patient_who_checks_out_is_forgotten() -> None:
    example = find_example("tombstone")
    records = list(islice(example.test_data(), 100))
    driver = driven(example, records)
    last = {record.key: record.value for record in records}
    inside = {key: value for key, value in last.items() if value != "checked out"}
    assert 0 < len(inside) < len(last)
    assert dict(driver.store("patients")) == inside
    written = pairs(example, driver, "patients-in-house")
    assert {key: value for key, value in dict(written).items() if value is not None} == inside
    assert written.count((next(iter(last.keys() - inside.keys())), None)) > 0


def test_words_are_counted() -> None:
    example = find_example("word-count")
    driver = driven(example, [InputRecord("lines", None, "The cat, the dog", 0)])
    assert pairs(example, driver, "word-totals") == [("the", 1), ("cat", 1), ("the", 2), ("dog", 1)]
    assert dict(driver.store("word-counts")) == {"the": 2, "cat": 1, "dog": 1}


def test_the_best_three_scores_of_each_game_are_known_by_its_title() -> None:
    example = find_example("leaderboard")
    records = list(islice(example.test_data(), 200))
    titles = {record.key: record.value for record in records if record.topic == "games"}
    best = defaultdict(list)
    for record in records:
        if record.topic == "scores":
            best[titles[record.value.game]].append(record.value.points)
    boards = dict(pairs(example, driven(example, records), "leaderboards"))
    points = {title: [score.points for score in board] for title, board in boards.items()}
    assert points == {title: sorted(each, reverse=True)[:3] for title, each in best.items()}
    assert all(score.game == title for title, board in boards.items() for score in board)


@pytest.mark.parametrize("example", EXAMPLES.values(), ids=lambda example: example.name)
def test_test_data_is_always_the_same_and_every_input_has_some(example: Example) -> None:
    records = list(islice(example.test_data(), 500))
    assert records == list(islice(example.test_data(), 500))
    assert {record.topic for record in records} == set(example.inputs)
    assert example.line.endswith(".")
    latest = 0
    for record in records:
        # Nothing is so late that the grace of five seconds would not cover it.
        assert record.at_ms > latest - 5_000
        latest = max(latest, record.at_ms)


def test_an_unknown_example_is_answered_with_the_nearest() -> None:
    with pytest.raises(ps.PenstockError, match="Did you mean 'word-count'"):
        find_example("wordcount")


def test_records_are_due_by_their_times_or_by_the_rate_and_never_before_their_time() -> None:
    now = 1_000_000_000_000
    plain = Pace(start_ms=now)
    assert plain.base_ms == now
    assert plain.is_due(500, 9, 500)
    assert not plain.is_due(501, 9, 500)

    fast = Pace(start_ms=now, time_scale=20)
    assert (fast.base_ms % MINUTE_MS, now - fast.base_ms >= HEAD_START_MS) == (0, True)
    assert fast.is_due(10_000, 9, 500)
    assert not fast.is_due(10_001, 9, 500)

    by_rate = Pace(start_ms=now, rate=10)
    assert by_rate.is_due(3_600_000, 4, 500)
    assert not by_rate.is_due(0, 5, 500)

    for pace in (fast, by_rate):
        caught_up = now - pace.base_ms
        assert pace.is_due(caught_up + 10_000_000, 0, 10_000_000)
        assert not pace.is_due(caught_up + 10_000_001, 0, 10_000_000)


def test_the_commands_list_examples_and_refuse_what_is_none(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert _status(["example", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(EXAMPLES)
    assert _status(["example", "list", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [each["name"] for each in answer["data"]["examples"]] == list(EXAMPLES)
    for command in (["example", "run"], ["produce-test-data"]):
        assert _status([*command, "word-coun", "--json"]) == 2
        answer = json.loads(capsys.readouterr().out)
        assert (answer["ok"], answer["error"]["code"]) == (False, "usage")
    assert _status(["example", "run"]) == 2


def _status(arguments: list[str]) -> object:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    return ended.value.code


@pytest.mark.parametrize("example", EXAMPLES.values(), ids=lambda example: example.name)
def test_a_program_can_be_run_as_a_file(example: Example) -> None:
    loaded = runpy.run_path(str(example.file))
    assert loaded["app"].describe() == example.application().describe()


def test_the_two_ways_of_keeping_the_recent_ones_agree() -> None:
    example = find_example("recent")
    records = list(islice(example.test_data(), 300))
    driver = driven(example, records)
    by_dsl = pairs(example, driver, "recent-totals")
    assert by_dsl == pairs(example, driver, "recent-totals-by-hand")
    assert dict(driver.store("recent")) == dict(driver.store("recent-by-hand"))
    assert len(driver.store("recent")) == 10 < len({record.key for record in records})


class _Stub:
    """An application whose active host is away or silent."""

    def __init__(self, *, alive: bool) -> None:
        self._alive = alive
        self.asked: list[bool] = []

    def store(self, name: str) -> Any:
        return self

    def query_metadata_for_key(self, store: str, key: str) -> KeyMetadata:
        return KeyMetadata(store=store, partition=0, active="a", standbys=("b",))

    def is_alive(self, host: str) -> bool:
        return self._alive

    def answer(self, question: Question, **options: Any) -> Answer:
        stale = bool(options.get("stale"))
        self.asked.append(stale)
        if not stale:
            raise StoreUnavailableError("It does not answer")
        source = Source(
            partition=0, instance="b", role="standby", position=4, age=timedelta(seconds=2)
        )
        return Answer(rows=[Row(key=question.keys[0], value=9)], sources=[source])


@pytest.mark.parametrize(("alive", "asked"), [(True, [False, True]), (False, [True])])
def test_a_standby_is_asked_where_the_active_host_does_not_answer(
    alive: bool, asked: list[bool]
) -> None:
    app: Any = _Stub(alive=alive)
    answer = asking.ask(app, "patient-07")
    assert asking.line(answer) == "patient-07: 9, says b (standby, 2.0 s old)"
    assert app.asked == asked
