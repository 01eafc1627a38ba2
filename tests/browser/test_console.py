"""The console in a real browser, over an application whose names and values attack the page."""

from __future__ import annotations

import itertools
import json
import stat
import time
import webbrowser
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from penstock.cli.console import open_page
from penstock.console.history import BATCHES_MAX, KEPT, History
from penstock.errors import StoreUnavailableError
from penstock.observability.tallies import Tally
from tests.browser.browsers import chromium
from tests.browser.watched import HOSTILE, TOKEN, FakeApplication, console_app, overview, served


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture
def application() -> FakeApplication:
    return FakeApplication()


@pytest.fixture
def history() -> History:
    history = History(now_ms=lambda: time.time_ns() // 1_000_000)
    history.happened("state", "Rebalancing to Running")
    history.happened("rebalance", f"Rebalance 1, because instance {HOSTILE} was lost: 0_0 to b")
    steps = {"plan": 0.01, "spark": 0.05, "read": 0.02, "process": 0.03, "state": 0.04}
    steps["commit"] = 0.06
    history.sampled(lag=31, memory_bytes=2**28)
    history.sampled(lag=24, memory_bytes=2**28)
    took = Tally.many(100, 2_500.0)
    history.batch_ended("counts", records=100, outputs=10, seconds=0.2, steps=steps, latencies=took)
    return history


@pytest.fixture
def address(application: FakeApplication, history: History) -> Iterator[str]:
    with served(console_app(application, history)) as address:
        yield address


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1200, "height": 800})
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda said: problems.append(said.text) if said.type == "error" else None)
    page.goto(f"{address}/console#token={TOKEN}")
    expect(page.locator("#state")).to_have_text("running")
    yield page
    assert page.title() != "owned"
    assert page.locator("img").count() == 0
    context.close()
    assert problems == []


def _open(page: Page, view: str) -> None:
    page.get_by_role("link", name=view, exact=True).click()
    expect(page.get_by_role("heading", name=view, exact=True)).to_be_visible()


def test_the_overview_shows_figures_and_what_happened(page: Page) -> None:
    assert "token" not in page.url
    expect(page.locator("#application")).to_have_text(f"pulse {HOSTILE}")
    expect(page.get_by_text("1,234")).to_be_visible()
    latency = page.locator(".chart", has_text="Mean latency from a record's time to commit")
    expect(latency.locator(".figure")).to_have_text("25 ms")
    expect(page.get_by_role("cell", name=HOSTILE)).to_be_visible()
    expect(page.locator(".log li").first).to_contain_text("instance <img")


def test_the_overview_says_first_how_it_stands(
    page: Page, application: FakeApplication, history: History
) -> None:
    standing = page.get_by_role("list", name="How it stands").get_by_role("listitem")
    moved = f"Rebalance 1, because instance {HOSTILE} was lost"
    # Of two tasks one is being opened.
    expect(standing).to_contain_text(
        [
            "1 of 2 tasks is not served: 0_1 is being opened on instance-1, and has restored 50 %",
            moved,
        ]
    )
    expect(page.locator(".tile", has_text="tasks served").locator("dd")).to_have_text("1 of 2")
    application.now["tasks"][1] |= {"state": "unowned", "restores": []}
    application.now["instances"][1]["is_away"] = True
    application.now |= {"kafka_silent_seconds": 12.0, "is_paused": True}
    expect(standing).to_contain_text(
        [
            "Kafka has not answered for 12 s",
            "It is paused",
            "0_1 has no owner",
            "Away: instance-1",
            moved,
        ]
    )
    application.now = overview()
    application.now["tasks"] = application.now["tasks"][:1]
    clock = history.now_ms
    history.now_ms = lambda: clock() - 90_000
    history.sampled(lag=20, memory_bytes=1)
    history.now_ms = clock
    page.reload()
    expect(standing.first).to_have_text(
        "Its task is served by 2 instances. 12 records are left to read, 8 fewer than a minute ago."
    )
    application.now["tasks"][0]["lag"] = 0
    expect(standing.first).to_contain_text("Nothing is left to read")
    application.now |= {"state": "error", "tasks": []}
    expect(standing.first).to_have_text("Not running: its state is error.")


def test_a_browser_is_led_there_by_a_file_and_started_without_the_token(
    browser: Browser, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []

    def start(at: str) -> bool:
        started.append(at)
        return True

    monkeypatch.setattr(webbrowser, "open", start)
    file = tmp_path / "ward" / "console.html"
    assert open_page(file, f"{address}/console#token={TOKEN}")
    assert started == [file.as_uri()]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    with browser.new_context() as context:
        page = context.new_page()
        page.goto(started[0])
        expect(page.locator("#state")).to_have_text("running")


def test_tasks_show_roles_and_restores_and_follow_a_failover(
    page: Page, application: FakeApplication, history: History
) -> None:
    _open(page, "Tasks")
    row = page.get_by_role("row", name="0_0").first
    expect(row.get_by_role("cell", name="active")).to_be_visible()
    restore = page.get_by_role("progressbar", name="restore of counts")
    expect(restore).to_have_attribute("value", "0.5")
    expect(page.get_by_text("7 records")).to_be_visible()
    application.now["tasks"][0]["copies"][0]["lag"] = 3
    warming = page.get_by_role("progressbar", name="standby of 0_0 on instance-1")
    expect(warming.locator("..")).to_have_text(" 4 of 7")
    application.now = overview(state="rebalancing", owner="instance-1")
    application.now["waits_for"] = "opening tasks"
    history.happened("rebalance", "Rebalance 2, because instance-0 was lost")
    expect(page.locator("#state")).to_have_text("rebalancing: opening tasks")
    expect(row.locator("td.active")).to_have_count(1)
    expect(row.locator("td").nth(2)).to_have_text("active")
    _open(page, "Timeline")
    expect(page.locator(".log li").first).to_contain_text("instance-0 was lost")
    expect(page.locator(".timeline .rebalance")).to_have_count(2)
    expect(page.locator(".timeline:not(.stacks) .batch")).to_have_count(1)


def test_batches_are_stacked_by_step_and_a_table_has_the_same_numbers(page: Page) -> None:
    _open(page, "Timeline")
    parts = page.locator(".stacks .batch rect")
    expect(parts).to_have_count(6)
    kinds = parts.evaluate_all("all => all.map((each) => each.getAttribute('class'))")
    assert kinds == [f"step-{s}" for s in ("plan", "spark", "read", "process", "state", "commit")]
    expect(page.locator(".legend li")).to_have_count(6)
    row = page.get_by_role("row", name="counts").last
    told = ["210 ms", "10 ms", "50 ms", "20 ms", "30 ms", "40 ms", "60 ms"]
    assert row.get_by_role("cell").all_text_contents()[4:] == told
    colours = parts.evaluate_all("all => all.map((each) => getComputedStyle(each).fill)")
    assert len(set(colours)) == 6


@pytest.mark.parametrize("kept", [BATCHES_MAX, 50])
def test_quick_batches_fill_the_timeline(
    page: Page, history: History, monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    # How many are kept is the driver's to say.
    monkeypatch.setitem(KEPT, "batches", kept)
    clock, now = history.now_ms, history.now_ms()
    for at in range(now - 30_000, now, 30_000 // BATCHES_MAX):
        history.now_ms = partial(int, at)
        history.batch_ended("counts", records=1, outputs=1, seconds=0.1, steps={"job": 0.1})
    history.now_ms = clock
    page.reload()
    _open(page, "Timeline")
    bars = page.locator(".timeline:not(.stacks) .batch rect")
    expect(bars).to_have_count(kept)
    places = bars.evaluate_all("all => all.map((each) => Number(each.getAttribute('x')))")
    assert min(places) < 100 < 800 < max(places)


def test_a_chart_has_its_numbers_in_a_table_that_opens_from_the_keyboard(page: Page) -> None:
    chart = page.locator(".chart", has_text="Lag")
    chart.get_by_text("numbers").focus()
    page.keyboard.press("Enter")
    expect(chart.get_by_role("columnheader", name="records")).to_be_visible()
    # As they stand: moments of the clock have the same digits in them.
    expect(chart.get_by_role("cell", name="24", exact=True).first).to_be_visible()
    # News come every second: they neither close it nor take the focus away.
    shown = chart.locator(".figure")
    # What was before somebody looked is there too.
    expect(chart.get_by_role("cell", name="31", exact=True)).to_be_visible()
    page.wait_for_function(
        "count => document.querySelectorAll('.chart path.line').length >= count", arg=2
    )
    expect(shown).to_have_text("24 records")
    expect(chart.locator("details")).to_have_attribute("open", "")
    assert page.evaluate("document.activeElement.tagName") == "SUMMARY"


def test_the_topology_has_rates_and_sizes(page: Page) -> None:
    _open(page, "Topology")
    expect(page.locator("svg.penstock-topology")).to_be_visible()
    expect(page.get_by_text("≈42 entries, 1.5 KiB")).to_be_visible()
    expect(page.locator("text.live", has_text="1.5 KiB")).to_be_visible()
    # Of a source and a sink the driver knows it anyway, of what is between them from workers.
    expect(page.locator("text.live", has_text="1,500/s")).to_have_count(4)
    expect(page.locator("text.live", has_text="2.5/s")).to_have_count(1)
    expect(page.locator(".edge.flows")).to_have_count(5)
    expect(page.get_by_text("metrics_recording_level=DEBUG")).to_be_visible()
    page.get_by_text("numbers", exact=True).click()
    expect(page.get_by_role("cell", name="2.5")).to_be_visible()
    expect(page.get_by_role("row", name="counts 42 1.5 KiB")).to_be_visible()


def test_pictures_fit_where_they_are(page: Page, history: History) -> None:
    long = "a-sub-topology-with-a-name-that-goes-on-and-on"
    for name in ("pulse-counts-repartition", long):
        history.batch_ended(name, records=1, outputs=1, seconds=0.1, steps={"job": 0.1})
    page.set_viewport_size({"width": 1250, "height": 800})
    _open(page, "Topology")
    graph = page.locator(".topology")
    expect(graph.locator("svg")).to_be_visible()
    assert graph.evaluate("each => each.scrollWidth <= each.clientWidth")
    _open(page, "Timeline")
    figure = page.locator(".timeline:not(.stacks)")
    expect(figure.locator("text", has_text="pulse-counts-repartition")).to_be_visible()
    outside = """svg => [...svg.querySelectorAll("text")].filter((text) => {
        const box = text.getBBox();
        return box.x < 0 || box.x + box.width > svg.viewBox.baseVal.width;
    }).map((text) => text.textContent)"""
    for each in page.locator("svg.timeline").all():
        assert each.evaluate(outside) == []


def test_a_key_is_asked_for_from_the_keyboard(page: Page) -> None:
    _open(page, "Stores")
    page.get_by_label("Key", exact=True).focus()
    page.keyboard.type(HOSTILE)
    page.keyboard.press("Enter")
    answer = page.locator("#answer")
    expect(answer).to_contain_text("from instance-1 (standby, position 8, 30 ms old)")
    expect(answer.locator("td.data")).to_have_text([HOSTILE, HOSTILE])


def test_whole_numbers_are_shown_to_their_last_digit(
    page: Page, application: FakeApplication
) -> None:
    text = 'says "9007199254740993" \\'
    application.values = {
        "long": -(2**63),
        "nested": {"id": 2**53 + 1, "text": text, "share": 0.25, "n": [7]},
    }
    _open(page, "Stores")
    value = page.locator("#answer td.data").nth(1)
    for key, shown in (
        ("long", "-9223372036854775808"),
        ("nested", '{"id":"9007199254740993","text":' + json.dumps(text)),
    ):
        page.get_by_label("Key", exact=True).fill(key)
        page.keyboard.press("Enter")
        expect(value).to_contain_text(shown)
    expect(value).to_contain_text('"share":0.25,"n":[7]}')


def test_an_answer_that_comes_late_is_not_that_to_another_question(page: Page) -> None:
    held: list[Route] = []

    def hold_the_first(route: Route) -> None:
        if held:
            route.continue_()
        else:
            held.append(route)

    page.route("**/query", hold_the_first)
    _open(page, "Stores")
    answer = page.locator("#answer")
    for key in ("slow", "quick"):
        page.get_by_label("Key", exact=True).fill(key)
        page.keyboard.press("Enter")
    expect(answer.locator("td.data")).to_have_text(["quick", HOSTILE])
    expect(answer).not_to_have_attribute("aria-busy", "true")
    with page.expect_response("**/query") as late:
        held[0].continue_()
    late.value.finished()
    # What the page does with it, it does before what it is asked next.
    page.evaluate("new Promise((done) => setTimeout(done))")
    assert answer.locator("td.data").all_text_contents() == ["quick", HOSTILE]


# By store and question: what is typed into which field, and what is asked by that.
QUESTIONS: dict[tuple[str, str], tuple[dict[str, str], dict[str, object]]] = {
    ("counts", "get"): ({"key": "ann"}, {"keys": ["ann"]}),
    ("counts", "range"): ({"lower": "a", "upper": "c"}, {"lower": "a", "upper": "c"}),
    ("counts", "prefix"): ({"prefix": "ward-"}, {"prefix": "ward-"}),
    ("counts", "all"): ({}, {}),
    ("minutes", "fetch"): (
        {"key": "ann", "start": "60000", "end": "120000"},
        {"keys": ["ann"], "start": 60_000, "end": 120_000},
    ),
    ("minutes", "fetch_all"): (
        {"start": "1970-01-01T00:01:00.000Z", "end": "1970-01-01 00:02"},
        {"start": 60_000, "end": 120_000},
    ),
    ("minutes", "all"): ({}, {}),
    ("visits", "fetch"): ({"key": "bob", "start": "", "end": ""}, {"keys": ["bob"]}),
    ("visits", "all"): ({}, {}),
    ("prices", "get"): ({"key": "ann"}, {"keys": ["ann"]}),
    ("prices", "as_of"): ({"key": "ann", "as-of": "7"}, {"keys": ["ann"], "as_of": 7}),
    ("prices", "all"): ({}, {}),
}


def test_each_kind_of_store_is_asked_what_it_answers(
    page: Page, application: FakeApplication
) -> None:
    _open(page, "Stores")
    answer = page.locator("#answer")
    offered = set()
    for (store, kind), (typed, wanted) in QUESTIONS.items():
        page.locator("#store").select_option(store)
        kinds = page.locator("#kind option").evaluate_all("all => all.map((each) => each.value)")
        offered |= {(store, each) for each in kinds}
        page.locator("#kind").select_option(kind)
        for field, text in typed.items():
            page.locator(f"#{field}").fill(text)
        asked = len(application.asked)
        with page.expect_response("**/query"):
            page.get_by_role("button", name="Ask", exact=True).click()
        body = {"kind": kind, "as_text": True, "stale": False, "limit": 50, **wanted}
        assert application.asked[asked:] == [(store, body)]
        windows = ["1970-01-01T00:01:00.000Z to 1970-01-01T00:02:00.000Z"]
        expect(answer.get_by_role("columnheader").first).to_have_text("key")
        expect(answer.get_by_role("cell", name=" to 1970")).to_have_text(
            windows if store in ("minutes", "visits") else []
        )
    assert offered == set(QUESTIONS)
    answer.get_by_role("button", name="More").click()
    expect(answer.get_by_role("button", name="More")).to_have_count(0)
    assert application.asked[-1] == ("prices", body | {"page": "more"})


def test_a_time_that_is_none_is_told(page: Page, application: FakeApplication) -> None:
    _open(page, "Stores")
    page.locator("#store").select_option("prices")
    page.locator("#kind").select_option(label="a key, as of a time")
    page.get_by_label("As of time").fill("noon")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("noon is no time: write 2026-01-31T00:00:00Z")
    assert application.asked == []


def test_a_standby_answers_if_it_may(page: Page, application: FakeApplication) -> None:
    _open(page, "Stores")
    page.get_by_label("Key", exact=True).fill("ann")
    page.get_by_label("a standby may answer").check()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator("#answer")).to_contain_text("from instance-1 (standby, position 8")
    [(_, body)] = application.asked
    assert body["stale"] is True


def test_the_way_past_the_menu_leads_to_what_is_shown(page: Page) -> None:
    _open(page, "Stores")
    page.get_by_role("link", name="To the content").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#view")).to_be_focused()
    expect(page.get_by_role("heading", name="Stores")).to_be_visible()


def test_topics_configuration_and_log(page: Page) -> None:
    _open(page, "Topics")
    page.get_by_role("button", name="latest records of beats").click()
    # All of its partitions can be looked at, some at a time.
    expect(page.get_by_text("Latest records of beats, partitions 0 to 7 of 10")).to_be_visible()
    expect(page.get_by_role("cell", name=HOSTILE)).to_have_count(16)
    page.get_by_role("button", name="Partitions after").click()
    expect(page.get_by_text("Latest records of beats, partitions 8 to 9 of 10")).to_be_visible()
    expect(page.get_by_role("cell", name=HOSTILE)).to_have_count(4)
    expect(page.get_by_role("button", name="Partitions after")).to_have_count(0)
    page.get_by_role("button", name="Partitions before").click()
    expect(page.get_by_role("cell", name=HOSTILE)).to_have_count(16)
    page.get_by_role("button", name="latest records of out").click()
    expect(page.get_by_text("Latest records of out", exact=True)).to_be_visible()
    expect(page.get_by_role("cell", name=HOSTILE)).to_have_count(2)
    expect(page.get_by_text("cleanup.policy=compact").first).to_be_visible()
    expect(page.get_by_role("cell", name="1.5 KiB")).to_be_visible()
    expect(page.get_by_role("cell", name="not known")).to_be_visible()
    heads = page.get_by_role("columnheader").all_text_contents()
    assert heads
    assert "" not in heads
    _open(page, "Configuration")
    expect(page.get_by_text("(hidden)")).to_be_visible()
    _open(page, "Log")
    expect(page.locator(".log li")).to_have_count(2)


@pytest.mark.parametrize("view", ["Log", "Timeline"])
def test_a_line_of_the_log_can_be_marked_while_news_come(
    page: Page, application: FakeApplication, history: History, view: str
) -> None:
    _open(page, view)
    line = page.locator(".log li", has_text="was lost")
    line.evaluate("each => getSelection().selectAllChildren(each)")
    application.now["state"] = "rebalancing"
    expect(page.locator("#state")).to_have_text("rebalancing")
    assert "was lost" in page.evaluate("getSelection().toString()")
    history.happened("rebalance", "Rebalance 2, because a joined")
    expect(page.locator(".log li").first).to_contain_text("because a joined")


def test_a_phone_and_a_dark_page(page: Page) -> None:
    page.set_viewport_size({"width": 360, "height": 700})
    for view in page.get_by_role("navigation").get_by_role("link").all_text_contents():
        _open(page, view)
        wide = page.evaluate("document.documentElement.scrollWidth > innerWidth")
        assert not wide, f"{view} is wider than the phone"
    # What an option is set to is seen without scrolling.
    _open(page, "Configuration")
    right = "each => each.getBoundingClientRect().right"
    assert page.get_by_text("(hidden)").evaluate(right) <= 360
    paper = "getComputedStyle(document.body).backgroundColor"
    before = page.evaluate(paper)
    page.get_by_role("button", name="Light or dark").click()
    assert page.evaluate(paper) != before


def test_what_was_scrolled_sideways_stays_when_news_come(
    page: Page, application: FakeApplication, history: History
) -> None:
    page.set_viewport_size({"width": 360, "height": 700})
    _open(page, "Tasks")
    tasks = page.locator(".scroll").first
    tasks.evaluate("box => { box.scrollLeft = 120; }")
    application.now["tasks"][0]["commits"] = 4321
    expect(tasks.get_by_role("cell", name="4,321")).to_have_count(1)
    assert tasks.evaluate("box => box.scrollLeft") == 120
    # A table that ends, and others that stay.
    application.now["tasks"][1]["restores"] = []
    expect(page.get_by_text("Restores under way: none")).to_be_visible()
    assert tasks.evaluate("box => box.scrollLeft") == 120
    _open(page, "Timeline")
    steps = page.locator(".scroll", has=page.get_by_text("Batches by step"))
    steps.evaluate("box => { box.scrollLeft = 90; }")
    history.batch_ended("fresh", records=1, outputs=1, seconds=0.1, steps={"job": 0.1})
    expect(steps.get_by_role("cell", name="fresh")).to_have_count(1)
    assert steps.evaluate("box => box.scrollLeft") == 90
    row = {"topic": "beats_of_all_patients_in_all_wards", "partition": 0, "position": 5, "end": 9}
    lags = itertools.count(1)
    application.groups = lambda: [{**row, "lag": next(lags)}]  # type: ignore[method-assign]
    _open(page, "Topics")
    group = page.locator(".scroll", has=page.get_by_text("Consumer group"))
    group.evaluate("box => { box.scrollLeft = 30; }")
    # Six seconds later it is asked about again.
    page.evaluate("{ const now = Date.now.bind(Date); Date.now = () => now() + 6000; }")
    expect(group.locator("td").last).to_have_text("2")
    assert group.evaluate("box => box.scrollLeft") == 30


def test_without_the_token_nothing_is_shown(browser: Browser, address: str) -> None:
    page = browser.new_page()
    page.goto(f"{address}/console")
    expect(page.get_by_role("heading", name="A token, please")).to_be_visible()
    # There is no way past it.
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    expect(page.get_by_role("heading", name="A token, please")).to_be_visible()
    expect(page.locator("#connection")).to_have_text("waits for a token")
    page.get_by_label("Token", exact=True).fill("wrong")
    page.get_by_role("button", name="Look").click()
    expect(page.get_by_role("heading", name="A token, please")).to_be_visible()
    page.get_by_label("Token", exact=True).fill(TOKEN)
    page.get_by_role("button", name="Look").click()
    expect(page.locator("#state")).to_have_text("running")
    expect(page.locator("#connection")).to_have_text("live")
    page.close()


def test_every_view_while_an_instance_is_lost_and_nobody_has_its_tasks(
    browser: Browser, address: str, application: FakeApplication, history: History
) -> None:
    page = browser.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(f"{address}/console#token={TOKEN}")
    expect(page.locator("#state")).to_have_text("running")
    lost = overview(state="rebalancing", owner="")
    lost["instances"] = lost["instances"][1:]
    lost["tasks"][0] |= {"state": "unowned", "lag": -1, "copies": []}
    application.now, application.has_owners = lost, False
    history.happened("rebalance", "Rebalance 2, because instance-0 was lost: 0_0 to instance-1")
    history.sampled(lag=None, memory_bytes=2**27)
    expect(page.locator("#state")).to_have_text("rebalancing")
    expect(page.locator(".tile", has_text="lag").locator("dd")).to_have_text("?")
    expect(page.locator("table", has_text="Instances").locator("tbody tr")).to_have_count(1)
    expect(page.locator(".log li").first).to_contain_text("instance-0 was lost")
    _open(page, "Topology")
    expect(page.get_by_text("≈42 entries, 1.5 KiB")).to_be_visible()
    _open(page, "Tasks")
    row = page.get_by_role("row", name="0_0").first
    expect(row).to_contain_text("unowned")
    expect(row.locator("td.active")).to_have_count(0)
    expect(page.get_by_role("progressbar", name="restore of counts")).to_be_visible()
    _open(page, "Timeline")
    expect(page.locator(".timeline .rebalance")).to_have_count(2)
    _open(page, "Stores")
    page.get_by_label("Key", exact=True).fill("ann")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("Nobody who may answer did so in time <img")
    page.get_by_label("a standby may answer").check()
    page.get_by_role("button", name="Ask", exact=True).click()
    expect(page.locator("#answer")).to_contain_text("(standby, position 8, 30 ms old)")
    _open(page, "Topics")
    expect(page.get_by_text("Consumer group")).to_be_visible()
    _open(page, "Configuration")
    expect(page.get_by_text("(hidden)")).to_be_visible()
    _open(page, "Log")
    expect(page.locator(".log li").first).to_contain_text("instance-0 was lost")
    assert problems == []
    page.close()


def test_an_application_that_ends_is_not_shown_as_running(
    browser: Browser, address: str, application: FakeApplication, history: History
) -> None:
    page = browser.new_page()
    page.goto(f"{address}/console#token={TOKEN}")
    expect(page.locator("#state")).to_have_text("running")
    history.happened("state", "running to error")
    application.failure = StoreUnavailableError("The application is starting, or has ended")
    expect(page.locator("#state")).to_have_text("last seen running")
    expect(page.locator(".standing .bad")).to_contain_text("No news since")
    connection = page.locator("#connection")
    expect(connection).to_contain_text("has ended; trying again. Started anew, it may have another")
    assert page.title().endswith("not reachable")
    # What it said last is there to be read.
    _open(page, "Log")
    expect(page.locator(".log li").first).to_contain_text("running to error")
    application.failure = None
    expect(page.locator("#state")).to_have_text("running")
    expect(connection).to_have_text("live")
    expect(page.locator(".log li")).to_have_count(3)
    page.close()
