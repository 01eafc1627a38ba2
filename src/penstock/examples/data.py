"""Records for the examples: the same ones every time, without an end.

Times are in milliseconds since the data's beginning. Records come in the order in which they are
to be sent, which is nearly that of their times.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from penstock.examples.leaderboard import Score
from penstock.examples.tombstone import CHECKED_OUT


@dataclass(frozen=True)
class InputRecord:
    """A record of an example's input."""

    topic: str
    key: str | None
    value: Any
    at_ms: int


@dataclass(frozen=True)
class _Patient:
    name: str
    bpm: int
    fahrenheit: float


# One has a fast heart and no fever, one a fever and a slow heart, two have both.
_PATIENTS = tuple(
    _Patient(f"patient-{number:02}", bpm, fahrenheit)
    for number, (bpm, fahrenheit) in enumerate(
        [
            (62, 98.2),
            (118, 101.3),
            (75, 98.6),
            (126, 98.4),
            (71, 102.0),
            (88, 98.9),
            (134, 103.1),
            (58, 97.7),
        ],
        start=1,
    )
)
_MINUTE_MS = 60_000
_LATE_SHARE = 0.02
_LATE_MS_MAX = 4_000
"""Less than the grace of five seconds: such a beat is late, and still counts."""
_EVENTS = ("checked in", "moved to a ward", "seen by a doctor", CHECKED_OUT)
_WORDS = ("the", "pulse", "of", "a", "patient", "is", "counted", "by", "the", "minute", "and")
_GAMES = {"g1": "Asteroid Run", "g2": "Paper Boats", "g3": "Night Train"}
_PLAYERS = ("ann", "bob", "cem", "dana", "eva", "finn")


def patients() -> Iterator[InputRecord]:
    """Beats and temperatures of eight patients; now and then a beat arrives late."""
    chance = random.Random(7)
    streams = [_beats(patient, chance.randrange(2**32)) for patient in _PATIENTS]
    streams += [_temperatures(patient, chance.randrange(2**32)) for patient in _PATIENTS]
    # Topics and patients tell records of one moment apart: their order is always the same.
    merged = heapq.merge(*streams, key=lambda sent: (sent[0], sent[1].topic, sent[1].key or ""))
    return (record for _, record in merged)


def beats() -> Iterator[InputRecord]:
    """Beats alone, of the same patients."""
    return (replace(each, topic="beats") for each in patients() if each.topic == "pulse-events")


def patient_events() -> Iterator[InputRecord]:
    """Patients who come, are seen to and leave, ten events a second."""
    chance = random.Random(11)
    inside: dict[str, int] = {}
    for number in count():
        name = f"patient-{chance.randrange(1, 13):02}"
        stage = inside.pop(name, 0)
        if stage < len(_EVENTS) - 1:
            inside[name] = stage + 1
        yield InputRecord("patient-events", name, _EVENTS[stage], number * 100)


def lines() -> Iterator[InputRecord]:
    """Lines of words, ten a second."""
    chance = random.Random(13)
    for number in count():
        line = " ".join(chance.choices(_WORDS, k=chance.randrange(3, 9)))
        yield InputRecord("lines", None, line, number * 100)


def scores() -> Iterator[InputRecord]:
    """The games' titles, then scores, ten a second."""
    chance = random.Random(17)
    for game, title in _GAMES.items():
        yield InputRecord("games", game, title, 0)
    for number in count(1):
        player, game = chance.choice(_PLAYERS), chance.choice(list(_GAMES))
        score = Score(player, game, chance.randrange(10, 1000) * 10)
        yield InputRecord("scores", player, score, number * 100)


def visits() -> Iterator[InputRecord]:
    """Visits of pages, some of which are visited far more often than others, twenty a second."""
    chance = random.Random(19)
    for number in count():
        page = f"/page/{int(chance.paretovariate(0.8))}"
        yield InputRecord("page-visits", page, chance.choice(_PLAYERS), number * 50)


_Sent = tuple[float, InputRecord]
"""When a record is sent, and the record."""


def _beats(patient: _Patient, seed: int) -> Iterator[_Sent]:
    chance = random.Random(seed)
    delayed: list[tuple[float, int]] = []
    at = chance.uniform(0, 1_000)
    while True:
        while delayed and delayed[0][0] <= at:
            sent, beat = heapq.heappop(delayed)
            yield sent, InputRecord("pulse-events", patient.name, b"beat", beat)
        if chance.random() < _LATE_SHARE:
            heapq.heappush(delayed, (at + chance.uniform(500, _LATE_MS_MAX), int(at)))
        else:
            yield at, InputRecord("pulse-events", patient.name, b"beat", int(at))
        at += _MINUTE_MS / patient.bpm * chance.uniform(0.9, 1.1)


def _temperatures(patient: _Patient, seed: int) -> Iterator[_Sent]:
    chance = random.Random(seed)
    # In the middle of each minute, so that the rate of a minute meets the temperature in it.
    first = chance.randrange(20_000, 40_000)
    for at in count(first, _MINUTE_MS):
        fahrenheit = round(patient.fahrenheit + chance.uniform(-0.3, 0.3), 1)
        yield at, InputRecord("body-temperatures", patient.name, fahrenheit, at)
