"""Functions per record, per batch and as expressions in one topology, on Spark and Kafka."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import penstock as ps
from penstock.errors import UserFunctionError
from penstock.pipeline import jobs
from tests.harness import Scene
from tests.in_process import Run

pytestmark = pytest.mark.usefixtures("spark")


@ps.batch
def _tenfold(values: pa.Array) -> pa.Array:
    return pc.multiply(values, 10)


@ps.batch
def _not_forty(keys: pa.Array, values: pa.Array) -> pa.Array:
    return pc.not_equal(values, 40)


def _mixed(app: ps.Application, source: str, results: str) -> None:
    (
        app.stream(source, key=str, value=int)
        .filter(ps.expr("value % 2 = 0"))
        .map_values(ps.expr("value + length(key) - 1"))
        .map_values(_tenfold, value=int)
        .filter(_not_forty)
        .map_values(lambda value: value + 1, value=int)
        .group_by_key()
        .reduce(lambda total, value: total + value, "sums", caching=False)
        .filter(ps.expr("value > 100"))
        .to_stream()
        .map_values(ps.expr("CASE WHEN value > 500 THEN value ELSE -value END"))
        .to(results)
    )


def _expected(rows: list[tuple[bytes, int]]) -> list[tuple[bytes, int]]:
    sums: dict[bytes, int] = {}
    found = []
    for key, value in rows:
        tenfold = (value + len(key) - 1) * 10
        if value % 2 or tenfold == 40:
            continue
        total = sums[key] = sums.get(key, 0) + tenfold + 1
        if total > 100:
            found.append((key, total if total > 500 else -total))
    return found


def test_all_three_in_one_topology(
    kafka: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(kafka, tmp_path, partitions=1).create_topics()
    rows = [(b"k" * (1 + n % 3), n % 17) for n in range(300)]
    total = scene.produce([(key, value.to_bytes(8, "big")) for key, value in rows])
    computed: list[list[str]] = []
    original = jobs.with_expressions

    def heard(frame: object, source: object, expressions: object) -> object:
        computed.append([each.text for each in expressions])  # type: ignore[attr-defined]
        return original(frame, source, expressions)  # type: ignore[arg-type]

    monkeypatch.setattr(jobs, "with_expressions", heard)
    with Run(scene, _mixed) as run:
        run.wait_committed(total)

    found = [
        (row.key, int.from_bytes(row.value or b"", "big", signed=True))
        for row in scene.read(scene.results)
    ]
    assert found == _expected(rows)
    # Spark computed the expressions that lead, and only those.
    assert computed[0] == ["value % 2 = 0", "value + length(key) - 1"]


def test_an_expression_that_fails_in_spark_names_the_record(kafka: str, tmp_path: Path) -> None:
    scene = Scene(kafka, tmp_path, partitions=1).create_topics()
    scene.produce([(b"a", number.to_bytes(8, "big")) for number in (3, 2, 1, 0, 5)])

    def topology(app: ps.Application, source: str, results: str) -> None:
        stream = app.stream(source, key=str, value=int)
        stream.map_values(ps.expr("6 div value"), name="shares").to(results)

    with Run(scene, topology) as run, pytest.raises(UserFunctionError) as caught:
        run.wait_end()
    assert caught.value.where["offset"] == "3"
    assert caught.value.where["step"] == "shares"
