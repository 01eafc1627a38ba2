"""A real browser for tests, if the machine has one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, sync_playwright


@contextmanager
def chromium() -> Iterator[Browser]:
    """Debian's Chromium, without a window; where there is none, tests say that they are skipped."""
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("Chromium is not installed; on Debian: apt-get install chromium")
    # Chromium refuses to sandbox what root runs.
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=arguments)
        try:
            yield browser
        finally:
            browser.close()
