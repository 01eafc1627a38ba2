"""From a commit's rows to what its stores are to hold."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pyarrow as pa

from penstock.instance.protocol import CHANGE
from penstock.stores.contract import Change


def logged_rows(batch: pa.RecordBatch, changelogs: list[str]) -> pa.RecordBatch:
    """The batch without changes of stores that have no changelog."""
    if all(changelogs) or not batch.num_rows or batch.column("kind")[0].as_py() != CHANGE:
        return batch
    logged = np.array([bool(name) for name in changelogs])
    return batch.filter(pa.array(logged[batch.column("target").to_numpy()]))


def collect_changes(
    batch: pa.RecordBatch,
    stores: list[str],
    versioned: Collection[str],
    into: dict[str, list[Change]],
) -> None:
    """The batch's changes as the stores hold them; in versioned ones the time is in the key."""
    kinds, targets, _, keys, values, times, _ = batch.columns
    if not batch.num_rows or kinds[0].as_py() != CHANGE:
        return
    prefixes = times.to_numpy().astype(">i8").tobytes()
    stored = [
        None if value is None else prefixes[8 * i : 8 * i + 8] + value
        for i, value in enumerate(values.to_pylist())
    ]
    changes = list(zip(keys.to_pylist(), stored, strict=True))
    numbers = targets.to_numpy()
    for number in set(numbers.tolist()):
        rows = (numbers == number).nonzero()[0].tolist()
        kept = changes if len(rows) == len(changes) else [changes[row] for row in rows]
        if stores[number] in versioned:
            kept = [
                (key + prefixes[8 * row : 8 * row + 8], value)
                for row, (key, value) in zip(rows, kept, strict=True)
            ]
        into.setdefault(stores[number], []).extend(kept)
