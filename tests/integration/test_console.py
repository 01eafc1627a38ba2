"""The console over an application that runs, and loses an instance while somebody looks."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

import penstock as ps
from penstock.cli.console import console_address
from penstock.queries.driver_file import read_driver_file
from tests.browser.browsers import chromium
from tests.harness import Scene
from tests.in_process import Run, instances_here

pytestmark = pytest.mark.usefixtures("spark")

KEYS = [f"patient-{i:02}" for i in range(20)]
# A first request loads the service; machines that test are busy.
PATIENCE_MS = 60_000
PICTURES = os.environ.get("PENSTOCK_SCREENSHOTS")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


def counted(app: ps.Application, source: str, results: str) -> None:
    beats = app.stream(source, key=str, value=str)
    beats.group_by_key().count("counts").to_stream().to(results)


@pytest.fixture(scope="module")
def run(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    scene = Scene(kafka, tmp_path_factory.mktemp("console"), partitions=4)
    scene.create_topics()
    total = scene.produce((key, str(n)) for n in range(10) for key in KEYS)
    with Run(scene, counted, num_instances=2, num_standby_replicas=1) as run:
        run.wait_committed(total)
        yield run


def _open(page: Page, view: str) -> None:
    page.get_by_role("link", name=view, exact=True).click()
    expect(page.get_by_role("heading", name=view, exact=True)).to_be_visible()


# What a picture for the docs does not show: where it was taken.
_ANYWHERE = """names => {
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
        for (const [here, there] of names) {
            texts.currentNode.data = texts.currentNode.data.replaceAll(here, there);
        }
    }
}"""


def _picture(page: Page, name: str, run: Run) -> None:
    if PICTURES:
        config = run.app.config
        names = [
            (str(config.state_dir), "/var/lib/penstock"),
            (socket.gethostname(), "ward-7"),
            (config.bootstrap_servers, "kafka:9092"),
            (run.app.application_id, "pulse-monitor"),
            (run.scene.source, "pulse-events"),
            (run.scene.results, "pulse-totals"),
        ]
        shown = True
        while shown:
            page.evaluate(_ANYWHERE, names)
            page.screenshot(path=Path(PICTURES) / f"console-{name}.png")
            # News that came in between have the names again.
            shown = run.app.application_id in page.locator("body").inner_text()


def test_an_instance_is_lost_while_somebody_looks(browser: Browser, run: Run) -> None:
    expect.set_options(timeout=PATIENCE_MS)
    page = browser.new_page(viewport={"width": 1200, "height": 800})
    config = run.app.config
    page.goto(console_address(read_driver_file(config.state_dir, run.app.application_id)))
    expect(page.locator("#state")).to_have_text("running")
    _open(page, "Topology")
    expect(page.locator("svg.penstock-topology")).to_be_visible()
    expect(page.locator("text.live", has_text="entries")).to_be_visible()
    # Every edge is counted, whether something goes along it now or not.
    edges = page.locator("[data-from]").count()
    expect(page.locator("text.live", has_text="/s")).to_have_count(edges)
    more = run.scene.produce((key, "more") for key in KEYS)
    if PICTURES:  # A rate is there for a second, which a test may miss.
        expect(page.locator(".edge.flows").first).to_be_attached()
    _picture(page, "topology", run)
    run.wait_committed(10 * len(KEYS) + more)
    _open(page, "Tasks")
    expect(page.locator("td.role.active")).to_have_count(4)
    _picture(page, "tasks", run)
    instances_here()[0].kill()
    _open(page, "Timeline")
    lost = page.locator(".log li", has_text="was lost")
    expect(lost.first).to_be_visible()
    for step in ("plan", "spark", "read", "process", "state", "commit"):
        expect(page.locator(f".stacks .step-{step}").first).to_be_attached()
    _picture(page, "timeline", run)
    _open(page, "Tasks")
    expect(page.locator("#state")).to_have_text("running")
    expect(page.locator("td.role.active")).to_have_count(4)
    _open(page, "Stores")
    page.get_by_label("Key", exact=True).fill(KEYS[3])
    page.get_by_role("button", name="Ask").click()
    expect(page.locator("#answer td.data")).to_have_text([KEYS[3], "11"])
    _picture(page, "stores", run)
    _open(page, "Topics")
    expect(page.get_by_role("rowheader", name=run.scene.source, exact=True)).to_be_visible()
    sizes = page.locator("table", has_text="settings").locator("tbody td:nth-child(5)")
    assert all(re.fullmatch(r"[\d.]+ (B|KiB|MiB)", each) for each in sizes.all_text_contents())
    page.get_by_role("button", name=f"latest records of {run.scene.source}", exact=True).click()
    expect(page.get_by_role("cell", name="patient-").first).to_be_visible()
    _picture(page, "topics", run)
    _open(page, "Configuration")
    expect(page.get_by_role("rowheader", name="num_standby_replicas")).to_be_visible()
    _picture(page, "configuration", run)
    _open(page, "Log")
    expect(page.locator(".log li", has_text="was lost").first).to_be_visible()
    _picture(page, "log", run)
    _open(page, "Overview")
    expect(page.get_by_text("220", exact=True).first).to_be_visible()
    if PICTURES:  # Another is started in the place of the lost one.
        expect(page.locator(".tile", has_text="instances").locator("dd")).to_have_text("2")
    _picture(page, "overview", run)
    page.close()
