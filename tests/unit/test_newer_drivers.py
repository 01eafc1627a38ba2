"""Whoever goes back to a task's beginning makes sure that its driver was not replaced."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from penstock.changelog.commit_record import DRIVER_KEY, TOPOLOGY_KEY, DriverRecord
from penstock.changelog.reading import never
from penstock.errors import FencedError
from penstock.instance import handover, task
from penstock.instance.protocol import TakeOrder
from penstock.instance.standing import Standing


def _order(generation: int) -> TakeOrder:
    return TakeOrder(
        task="0_2",
        name="counts-2",
        epoch=(generation, 7),
        first_taking=False,
        inputs=[],
        stores=[],
        commits_partition=3,
    )


def _told(key: bytes, value: bytes) -> Any:
    return SimpleNamespace(key=lambda: key, value=lambda: value)


def _beat(generation: int) -> Any:
    record = DriverRecord(generation=generation, host="h", pid=7, process_start=1.5, beat=3)
    return _told(DRIVER_KEY, record.encode())


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the driver's partition of the commits topic holds."""
    found: list[Any] = []

    def read(logs: object, topic: str, partition: int, *, stop: object) -> list[Any]:
        assert (topic, partition, stop) == ("app-commits", 0, never)
        return found

    monkeypatch.setattr(handover, "read_committed", read)
    return found


def _check(generation: int) -> None:
    logs: Any = None
    handover.check_driver(_order(generation), logs, commits="app-commits", stop=never)


def test_an_owner_of_the_driver_at_work_goes_on(log: list[Any]) -> None:
    log += [_beat(1), _told(TOPOLOGY_KEY, b"{}"), _beat(2), _told(TOPOLOGY_KEY, b"{}")]
    _check(2)


def test_an_owner_of_a_driver_that_was_not_written_down_goes_on(log: list[Any]) -> None:
    _check(1)
    log.append(_told(TOPOLOGY_KEY, b"{}"))
    _check(1)


def test_an_owner_of_a_driver_that_was_replaced_is_refused(log: list[Any]) -> None:
    log += [_beat(1), _beat(2), _beat(2), _told(TOPOLOGY_KEY, b"{}")]
    with pytest.raises(FencedError, match="newer driver") as caught:
        _check(1)
    assert caught.value.where == {"task": "0_2", "epoch": (1, 7), "newer": 2}


def test_its_task_does_not_go_back_to_its_beginning(log: list[Any]) -> None:
    log += [_beat(1), _beat(2)]
    environment: Any = SimpleNamespace(application_id="app", clients=SimpleNamespace(logs=None))
    with pytest.raises(FencedError, match="newer driver"):
        task._begun_again(Standing(), _order(1), environment, lost="Store counts", stop=never)
