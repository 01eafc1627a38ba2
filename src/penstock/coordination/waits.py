"""What an application that does not run yet waits for, in words for whoever watches it."""

from __future__ import annotations

from collections.abc import Sequence

_NAMED = 4
"""So many tasks are named; of more it is said how many."""


def waited_for(*, instances: int, tasks: int, opening: Sequence[str], restoring: set[str]) -> str:
    """What comes before every task is served, and then before the first batch.

    `opening` are the tasks that nobody serves yet, `restoring` those whose stores are being filled.

    >>> waited_for(instances=0, tasks=4, opening=["0_0"], restoring=set())
    'waiting for an instance'
    >>> waited_for(instances=1, tasks=4, opening=["0_1", "0_3"], restoring=set())
    'opening tasks: 2 of 4 are served, not yet 0_1, 0_3'
    >>> waited_for(instances=1, tasks=4, opening=["0_1", "0_3"], restoring={"0_3"})
    'restoring 0_3: 2 of 4 tasks are served'
    >>> waited_for(instances=1, tasks=4, opening=[], restoring=set())
    "waiting for Spark's first job"
    """
    if not opening:
        return "waiting for Spark's first job"
    if not instances:
        return "waiting for an instance"
    served = f"{tasks - len(opening)} of {tasks}"
    busy = [task for task in opening if task in restoring]
    if busy:
        return f"restoring {_named(busy)}: {served} tasks are served"
    return f"opening tasks: {served} are served, not yet {_named(opening)}"


def _named(tasks: Sequence[str]) -> str:
    more = len(tasks) - _NAMED
    return ", ".join(tasks[:_NAMED]) + (f" and {more} more" if more > 0 else "")
