"""`penstock status`, `tasks` and `reset` on an application that runs, ends, and starts over."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from penstock.cli import main
from tests.harness import Scene
from tests.in_process import Run

pytestmark = pytest.mark.usefixtures("spark")

PROGRAM = """
import penstock as ps

app = ps.Application({application_id!r}, bootstrap_servers={bootstrap!r}, state_dir={state_dir!r})
counts = app.stream({source!r}, key=bytes, value=bytes).group_by_key().count("counts")
counts.to_stream().to({results!r})
"""


def called(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    """The exit status, and the JSON that was printed."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main([*words, "--json"])
    status = ended.value.code
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return status if isinstance(status, int) else 0, answer


def last_counts(scene: Scene) -> dict[bytes | None, int]:
    return {row.key: int.from_bytes(row.value or b"", "big") for row in scene.read(scene.results)}


def test_an_application_is_shown_and_starts_over(
    kafka: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scene = Scene(kafka, tmp_path, partitions=2).create_topics()
    program = tmp_path / "shown_program.py"
    facts = {
        "application_id": scene.application_id,
        "bootstrap": scene.bootstrap,
        "state_dir": str(scene.state_dir),
        "source": scene.source,
        "results": scene.results,
    }
    program.write_text(PROGRAM.format(**facts))
    # Some of them later than the others.
    total = sum(scene.produce((b"k%d" % (i % 4), b"v") for i in range(20)) for _ in range(2))
    here = ["--application", scene.application_id, "--state-dir", str(scene.state_dir)]

    with Run(scene, num_instances=2, num_standby_replicas=1) as run:
        run.wait_committed(total)
        run.wait_for(lambda: run.app.totals.records == total, what="the driver heard of it")
        run.wait_for(lambda: _copies(called(capsys, "tasks", *here)) == 2, what="copies followed")
        status, answer = called(capsys, "status", *here)
        assert status == 0
        data = answer["data"]
        assert data["state"] == "running"
        assert [each["lag"] for each in data["tasks"]] == [0, 0]
        assert {each["owner"] for each in data["tasks"]} == {i["name"] for i in data["instances"]}
        assert data["records"] == total
        announced = scene.state_dir / scene.application_id / "coordinator.json"
        assert announced.stat().st_mode & 0o77 == 0
        main_shows_it(capsys, here, scene)
        status, answer = called(capsys, "reset", str(program), "--execute")
        assert (status, answer["error"]["code"]) == (1, "another_driver")

    status, answer = called(capsys, "status", *here)
    assert (status, answer["error"]["code"]) == (3, "application_unreachable")
    assert list(last_counts(scene).values()) == [10] * 4

    before = set(scene.admin.list_topics(timeout=10).topics)
    status, answer = called(capsys, "reset", str(program))
    assert (status, answer["data"]["executed"]) == (0, False)
    assert scene.changelog in answer["data"]["topics"]
    assert len(answer["data"]["directories"]) == 2
    moves = answer["data"]["positions"][scene.source].values()
    assert sum(each["from"] for each in moves) == total
    assert all(each["to"] == 0 for each in moves)
    positions_are_found(capsys, str(program), scene)
    assert scene.committed() == total
    assert set(scene.admin.list_topics(timeout=10).topics) == before

    status, answer = called(capsys, "reset", str(program), "--execute")
    assert (status, answer["data"]["executed"]) == (0, True)
    assert scene.read(scene.changelog) == []
    with Run(scene) as run:
        run.wait_committed(total)
    # Counted from nothing: neither on top of the old counts, nor not at all.
    rows = scene.read(scene.results)
    assert len(rows) == 2 * total
    assert list(last_counts(scene).values()) == [10] * 4

    # Without the program: the last driver wrote down what there is.
    known = ["--application", scene.application_id, "--bootstrap-servers", kafka]
    known += ["--state-dir", str(scene.state_dir), "--shift-by", "-4"]
    _, by_program = called(capsys, "reset", str(program), "--shift-by", "-4")
    status, answer = called(capsys, "reset", *known)
    assert (status, answer) == (0, by_program)
    called(capsys, "reset", *known, "--execute")
    assert scene.read(scene.changelog) == []
    assert scene.committed() == total - 8
    with Run(scene) as run:
        run.wait_committed(total)
    assert len(scene.read(scene.results)) == 2 * total + 8


def positions_are_found(capsys: pytest.CaptureFixture[str], program: str, scene: Scene) -> None:
    """Where a reset would put the application, by the options that no other test has."""
    rows = {p: [row for row in scene.read(scene.source) if row.partition == p] for p in (0, 1)}
    late = sorted(row.timestamp for found in rows.values() for row in found)[20]
    ends = [len(found) for found in rows.values()]
    since = [sum(row.timestamp < late for row in found) for found in rows.values()]
    wanted = {
        "--to-offset 3": [3, 3],
        f"--to-datetime {datetime.fromtimestamp(late / 1000, UTC).isoformat()}": since,
        "--by-duration 0s": ends,
    }
    for option, to in wanted.items():
        status, answer = called(capsys, "reset", program, *option.split())
        moves = answer["data"]["positions"][scene.source]
        found = [moves[partition]["to"] for partition in ("0", "1")]
        assert (status, found, answer["data"]["executed"]) == (0, to, False), option


def _copies(found: tuple[int, dict[str, Any]]) -> int:
    _, answer = found
    copies = [copy for task in answer["data"]["tasks"] for copy in task["copies"]]
    return sum(copy["role"] == "standby" and copy["lag"] == 0 for copy in copies)


def main_shows_it(capsys: pytest.CaptureFixture[str], here: list[str], scene: Scene) -> None:
    """The same for people: what is on the screen, not how it is laid out."""
    for command in ("status", "tasks"):
        with pytest.raises(SystemExit):
            main([command, *here])
        text = " ".join(capsys.readouterr().out.split())
        assert "0_0" in text
        assert "0_1" in text
        if command == "status":
            assert f"{scene.application_id} running" in text
            assert "2 tasks on 2 instances, lag 0; 40 records in" in text
