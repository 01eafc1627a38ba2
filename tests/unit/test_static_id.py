"""Whose a static id is, among the applications of a cluster."""

from __future__ import annotations

import pytest

from penstock.changelog.groups import GroupClient
from penstock.errors import MemberRefusedError
from penstock.instance.static_id import check_id_free, client_id_of

WARD = client_id_of("ward", "a.example", 17)


def member(client_id: str) -> GroupClient:
    return GroupClient(client_id=client_id, host="/10.0.0.1", group_instance_id=None)


def test_nobody_and_a_predecessor_are_no_hindrance() -> None:
    check_id_free("bed-1", WARD, [])
    check_id_free("bed-1", WARD, [member(client_id_of("ward", "b.example", 3)), member(WARD)])


def test_one_of_another_application_is_and_both_are_named() -> None:
    other = member(client_id_of("theatre", "b.example", 4))
    with pytest.raises(MemberRefusedError) as caught:
        check_id_free("bed-1", WARD, [member(WARD), other])
    text = str(caught.value)
    assert "'ward' on a.example, process 17" in text
    assert "'theatre' on b.example, process 4" in text
    assert "bed-1" in text
