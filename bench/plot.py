"""Lines over time as an SVG, one panel below the other; no more than the plots here need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

Point = tuple[float, float]
COLOURS = ("#c0392b", "#2c6fbb", "#7f8c8d")
WIDTH, PANEL, TOP, LEFT, RIGHT, GAP = 860, 96, 46, 64, 16, 44
TICK_SECONDS = 5


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One story: its lines, by what they show, and the moments in it that have a name."""

    title: str
    lines: Sequence[tuple[str, Sequence[Point]]]
    marks: Sequence[tuple[float, str]] = ()


def svg(title: str, panels: Sequence[Panel], *, unit: str) -> str:
    """The panels under one title, with a common scale of time in each panel."""
    height = TOP + len(panels) * (PANEL + GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
        f"<title>{escape(title)}</title>",
        '<g font-family="sans-serif" font-size="11">',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="18" font-size="14" fill="#222">{escape(title)}</text>',
        f'<text x="{LEFT}" y="33" fill="#555">{escape(unit)}</text>',
    ]
    for number, panel in enumerate(panels):
        parts += _panel(panel, TOP + number * (PANEL + GAP) + 14)
    return "\n".join([*parts, "</g>", "</svg>", ""])


def _panel(panel: Panel, top: float) -> list[str]:
    points = [point for _, line in panel.lines for point in line]
    last = max((x for x, _ in points), default=1.0) or 1.0
    most = max((y for _, y in points), default=1.0) or 1.0
    wide, bottom = WIDTH - LEFT - RIGHT, top + PANEL

    def x(seconds: float) -> str:
        return f"{LEFT + seconds / last * wide:.1f}"

    def y(value: float) -> str:
        return f"{bottom - value / most * PANEL:.1f}"

    parts = [
        f'<text x="{LEFT}" y="{top - 5}" fill="#222">{escape(panel.title)}</text>',
        f'<path d="M{LEFT} {top}V{bottom}H{WIDTH - RIGHT}" fill="none" stroke="#999"/>',
        f'<text x="{LEFT - 6}" y="{top + 9}" text-anchor="end" fill="#555">{most:,.0f}</text>',
        f'<text x="{LEFT - 6}" y="{bottom}" text-anchor="end" fill="#555">0</text>',
    ]
    parts += [
        f'<text x="{x(tick)}" y="{bottom + 13}" text-anchor="middle">{tick} s</text>'
        for tick in range(0, int(last) + 1, TICK_SECONDS)
    ]
    for at, name in panel.marks:
        parts += [
            f'<path d="M{x(at)} {top}V{bottom}" stroke="#222" stroke-dasharray="3 3"/>',
            f'<text x="{float(x(at)) + 4:.1f}" y="{top + 10}" fill="#222">{escape(name)}</text>',
        ]
    for number, (name, line) in enumerate(panel.lines):
        colour = COLOURS[number % len(COLOURS)]
        path = " ".join(f"{x(a)},{y(b)}" for a, b in line)
        parts.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
        )
        place = WIDTH - RIGHT - 190 * (len(panel.lines) - number)
        parts.append(f'<text x="{place}" y="{top - 5}" fill="{colour}">{escape(name)}</text>')
    return parts
