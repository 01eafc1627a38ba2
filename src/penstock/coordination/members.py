"""Which instances there are, which of them are lost, and which may come back.

A static member has a `group_instance_id` and goes by it. It keeps its tasks while it is away, up to
the session timeout; a process that comes with the same id gets its place, unless the one that has
it is alive. That is told by its beats, and so a newcomer may have to wait for one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from penstock.errors import MemberRefusedError

ChangeKind = Literal["joined", "returned", "resumed", "left", "lost"]
"""`returned`: a static member has a new process, and keeps its tasks; `resumed`: it stood still."""


@dataclass(frozen=True, kw_only=True)
class Member:
    """An instance that registered."""

    name: str
    host: str
    pid: int
    unix_location: str
    tcp_location: str
    last_beat: float
    member_id: str = ""
    """What tells a process from an earlier one of the same name."""
    is_static: bool = False
    """Its name is its `group_instance_id`."""
    tags: Mapping[str, str] = field(default_factory=dict)
    capacity: int = 1
    """How many tasks it is to have for each of one with 1."""
    http_url: str = ""
    """Where it answers over HTTP, if it does."""
    by_operator: bool = False
    """Somebody looks after it who is not the application: what is wrong with it is their affair."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """What became of a member."""

    kind: ChangeKind
    name: str


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Whether an instance is let in; `wait` until it is known whether the incumbent lives."""

    status: Literal["joined", "wait", "refused"]
    incumbent: Member | None = None


_JOINED = Verdict(status="joined")


def refusal(newcomer: Member, incumbent: Member) -> MemberRefusedError:
    """Why a second live instance with one id is not let in; both are named."""
    return MemberRefusedError(
        f"The instance on {newcomer.host}, process {newcomer.pid}, is refused: the one on "
        f"{incumbent.host}, process {incumbent.pid}, has the same group_instance_id and is alive",
        where={"group_instance_id": newcomer.name},
        hint="Give each instance an id of its own, or stop the other one",
    )


_SILENT_SHARE = 0.6
"""Of the session timeout: a busy machine delays beats too, and answers yet."""


class Members:
    """The members by name. Time comes in; nothing here waits or asks."""

    def __init__(self, *, session_timeout_seconds: float, heartbeat_seconds: float) -> None:
        self._session_timeout = session_timeout_seconds
        self._silence_max = 2 * heartbeat_seconds
        self._members: dict[str, Member] = {}
        self._given_up: set[str] = set()
        self._away: set[str] = set()
        self._claims: dict[str, float] = {}
        self._changes: list[Change] = []

    def claim(self, member: Member) -> Verdict:
        """Whether the instance would be let in now, by `join`."""
        known = self._members.get(member.name)
        if known is None or known.member_id == member.member_id:
            return _JOINED
        if not known.is_static and not member.is_static:
            return _JOINED  # The names of these are theirs to keep apart: the later one counts.
        now = member.last_beat
        if known.name in self._away or now - known.last_beat > self._silence_max:
            return _JOINED
        asked = self._claims.setdefault(member.member_id, now)
        # The time of a beat before the question tells nothing: its sender may be dead since.
        return Verdict(status="refused" if known.last_beat > asked else "wait", incumbent=known)

    def join(self, member: Member) -> Verdict:
        """An instance registered; if it is let in, it replaces what had its name."""
        verdict = self.claim(member)
        if verdict.status == "joined":
            self._admit(member)
        return verdict

    def beat(self, name: str, member_id: str, now: float) -> bool:
        """An instance is alive; False tells it that nobody counts on it any more."""
        member = self._members.get(name)
        if member is None or member.member_id != member_id:
            return False
        self._members[name] = replace(member, last_beat=now)
        if name in self._away:
            self._away.discard(name)
            self._note("resumed", name)
        return True

    def leave(self, name: str, member_id: str) -> None:
        """An instance says goodbye: one that is static means to come back."""
        member = self._members.get(name)
        if member is not None and member.member_id == member_id:
            self._end(member, "left")

    def die(self, name: str) -> None:
        """An instance is dead for sure; one that is static may be started again."""
        member = self._members.get(name)
        if member is not None:
            self._end(member, "lost")

    def doubt(self, name: str, now: float, *, is_gone: bool) -> None:
        """A member did not answer a call; if it missed two beats as well, it is given up.

        One that may stand still, and is not known to be gone, is given up when it is silent: a
        pause that is short for the session timeout costs it no tasks.

        Its tasks need not wait for the session timeout: whatever it still does is fenced. Those of
        a static member do wait, and meanwhile it is not asked again.
        """
        member = self._members.get(name)
        if member is None:
            return
        missed = now - member.last_beat > self._silence_max
        if (is_gone and missed) or self.is_silent(name, now):
            (self._away if member.is_static else self._given_up).add(name)

    def is_silent(self, name: str, now: float) -> bool:
        """Whether a member has missed so many beats that no call to it would be answered."""
        member = self._members.get(name)
        patience = max(self._silence_max, _SILENT_SHARE * self._session_timeout)
        return member is not None and now - member.last_beat > patience

    def expire(self, now: float) -> list[Member]:
        """Lose those that have not beaten for the session timeout, or were given up."""
        lost = [
            member
            for name, member in sorted(self._members.items())
            if name in self._given_up or now - member.last_beat > self._session_timeout
        ]
        for member in lost:
            self._remove(member.name, "lost")
        self._claims = {
            who: asked for who, asked in self._claims.items() if now - asked < self._session_timeout
        }
        return lost

    def stood_still(self, seconds: float) -> None:
        """Whoever asks here was stopped for so long: no beat was heard, and nobody was silent."""
        self._members = {
            name: replace(member, last_beat=member.last_beat + seconds)
            for name, member in self._members.items()
        }
        self._claims = {who: asked + seconds for who, asked in self._claims.items()}

    def take_changes(self) -> list[Change]:
        """What happened since this was last asked, in order."""
        changes, self._changes = self._changes, []
        return changes

    def get(self, name: str) -> Member | None:
        """The member of that name."""
        return self._members.get(name)

    @property
    def names(self) -> list[str]:
        """All members, sorted; also static ones that are away."""
        return sorted(self._members)

    @property
    def away(self) -> frozenset[str]:
        """Static members that do not answer, and whose tasks wait for them."""
        return frozenset(self._away)

    def _admit(self, member: Member) -> None:
        known = self._members.get(member.name)
        if known is None:
            self._note("joined", member.name)
        elif known.member_id != member.member_id:
            if known.is_static and member.is_static:
                self._note("returned", member.name)
            else:
                self._note("lost", member.name)
                self._note("joined", member.name)
        self._forget(member.name)
        self._claims.pop(member.member_id, None)
        self._members[member.name] = member

    def _end(self, member: Member, kind: ChangeKind) -> None:
        if member.is_static:
            self._away.add(member.name)
        else:
            self._remove(member.name, kind)

    def _remove(self, name: str, kind: ChangeKind) -> None:
        self._forget(name)
        self._note(kind, name)

    def _forget(self, name: str) -> None:
        self._members.pop(name, None)
        self._given_up.discard(name)
        self._away.discard(name)

    def _note(self, kind: ChangeKind, name: str) -> None:
        self._changes.append(Change(kind=kind, name=name))
