"""Which instance owns which task."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.coordination.ids import TaskId


def assign(
    tasks: Iterable[TaskId], instances: Iterable[str], previous: Mapping[TaskId, str]
) -> dict[TaskId, str]:
    """An owner for every task: the one that has it, else the one with the fewest tasks.

    A task moves only when its owner is gone, so that nothing restores without need.

    >>> assign([TaskId(0, 0), TaskId(0, 1)], ["b", "a"], {TaskId(0, 1): "a"})
    {TaskId(sub_topology=0, partition=0): 'b', TaskId(sub_topology=0, partition=1): 'a'}
    """
    present = sorted(instances)
    if not present:
        return {}
    wanted = sorted(tasks)
    load = dict.fromkeys(present, 0)
    owners: dict[TaskId, str] = {}
    for task in wanted:
        owner = previous.get(task)
        if owner in load:
            owners[task] = owner
            load[owner] += 1
    for task in wanted:
        if task not in owners:
            owner = min(present, key=lambda name: (load[name], name))
            owners[task] = owner
            load[owner] += 1
    return {task: owners[task] for task in wanted}
