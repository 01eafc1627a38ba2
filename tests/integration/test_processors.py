"""Processors on the real stack: dead letters, topics and partitions by record, stores of all sorts.

One application does it all, and goes on exactly after a restart without its state on disk.
"""

from __future__ import annotations

import shutil
import time
from collections import Counter, OrderedDict
from datetime import timedelta
from pathlib import Path

import pytest
from confluent_kafka import Producer

import penstock as ps
from penstock.errors import TopicMissingError
from tests.harness import Row, Scene, wait_until
from tests.in_process import Run, start_fails

pytestmark = pytest.mark.usefixtures("spark")

MINUTE_MS = 60_000
MOST = 3


class PerMinute(ps.Processor[str, str, str, str]):
    """Counts each word by minutes in windows, keeps the last few words of all, and when each came.

    It looks into its stores from both ends and by ranges of keys.
    """

    def process(self, record: ps.Record[str, str]) -> None:
        self.context.metrics.counter("words").add()
        if record.value == "bad":
            raise ValueError("a bad word")
        windows, recent = self.context.store("minutes"), self.context.store("recent")
        start = record.timestamp // MINUTE_MS * MINUTE_MS
        count = (windows.fetch(record.value, start) or 0) + 1
        windows.put(record.value, count, start)
        recent.put(record.value, (recent.get(record.value) or 0) + 1)
        earlier = sum(n for _, n in windows.fetch_range(record.value, 0, start - 1))
        lately = next((n for _, n in windows.backward_fetch(record.value, 0, start - 1)), 0)
        others = sum(n for _, _, n in windows.fetch_keys("a", "b", start, start))
        seen = self.context.store("seen")
        seen.put(record.value, ps.ValueAndTimestamp(count, record.timestamp + 1))
        last, held = next(seen.reverse_all())
        assert held.timestamp == seen.timestamp(last)
        said = f"{record.value} {count} {earlier} {lately} {others} {last}"
        self.context.forward(record.with_value(said))


def counting(app: ps.Application, source: str, results: str) -> None:
    hour = timedelta(hours=1)
    app.add_state_store(
        ps.window_store("minutes", key=str, value=int, retention=hour, window=timedelta(minutes=1))
    )
    app.add_state_store(ps.lru_store("recent", key=str, value=int, max_entries=MOST))
    app.add_state_store(ps.timestamped_key_value_store("seen", key=str, value=int))
    counted = app.stream(source, key=str, value=str).process(
        PerMinute, stores=["minutes", "recent", "seen"], key=str, value=str
    )
    counted.to(
        lambda key, value: results if value.startswith("a") else f"{results}-others",
        partitioner=lambda key, value, count: {0, count - 1},
    )


def decide(failure: ps.RecordFailure) -> str:
    """Only what is known to be bad may go to the dead letters."""
    bad = failure.record is not None and failure.record.value == "bad"
    return "dead_letter" if bad and isinstance(failure.error, ValueError) else "fail"


def counted_words(app: ps.Application) -> list[float | str]:
    """What the processor's own metric says, if it was told yet."""
    return [
        value
        for (_, name, tags), value in app.metrics().items()
        if name == "count-total" and ("metric", "words") in tags
    ]


def expected(words: list[str]) -> tuple[list[str], list[tuple[str, int | None]]]:
    """What is forwarded, and the changelog of the LRU store: evictions are tombstones."""
    minutes: Counter[tuple[str, int]] = Counter()
    recent: OrderedDict[str, int] = OrderedDict()
    forwarded: list[str] = []
    logged: list[tuple[str, int | None]] = []
    for number, word in enumerate(words):
        if word == "bad":
            continue
        minute = number // 10
        minutes[word, minute] += 1
        before = {m: n for (each, m), n in minutes.items() if each == word and m < minute}
        lately = before[max(before)] if before else 0
        near = sum(n for (each, m), n in minutes.items() if m == minute and "a" <= each <= "b")
        last = max(each for each, _ in minutes)
        counted = f"{word} {minutes[word, minute]} {sum(before.values())}"
        forwarded.append(f"{counted} {lately} {near} {last}")
        recent[word] = recent.pop(word, 0) + 1
        if len(recent) > MOST:
            evicted, _ = recent.popitem(last=False)
            logged.append((evicted, None))
        logged.append((word, recent[word]))
    return forwarded, logged


def send(scene: Scene, words: list[str], first: int, begin_ms: int) -> None:
    """Ten words a minute, on one partition so that their order is known."""
    producer = Producer({"bootstrap.servers": scene.bootstrap})
    for number, word in enumerate(words, first):
        producer.produce(
            scene.source,
            key=b"k",
            value=word.encode(),
            timestamp=begin_ms + number // 10 * MINUTE_MS + number,
            headers=[("number", b"%d" % number)],
        )
    assert producer.flush(30) == 0


def texts(rows: list[Row]) -> list[str]:
    return [(row.value or b"").decode() for row in rows]


def test_one_application_does_it_all_and_goes_on_without_its_disk(
    kafka: str, tmp_path: Path
) -> None:
    scene = Scene(kafka, tmp_path, partitions=1).create_topics()
    others, dead = f"{scene.results}-others", f"{scene.id}-dead"
    # Another number of partitions than any topic that is named beforehand.
    Scene(kafka, tmp_path, partitions=2).create_topics(others)
    options = {
        "processing_exception_handler": decide,
        "errors_dead_letter_queue_topic_name": dead,
        "num_instances": 1,
    }
    # A dead-letter topic that is not there is told at the start, and not with the first letter.
    error = start_fails(scene, counting, **options)
    assert isinstance(error, TopicMissingError)
    assert dead in str(error)
    scene.create_topics(dead)
    some = ["a1", "b", "bad", "c", "a2", "d", "b", "a1"]
    words = [*some, "bad", "a1", "a2", "b", "a1", "c", "d"] * 2
    half = len(words) // 2
    # Whole minutes, and late enough that Kafka keeps the records.
    begin = time.time_ns() // 10**6 // MINUTE_MS * MINUTE_MS
    send(scene, words[:half], 0, begin)
    with Run(scene, counting, **options) as run:
        run.wait_committed(half)
    shutil.rmtree(scene.state_dir)
    send(scene, words[half:], half, begin)
    with Run(scene, counting, **options) as run:
        run.wait_committed(len(words))
        # The driver hears of a commit after Kafka does.
        wait_until(lambda: counted_words(run.app) == [len(words) - half], what="words were counted")

    forwarded, logged = expected(words)
    assert texts(scene.read(scene.results)) == [each for each in forwarded if each[0] == "a"]
    # Each went to both partitions.
    assert texts(scene.read(others)) == [each for each in forwarded if each[0] != "a"] * 2
    seen = {row.key: row.timestamp for row in scene.read(f"{scene.application_id}-seen-changelog")}
    latest = {word.encode(): number for number, word in enumerate(words) if word != "bad"}
    assert seen == {
        word: begin + number // 10 * MINUTE_MS + number + 1 for word, number in latest.items()
    }
    changes = scene.read(f"{scene.application_id}-recent-changelog")
    assert [
        ((row.key or b"").decode(), row.value and int.from_bytes(row.value, "big"))
        for row in changes
    ] == logged
    letters = scene.read(dead)
    offsets = [number for number, word in enumerate(words) if word == "bad"]
    assert [(row.key, row.value) for row in letters] == [(b"k", b"bad")] * len(offsets)
    for letter, offset in zip(letters, offsets, strict=True):
        headers = dict(letter.headers)
        assert headers.pop("__streams.errors.stacktrace").rstrip().endswith(b"a bad word")
        assert headers == {
            "number": b"%d" % offset,
            "__streams.errors.exception": b"ValueError",
            "__streams.errors.message": b"a bad word",
            "__streams.errors.topic": scene.source.encode(),
            "__streams.errors.partition": b"0",
            "__streams.errors.offset": b"%d" % offset,
        }
