"""Every test file is about a part of Penstock, and the report of a run adds them up."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.areas import BUDGETS, area_of, known_files, place_in_run, report, seconds_by_area

ROOT = Path(__file__).parents[2]
TESTS = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests").glob("**/test_*.py"))
DOCTESTS = sorted(
    str(path.relative_to(ROOT))
    for path in (ROOT / "src").glob("**/*.py")
    if ">>>" in path.read_text()
)


@pytest.mark.parametrize("file", [*TESTS, *DOCTESTS])
def test_every_test_file_has_an_area(file: str) -> None:
    assert area_of(file) in BUDGETS, f"say in tests/areas.py which part {file} is about"


def test_no_area_has_a_file_that_is_gone() -> None:
    assert known_files() <= {Path(file).stem for file in TESTS}


def test_long_files_come_first_and_keep_their_order() -> None:
    files = ["src/penstock/config.py", *TESTS]
    order = sorted(files, key=place_in_run)
    folders = [Path(file).parts[1] for file in order]
    assert folders[0] == "crash"
    assert folders.index("unit") > max(i for i, name in enumerate(folders) if name == "integration")
    of_units = [file for file in order if file.startswith("tests/unit/")]
    assert of_units == [file for file in files if file.startswith("tests/unit/")]


def test_the_report_adds_up_what_the_workers_did_side_by_side() -> None:
    durations = [
        ("tests/crash/test_kills.py", 100.0),
        ("tests/unit/test_task.py", 20.4),
        ("tests/unit/test_cli_help.py", 3.0),
        ("elsewhere/test_new.py", 1.0),
    ]
    found = seconds_by_area(durations)
    assert found == {"path": 120.4, "console": 3.0, "other": 1.0}
    assert report(found, workers=2) == [
        "path      1:00 of 4:00",
        "console   0:02",
        "other     0:00",
        "all       1:02 of 15:00",
    ]
