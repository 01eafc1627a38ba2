"""Rows of figures: medians, ratios, whether the targets are met, and the file they are kept in."""

from __future__ import annotations

import json
import os
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.errors import BenchError

SCHEMA = 1
LATEST = Path(__file__).parent / "results" / "latest.json"
PENSTOCK = "penstock"
# The keys that every row has; a row may have more.
ROW_KEYS = (
    *("name", "guarantee", "unit", "penstock", "peers", "ratios", "targets"),
    *("rounds", "spread", "exact", "met"),
)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row: for each system a figure per round, and what Penstock's ratio to a peer must be."""

    name: str
    guarantee: str
    unit: str
    figures: Mapping[str, Sequence[float]]
    targets: Mapping[str, float]
    exact: bool
    lower_is_better: bool = False
    # What Penstock's own figure must not exceed, if there is such a thing.
    limit: float | None = None
    # What it must reach.
    least: float | None = None
    details: Mapping[str, Any] = field(default_factory=dict)

    def medians(self) -> dict[str, float]:
        return {system: statistics.median(values) for system, values in self.figures.items()}

    def spreads(self) -> dict[str, float]:
        return {system: spread(values) for system, values in self.figures.items()}

    def ratios(self) -> dict[str, float]:
        """Penstock's median divided by each peer's; empty when Penstock did not run."""
        medians = self.medians()
        ours = medians.pop(PENSTOCK, None)
        if ours is None:
            return {}
        return {peer: ours / theirs for peer, theirs in medians.items()}

    def met(self) -> bool:
        """Every output was exact, and every target is reached (without Penstock there is none)."""
        reached = PENSTOCK not in self.figures or targets_met(
            self.ratios(), self.targets, lower_is_better=self.lower_is_better
        )
        within = self.limit is None or self.medians().get(PENSTOCK, 0.0) <= self.limit
        enough = self.least is None or self.medians().get(PENSTOCK, self.least) >= self.least
        return self.exact and reached and within and enough

    def to_json(self) -> dict[str, Any]:
        """The row as the results file has it."""
        medians = self.medians()
        spreads = self.spreads()
        return {
            "name": self.name,
            "guarantee": self.guarantee,
            "unit": self.unit,
            "penstock": rounded(medians.pop(PENSTOCK, None)),
            "peers": {peer: rounded(value) for peer, value in medians.items()},
            "ratios": {peer: rounded(value) for peer, value in self.ratios().items()},
            "targets": dict(self.targets),
            **({} if self.limit is None else {"limit": self.limit}),
            **({} if self.least is None else {"least": self.least}),
            "rounds": min(len(values) for values in self.figures.values()),
            "spread": rounded(max(spreads.values())),
            "exact": self.exact,
            "met": self.met(),
            "lower_is_better": self.lower_is_better,
            "spreads": {system: rounded(value) for system, value in spreads.items()},
            "figures": {s: [rounded(v) for v in values] for s, values in self.figures.items()},
            **self.details,
        }


def spread(values: Sequence[float]) -> float:
    """How far the rounds lie apart: (largest - smallest) / median; 0 where all are 0.

    >>> spread([9.0, 10.0, 12.0]), spread([0.0])
    (0.3, 0.0)
    """
    difference = max(values) - min(values)
    return difference / statistics.median(values) if difference else 0.0


def targets_met(
    ratios: Mapping[str, float], targets: Mapping[str, float], *, lower_is_better: bool
) -> bool:
    """Whether each target's ratio is on the right side of it; a ratio that is missing is not."""
    for peer, target in targets.items():
        if peer not in ratios:
            return False
        reached = ratios[peer] <= target if lower_is_better else ratios[peer] >= target
        if not reached:
            return False
    return True


def rounded(value: float | None) -> float | None:
    """Four significant digits at least, and no more decimals than that needs."""
    if value is None:
        return None
    return round(value) if abs(value) >= 1000 else float(f"{value:.4g}")


def merged(
    earlier: Mapping[str, Any] | None,
    rows: Sequence[Mapping[str, Any]],
    *,
    commit: str,
    machine: Mapping[str, Any],
    versions: Mapping[str, str],
) -> dict[str, Any]:
    """The results file with these rows in place of those of the same names; the others stay.

    Those that stay say on which processor they were measured: it may have been another.
    """
    replaced = {row["name"] for row in rows}
    before = earlier or {"rows": ()}
    kept = [
        {"cpu": before["machine"]["cpu"], **row}
        for row in before["rows"]
        if row["name"] not in replaced
    ]
    return {
        "schema": SCHEMA,
        "commit": commit,
        "machine": dict(machine),
        "versions": dict(versions),
        "rows": kept + [dict(row) for row in rows],
    }


def read(path: Path) -> dict[str, Any] | None:
    """The results so far; None when there are none."""
    if not path.exists():
        return None
    document = json.loads(path.read_text())
    check(document, path)
    return document  # type: ignore[no-any-return]


def check(document: Any, path: Path) -> None:
    """Raise when a results file is not what this code writes."""
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise BenchError(f"{path} is not a results file of schema {SCHEMA}: delete it, run again")
    for row in document["rows"]:
        missing = [key for key in ROW_KEYS if key not in row]
        if missing:
            raise BenchError(f"{path}: row {row.get('name')} lacks {', '.join(missing)}")


def write(path: Path, document: Mapping[str, Any]) -> None:
    """Replace the file at once: a run that is interrupted leaves the old results whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".json")
    with os.fdopen(handle, "w") as file:
        json.dump(document, file, indent=2)
        file.write("\n")
    Path(temporary).chmod(0o644)
    Path(temporary).replace(path)
