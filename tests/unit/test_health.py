"""Live and ready, by the application's state and the age of its loop's last turn."""

from __future__ import annotations

import pytest

from penstock.coordination.states import ApplicationState
from penstock.observability.health import LIVE_SECONDS, Pulse, health

S = ApplicationState


@pytest.mark.parametrize(
    ("state", "age", "live", "ready"),
    [
        (S.CREATED, None, True, False),
        (S.REBALANCING, None, True, False),
        (S.REBALANCING, 1.0, True, False),
        (S.RUNNING, 1.0, True, True),
        (S.RUNNING, LIVE_SECONDS + 1, False, False),
        (S.PENDING_SHUTDOWN, None, True, False),
        (S.PENDING_ERROR, None, True, False),
        (S.NOT_RUNNING, None, False, False),
        (S.ERROR, 1.0, False, False),
    ],
)
def test_live_and_ready(state: S, age: float | None, live: bool, ready: bool) -> None:
    found = health(state.value, age)
    assert (found.live, found.ready, found.state) == (live, ready, state)
    assert bool(found.reason) == (not ready)


def test_it_is_not_ready_while_kafka_does_not_answer() -> None:
    now = 5.0
    pulse = Pulse(clock=lambda: now)
    pulse.turn()
    for answered, seconds in ((True, 0), (False, 0), (False, 7), (True, 0)):
        now += 7
        pulse.heard(answered)
        assert pulse.silence == seconds
        found = health(S.RUNNING.value, 0.1, silence=pulse.silence)
        assert found.live
        assert found.ready == (seconds == 0)
    pulse.heard(False)
    pulse.rest()
    now += 7
    assert pulse.silence == 0


def test_a_pulse_ages_from_turn_to_turn() -> None:
    now = 5.0
    pulse = Pulse(clock=lambda: now)
    assert pulse.age is None
    pulse.turn()
    now = 8.0
    assert pulse.age == 3.0
    pulse.rest()
    assert pulse.age is None
