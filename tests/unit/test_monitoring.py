"""The dashboard and the alerts name metrics that exist, and Prometheus understands the alerts."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.observability.catalogue import METRICS
from penstock.observability.prometheus import INFO
from penstock.queries.gate import OPEN_PATHS

ROOT = Path(__file__).parents[2]
FILES = ROOT / "docs" / "monitoring"
ALERTS = FILES / "alerts.yaml"
DASHBOARD = FILES / "dashboard.json"
METRIC = re.compile(r"\b(?:kafka_streams|kafka_consumer|penstock)_\w+")


def names() -> set[str]:
    return {each.prometheus for each in METRICS if not each.is_text} | {INFO}


def promtool() -> str:
    found = shutil.which("promtool") or shutil.which("promtool", path=str(ROOT / "build"))
    if found is None:
        pytest.skip("There is no promtool; tools/ensure-promtool fetches it on Debian")
    return found


@pytest.mark.parametrize("path", [ALERTS, DASHBOARD, ROOT / "docs" / "monitoring.md"])
def test_every_metric_that_is_named_exists(path: Path) -> None:
    named = set(METRIC.findall(path.read_text()))
    assert named
    assert named <= names()


def test_every_alert_says_how_bad_it_is_and_what_to_do() -> None:
    [group] = yaml.safe_load(ALERTS.read_text())["groups"]
    for rule in group["rules"]:
        assert rule["labels"]["severity"] in ("warning", "critical"), rule["alert"]
        assert set(rule["annotations"]) == {"summary", "action"}, rule["alert"]


def test_the_dashboard_has_a_query_in_every_panel() -> None:
    panels: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        if panel["type"] != "row":
            assert all(target["expr"] for target in panel["targets"]), panel["title"]


def test_rates_are_of_counters_alone() -> None:
    counters = {each.prometheus for each in METRICS if each.is_counter}
    text = ALERTS.read_text() + DASHBOARD.read_text()
    rated = set(re.findall(r"\b(?:rate|increase)\(((?:kafka|penstock)_\w+)", text))
    assert rated
    assert rated <= counters


def test_prometheus_understands_the_alerts() -> None:
    subprocess.run([promtool(), "check", "rules", str(ALERTS)], check=True, capture_output=True)


def test_prometheus_understands_what_the_dashboard_asks(tmp_path: Path) -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    asked = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    rules = [
        {"record": f"panel{number}", "expr": expr.replace("$job", "wards")}
        for number, expr in enumerate(asked)
    ]
    assert not any("$" in rule["expr"] for rule in rules)
    path = tmp_path / "dashboard.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    subprocess.run([promtool(), "check", "rules", str(path)], check=True, capture_output=True)


def test_alerts_ring_when_they_should(tmp_path: Path) -> None:
    shutil.copy(ALERTS, tmp_path)
    cases = shutil.copy(Path(__file__).parent / "data" / "alerts_test.yaml", tmp_path)
    done = subprocess.run([promtool(), "test", "rules", str(cases)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_is_let_in_by_what_the_page_shows(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "monitoring.md").read_text()
    [block] = re.findall(r"^```yaml\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    [scrape] = yaml.safe_load(block)["scrape_configs"]
    assert "/metrics" not in OPEN_PATHS
    assert f"PENSTOCK_HTTP_TOKEN_FILE={scrape['authorization']['credentials_file']}" in page
    [target] = scrape["static_configs"][0]["targets"]
    assert f"PENSTOCK_HTTP_LISTEN={target}" in page
    shutil.copy(ALERTS, tmp_path)
    (tmp_path / "token").write_text("t" * 32)
    (tmp_path / "prometheus.yml").write_text(block)
    words = [promtool(), "check", "config", str(tmp_path / "prometheus.yml")]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
