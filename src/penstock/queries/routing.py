"""Who may answer for a partition, in which order they are asked, and whether an answer will do.

Pure: who is there and what was said comes in, decisions come out.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta

from penstock.instance.protocol import UNKNOWN_LAG
from penstock.instance.query_messages import Role, StoreAnswer
from penstock.queries.contract import Bound


@dataclass(frozen=True, kw_only=True)
class Holders:
    """Who holds a task, as far as is known."""

    owner: str = ""
    epoch: tuple[int, int] = (0, 0)
    followers: tuple[str, ...] = ()
    seen_at: float | None = None
    """When the driver said so, by `time.monotonic()`; None where it is the driver that asks."""

    def owned(self, answer: StoreAnswer, instance: str) -> bool:
        """Whether who answered was the owner, under the epoch of its answer, when this was so."""
        return instance == self.owner and tuple(answer.epoch) == tuple(self.epoch)

    def are_of(self, moment: float) -> bool:
        """Whether this was so at that moment, or later."""
        return self.seen_at is None or self.seen_at >= moment


def candidates(
    holders: Holders, bound: Bound, present: Sequence[str], silent: Collection[str] = ()
) -> list[str]:
    """The instances to be asked, best first: the owner, then followers, then all others.

    Others may have owned the task a moment ago. Those who were silent just now come last, unless
    nobody else may answer.

    >>> holders = Holders(owner="a", followers=("b",))
    >>> candidates(holders, Bound(), ["a", "b", "c"])
    ['a']
    >>> candidates(holders, Bound(stale=True), ["a", "b", "c"], silent={"a"})
    ['b', 'c', 'a']
    """
    if not bound.lets_standbys:
        return [holders.owner] if holders.owner in present else []
    known = [holders.owner, *holders.followers]
    wanted = [name for name in dict.fromkeys([*known, *present]) if name in present]
    return sorted(wanted, key=lambda name: name in silent)


def role_of(answer: StoreAnswer, instance: str, holders: Holders, *, came_at: float = 0.0) -> Role:
    """What the copy was that answered, by those who hold the task after the answer came.

    One that was given up answers as active until it hears of it: what it said was committed, and
    is a standby's word. So is that of one who may have been given up meanwhile.
    """
    is_owner = holders.owned(answer, instance) and holders.are_of(came_at)
    if answer.role == "active" and not is_owner:
        return "standby"
    return answer.role


def refusal(
    answer: StoreAnswer, role: Role, bound: Bound, *, partition: int, end: int | None
) -> str:
    """Why an answer is not good enough; empty if it is.

    `end` is where the changelog is known to end.

    >>> old = StoreAnswer(role="standby", position=6, next_offset=7)
    >>> refusal(old, "standby", Bound(stale=True), partition=0, end=9)
    ''
    >>> refusal(old, "standby", Bound(max_lag=1), partition=0, end=9)
    'it lacks 2 records, and may lack 1'
    """
    if answer.reason:
        return answer.reason
    if role == "global":
        return ""
    if role == "standby" and not bound.lets_standbys:
        return "it is not the active one"
    if role == "standby" and bound.max_lag is not None:
        lag = lag_of(answer, end)
        if lag is None:
            return "it is not known how much it lacks"
        if lag > bound.max_lag:
            return f"it lacks {lag} records, and may lack {bound.max_lag}"
    wanted = bound.position.get(partition)
    if wanted is not None and (answer.position is None or answer.position < wanted):
        return f"it holds the changelog up to {answer.position}, and not to {wanted}"
    return ""


def lag_of(answer: StoreAnswer, end: int | None) -> int | None:
    """How many offsets of the changelog a copy lacks, at most; None if nobody knows.

    >>> lag_of(StoreAnswer(next_offset=7, lag=5), 9), lag_of(StoreAnswer(), None)
    (5, None)
    """
    told = None if answer.lag == UNKNOWN_LAG else answer.lag
    known = None if end is None else max(0, end - answer.next_offset)
    # The later of two looks at the end counts, and it is not known which that was.
    return max((each for each in (told, known) if each is not None), default=None)


def age_of(answer: StoreAnswer, role: Role, known_seconds: float | None) -> timedelta | None:
    """How long ago a copy held all that was committed, at most; None if nobody knows.

    `known_seconds` is by where the changelog was seen to end. One that took itself for the active
    one, and is not, tells nothing of that.

    >>> age_of(StoreAnswer(role="standby", age_ms=9000), "standby", 1.5).total_seconds()
    1.5
    >>> age_of(StoreAnswer(role="active"), "standby", None)
    """
    if role == "active":
        return timedelta()
    told = None if answer.role == "active" else answer.age_ms / 1000
    ages = [each for each in (told, known_seconds) if each is not None]
    return timedelta(seconds=max(0.0, min(ages))) if ages else None


def share(remaining_seconds: float, *, has_others: bool) -> float:
    """How long one candidate is waited for: half of the time, if there are others to be asked.

    >>> share(1.0, has_others=True), share(1.0, has_others=False)
    (0.5, 1.0)
    """
    return max(remaining_seconds / 2 if has_others else remaining_seconds, 0.001)
