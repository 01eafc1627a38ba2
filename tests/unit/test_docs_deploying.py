"""What the page on deploying and its manifests say can be said to Penstock."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from pathlib import Path

from penstock.cli.instance import instance
from penstock.config import Config
from penstock.instance.process import TOKEN_VARIABLE

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [DOCS / "deploying.md", *sorted((DOCS / "kubernetes").glob("*.yaml"))]


def test_every_variable_is_an_option() -> None:
    names = {f"PENSTOCK_{each.name.upper()}" for each in fields(Config)} | {TOKEN_VARIABLE}
    used = {name for page in PAGES for name in re.findall(r"PENSTOCK_\w+", page.read_text())}
    assert used - names == set()
    assert "PENSTOCK_COORDINATOR_LISTEN" in used


def test_the_drivers_variables_make_a_config() -> None:
    text = (DOCS / "kubernetes" / "driver.yaml").read_text()
    pairs = re.findall(r"\{name: (PENSTOCK_\w+), value: \"?([^\"}]+)\"?\}", text)
    environment = dict(pairs) | {"POD_IP": "10.0.0.7"}
    given = {name: value.replace("$(POD_IP)", "10.0.0.7") for name, value in environment.items()}
    config = Config.build({}, given)
    assert config.coordinator_listen == "10.0.0.7:7600"
    assert config.num_standby_replicas == 1
    assert config.session_timeout.total_seconds() == 60


def test_every_option_of_penstock_instance_is_there() -> None:
    known = {f"--{name.replace('_', '-')}" for name in inspect.signature(instance).parameters}
    text = (DOCS / "kubernetes" / "instances.yaml").read_text()
    line = next(line for line in text.splitlines() if "penstock, instance" in line)
    assert set(re.findall(r"--[a-z-]+", line)) <= known
