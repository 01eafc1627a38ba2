"""What a task that reads its input again writes, and what its commit record says of that."""

from __future__ import annotations

from typing import TypedDict

import numpy as np
import pyarrow as pa

from penstock.changelog.commit_record import CommitRecord
from penstock.coordination.ids import Position
from penstock.coordination.recovery import Recovery
from penstock.instance.protocol import OUTPUT, CommitHeader, Positions, TakeOrder


class _Fields(TypedDict):
    begun: Positions
    until: Positions
    from_history: bool


def recovery_of(record: CommitRecord | None, position: Position) -> Recovery:
    """What the last commit says of where the task's state begins; `position` if it never began."""
    if record is None:
        return Recovery().with_inputs(position)
    begun = record.begun or {topic: dict.fromkeys(parts, 0) for topic, parts in position.items()}
    until = {topic: parts for topic, parts in record.until.items() if topic in position}
    known = Recovery(begun=begun, until=until, from_history=record.from_history)
    return known.with_inputs(position)


def recovery_fields(recovery: Recovery) -> _Fields:
    """The same for the next commit record."""
    return {
        "begun": plain(recovery.begun),
        "until": plain(recovery.until),
        "from_history": recovery.from_history,
    }


def not_yet_written(
    batch: pa.RecordBatch, header: CommitHeader, order: TakeOrder
) -> pa.RecordBatch:
    """The batch without outputs that were written when these records were read first."""
    if not batch.num_rows or batch.column("kind")[0].as_py() != OUTPUT:
        return batch
    if order.recover_outputs == "drop":
        return batch.slice(0, 0)
    repeated = np.array([topic not in order.repartitions for topic in header.topics])
    return batch.filter(pa.array(repeated[batch.column("target").to_numpy()]))


def plain(position: Position) -> Positions:
    """A position as messages carry it."""
    return {topic: dict(partitions) for topic, partitions in position.items()}
