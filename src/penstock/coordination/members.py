"""Which instances there are, and which of them are lost."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, kw_only=True)
class Member:
    """An instance that registered."""

    name: str
    host: str
    pid: int
    unix_location: str
    tcp_location: str
    last_beat: float


class Members:
    """The members by name. Time comes in; nothing here waits or asks."""

    def __init__(self, *, session_timeout_seconds: float, heartbeat_seconds: float) -> None:
        self._session_timeout = session_timeout_seconds
        self._silence_max = 2 * heartbeat_seconds
        self._members: dict[str, Member] = {}
        self._given_up: set[str] = set()

    def join(self, member: Member) -> None:
        """An instance registered; the same name again replaces the old one."""
        self._members[member.name] = member

    def beat(self, name: str, now: float) -> bool:
        """An instance is alive; False tells it that nobody counts on it any more."""
        member = self._members.get(name)
        if member is None:
            return False
        self._members[name] = replace(member, last_beat=now)
        return True

    def leave(self, name: str) -> None:
        """An instance is gone for sure."""
        self._members.pop(name, None)
        self._given_up.discard(name)

    def doubt(self, name: str, now: float) -> None:
        """A member did not answer a call; if it missed two beats as well, it is given up.

        Its tasks need not wait for the session timeout: whatever it still does is fenced.
        """
        member = self._members.get(name)
        if member is not None and now - member.last_beat > self._silence_max:
            self._given_up.add(name)

    def lost(self, now: float) -> list[str]:
        """Those that have not beaten for the session timeout, or were given up."""
        return sorted(
            name
            for name, member in self._members.items()
            if name in self._given_up or now - member.last_beat > self._session_timeout
        )

    def get(self, name: str) -> Member | None:
        """The member of that name."""
        return self._members.get(name)

    @property
    def names(self) -> list[str]:
        """All members, sorted."""
        return sorted(self._members)
