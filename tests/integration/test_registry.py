"""Avro, JSON Schema and Protobuf in one topology on Spark and Kafka, with a registry here."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from tests.harness import Scene
from tests.in_process import Run
from tests.schema_registry import PulseMessage, serving

pytestmark = pytest.mark.usefixtures("spark")

AVRO = json.dumps(
    {
        "type": "record",
        "name": "Pulse",
        "fields": [{"name": "ward", "type": "string"}, {"name": "bpm", "type": "long"}],
    }
)
JSON_SCHEMA = json.dumps(
    {
        "title": "Pulse",
        "type": "object",
        "properties": {"ward": {"type": "string"}, "bpm": {"type": "integer"}},
        "required": ["ward", "bpm"],
    }
)


def test_workers_speak_with_the_registry(kafka: str, tmp_path: Path) -> None:
    scene = Scene(kafka, tmp_path, partitions=2).create_topics()
    pulses: list[dict[str, Any]] = [{"ward": f"ward-{n % 3}", "bpm": n} for n in range(60)]
    with serving() as (held, url):
        avro: ps.AvroSerde[Any] = ps.AvroSerde(AVRO, registry=url)
        schema: ps.JsonSchemaSerde[Any] = ps.JsonSchemaSerde(JSON_SCHEMA, registry=url)
        message: ps.ProtobufSerde[Any] = ps.ProtobufSerde(PulseMessage, registry=url)

        def topology(app: ps.Application, source: str, results: str) -> None:
            sums = (
                app.stream(source, key=str, value=avro)
                .map_values(lambda pulse: pulse, value=schema)
                .group_by(lambda key, pulse: pulse["ward"], key=str)
                .reduce(lambda kept, pulse: {**kept, "bpm": kept["bpm"] + pulse["bpm"]}, "sums")
            )
            sums.to_stream().map_values(lambda kept: PulseMessage(**kept), value=message).to(
                results
            )

        write = avro.for_topic(scene.source, "value").serialize
        total = scene.produce((b"%d" % pulse["bpm"], write(pulse)) for pulse in pulses)
        with Run(scene, topology) as run:
            run.wait_committed(total)
            run.wait_for(lambda: len(scene.read(scene.results)) >= total, what="all sums came out")

        expected: dict[str, int] = defaultdict(int)
        for pulse in pulses:
            expected[pulse["ward"]] += pulse["bpm"]
        came = [message.deserialize(row.value or b"") for row in scene.read(scene.results)]
        assert {each.ward: each.bpm for each in came} == expected
        kept = scene.read(f"{scene.application_id}-sums-changelog")
        assert {row.key: schema.deserialize(row.value or b"")["bpm"] for row in kept} == {
            ward.encode(): bpm for ward, bpm in expected.items()
        }
        assert sorted(held.subjects) == sorted(
            f"{topic}-value"
            for topic in (scene.source, "sums-repartition", "sums-changelog", scene.results)
        )
