"""Internal topics: Kafka Streams' names and settings, and no plan that would lose data."""

from __future__ import annotations

from penstock.changelog.topics import (
    ExistingTopic,
    TopicPlan,
    TopicSpec,
    changelog_topic,
    commits_topic,
    plan_topics,
    repartition_topic,
    topic_missing,
)
from penstock.errors import PartitionCountError


def existing(spec: TopicSpec, **changes: object) -> dict[str, ExistingTopic]:
    found = {"partitions": spec.partitions, "config": spec.config, **changes}
    return {spec.name: ExistingTopic(spec.name, "id", **found)}  # type: ignore[arg-type]


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
    for kept in ("-1", "90000000", "90000001"):
        assert plan_topics([spec], existing(spec, config={"retention.ms": kept})) == TopicPlan()
    plan = plan_topics([spec], existing(spec, config={"retention.ms": "604800"}))
    (problem,) = plan.problems
    assert "has retention.ms=604800, less than 90000000" in problem.message


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
    assert plan_topics([spec], existing(spec)) == TopicPlan()
    plan = plan_topics([spec], existing(spec, config={"min.compaction.lag.ms": "0"}))
    (problem,) = plan.problems
    assert "has min.compaction.lag.ms=0, less than 90000000" in problem.message


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


def test_a_cleanup_policy_that_loses_data_is_a_problem() -> None:
    wrong = [(CHANGELOG, "delete"), (CHANGELOG, "compact,delete"), (COMMITS, "delete")]
    for spec, policy in [*wrong, (REPARTITION, "compact")]:
        plan = plan_topics([spec], existing(spec, config={"cleanup.policy": policy}))
        (problem,) = plan.problems
        assert f"cleanup.policy={policy}" in problem.message
        assert spec.config["cleanup.policy"] in problem.hint


def test_a_missing_topic_names_the_nearest() -> None:
    assert "'pulse-events'" in topic_missing("puls-event", ["pulse-events", "x"]).hint
    assert topic_missing("puls-event", ["x"]).hint == "Create it"
