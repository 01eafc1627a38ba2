"""What is told of how a task's stores came to be what they are."""

from __future__ import annotations

from penstock.changelog.snapshots import Snapshot
from penstock.instance.protocol import StoreOrder


def comes_from(snapshot: Snapshot, order: StoreOrder, task: str) -> str:
    """What is to be said of a copy that is used."""
    found = snapshot.manifest
    origin = f"{snapshot.origin} of {found.size:,} bytes, up to offset {found.offset:,}"
    return f"Store {order.name} of task {task} comes from {origin}"


def outlasted(order: StoreOrder, task: str) -> list[str]:
    """What is to be said of a restore that took longer than deletions last."""
    note = (
        f"Restoring store {order.name} of task {task} took longer than {order.changelog} keeps "
        "deletions (delete.retention.ms): keys that were deleted may be back in the store. "
        "`penstock state verify` tells; raise the setting, and delete the store's directory"
    )
    return [note]


def begun_anew(order: StoreOrder, task: str) -> str:
    """What is to be said of a store that its changelog does not go on from."""
    return (
        f"{order.changelog} no longer holds what store {order.name} of task {task} needs next: "
        "rebuilding the store from the changelog's start"
    )


def left_behind(order: StoreOrder, task: str) -> str:
    """What is to be said of a store that was made from a changelog which is no longer there."""
    return (
        f"The disk has store {order.name} of task {task} from before {order.changelog} was made "
        "again: rebuilding the store from the changelog that the last commit was written to"
    )


def replaced(order: StoreOrder, task: str) -> str:
    """What is to be said of a store on a disk that was away when it was made anew elsewhere."""
    return (
        f"The disk has store {order.name} of task {task} as it was before the store was made anew "
        f"from history, or from the input: rebuilding it from {order.changelog}"
    )
