"""Internal topics: Kafka Streams' names and settings, and no plan that would lose data."""

from __future__ import annotations

import pytest

from penstock.changelog.topic_plan import (
    KAFKA_DEFAULTS,
    ConfigChange,
    Setting,
    TopicPlan,
    before_start,
    config_changes,
    copies_note,
    dropped,
    left_alone,
    plan_topics,
    remembered,
    settings_of,
    sizes_note,
    still_to_do,
)
from penstock.changelog.topics import (
    ExistingTopic,
    TopicSpec,
    changelog_topic,
    commits_topic,
    repartition_topic,
    topic_missing,
)
from penstock.errors import ConfigError, KafkaError, PartitionCountError


def existing(
    spec: TopicSpec, *, config: dict[str, str] | None = None, **changes: object
) -> dict[str, ExistingTopic]:
    """The topic as wanted, except for these settings and facts."""
    found = {
        "partitions": spec.partitions,
        "config": {**KAFKA_DEFAULTS, **spec.config, **(config or {})},
        **changes,
    }
    return {spec.name: ExistingTopic(spec.name, "id", **found)}  # type: ignore[arg-type]


def changes(spec: TopicSpec, **config: str) -> list[tuple[str, str | None, str | None, bool]]:
    """What is to be done about a topic with these settings, dots written as underscores."""
    settings = {name.replace("_", "."): value for name, value in config.items()}
    found = existing(spec, config=settings)[spec.name]
    return [(each.name, each.old, each.new, each.loses) for each in config_changes(spec, found)]


CHANGELOG = changelog_topic("clinic", "counts", partitions=4)
REPARTITION = repartition_topic("clinic", "counts-repartition", partitions=4)
COMMITS = commits_topic("clinic", partitions=5)
ALL = [CHANGELOG, REPARTITION, COMMITS]


def test_names_and_settings_are_kafka_streams() -> None:
    assert CHANGELOG.name == "clinic-counts-changelog"
    assert CHANGELOG.config == {
        "cleanup.policy": "compact",
        "message.timestamp.type": "CreateTime",
    }
    assert REPARTITION.name == "clinic-counts-repartition"
    assert REPARTITION.config["cleanup.policy"] == "delete"
    assert REPARTITION.config["segment.bytes"] == "52428800"
    assert REPARTITION.config["retention.ms"] == "-1"
    assert COMMITS.name == "clinic-commits"
    assert COMMITS.config["cleanup.policy"] == "compact"
    assert COMMITS.config["segment.ms"] == "600000"


def test_a_changelog_of_windows_forgets_a_day_after_its_store() -> None:
    spec = changelog_topic("clinic", "hourly", partitions=4, retention_ms=3_600_000)
    assert spec.config == {
        "cleanup.policy": "compact,delete",
        "message.timestamp.type": "CreateTime",
        "retention.ms": "90000000",
    }
    unlimited = changelog_topic("clinic", "all", partitions=4, retention_ms=2**63 - 1)
    assert unlimited.config["retention.ms"] == str(2**63 - 1)
    shorter = changelog_topic(
        "clinic", "hourly", partitions=4, retention_ms=3_600_000, additional_retention_ms=0
    )
    assert shorter.config["retention.ms"] == "3600000"


def test_a_changelog_of_versions_is_compacted_a_day_after_its_history() -> None:
    spec = changelog_topic("clinic", "prices", partitions=4, history_ms=3_600_000)
    assert spec.config == {
        "cleanup.policy": "compact",
        "message.timestamp.type": "CreateTime",
        "min.compaction.lag.ms": "90000000",
    }
    own = {"min.compaction.lag.ms": "5"}
    chosen = changelog_topic("clinic", "prices", partitions=4, history_ms=3_600_000, config=own)
    assert chosen.config["min.compaction.lag.ms"] == "5"
    sooner = [("min.compaction.lag.ms", "0", "90000000", True)]
    assert changes(spec, min_compaction_lag_ms="0") == sooner
    assert changes(spec) == []


def test_settings_of_a_changelog_replace_the_usual_ones() -> None:
    asked = {"segment.bytes": "536870912", "retention.ms": "1"}
    plain = changelog_topic("clinic", "counts", partitions=4, config=asked)
    assert plain.config == {**CHANGELOG.config, **asked}
    # How long windows are kept follows from the store, whatever is asked, as in Kafka Streams.
    windows = changelog_topic("clinic", "hourly", partitions=4, config=asked, retention_ms=1000)
    assert windows.config["cleanup.policy"] == "compact,delete"
    assert windows.config["segment.bytes"] == "536870912"
    assert windows.config["retention.ms"] == "86401000"


def test_missing_topics_are_created_and_right_ones_left_alone() -> None:
    assert plan_topics(ALL, {}) == TopicPlan(create=tuple(ALL))
    there = existing(CHANGELOG) | existing(REPARTITION) | existing(COMMITS)
    assert plan_topics(ALL, there) == TopicPlan()


def test_only_the_commits_topic_grows_and_nothing_shrinks() -> None:
    assert plan_topics([COMMITS], existing(COMMITS, partitions=2)).grow == (COMMITS,)
    assert plan_topics([COMMITS], existing(COMMITS, partitions=9)) == TopicPlan()
    for spec in (CHANGELOG, REPARTITION):
        for partitions in (3, 5):
            plan = plan_topics([spec], existing(spec, partitions=partitions))
            assert (plan.create, plan.grow) == ((), ())
            (problem,) = plan.problems
            assert isinstance(problem, PartitionCountError)
            assert f"has {partitions} partitions, not 4" in problem.message


def test_only_what_the_program_names_is_compared() -> None:
    spec = changelog_topic(
        "clinic",
        "counts",
        partitions=4,
        config={"segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.10"},
    )
    assert changes(spec) == []
    # Kafka tells numbers in its own way; what the program does not name is not its business.
    assert changes(spec, min_cleanable_dirty_ratio="0.1", retention_bytes="5") == []
    assert changes(spec, cleanup_policy=" compact ") == []
    assert changes(spec, segment_bytes="1073741824", min_cleanable_dirty_ratio="0.5") == [
        ("min.cleanable.dirty.ratio", "0.5", "0.10", False),
        ("segment.bytes", "1073741824", "1048576", False),
    ]
    assert changes(spec, message_timestamp_type="LogAppendTime") == [
        ("message.timestamp.type", "LogAppendTime", "CreateTime", True)
    ]
    plan = plan_topics([spec], existing(spec, config={"segment.bytes": "1073741824"}))
    (change,) = plan.alter
    assert (plan.create, plan.grow, plan.problems, plan.is_empty) == ((), (), (), False)
    assert still_to_do([change], existing(spec)) == []
    assert still_to_do([change], existing(spec, config={"segment.bytes": "2"})) == [change]


def test_what_would_lose_data_is_marked() -> None:
    for spec, policy in [
        (CHANGELOG, "delete"),
        (CHANGELOG, "compact,delete"),
        (COMMITS, "delete"),
        (REPARTITION, "compact"),
    ]:
        ((name, old, new, loses),) = changes(spec, cleanup_policy=policy)
        assert (name, old, new) == ("cleanup.policy", policy, spec.config["cleanup.policy"])
        assert loses
    windows = changelog_topic("clinic", "hourly", partitions=4, retention_ms=3_600_000)
    for grows in ("compact", "delete"):
        assert changes(windows, cleanup_policy=grows) == [
            ("cleanup.policy", grows, "compact,delete", False)
        ]
    for kept, loses in (("-1", False), ("90000001", False), ("604800", True)):
        assert changes(windows, retention_ms=kept) == [("retention.ms", kept, "90000000", loses)]
    assert changes(REPARTITION, retention_ms="604800000")[0][3]
    # With the brokers' times, what is restored would have other times than before. Commits have no
    # use for theirs.
    for spec, loses in ((CHANGELOG, True), (windows, True), (REPARTITION, True), (COMMITS, False)):
        [(_, _, _, found)] = changes(spec, message_timestamp_type="LogAppendTime")
        assert found == loses


def test_a_start_refuses_what_loses_data_tells_the_rest_and_may_mend_both() -> None:
    assert before_start(TopicPlan(), manage=False) == ""
    harmless = ConfigChange("t", "segment.bytes", "2", "1")
    severe = ConfigChange("t", "cleanup.policy", "delete", "compact", loses=True)
    text = before_start(TopicPlan(alter=(harmless,)), manage=False)
    assert "t: segment.bytes is 2, not 1" in text
    assert "penstock topics apply" in text
    assert "\n" not in text
    with pytest.raises(KafkaError) as caught:
        before_start(TopicPlan(alter=(harmless, severe)), manage=False)
    assert "has cleanup.policy=delete, not compact: it would lose state" in caught.value.message
    assert caught.value.where == {"topic": "t"}
    assert "penstock topics apply" in caught.value.hint
    text = before_start(TopicPlan(alter=(harmless, severe)), manage=True)
    assert "t: cleanup.policy from delete to compact" in text
    problem = PartitionCountError("x")
    for manage in (False, True):
        with pytest.raises(PartitionCountError):
            before_start(TopicPlan(alter=(harmless,), problems=(problem,)), manage=manage)


def test_more_replicas_in_sync_than_there_are_is_refused_with_both_numbers() -> None:
    settings = {"min.insync.replicas": "3"}
    spec = changelog_topic("clinic", "counts", partitions=1, replication_factor=2, config=settings)
    unsaid = changelog_topic("clinic", "counts", partitions=1, config=settings)
    plans = [
        plan_topics([spec], {}),
        plan_topics([unsaid], {}, default_replication=2),
        plan_topics([unsaid], existing(unsaid, replication_factor=2), default_replication=3),
    ]
    for plan in plans:
        (problem,) = plan.problems
        assert isinstance(problem, ConfigError)
        assert "min.insync.replicas=3, and its replication factor is 2" in problem.message
        assert "replication_factor to 3 or more" in problem.hint
        assert plan.create == ()
    assert plan_topics([unsaid], {}, default_replication=3).problems == ()
    assert plan_topics([unsaid], {}).problems == ()
    assert plan_topics([CHANGELOG], {}, default_replication=1).problems == ()


def test_replicas_in_sync_that_the_program_does_not_name_are_told_if_they_matter() -> None:
    spec = changelog_topic("clinic", "counts", partitions=1)

    def note(insync: int, replicas: int, wanted: TopicSpec = spec) -> str:
        config = {"min.insync.replicas": str(insync)}
        found = existing(spec, config=config, replication_factor=replicas)
        return copies_note([wanted], found)

    assert [note(1, 1), note(2, 3), note(2, 2), copies_note([spec], {})] == [""] * 4
    assert "one of 3 replicas has it (min.insync.replicas=1 of clinic-counts-changelog)" in note(
        1, 3
    )
    assert "min.insync.replicas=2 and a replication factor of 1" in note(2, 1)
    said = changelog_topic("clinic", "counts", partitions=1, config={"min.insync.replicas": "1"})
    assert note(1, 3, said) == ""


def test_a_start_tells_of_topics_that_are_kept_to_a_size() -> None:
    windows = changelog_topic("clinic", "rates", partitions=1, retention_ms=1000)
    between = repartition_topic("clinic", "by-ward", partitions=1)
    counts = changelog_topic("clinic", "counts", partitions=1)
    said = changelog_topic(
        "clinic", "own", partitions=1, retention_ms=1, config={"retention.bytes": "9"}
    )
    specs = [windows, between, counts, said]

    def note(size: str) -> str:
        found = [existing(spec, config={"retention.bytes": size}) for spec in specs]
        return sizes_note(specs, {name: topic for each in found for name, topic in each.items()})

    assert note("-1") == sizes_note(specs, {}) == ""
    assert "clinic-rates-changelog (9), clinic-by-ward (9). Set topic=" in note("9")
    assert "(0)" in note("0")


def test_settings_are_shown_with_who_says_so() -> None:
    spec = changelog_topic(
        "clinic", "counts", partitions=4, config={"segment.bytes": "1048576", "segment.ms": "5"}
    )
    found = existing(
        spec,
        config={"segment.ms": "7", "retention.bytes": "9", "min.compaction.lag.ms": "3"},
        origins={
            "cleanup.policy": "topic",
            "segment.bytes": "topic",
            "segment.ms": "topic",
            "retention.bytes": "topic",
            "min.compaction.lag.ms": "broker",
        },
    )[spec.name]
    shown = {each.name: each for each in settings_of(spec, found)}
    assert set(KAFKA_DEFAULTS) | {"cleanup.policy", "retention.bytes"} < set(shown)
    assert shown["segment.bytes"] == Setting("segment.bytes", "1048576", "program", "1073741824")
    assert shown["segment.ms"] == Setting("segment.ms", "7", "hand", "604800000", wanted="5")
    assert shown["retention.bytes"] == Setting("retention.bytes", "9", "hand")
    assert shown["min.compaction.lag.ms"].who == "broker"
    assert shown["min.cleanable.dirty.ratio"].who == "default"
    assert [each.name for each in left_alone(spec, found)] == ["retention.bytes"]
    missing = {each.name: each for each in settings_of(spec, None)}
    assert missing["segment.bytes"].value == "1048576"
    assert missing["max.compaction.lag.ms"].value == "9223372036854775807"


SMALL = {"segment.bytes": "1048576"}
HELD = changelog_topic("clinic", "counts", partitions=4, config=SMALL)


def with_segments(size: str, *, by: str = "topic") -> ExistingTopic:
    origins = {"segment.bytes": by, "retention.bytes": "topic"}
    config = {"segment.bytes": size, "retention.bytes": "9"}
    return existing(CHANGELOG, config=config, origins=origins)[CHANGELOG.name]


def test_what_a_program_asked_for_and_no_longer_does_is_taken_off() -> None:
    asked = remembered(HELD, with_segments("1048576"), {})
    assert asked["segment.bytes"] == ("1048576",)
    found = with_segments("1048576")
    there = {CHANGELOG.name: found}
    (change,) = plan_topics([CHANGELOG], there, asked={CHANGELOG.name: asked}).alter
    assert change == ConfigChange(CHANGELOG.name, "segment.bytes", "1048576", None)
    assert still_to_do([change], there) == [change]
    default = with_segments("1073741824", by="default")
    assert still_to_do([change], {CHANGELOG.name: default}) == []
    shown = {each.name: each.who for each in settings_of(CHANGELOG, found, asked)}
    assert (shown["segment.bytes"], shown["retention.bytes"]) == ("earlier", "hand")
    assert [each.name for each in left_alone(CHANGELOG, found, asked)] == ["retention.bytes"]
    told = before_start(TopicPlan(alter=(change,)), manage=False)
    assert f"{CHANGELOG.name}: segment.bytes is 1048576, as the program no longer says" in told
    done = before_start(TopicPlan(alter=(change,)), manage=True)
    assert "segment.bytes from 1048576 to its default" in done


@pytest.mark.parametrize(
    "found", [with_segments("4194304"), with_segments("1048576", by="broker")], ids=["hand", "b"]
)
def test_what_others_said_since_is_theirs(found: ExistingTopic) -> None:
    asked = remembered(HELD, with_segments("1048576"), {})
    assert dropped(CHANGELOG, found, asked) == []
    assert dropped(HELD, found, asked) == []
    # Once it is theirs, it stays so.
    assert "segment.bytes" not in remembered(CHANGELOG, found, asked)


def test_a_setting_is_remembered_until_it_is_gone_from_the_topic() -> None:
    small, larger = with_segments("1048576"), with_segments("2097152")
    first = remembered(HELD, small, {})
    # The next program asks for another, and the topic is not changed for it: both are programs'.
    other = changelog_topic("clinic", "counts", partitions=4, config={"segment.bytes": "2097152"})
    second = remembered(other, small, first)
    assert second["segment.bytes"] == ("2097152", "1048576")
    for found in (small, larger):
        assert [each.name for each in dropped(CHANGELOG, found, second)] == ["segment.bytes"]
    assert remembered(other, larger, second)["segment.bytes"] == ("2097152",)
    # Started without it and not changed either, it is still known; and then no more.
    third = remembered(CHANGELOG, small, second)
    assert third["segment.bytes"] == ("1048576",)
    default = with_segments("1073741824", by="default")
    assert "segment.bytes" not in remembered(CHANGELOG, default, third)


def test_settings_for_all_topics_do_not_change_how_commits_are_compacted() -> None:
    asked = {"segment.ms": "1", "min.insync.replicas": "2", "segment.bytes": "1048576"}
    commits = commits_topic("clinic", partitions=2, config=asked)
    assert commits.config == {**asked, **COMMITS.config}
    assert commits.config["segment.ms"] == "600000"
    repartition = repartition_topic("clinic", "x", partitions=2, config=asked)
    assert repartition.config == {**REPARTITION.config, **asked}


def test_a_missing_topic_names_the_nearest() -> None:
    assert "'pulse-events'" in topic_missing("puls-event", ["pulse-events", "x"]).hint
    assert topic_missing("puls-event", ["x"]).hint.startswith("Create it")
