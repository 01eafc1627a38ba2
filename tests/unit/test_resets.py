"""Which topics are an application's own, when only names are known."""

from __future__ import annotations

import pytest

from penstock.coordination.resets import internal_by_name


@pytest.mark.parametrize(
    "tail",
    [
        "commits",
        "counts-changelog",
        "KSTREAM-AGGREGATE-STATE-STORE-0000000003-changelog",
        "by-ward-repartition",
        "join-subscription-registration-topic",
        "join-subscription-response-topic",
        "KTABLE-FK-JOIN-SUBSCRIPTION-REGISTRATION-0000000006-topic",
        "KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE-0000000014-topic",
    ],
)
def test_names_as_kafka_streams_gives_them_are_its_own(tail: str) -> None:
    told = internal_by_name("clinic", [f"clinic-{tail}"], others=["clinic"])
    assert told.own == (f"clinic-{tail}",)


@pytest.mark.parametrize(
    "name",
    [
        "clinic",
        "clinic-results",
        "clinic-changelog",
        "clinics-counts-changelog",
        "other-clinic-counts-changelog",
        "clinic-counts-changelog-2",
        "clinic-counts.changelog",
    ],
)
def test_other_names_are_never_touched(name: str) -> None:
    told = internal_by_name("clinic", [name], others=[])
    assert (told.own, told.doubtful) == ((), ())


def test_what_may_be_another_applications_is_left_alone() -> None:
    names = ["clinic-two-counts-changelog", "clinic-twofold-changelog"]
    told = internal_by_name("clinic", names, others=["clinic-two", "two"])
    assert told.own == ("clinic-twofold-changelog",)
    assert told.doubtful == (("clinic-two-counts-changelog", "clinic-two"),)
    # Penstock's own applications are known by their commits topics, too.
    told = internal_by_name("clinic", [*names, "clinic-two-commits"], others=[])
    assert told.doubtful == (("clinic-two-counts-changelog", "clinic-two"),)
    assert internal_by_name("clinic-two", names, others=["clinic"]).own == (names[0],)
