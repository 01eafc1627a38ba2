"""Static ids in one Kafka cluster, held by real members of real groups."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from penstock.changelog.topics import commits_name
from penstock.config import Config
from penstock.errors import MemberRefusedError
from penstock.instance.static_id import StaticId
from tests.harness import Scene


def never() -> bool:
    return False


def test_an_id_is_one_applications_until_it_is_let_go(kafka: str, tmp_path: Path) -> None:
    scene = Scene(kafka, tmp_path, partitions=1)
    applications = [f"{scene.id}-ward", f"{scene.id}-theatre"]
    scene.create_topics(*map(commits_name, applications))
    config = Config(bootstrap_servers=kafka)
    static_id = f"bed-{uuid.uuid4().hex[:6]}"
    ward, successor, theatre = (
        StaticId(static_id, application, config)
        for application in (applications[0], applications[0], applications[1])
    )
    try:
        ward.take(never)
        # One that comes back while its predecessor is still listed.
        successor.take(never)
        ward.close()
        with pytest.raises(MemberRefusedError, match=f"{applications[1]}.*{applications[0]}"):
            theatre.take(never)
        successor.close()
        theatre = StaticId(static_id, applications[1], config)
        theatre.take(never)
    finally:
        for each in (ward, successor, theatre):
            each.close()
