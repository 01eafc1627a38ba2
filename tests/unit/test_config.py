"""Options: one place, checked early, and documented as they are."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock.config import LEFT_OUT, Config, options_page
from penstock.errors import ConfigError
from penstock.pipeline.kafka_options import java_properties


def test_the_documentation_lists_the_options_as_they_are() -> None:
    page = Path(__file__).parents[2] / "docs" / "configuration.md"
    assert page.read_text() == options_page(), "run tools/config-docs > docs/configuration.md"


def test_the_environment_wins_over_keywords() -> None:
    config = Config.build(
        {"commit_interval": timedelta(seconds=1)}, {"PENSTOCK_COMMIT_INTERVAL": "250"}
    )
    assert config.commit_interval == timedelta(milliseconds=250)


def test_java_names_are_understood_and_the_rest_goes_to_the_clients() -> None:
    config = Config.from_properties(
        {
            "application.id": "a",
            "statestore.cache.max.bytes": "0",
            "security.protocol": "SSL",
            "topic.segment.bytes": "1048576",
            "windowstore.changelog.additional.retention.ms": "1000",
            "deserialization.exception.handler": "org.apache.X.LogAndContinueExceptionHandler",
        }
    )
    assert config.statestore_cache_max_bytes == 0
    assert config.deserialization_exception_handler == "continue"
    assert config.kafka == {"security.protocol": "SSL"}
    assert config.topic == {"segment.bytes": "1048576"}
    assert config.windowstore_changelog_additional_retention == timedelta(seconds=1)


@pytest.mark.parametrize(
    "options",
    [
        {"no_such_option": 1},
        {"processing_guarantee": "twice"},
        {"commit_interval": 5},
        {"slice_records_max": 0},
        {"max_warmup_replicas": 0},
        {"acceptable_recovery_lag": -1},
        {"rack_aware_assignment_tags": "zone"},
        {"heartbeat_interval": timedelta(seconds=40)},
        {"topic": {"segment.bytes": 1048576}},
        {"topic": {"cleanup.policy": "compact"}},
    ],
)
def test_what_cannot_work_is_refused_at_once(options: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        Config.build(options, {})


def test_passwords_reach_java_as_a_login_module() -> None:
    java = java_properties(
        {"sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": 'p"q'}
    )
    assert "sasl.password" not in java
    assert java["sasl.jaas.config"].endswith('required username="u" password="p\\"q";')


def test_built_in_timestamp_extractors_have_javas_class_names() -> None:
    package = "org.apache.kafka.streams.processor."
    names = {
        "FailOnInvalidTimestamp": "fail",
        "LogAndSkipOnInvalidTimestamp": "skip",
        "UsePartitionTimeOnInvalidTimestamp": "partition_time",
        "WallclockTimestampExtractor": "wall_clock",
    }
    for name, rule in names.items():
        config = Config.from_properties({"default.timestamp.extractor": package + name})
        assert config.default_timestamp_extractor == rule
    with pytest.raises(ConfigError, match=r"my\.Extractor"):
        Config.from_properties({"default.timestamp.extractor": "my.Extractor"})


def test_the_caches_old_name_is_known_and_its_new_one_counts() -> None:
    old, new = "cache.max.bytes.buffering", "statestore.cache.max.bytes"
    assert Config.from_properties({old: "5"}).statestore_cache_max_bytes == 5
    both = Config.from_properties({new: "7", old: "5"})
    assert (both.statestore_cache_max_bytes, dict(both.kafka)) == (7, {})


@pytest.mark.parametrize(
    ("options", "environment"),
    [
        ({"cache_max_bytes_buffering": 7}, {}),
        ({}, {"PENSTOCK_CACHE_MAX_BYTES_BUFFERING": "7"}),
        ({"cache_max_bytes_buffering": 5, "statestore_cache_max_bytes": 7}, {}),
        ({"statestore_cache_max_bytes": 5}, {"PENSTOCK_CACHE_MAX_BYTES_BUFFERING": "7"}),
        (
            {},
            {
                "PENSTOCK_CACHE_MAX_BYTES_BUFFERING": "5",
                "PENSTOCK_STATESTORE_CACHE_MAX_BYTES": "7",
            },
        ),
    ],
)
def test_the_caches_older_name_is_taken_and_the_newer_one_wins(
    options: dict[str, Any], environment: dict[str, str]
) -> None:
    assert Config.build(options, environment).statestore_cache_max_bytes == 7


def test_options_of_kafka_streams_that_mean_nothing_here_reach_no_client(
    caplog: pytest.LogCaptureFixture,
) -> None:
    config = Config.from_properties(
        {**dict.fromkeys(LEFT_OUT, "1"), "security.protocol": "SSL", "commit.interval.ms": "5"}
    )
    assert config.kafka == {"security.protocol": "SSL"}
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == len(LEFT_OUT)
    assert "Left out num.stream.threads=1: Spark decides how many tasks run at once" in told[0]


def test_no_option_that_is_left_out_has_a_meaning() -> None:
    assert not set(LEFT_OUT) & {each.metadata["kafka"] for each in dataclasses.fields(Config)}
