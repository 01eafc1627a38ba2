"""Alerts for patients whose heart races while they have a fever.

Heart beats (one record each) are counted per patient and minute. A minute's count is final five
seconds after its end: only then does it leave the store, as the heart rate of that minute. A rate
of 100 or more meets the temperatures that were taken in the minute before it; 100.4 °F or more is
a fever, and the two together are an alert.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import penstock as ps

RAPID_BPM = 100
FEVER_FAHRENHEIT = 100.4


@dataclass(frozen=True)
class Alert:
    """What a nurse is told."""

    heart_rate: int
    temperature: float


def application(**options: Any) -> ps.Application:
    """The application, with options of `Config`."""
    app = ps.Application("patient-monitoring", **options)
    heart_rates = (
        app.stream("pulse-events", key=str, value=bytes)
        .group_by_key()
        .windowed_by(ps.tumbling(timedelta(minutes=1), grace=timedelta(seconds=5)))
        .count("pulse-counts")
        .suppress(ps.until_window_closes(), name="closed-minutes")
        .to_stream()
    )
    heart_rates.to("heart-rates")
    rapid = heart_rates.filter(lambda minute, beats: beats >= RAPID_BPM).select_key(
        lambda minute, beats: minute.key, key=str
    )
    fevers = app.stream("body-temperatures", key=str, value=float).filter(
        lambda patient, fahrenheit: fahrenheit >= FEVER_FAHRENHEIT
    )
    # A heart rate comes late by nature, a minute after its first beat and through a topic of its
    # own. The long grace keeps temperatures for it however far behind it is.
    minute_before = ps.join_window(
        before=timedelta(minutes=1), after=timedelta(0), grace=timedelta(hours=1)
    )
    rapid.join(fevers, Alert, minute_before, value=Alert, name="rapid-with-fever").to("alerts")
    return app


app = application()

if __name__ == "__main__":
    app.run()
