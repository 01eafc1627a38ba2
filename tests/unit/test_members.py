"""Who is a member: beats, losses, and static members that come back."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.coordination.members import Member, Members, refusal
from penstock.errors import MemberRefusedError


class Group:
    """Members with a clock that the test sets: a session of 45 s, a beat every 3."""

    def __init__(self) -> None:
        self.now = 0.0
        self.members = Members(session_timeout_seconds=45, heartbeat_seconds=3)

    def process(self, name: str, pid: int, **facts: Any) -> Member:
        return Member(
            name=name,
            host=facts.get("host", "h"),
            pid=pid,
            unix_location="",
            tcp_location="",
            last_beat=self.now,
            member_id=f"id-{pid}",
            is_static=facts.get("is_static", False),
        )

    def join(self, name: str, pid: int, **facts: Any) -> str:
        return self.members.join(self.process(name, pid, **facts)).status

    def beat(self, name: str, pid: int) -> bool:
        return self.members.beat(name, f"id-{pid}", self.now)

    def expire(self, now: float) -> list[str]:
        return [member.name for member in self.members.expire(now)]

    def changes(self) -> list[tuple[str, str]]:
        return [(each.kind, each.name) for each in self.members.take_changes()]


@pytest.fixture
def group() -> Group:
    return Group()


@pytest.fixture
def static(group: Group) -> Group:
    """A group with one static member, process 1 of "s", which has just beaten at 10 s."""
    group.join("s", 1, is_static=True)
    group.now = 10
    assert group.beat("s", 1)
    assert group.changes() == [("joined", "s")]
    return group


class TestDynamic:
    def test_one_that_stands_still_is_not_called(self, group: Group) -> None:
        group.join("a", 1)
        assert not group.members.is_silent("a", 27)
        assert group.members.is_silent("a", 28)
        assert not group.members.is_silent("nobody", 28)
        group.now = 28
        assert group.beat("a", 1)
        assert not group.members.is_silent("a", 29)

    def test_silence_loses_a_member_and_doubt_loses_it_sooner(self, group: Group) -> None:
        group.join("a", 1)
        group.join("b", 2)
        assert group.changes() == [("joined", "a"), ("joined", "b")]
        group.now = 40
        assert group.beat("a", 1)
        assert group.expire(44) == []
        assert group.expire(46) == ["b"]
        group.members.doubt("a", 41, is_gone=True)
        assert group.expire(44) == []
        group.members.doubt("a", 47, is_gone=False)  # It may stand still.
        assert group.expire(47) == []
        group.members.doubt("a", 47, is_gone=True)
        assert group.expire(47) == ["a"]
        assert not group.beat("a", 1)
        assert group.changes() == [("lost", "b"), ("lost", "a")]

    def test_one_that_stands_still_is_given_up_when_it_is_silent(self, group: Group) -> None:
        group.join("a", 1)
        group.members.doubt("a", 27, is_gone=False)
        assert group.expire(27) == []
        group.members.doubt("a", 28, is_gone=False)
        assert group.expire(28) == ["a"]

    def test_who_says_goodbye_has_left_at_once_and_who_dies_is_lost(self, group: Group) -> None:
        group.join("a", 1)
        group.join("b", 2)
        group.changes()
        group.members.leave("a", "id-1")
        group.members.die("a")
        group.members.die("b")
        assert group.members.names == []
        assert group.changes() == [("left", "a"), ("lost", "b")]

    def test_a_second_process_of_the_same_name_replaces_the_first(self, group: Group) -> None:
        group.join("a", 1)
        group.changes()
        assert group.join("a", 2) == "joined"
        assert group.changes() == [("lost", "a"), ("joined", "a")]
        assert not group.beat("a", 1)
        assert group.beat("a", 2)
        group.members.leave("a", "id-1")
        assert group.members.names == ["a"]

    def test_a_registration_that_is_sent_twice_counts_once(self, group: Group) -> None:
        group.join("a", 1)
        assert group.join("a", 1) == "joined"
        assert group.changes() == [("joined", "a")]


class TestStatic:
    def test_back_after_a_death_that_was_seen_it_keeps_its_place(self, static: Group) -> None:
        static.members.die("s")
        assert static.members.names == ["s"]
        assert static.members.away == {"s"}
        static.now = 11
        assert static.join("s", 2, is_static=True) == "joined"
        assert static.members.away == frozenset()
        assert static.changes() == [("returned", "s")]
        assert static.beat("s", 2)
        assert not static.beat("s", 1)

    def test_back_after_a_goodbye_it_keeps_its_place(self, static: Group) -> None:
        static.members.leave("s", "id-1")
        static.now = 54
        assert static.expire(static.now) == []
        assert static.join("s", 2, is_static=True) == "joined"
        assert static.changes() == [("returned", "s")]

    def test_away_for_the_session_timeout_it_is_lost_and_joins_anew(self, static: Group) -> None:
        static.members.die("s")
        assert static.expire(54) == []
        assert static.expire(56) == ["s"]
        assert static.members.away == frozenset()
        static.now = 57
        assert static.join("s", 2, is_static=True) == "joined"
        assert static.changes() == [("lost", "s"), ("joined", "s")]

    def test_after_a_death_that_nobody_saw_the_next_one_waits_for_two_beats(
        self, static: Group
    ) -> None:
        static.now = 12
        assert static.join("s", 2, is_static=True) == "wait"
        static.now = 16
        assert static.join("s", 2, is_static=True) == "wait"
        static.now = 16.5
        assert static.join("s", 2, is_static=True) == "joined"
        assert static.changes() == [("returned", "s")]

    def test_a_second_live_one_is_refused_once_the_first_has_beaten(self, static: Group) -> None:
        static.now = 11
        assert static.join("s", 2, is_static=True, host="g") == "wait"
        static.now = 13
        assert static.beat("s", 1)
        second = static.process("s", 2, is_static=True, host="g")
        verdict = static.members.join(second)
        assert verdict.status == "refused"
        assert verdict.incumbent is not None
        error = refusal(second, verdict.incumbent)
        assert isinstance(error, MemberRefusedError)
        assert "on g, process 2, is refused: the one on h, process 1," in str(error)
        assert "group_instance_id s" in str(error)
        assert static.changes() == []
        assert static.beat("s", 1)

    def test_one_without_an_id_cannot_have_the_name_of_a_live_static_one(
        self, static: Group
    ) -> None:
        static.now = 11
        assert static.join("s", 2) == "wait"
        static.now = 20
        assert static.join("s", 2) == "joined"
        assert static.changes() == [("lost", "s"), ("joined", "s")]

    def test_one_that_does_not_answer_keeps_its_tasks_and_is_away_until_it_beats(
        self, static: Group
    ) -> None:
        static.members.doubt("s", 12, is_gone=True)
        assert static.members.away == frozenset()
        static.members.doubt("s", 17, is_gone=True)
        assert static.members.away == {"s"}
        assert static.expire(17) == []
        static.now = 18
        assert static.beat("s", 1)
        assert static.members.away == frozenset()
        assert static.changes() == [("resumed", "s")]
        assert static.beat("s", 1)
        assert static.changes() == []

    def test_to_ask_is_not_to_join(self, static: Group) -> None:
        static.members.die("s")
        newcomer = static.process("s", 2, is_static=True)
        assert static.members.claim(newcomer).status == "joined"
        assert static.members.away == {"s"}
        assert static.changes() == []

    def test_who_waits_for_a_place_is_not_refused_because_the_driver_stood_still(
        self, static: Group
    ) -> None:
        static.now = 12
        assert static.join("s", 2, is_static=True) == "wait"
        static.now = 42
        static.members.stood_still(30)
        assert static.join("s", 2, is_static=True) == "wait"
        static.now = 47
        assert static.join("s", 2, is_static=True) == "joined"

    def test_of_two_that_wait_for_one_place_one_gets_it(self, static: Group) -> None:
        static.members.die("s")
        static.now = 11
        assert static.join("s", 2, is_static=True) == "joined"
        static.now = 12
        assert static.join("s", 3, is_static=True) == "wait"
        static.now = 14
        assert static.beat("s", 2)
        assert static.join("s", 3, is_static=True) == "refused"
