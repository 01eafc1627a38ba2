"""Medians, ratios, targets, and the results file's shape."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from bench.display import table_cells
from bench.errors import BenchError
from bench.readme import END, START, section, spliced
from bench.results import ROW_KEYS, Row, check, merged, read, rounded, spread, targets_met, write


def row(
    figures: Mapping[str, Sequence[float]],
    *,
    name: str = "count",
    targets: Mapping[str, float] | None = None,
    exact: bool = True,
    lower_is_better: bool = False,
    limit: float | None = None,
) -> Row:
    return Row(
        name=name,
        guarantee="exactly_once",
        unit="records/s",
        figures=figures,
        targets=targets or {},
        exact=exact,
        lower_is_better=lower_is_better,
        limit=limit,
    )


def document(rows: Sequence[Row]) -> dict[str, object]:
    return merged(
        None,
        [each.to_json() | {"date": "2026-01-02"} for each in rows],
        commit="abc",
        machine={"cpu": "x", "cores": 2, "memory_gib": 24.0, "os": "Linux", "broker": "here"},
        versions={"penstock": "0.1.0"},
    )


def test_medians_are_compared_not_the_best_rounds() -> None:
    made = row({"penstock": [90, 200, 300], "kafka_streams": [100, 100, 1000]})
    assert made.medians() == {"penstock": 200, "kafka_streams": 100}
    assert made.ratios() == {"kafka_streams": 2.0}


def test_spread_is_the_range_over_the_median() -> None:
    assert spread([90, 100, 120]) == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("ratio", "lower_is_better", "reached"),
    [
        (2.0, False, True),
        (1.99, False, False),
        (2.01, True, False),
        (2.0, True, True),
        (0.5, True, True),
    ],
)
def test_a_target_is_reached_on_its_own_side(
    ratio: float, lower_is_better: bool, reached: bool
) -> None:
    found = targets_met({"peer": ratio}, {"peer": 2.0}, lower_is_better=lower_is_better)
    assert found is reached


def test_a_target_without_a_ratio_is_missed() -> None:
    assert not targets_met({}, {"peer": 2.0}, lower_is_better=False)


def test_all_targets_must_be_reached() -> None:
    figures = {"penstock": [100.0], "kafka_streams": [40.0], "quix_streams": [20.0]}
    assert row(figures, targets={"kafka_streams": 2.0}).met()
    assert not row(figures, targets={"kafka_streams": 2.0, "quix_streams": 10.0}).met()


def test_a_wrong_output_is_never_met() -> None:
    assert not row({"penstock": [100.0]}, exact=False).met()


def test_a_look_at_the_peers_alone_is_met_when_exact() -> None:
    assert row({"kafka_streams": [100.0]}, targets={"kafka_streams": 2.0}).met()


def test_a_row_has_every_key_that_readers_rely_on() -> None:
    made = row({"penstock": [100.0], "kafka_streams": [40.0]}).to_json()
    assert set(ROW_KEYS) <= set(made)
    assert made["penstock"] == 100
    assert made["peers"] == {"kafka_streams": 40}
    assert made["ratios"] == {"kafka_streams": 2.5}
    assert json.loads(json.dumps(made)) == made


def test_figures_keep_four_digits() -> None:
    assert rounded(123_456.7) == 123_457
    assert rounded(1.234567) == 1.235
    assert rounded(None) is None


def test_a_run_replaces_its_own_rows_only() -> None:
    before = document(
        [row({"penstock": [1.0]}, name="count"), row({"penstock": [2.0]}, name="start")]
    )
    fresh = row({"penstock": [3.0]}, name="count").to_json()
    after = merged(before, [fresh], commit="def", machine={}, versions={})
    assert {each["name"]: each["penstock"] for each in after["rows"]} == {"start": 2, "count": 3}
    assert after["commit"] == "def"


def test_the_file_reads_back_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "results" / "latest.json"
    assert read(path) is None
    made = document([row({"penstock": [1.0]})])
    write(path, made)
    assert read(path) == made
    assert [file.name for file in path.parent.iterdir()] == ["latest.json"]


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="schema"):
        check({"schema": 99, "rows": []}, tmp_path)
    with pytest.raises(BenchError, match="lacks guarantee"):
        check({"schema": 1, "rows": [{"name": "count"}]}, tmp_path)


def test_the_table_shows_ratio_and_target_beside_the_peer() -> None:
    made = row(
        {"penstock": [300_000.0], "kafka_streams": [100_000.0]}, targets={"kafka_streams": 2}
    )
    header, line = table_cells([made.to_json()])
    assert header[3:5] == ["Penstock", "Kafka Streams"]
    assert line[3:5] == ["300,000", "100,000 (x 3.00, target 2)"]


def test_the_readme_changes_between_its_marks_only() -> None:
    made = section(document([row({"penstock": [1.0]})]))
    text = spliced(f"before\n{START}\nold\n{END}\nafter\n", made)
    assert text.startswith(f"before\n{START}\n| row |")
    assert text.endswith(f"{END}\nafter\n")
    assert "old" not in text
    assert "2026-01-02" in text
    assert spliced(text, made) == text


def test_a_readme_without_marks_is_refused() -> None:
    with pytest.raises(BenchError, match="lacks"):
        spliced("no marks", "table")


def test_a_limit_is_for_penstocks_own_figure() -> None:
    assert row({"penstock": [0.4, 0.9, 2.0]}, limit=1.0).met()
    assert not row({"penstock": [0.4, 1.1, 2.0]}, limit=1.0).met()
    assert row({"penstock": [0.4]}, limit=1.0).to_json()["limit"] == 1.0
    assert "limit" not in row({"penstock": [0.4]}).to_json()
