"""Pictures of topologies: well-formed, whole, and safe with any name."""

from __future__ import annotations

import re
from collections.abc import Callable
from xml.etree import ElementTree as ET

import pytest

import penstock as ps
from penstock.topology import SourceNode, StreamsBuilder, Topology, diagram
from tests.unit import test_topology_describe

SPACE = "{http://www.w3.org/2000/svg}"
Program = Callable[[StreamsBuilder], object]


def built(program: Program) -> Topology:
    builder = StreamsBuilder(names="kafka_streams")
    program(builder)
    return builder.build()


def expected(topology: Topology) -> set[str]:
    """Every step, store and topic, as a picture labels it."""
    subs = topology.sub_topologies + topology.global_tables
    nodes = [node for sub in subs for node in sub.nodes]
    topics = {topic for sub in subs for source in sub.sources for topic in source.topics}
    written = {sink.topic for sub in subs for sink in sub.sinks}
    stores = {store.name for store in topology.stores}
    return {node.name for node in nodes} | topics | written | stores


@pytest.mark.parametrize("program", test_topology_describe.PROGRAMS)
def test_a_picture_has_everything(program: Program) -> None:
    topology = built(program)
    root = ET.fromstring(topology.svg())
    texts = {text.text for text in root.iter(f"{SPACE}text")}
    assert expected(topology) <= texts
    labels = set(re.findall(r'"([^"]*)"', topology.mermaid()))
    assert expected(topology) <= labels


@pytest.mark.parametrize("program", test_topology_describe.PROGRAMS)
def test_nothing_overlaps_and_nothing_leaves_the_page(program: Program) -> None:
    root = ET.fromstring(built(program).svg())
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    shapes = [
        tuple(float(rect.attrib[name]) for name in ("x", "y", "width", "height"))
        for rect in root.iter(f"{SPACE}rect")
        if rect.attrib["class"] != "box"
    ]
    for x, y, w, h in shapes:
        assert 0 <= x < x + w <= width
        assert 0 <= y < y + h <= height
    for i, (x1, y1, w1, h1) in enumerate(shapes):
        for x2, y2, w2, h2 in shapes[i + 1 :]:
            assert x1 + w1 <= x2 or x2 + w2 <= x1 or y1 + h1 <= y2 or y2 + h2 <= y1


def test_hostile_names_stay_text() -> None:
    hostile = '"]; </text><script>alert(1)</script> & \x00 `x` #quot; ]]>'
    part = diagram.part_of(
        hostile,
        [
            SourceNode(
                name=hostile,
                topics=(hostile,),
                key_serde=ps.JsonSerde(dict),
                value_serde=ps.JsonSerde(dict),
            )
        ],
    )
    drawn = diagram.svg([part], title=hostile)
    root = ET.fromstring(drawn)
    assert "<script" not in drawn
    shown = hostile.replace("\x00", " ")
    assert [text.text for text in root.iter(f"{SPACE}text")] == [shown] * 3
    chart = diagram.mermaid([part])
    # Of what Mermaid could take for its own, only our brackets and quotes are left.
    assert chart.count('"') == 6
    assert "<" not in chart
    assert "`" not in chart


def test_an_application_draws_itself() -> None:
    app = ps.Application("pulse-monitor")
    app.stream("pulse-events", key=str, value=bytes).group_by_key().count("counts")
    assert app.mermaid() == (
        "flowchart LR\n"
        '  subgraph s0["Sub-topology 0#58; counts"]\n'
        '    n0_0["KSTREAM-SOURCE-0000000000"]\n'
        '    n0_2["KSTREAM-AGGREGATE-0000000001"]\n'
        '    n0_3[("counts")]\n'
        "  end\n"
        '  n0_1(["pulse-events"])\n'
        "  n0_1 --> n0_0\n"
        "  n0_0 --> n0_2\n"
        "  n0_2 -.- n0_3\n"
    )
    assert "prefers-color-scheme: dark" in app.svg()
