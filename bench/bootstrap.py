"""How many rows a second a store is filled from: `python -m bench.bootstrap [ROWS]`.

Rows of one Parquet file, a key each, go to a store of four partitions on an embedded Kafka on this
machine. The clock runs from the call to its return: checks, encoding, shuffle, transactions. The
first fill is not counted: Java compiles then.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

import penstock as ps
from penstock.config import Config
from penstock.local.broker import EmbeddedKafka, KafkaOptions
from penstock.local.jars import SPARK_KAFKA, ensure
from penstock.pipeline.session import open_session

PARTITIONS = 4
ROUNDS = 3


def main(rows: int) -> None:
    """Print the rows per second of each round."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory)
        with EmbeddedKafka(KafkaOptions(directory=path / "kafka")) as broker:
            run(rows, path, broker.bootstrap_servers)


def run(rows: int, directory: Path, servers: str) -> None:
    """The rounds, each with an application of its own."""
    table = pa.table(
        {
            "key": pa.array([f"patient-{n}" for n in range(rows)]),
            "value": pa.array(range(rows), pa.int64()),
            "at": pa.array([1_000] * rows, pa.int64()),
        }
    )
    pq.write_table(table, directory / "history.parquet", row_group_size=max(rows // 8, 1))
    admin = AdminClient({"bootstrap.servers": servers})
    for future in admin.create_topics([NewTopic("pulses", PARTITIONS, 1)]).values():
        future.result()
    session = open_session("bench", Config(), ensure(SPARK_KAFKA))
    try:
        for number in range(ROUNDS + 1):
            app = ps.Application(f"bench-{number}", bootstrap_servers=servers)
            app.stream("pulses", key=str, value=bytes).group_by_key().count("counts")
            place = f"parquet:{directory / 'history.parquet'}"
            result = app.bootstrap("counts", place, timestamp="at", offsets="latest")
            assert result.entries == rows
            if number:
                print(f"{rows / result.seconds:,.0f} rows/s ({result.seconds:.1f} s)", flush=True)
    finally:
        session.close()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
