"""Settings of changelogs that change while the application runs."""

from __future__ import annotations

from penstock.changelog.topics import TOMBSTONES_MS, ExistingTopic, changelog_topic, commits_topic
from penstock.driver.seen_settings import SeenSettings

COUNTS = changelog_topic("clinic", "counts", partitions=1)
WINDOWS = changelog_topic("clinic", "hourly", partitions=1, retention_ms=3_600_000)
COMMITS = commits_topic("clinic", partitions=2)


def topic(spec: object = COUNTS, **settings: str) -> ExistingTopic:
    """The topic as it was made, except for these settings, dots written as underscores."""
    found = {name.replace("_", "."): value for name, value in settings.items()}
    return ExistingTopic(spec.name, "id", 1, {**spec.config, **found})  # type: ignore[attr-defined]


def test_what_was_kept_the_shortest_counts() -> None:
    start = topic(WINDOWS, delete_retention_ms="5000")
    seen = SeenSettings([WINDOWS, COMMITS], {WINDOWS.name: start, COMMITS.name: topic(COMMITS)})
    assert seen.tombstones_ms(WINDOWS.name) == 5_000
    assert seen.kept_ms(WINDOWS.name) == 90_000_000
    seen.note(topic(WINDOWS, delete_retention_ms="1", retention_ms="100"))
    # Longer again, for ever even: what was removed meanwhile is not back.
    for longer in ("90000000", "-1"):
        assert seen.note(topic(WINDOWS, delete_retention_ms="5000", retention_ms=longer)) == []
        assert seen.tombstones_ms(WINDOWS.name) == 1
        assert seen.kept_ms(WINDOWS.name) == 100
    assert seen.tombstones_ms(COUNTS.name) == TOMBSTONES_MS
    assert seen.kept_ms(COUNTS.name) == 0


def test_what_would_lose_state_is_told_once() -> None:
    seen = SeenSettings([COUNTS, WINDOWS], {COUNTS.name: topic(), WINDOWS.name: topic(WINDOWS)})
    assert seen.note(topic()) == seen.note(topic(segment_bytes="1")) == []
    [text] = seen.note(topic(cleanup_policy="delete"))
    assert text.startswith("clinic-counts-changelog: cleanup.policy is delete, not compact: it")
    assert "penstock topics apply" in text
    assert seen.note(topic(cleanup_policy="delete")) == []
    [text] = seen.note(topic(WINDOWS, retention_ms="1"))
    assert "retention.ms is 1, not 90000000: it would lose state" in text
