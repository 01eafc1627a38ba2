"""A topology as a picture: Mermaid's text, or SVG by a small layered layout of our own.

Every sub-topology is a box of steps and stores, with the topics that it reads to the left and those
that it writes to the right. A topic between two of them is drawn at both.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import fmean
from typing import Literal
from xml.sax.saxutils import escape, quoteattr

from penstock.topology.nodes import GlobalJoinNode, Node, SinkNode, SourceNode

ShapeKind = Literal["input", "step", "store", "output", "way"]
"""A `way` is room that an edge takes in a column which it crosses."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ufffe\uffff\ud800-\udfff]")


@dataclass(frozen=True)
class Shape:
    """One thing to draw."""

    key: str
    kind: ShapeKind
    label: str


@dataclass(frozen=True)
class Part:
    """A sub-topology to draw; `edges` and `uses` go between the keys of shapes."""

    title: str
    shapes: tuple[Shape, ...]
    edges: tuple[tuple[str, str], ...]
    uses: tuple[tuple[str, str], ...]
    """Which step uses which store."""


def part_of(title: str, nodes: Sequence[Node]) -> Part:
    """What is drawn of a sub-topology."""
    shapes: dict[str, Shape] = {}
    edges: list[tuple[str, str]] = []
    uses: list[tuple[str, str]] = []

    def shape(kind: ShapeKind, name: str) -> str:
        key = f"{kind}:{name}"
        shapes.setdefault(key, Shape(key, kind, _CONTROL.sub(" ", name)))
        return key

    for node in nodes:
        step = shape("step", node.name)
        if isinstance(node, SourceNode):
            topics = node.topics if node.pattern is None else (node.pattern.pattern,)
            edges += [(shape("input", topic), step) for topic in sorted(topics)]
        if isinstance(node, SinkNode):
            edges.append((step, shape("output", _written(node))))
        uses += [(step, shape("store", name)) for name in _stores(node)]
        edges += [(step, f"step:{child}") for child in node.children]
    return Part(_CONTROL.sub(" ", title), tuple(shapes.values()), tuple(edges), tuple(uses))


def _stores(node: Node) -> tuple[str, ...]:
    return (*node.stores, node.table.name) if isinstance(node, GlobalJoinNode) else node.stores


def _written(node: SinkNode) -> str:
    if node.topic_of is None:
        return node.topic
    name = getattr(node.topic_of, "__qualname__", type(node.topic_of).__qualname__)
    return f"topic of {name}"


# Mermaid.

_MERMAID_FORMS = {
    "input": ('(["', '"])'),
    "output": ('(["', '"])'),
    "step": ('["', '"]'),
    "store": ('[("', '")]'),
}


def mermaid(parts: Iterable[Part]) -> str:
    """The parts as a Mermaid flowchart."""
    lines = ["flowchart LR"]
    for number, part in enumerate(parts):
        ids = {shape.key: f"n{number}_{i}" for i, shape in enumerate(part.shapes)}
        inside = [shape for shape in part.shapes if shape.kind in ("step", "store")]
        outside = [shape for shape in part.shapes if shape.kind in ("input", "output")]
        lines.append(f'  subgraph s{number}["{_mermaid_text(part.title)}"]')
        lines += [f"    {_mermaid_shape(ids, shape)}" for shape in inside]
        lines.append("  end")
        lines += [f"  {_mermaid_shape(ids, shape)}" for shape in outside]
        lines += [f"  {ids[start]} --> {ids[end]}" for start, end in part.edges]
        lines += [f"  {ids[step]} -.- {ids[store]}" for step, store in part.uses]
    return "\n".join(lines) + "\n"


def _mermaid_shape(ids: dict[str, str], shape: Shape) -> str:
    before, after = _MERMAID_FORMS[shape.kind]
    return f"{ids[shape.key]}{before}{_mermaid_text(shape.label)}{after}"


def _mermaid_text(text: str) -> str:
    """A label: letters, digits and what names hold stay, all else becomes Mermaid's codes."""
    return "".join(c if c.isalnum() or c in " .-_()," else f"#{ord(c)};" for c in text)


# SVG.

_FONT_WIDTH, _HEIGHT = 7.3, 30.0
_HEIGHTS = {"store": 42.0, "way": 10.0}
_GAP_X, _GAP_Y, _MARGIN, _TITLE = 56.0, 16.0, 20.0, 24.0
_STYLE = """
.penstock-topology { --paper: #ffffff; --ink: #1b2430; --line: #66717f; --box: #f4f6f9;
  --step: #ffffff; --topic: #d9ebff; --store: #ffefcc; background: var(--paper); }
@media (prefers-color-scheme: dark) {
  .penstock-topology { --paper: #10151c; --ink: #e4e9f0; --line: #93a0b0; --box: #18202a;
    --step: #232d3a; --topic: #123a63; --store: #4a3a12; }
}
.penstock-topology text { font: 12px ui-monospace, Menlo, Consolas, monospace; fill: var(--ink); }
.penstock-topology .title { font-weight: bold; }
.penstock-topology .box { fill: var(--box); stroke: var(--line); stroke-width: .5; }
.penstock-topology .step { fill: var(--step); stroke: var(--line); }
.penstock-topology .input, .penstock-topology .output { fill: var(--topic); stroke: var(--line); }
.penstock-topology .store { fill: var(--store); stroke: var(--line); }
.penstock-topology .edge { fill: none; stroke: var(--line); }
.penstock-topology .use { fill: none; stroke: var(--line); stroke-dasharray: 4 3; }
.penstock-topology .head { fill: var(--line); }
"""


@dataclass
class _Box:
    """Where a shape is drawn."""

    shape: Shape
    x: float = 0.0
    y: float = 0.0
    width: float = field(init=False)
    height: float = field(init=False)

    def __post_init__(self) -> None:
        self.width = max(60.0, len(self.shape.label) * _FONT_WIDTH + 24)
        self.height = _HEIGHTS.get(self.shape.kind, _HEIGHT)

    @property
    def middle(self) -> float:
        """Its height's middle."""
        return self.y + self.height / 2


def svg(parts: Iterable[Part], *, title: str = "Topology") -> str:
    """The parts as an SVG, for light and dark pages."""
    drawn: list[str] = []
    width, y = 0.0, _MARGIN
    for part in parts:
        lines, right, bottom = _draw_part(part, y)
        drawn += lines
        width, y = max(width, right), bottom + _MARGIN
    width += _MARGIN
    size = f'width="{width:.0f}" height="{y:.0f}" viewBox="0 0 {width:.0f} {y:.0f}"'
    head = (
        '<marker id="penstock-head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path class="head" d="M0 0 L8 4 L0 8 z"/></marker>'
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="penstock-topology" role="img" {size}>\n'
        f"<title>{escape(_CONTROL.sub(' ', title))}</title>\n<style>{_STYLE}</style>\n"
        f"<defs>{head}</defs>\n" + "".join(f"{line}\n" for line in drawn) + "</svg>\n"
    )


def _draw_part(part: Part, top: float) -> tuple[list[str], float, float]:
    """A part's lines, and where it ends to the right and below."""
    depth = _depths(part)
    ways = [_way(start, end, depth) for start, end in part.edges]
    boxes = _place(_columns(part, depth, ways), part, top + _TITLE + _GAP_Y)
    inner = [box for box in boxes.values() if box.shape.kind in ("step", "store")]
    left = min(box.x for box in inner) - _GAP_Y
    right = max(box.x + box.width for box in inner) + _GAP_Y
    right = max(right, left + len(part.title) * _FONT_WIDTH + 2 * _GAP_Y)
    bottom = max(box.y + box.height for box in boxes.values()) + _GAP_Y
    frame = f'x="{left:.1f}" y="{top:.1f}" width="{right - left:.1f}" height="{bottom - top:.1f}"'
    at = f'x="{left + _GAP_Y:.1f}" y="{top + 20:.1f}"'
    lines = [
        f'<rect class="box" rx="8" {frame}/>',
        f'<text class="title" {at}>{escape(part.title)}</text>',
    ]
    lines += [_edge([boxes[key] for key in way]) for way in ways]
    lines += [_use(boxes[step], boxes[store]) for step, store in part.uses]
    lines += [line for box in boxes.values() for line in _draw(box)]
    ends = [box.x + box.width for box in boxes.values()]
    return lines, max(right, *ends), bottom


def _depths(part: Part) -> dict[str, int]:
    """The columns: inputs, steps by their distance from the sources, sinks, outputs."""
    depth = {shape.key: 0 for shape in part.shapes if shape.kind == "input"}
    for shape in part.shapes:  # Each step comes after those that feed it.
        if shape.kind == "step":
            feeding = [depth[start] for start, end in part.edges if end == shape.key]
            depth[shape.key] = max(feeding, default=0) + 1
    last = max(depth.values())
    outputs = {shape.key for shape in part.shapes if shape.kind == "output"}
    depth |= {start: last for start, end in part.edges if end in outputs}
    return depth | dict.fromkeys(outputs, last + 1)


def _way(start: str, end: str, depth: dict[str, int]) -> list[str]:
    """An edge's start, the room that it takes in each column between, and its end."""
    between = range(depth[start] + 1, depth[end])
    ways = [f"way:{column}:{start}>{end}" for column in between]
    depth |= dict(zip(ways, between, strict=True))
    return [start, *ways, end]


def _columns(part: Part, depth: dict[str, int], ways: list[list[str]]) -> list[list[str]]:
    """The keys by column, each put by where those that feed it are; stores below their steps."""
    columns: list[list[str]] = [[] for _ in range(max(depth.values()) + 1)]
    for key, column in depth.items():
        columns[column].append(key)
    fed: dict[str, list[str]] = {}
    for way in ways:
        for start, end in pairwise(way):
            fed.setdefault(end, []).append(start)
    rows: dict[str, int] = {}
    for keys in columns:
        wishes = {key: fmean(rows[each] for each in fed[key]) for key in keys if key in fed}
        keys.sort(key=lambda key: wishes.get(key, 0.0))
        rows |= {key: row for row, key in enumerate(keys)}
    users: dict[str, str] = {}
    for step, store in part.uses:
        users.setdefault(store, step)
    for store, step in users.items():
        keys = columns[depth[step]]
        keys.insert(keys.index(step) + 1, store)
    return columns


def _place(columns: list[list[str]], part: Part, top: float) -> dict[str, _Box]:
    shapes = {shape.key: shape for shape in part.shapes}
    boxes: dict[str, _Box] = {}
    x = _MARGIN
    for column in columns:
        y = top
        for key in column:
            box = boxes[key] = _Box(shapes.get(key) or Shape(key, "way", ""), x, y)
            y += box.height + _GAP_Y
        width = max((boxes[key].width for key in column), default=0.0)
        for key in column:
            if boxes[key].shape.kind == "way":
                boxes[key].width = width
        x += width + _GAP_X
    return boxes


def _edge(way: list[_Box]) -> str:
    """A line from the first box to the last, straight through the room of those between."""
    curve = f"M{way[0].x + way[0].width:.1f} {way[0].middle:.1f}"
    for start, end in pairwise(way):
        x1, x2 = start.x + start.width, end.x
        bend = (x2 - x1) / 2
        curve += (
            f" C{x1 + bend:.1f} {start.middle:.1f} {x2 - bend:.1f} {end.middle:.1f} "
            f"{x2:.1f} {end.middle:.1f}"
        )
        if end.shape.kind == "way":
            curve += f" H{end.x + end.width:.1f}"
    names = f"data-from={_name(way[0].shape)} data-to={_name(way[-1].shape)}"
    return f'<path class="edge" {names} marker-end="url(#penstock-head)" d="{curve}"/>'


def _name(shape: Shape) -> str:
    return quoteattr(_CONTROL.sub(" ", shape.key))


def _use(step: _Box, store: _Box) -> str:
    x1, y1 = step.x + min(step.width, store.width) / 2, step.y + step.height
    x2 = store.x + min(step.width, store.width) / 2
    if store.y < y1:
        y1 = step.y
    y2 = store.y + (store.height if store.y < y1 else 0)
    return f'<path class="use" d="M{x1:.1f} {y1:.1f} L{x2:.1f} {y2:.1f}"/>'


def _draw(box: _Box) -> Iterator[str]:
    shape, x, y, width, height = box.shape, box.x, box.y, box.width, box.height
    if shape.kind == "way":
        return
    # By its name whoever shows the picture finds a shape again.
    name = f"data-key={_name(shape)}"
    if shape.kind == "store":
        # A cylinder: two ellipses of height 12, and what is between them.
        side = height - 12
        yield (
            f'<path class="store" {name} d="M{x:.1f} {y + 6:.1f} '
            f"a{width / 2:.1f} 6 0 0 1 {width:.1f} 0 "
            f"v{side:.1f} a{width / 2:.1f} 6 0 0 1 {-width:.1f} 0 z "
            f'm0 0 a{width / 2:.1f} 6 0 0 0 {width:.1f} 0"/>'
        )
    else:
        radius = 4 if shape.kind == "step" else height / 2
        yield (
            f'<rect class="{shape.kind}" {name} x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" '
            f'height="{height:.1f}" rx="{radius:.0f}"/>'
        )
    baseline = box.middle + (8 if shape.kind == "store" else 4)
    label = quoteattr(f"{shape.kind} {shape.label}")
    yield (
        f'<text aria-label={label} x="{x + width / 2:.1f}" y="{baseline:.1f}" '
        f'text-anchor="middle">{escape(shape.label)}</text>'
    )
