"""What `print` writes: Java's lines."""

from __future__ import annotations

from datetime import timedelta

import pytest

import penstock as ps
from penstock.testing import TopologyTestDriver


def test_print_shows_keys_windows_and_what_is_missing_as_java_does(
    capsys: pytest.CaptureFixture[str],
) -> None:
    app = ps.Application("printed")
    stream = app.stream("in", key=str, value=str)
    stream.print("plain")
    stream.map_values(lambda value: value == "w", value=bool).print("bool")
    grouped = stream.group_by_key()
    tumbling = ps.tumbling(timedelta(milliseconds=10), grace=timedelta())
    grouped.windowed_by(tumbling).count("times").to_stream().print("time")
    gap = ps.session(timedelta(milliseconds=5), grace=timedelta())
    grouped.windowed_by(gap).count("visits").to_stream().print("session")
    stream.select_key(lambda key, _value: ps.Windowed(key, 7, 2**63 - 1)).print("unlimited")
    driver = TopologyTestDriver(app.build())
    topic = driver.input_topic("in", key=str, value=str)
    for number, (key, value) in enumerate([("k", "v"), ("k", None), (None, "v"), ("k", "w")], 1):
        topic.pipe(key, value, timestamp=number)
    lines = capsys.readouterr().out.splitlines()

    def of(label: str) -> list[str]:
        return [line for line in lines if line.startswith(f"[{label}]: ")]

    # What Java printed of the same program.
    assert of("plain") == ["[plain]: k, v", "[plain]: k, null", "[plain]: null, v", "[plain]: k, w"]
    assert of("bool")[0] == "[bool]: k, false"
    assert of("time") == ["[time]: [k@0/10], 1", "[time]: [k@0/10], 2", "[time]: [k@0/10], 3"]
    assert of("session") == [
        "[session]: [k@1/1], 1",
        "[session]: [k@1/1], null",
        "[session]: [k@1/2], 2",
        "[session]: [k@1/2], null",
        "[session]: [k@1/4], 3",
    ]
    assert of("unlimited") == [
        "[unlimited]: [k@7/9223372036854775807], v",
        "[unlimited]: [k@7/9223372036854775807], null",
        "[unlimited]: [null@7/9223372036854775807], v",
        "[unlimited]: [k@7/9223372036854775807], w",
    ]
