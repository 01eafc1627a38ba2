"""Several inputs of one slice: chunks joined, and where inputs must wait for each other."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping

import numpy as np
import pyarrow as pa

from penstock.processors.batch import Batch
from penstock.processors.records import Records

Input = tuple[str, int]


def joined(chunks: list[Records]) -> Records:
    """Chunks of one input as one."""
    if len(chunks) == 1:
        return chunks[0]
    headers = None
    if any(each.headers is not None for each in chunks):
        kind = next(each.headers.type for each in chunks if each.headers is not None)
        parts = [pa.nulls(len(c.offsets), kind) if c.headers is None else c.headers for c in chunks]
        headers = pa.concat_arrays(parts)
    return Records(
        topic=chunks[0].topic,
        partition=chunks[0].partition,
        offsets=np.concatenate([each.offsets for each in chunks]),
        timestamps=np.concatenate([each.timestamps for each in chunks]),
        keys=pa.concat_arrays([each.keys for each in chunks]),
        values=pa.concat_arrays([each.values for each in chunks]),
        headers=headers,
        computed={
            name: pa.concat_arrays([each.computed[name] for each in chunks])
            for name in chunks[0].computed
        },
    )


def unprocessed(batches: Mapping[Input, Batch], more: Collection[Input]) -> dict[Input, int]:
    """The first unprocessed offset of each input that must wait for another one."""
    queues = {name: batch for name, batch in batches.items() if len(batch)}
    at = dict.fromkeys(queues, 0)
    heads = [
        (int(queue.timestamps[0]), number, name)
        for number, (name, queue) in enumerate(queues.items())
    ]
    # An input with more in Kafka and nothing here stops all others at once.
    if any(name not in queues for name in more):
        heads = []
    heapq.heapify(heads)
    while heads:
        _, number, name = heapq.heappop(heads)
        at[name] += 1
        times = queues[name].timestamps
        if at[name] < len(times):
            heapq.heappush(heads, (int(times[at[name]]), number, name))
        elif name in more:
            break
    return {
        name: int(queue.offsets[at[name]])
        for name, queue in queues.items()
        if at[name] < len(queue)
    }


def before(chunks: list[Records], end: int | None) -> list[Records]:
    """The records below an offset."""
    if end is None:
        return chunks
    whole = joined(chunks)
    count = int(np.searchsorted(whole.offsets, end))
    return [
        Records(
            topic=whole.topic,
            partition=whole.partition,
            offsets=whole.offsets[:count],
            timestamps=whole.timestamps[:count],
            keys=whole.keys.slice(0, count),
            values=whole.values.slice(0, count),
            headers=None if whole.headers is None else whole.headers.slice(0, count),
        )
    ]
