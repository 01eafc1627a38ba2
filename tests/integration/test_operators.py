"""reduce, aggregate and re-keying from source to sink, exactly; and at-least-once."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from pathlib import Path

import pytest

import penstock as ps
from tests.harness import Scene
from tests.in_process import Run, instances_here

pytestmark = pytest.mark.usefixtures("spark")


def numbers(count: int, *, seed: int) -> list[tuple[bytes, bytes]]:
    choose = random.Random(seed)
    return [
        (b"key-%d" % choose.randrange(20), choose.randrange(7).to_bytes(8, "big"))
        for _ in range(count)
    ]


def number(data: bytes | None) -> int:
    assert data is not None
    return int.from_bytes(data, "big", signed=True)


def by_key(scene: Scene, topic: str) -> dict[bytes, list[int]]:
    """Every key's values in order; a key has one partition."""
    found: dict[bytes, list[int]] = defaultdict(list)
    for row in scene.read(topic):
        assert row.key is not None
        found[row.key].append(number(row.value))
    return dict(found)


def test_reduce_aggregate_and_rekeying_are_exact_over_a_restart(kafka: str, tmp_path: Path) -> None:
    scene = Scene(kafka, tmp_path, partitions=2)
    largest, sums, rekeyed = (f"{scene.id}-{name}" for name in ("largest", "sums", "rekeyed"))
    scene.create_topics(scene.source, largest, sums, rekeyed)

    def topology(app: ps.Application, source: str, results: str) -> None:
        stream = app.stream(source, key=str, value=int)
        odd = stream.filter(lambda key, value: value % 2 == 1).map_values(
            lambda v: v * 10, value=int
        )
        odd.group_by_key().reduce(max, "largest").to_stream().to(largest)
        stream.group_by_key().aggregate(
            lambda: 100, lambda key, value, total: total + value, "sums", value=int
        ).to_stream().to(sums)
        stream.group_by(lambda key, value: value, key=int).count("rekeyed").to_stream().to(rekeyed)

    total = 0
    for seed in (1, 2):
        total += scene.produce(numbers(300, seed=seed))
        with Run(scene, topology) as run:
            run.wait_committed(total)
            counted = Counter(row.value for row in scene.read(scene.source))
            run.wait_for(lambda: scene.counts(rekeyed) == counted, what="re-keyed counts")  # noqa: B023

    source = by_key(scene, scene.source)
    tens = {key: [v * 10 for v in values if v % 2 == 1] for key, values in source.items()}
    assert by_key(scene, largest) == {
        key: [max(values[: i + 1]) for i in range(len(values))] for key, values in tens.items()
    }
    assert by_key(scene, sums) == {
        key: [100 + sum(values[: i + 1]) for i in range(len(values))]
        for key, values in source.items()
    }
    assert scene.sequences(rekeyed) == {
        value: list(range(1, count + 1)) for value, count in counted.items()
    }


def test_at_least_once_loses_nothing(kafka: str, tmp_path: Path) -> None:
    scene = Scene(kafka, tmp_path, partitions=2).create_topics()
    total = 0
    for seed in (1, 2):
        total += scene.produce(numbers(300, seed=seed))
        with Run(scene, processing_guarantee="at_least_once") as run:
            run.wait_committed(total)
            # Between clean stops nothing is done twice either.
            assert scene.counts() == scene.counts(scene.changelog) == scene.expected()
            if seed == 2:
                total += scene.produce(numbers(3000, seed=3))
                [instance] = instances_here()
                instance.kill()
                run.wait_committed(total)
                assert any("is lost" in notice for notice in run.notices)
    counts = scene.counts()
    assert counts == scene.counts(scene.changelog)
    for key, expected in scene.expected().items():
        assert counts[key] >= expected
