"""An application's state, asked while it runs: every kind of store, from instances of its own."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import urllib3

import penstock as ps
from penstock.cli import main
from penstock.errors import (
    PageRefusedError,
    QuestionRefusedError,
    StoreUnavailableError,
    UnknownStoreError,
)
from penstock.examples.asking import ask, line
from penstock.queries import Client
from penstock.queries.contract import Question
from penstock.queries.driver_file import read_driver_file
from tests.harness import Scene
from tests.in_process import Run

pytestmark = pytest.mark.usefixtures("spark")

KEYS = [f"k{i:02}" for i in range(40)]
MINUTE_MS = 60_000


def every_kind(app: ps.Application, source: str, results: str) -> None:
    stream = app.stream(source, key=str, value=str, timestamp=lambda k, v, at: int(v))
    grouped = stream.group_by_key()
    grouped.count("counts").to_stream().to(results)
    grouped.windowed_by(ps.tumbling(timedelta(minutes=1), grace=timedelta(minutes=5))).count(
        "windows", retention=timedelta(hours=1)
    )
    grouped.windowed_by(ps.session(timedelta(seconds=30), grace=timedelta(minutes=5))).count(
        "sessions", retention=timedelta(hours=1)
    )
    stream.to_table(ps.versioned_store("versions", history_retention=timedelta(hours=1)))
    app.global_table(f"{source}-teams", "teams", key=str, value=str)


@pytest.fixture(scope="module")
def run(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    scene = Scene(kafka, tmp_path_factory.mktemp("queries"), partitions=4)
    scene.create_topics().create_topics(f"{scene.source}-teams")
    scene.produce([("red", "left"), ("blue", "right")], f"{scene.source}-teams")
    # Each key has a record at 0 s, one at 10 s, and one in the second minute.
    times = (0, 10_000, 70_000)
    total = scene.produce((key, str(at)) for at in times for key in KEYS)
    options = {"num_standby_replicas": 1, "instance_http_listen": "127.0.0.1:0"}
    with Run(scene, every_kind, num_instances=2, **options) as run:
        run.wait_committed(total)
        yield run


def test_key_value_stores_answer_by_key_in_ranges_and_in_pages(run: Run) -> None:
    counts = run.app.store("counts")
    assert counts.get("k07") == 3
    assert counts.get("nobody") is None
    assert counts.get_many([*KEYS, "nobody"]) == [3] * len(KEYS) + [None]
    assert sorted(row.key for row in counts.range("k10", "k19")) == KEYS[10:20]
    assert sorted(row.key for row in counts.prefix("k3")) == KEYS[30:]
    forth = [row.key for row in counts.all()]
    assert sorted(forth) == KEYS
    assert [row.key for row in counts.all(reverse=True)] == forth[::-1]
    assert counts.approximate_count() >= len(KEYS)
    for store in ("counts", "windows", "sessions", "versions", "teams"):
        assert run.app.queries.size(store).bytes > 0, store
    page, paged = Question(kind="all", limit=7), []
    while True:
        answer = counts.answer(page)
        assert len(answer.rows) <= 7
        paged += [row.key for row in answer.rows]
        if answer.next_page is None:
            break
        page = Question(kind="all", limit=7, page=answer.next_page)
    assert paged == forth
    with pytest.raises(PageRefusedError):
        counts.answer(Question(kind="all", reverse=True, page=page.page))


def test_windows_sessions_and_versions_answer_by_time(run: Run) -> None:
    windows = run.app.store("windows")
    assert [(row.start, row.end, row.value) for row in windows.fetch("k07")] == [
        (0, MINUTE_MS, 2),
        (MINUTE_MS, 2 * MINUTE_MS, 1),
    ]
    assert [row.start for row in windows.fetch("k07", 1, MINUTE_MS)] == [MINUTE_MS]
    found = windows.fetch_range("k10", "k11", 0, 0)
    assert sorted((row.key, row.value) for row in found) == [("k10", 2), ("k11", 2)]
    assert len(list(windows.fetch_all(MINUTE_MS))) == len(KEYS)
    assert len(list(windows.all())) == 2 * len(KEYS)
    sessions = run.app.store("sessions")
    found = sessions.fetch("k07", reverse=True)
    assert [(row.start, row.end, row.value) for row in found] == [
        (70_000, 70_000, 1),
        (0, 10_000, 2),
    ]
    versions = run.app.store("versions")
    assert versions.get("k07") == "70000"
    assert versions.get("k07", as_of=10_001) == "10000"
    assert versions.version("k07", as_of=10_001) == ps.VersionedRecord("10000", 10_000, 70_000)
    latest = ps.VersionedRecord("70000", 70_000, None)
    assert versions.version("k07") == latest
    found = versions.versions("k07", 10_001, reverse=True)
    assert list(found) == [latest, ps.VersionedRecord("10000", 10_000, 70_000)]


OVER_HTTP = {
    "counts": [
        Question(kind="get", keys=("k07", "nobody", *KEYS)),
        Question(kind="range", lower="k10", upper="k19", limit=4),
        Question(kind="prefix", prefix="k3"),
        Question(kind="all", partition=2, reverse=True),
    ],
    "windows": [Question(kind="fetch", keys=("k07",)), Question(kind="fetch_all", end=0)],
    "sessions": [Question(kind="fetch", keys=("k07",)), Question(kind="fetch_range")],
    "versions": [Question(kind="as_of", keys=("k07",), as_of=10_001)],
    "teams": [Question(kind="get", keys=("red", "green"))],
}


@pytest.mark.parametrize("whom", ["driver", "one instance", "the other"])
def test_the_same_is_answered_over_http(run: Run, whom: str) -> None:
    app = run.app
    found = read_driver_file(app.config.state_dir, app.application_id)
    first, second = sorted(app.instance_urls().values())
    url = {"driver": found.url, "one instance": first, "the other": second}[whom]
    # The first request loads what answers, which takes its time on a busy machine.
    patience = timedelta(minutes=2)
    with Client(url, token=found.token, timeout=patience) as client:
        assert client.instances() == app.instance_urls()
        for store, questions in OVER_HTTP.items():
            for question in questions:
                told, asked = client.ask(store, question), app.queries.ask(store, question)
                assert (told.rows, told.next_page) == (asked.rows, asked.next_page), question
                assert [each.role for each in told.sources] == [each.role for each in asked.sources]
        assert client.stores() == app.queries.stores()
        assert client.key_metadata("counts", "k07") == app.query_metadata_for_key("counts", "k07")
        table = client.table("counts", Question(kind="all", partition=0)).table
        rows = app.queries.ask("counts", Question(kind="all", partition=0)).rows
        assert table["key"].to_pylist() == [row.key.encode() for row in rows]
        assert table["value"].to_pylist() == [row.value.to_bytes(8, "big") for row in rows]
        with pytest.raises(UnknownStoreError):
            client.get("none", "k07")


def test_the_same_is_answered_by_the_command(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    place = ["--application", run.app.application_id, "--state-dir", str(run.app.config.state_dir)]
    with pytest.raises(SystemExit) as ended:
        main(["query", "counts", "k07", "--timeout-ms", "120000", *place])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("k07 = 3\n(partition ")
    facts = read_driver_file(run.app.config.state_dir, run.app.application_id)
    ready = urllib3.request("GET", f"{facts.url}/health/ready", retries=False)
    assert (facts.url.startswith("http://127.0.0.1:"), ready.status) == (True, 200)


def test_global_tables_answer_wherever_they_are(run: Run) -> None:
    teams = run.app.store("teams")
    answer = teams.answer(Question(kind="get", keys=("red", "green")))
    assert [row.value for row in answer.rows] == ["left", None]
    assert [source.role for source in answer.sources] == ["global"]


def test_an_answer_says_who_gave_it_and_where_keys_live(run: Run) -> None:
    app = run.app
    where = app.query_metadata_for_key("counts", "k07")
    assert app.is_alive(where.active)
    assert not app.is_alive("nobody")
    answer = app.store("counts").answer(Question(kind="get", keys=("k07",)))
    [source] = answer.sources
    assert (source.instance, source.role, source.age) == (where.active, "active", timedelta())
    assert source.partition == where.partition
    assert source.position is not None
    run.wait_for(lambda: _caught_up(app), what="standbys had caught up")
    lags = [each for each in app.all_local_store_partition_lags() if each.store == "counts"]
    assert sorted({each.partition for each in lags}) == [0, 1, 2, 3]
    assert {each.role for each in lags} == {"active", "standby"}
    where = app.query_metadata_for_key("counts", "k07")
    assert len(where.standbys) == 1
    # One who wants more than there is gets nothing.
    with pytest.raises(StoreUnavailableError):
        app.store("counts").get(
            "k07",
            position={where.partition: source.position + 1},
            timeout=timedelta(milliseconds=100),
        )


def _caught_up(app: ps.Application) -> bool:
    lags = [each for each in app.all_local_store_partition_lags() if each.store == "counts"]
    return len(lags) == 8 and all(each.lag == 0 for each in lags)


def test_what_cannot_be_asked_is_refused(run: Run) -> None:
    with pytest.raises(UnknownStoreError, match="Did you mean 'counts'"):
        run.app.store("count")
    with pytest.raises(QuestionRefusedError, match="does not answer 'get'"):
        run.app.store("windows").get("k07")
    with pytest.raises(QuestionRefusedError, match="no key"):
        run.app.store("counts").get(7)


def test_the_example_asks_the_active_host(run: Run) -> None:
    answer = ask(run.app, "k07", "counts")
    assert [source.role for source in answer.sources] == ["active"]
    assert line(answer).startswith("k07: 3, says instance-")


def test_who_does_not_run_has_no_answer(tmp_path: Path) -> None:
    app = ps.Application("not-started", state_dir=tmp_path)
    app.stream("in", key=str, value=str).group_by_key().count("counts")
    with pytest.raises(StoreUnavailableError, match="created"):
        app.store("counts").get("a")
