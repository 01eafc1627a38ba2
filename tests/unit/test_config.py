"""Options: one place, checked early, and documented as they are."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.config import Config
from penstock.config_page import options_page
from penstock.errors import ConfigError
from penstock.option_values import NEVER_ZERO
from penstock.pipeline.jobs import source_options


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
        {"topic": {"message.timestamp.type": "LogAppendTime"}},
    ],
)
def test_what_cannot_work_is_refused_at_once(options: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        Config.build(options, {})


def test_times_that_would_never_rest_or_never_end_are_refused() -> None:
    for name in sorted(NEVER_ZERO):
        for value in (timedelta(0), timedelta(microseconds=999), timedelta(seconds=-1)):
            with pytest.raises(ConfigError, match=f"Option {name} is .* 1 ms or more"):
                Config.build({name: value}, {})
        with pytest.raises(ConfigError, match=f"Option {name} is"):
            Config.build({}, {f"PENSTOCK_{name.upper()}": "0"})
    # Their loops have a pace of their own, and in Kafka Streams they may be 0, too.
    may_be_zero = ("commit_interval", "repartition_purge_interval", "state_cleanup_delay")
    Config.build(dict.fromkeys(may_be_zero, timedelta(0)), {})
    with pytest.raises(ConfigError, match="36500 days at most"):
        Config.build({"snapshot_interval": timedelta.max}, {})
    for text in ("inf", "nan", "9223372036854775807"):
        with pytest.raises(ConfigError, match="state_cleanup_delay"):
            Config.from_properties({"state.cleanup.delay.ms": text})


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


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("isolation.level", "aborted transactions"),
        ("group.id", "Application"),
        ("enable.auto.commit", "commit_interval"),
        ("auto.offset.reset", "auto_offset_reset"),
        ("enable.idempotence", "processing_guarantee"),
        ("acks", "min.insync.replicas"),
        ("transactional.id", "fences"),
        ("key.deserializer", "serde"),
        ("bootstrap.servers", "bootstrap_servers"),
        ("sasl.jaas.config", "sasl.username"),
    ],
)
def test_what_the_promises_rest_on_is_not_the_users_to_set(name: str, told: str) -> None:
    with pytest.raises(ConfigError, match=name) as refused:
        Config(kafka={name: "x"})
    assert told in str(refused.value)
    with pytest.raises(ConfigError, match=name):
        Config.build({}, {"PENSTOCK_KAFKA": f"{name}=x"})


def test_what_clients_need_is_stronger_than_what_the_user_says() -> None:
    config = Config(kafka={"client.id": "mine", "linger.ms": "5"}, bootstrap_servers="here:1")
    # As if a check had been forgotten.
    assert isinstance(config.kafka, dict)
    config.kafka.update({"isolation.level": "read_uncommitted", "bootstrap.servers": "there:1"})
    ours = config.client_properties(isolation_level="read_committed")
    assert (ours["isolation.level"], ours["bootstrap.servers"]) == ("read_committed", "here:1")
    assert (ours["client.id"], ours["linger.ms"]) == ("mine", "5")
    spark = source_options(config, "app")
    assert spark["kafka.isolation.level"] == "read_committed"
    assert spark["kafka.bootstrap.servers"] == "here:1"
    assert spark["kafka.group.id"] == "app-reader"


def test_the_user_may_say_how_much_sparks_reader_fetches() -> None:
    options = source_options(Config(kafka={"fetch.max.bytes": "1000000"}), "app")
    assert options["kafka.fetch.max.bytes"] == "1000000"


def test_prefixes_say_whose_a_property_is() -> None:
    config = Config.from_properties(
        {
            "kafka.security.protocol": "SSL",
            "spark.executor.memory": "2g",
            "spark.master": "local[2,4]",
            "topic.segment.bytes": "5",
            "producer.linger.ms": "5",
            "main.consumer.fetch.min.bytes": "1",
            "consumer.session.timeout.ms": "30000",
        }
    )
    assert config.kafka == {"security.protocol": "SSL", "linger.ms": "5", "fetch.min.bytes": "1"}
    assert config.spark == {"spark.executor.memory": "2g"}
    assert (config.master, config.topic) == ("local[2,4]", {"segment.bytes": "5"})
    assert config.session_timeout == timedelta(seconds=30)


@pytest.mark.parametrize(
    "properties",
    [
        {"producer.client.id": "a", "consumer.client.id": "b"},
        {"global.consumer.auto.offset.reset": "latest"},
        {"max.task.idle.ms": "1000"},
        {"topology.optimization": "all"},
        {"consumer.isolation.level": "read_uncommitted"},
        {"producer.acks": "1"},
        {"processor.wrapper.class": "com.acme.Wrapper"},
        {"topic.*": "segment.bytes=5"},
        {"spark.*": "x"},
        {"kafka.*": "x=y"},
        {"ssl.truststore.location": "/ca.jks"},
        {"rocksdb.config.setter": "com.acme.Setter"},
        {"deserialization.exception.handler": "com.acme.Handler"},
        {"commit.interval.ms": "often"},
    ],
)
def test_properties_that_would_mean_something_else_are_refused(properties: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        Config.from_properties(properties)


def test_properties_without_effect_are_told(caplog: pytest.LogCaptureFixture) -> None:
    config = Config.from_properties(
        {
            "num.stream.threads": "2",
            "default.key.serde": "org.apache.kafka.common.serialization.Serdes$StringSerde",
            "max.task.idle.ms": "0",
            "acks": "all",
            "default.deserialization.exception.handler": "a.LogAndContinueExceptionHandler",
        }
    )
    assert config.kafka == {}
    assert config.deserialization_exception_handler == "continue"
    assert [record.getMessage() for record in caplog.records] == [
        "num.stream.threads has no effect here: Spark's cores work: master says how many",
        "default.key.serde has no effect here: each source and sink says its types",
    ]


def test_an_application_takes_a_config_and_keywords_over_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PENSTOCK_NUM_INSTANCES", "4")
    base = Config.from_properties({"replication.factor": "3", "commit.interval.ms": "50"})
    app = ps.Application("orders", config=base, commit_interval=timedelta(seconds=1))
    assert app.config.replication_factor == 3
    assert app.config.commit_interval == timedelta(seconds=1)
    assert app.config.num_instances == 4
    assert base.num_instances == 0


@pytest.mark.parametrize(
    "options",
    [
        {"bootstrap_servers": ""},
        {"bootstrap_servers": " , "},
        {"bootstrap_servers": ["a:1", "b:2"]},
        {"num_instances": -1},
        {"replication_factor": 0},
        {"statestore_cache_max_bytes": -1},
        {"statestore_cache_max_bytes": True},
        {"kafka": None},
        {"kafka": {"linger.ms": 5}},
        {"spark": "spark.executor.memory=2g"},
        {"master": ""},
        {"state_dir": 5},
    ],
)
def test_values_that_fail_later_are_refused_at_construction(options: dict[str, object]) -> None:
    (name,) = options
    with pytest.raises(ConfigError, match=name):
        ps.Application("x", **options)


def test_no_password_is_in_an_error() -> None:
    for build in (
        lambda: Config(kafka={"sasl.password": b"secret"}),  # type: ignore[dict-item]
        lambda: Config.build({}, {"PENSTOCK_KAFKA": "sasl.username=u;secret"}),
    ):
        with pytest.raises(ConfigError) as refused:
            build()
        assert "secret" not in str(refused.value)


@pytest.mark.parametrize("wrong", [None, 5, b"x"])
def test_an_application_id_is_a_text(wrong: object) -> None:
    with pytest.raises(ConfigError, match="application id"):
        ps.Application(wrong)  # type: ignore[arg-type]


def test_a_password_with_a_semicolon_is_given_as_json() -> None:
    text = ' {"sasl.password": " w4rd;7=x ", "sasl.username": "nurse"}'
    found = Config.build({}, {"PENSTOCK_KAFKA": text}).kafka
    assert found == {"sasl.password": " w4rd;7=x ", "sasl.username": "nurse"}
    for broken in (text[:-1], '{"sasl.password": 7}'):
        with pytest.raises(ConfigError, match="name=value;name=value"):
            Config.build({}, {"PENSTOCK_KAFKA": broken})


def test_a_broken_variable_is_told_how_to_be_written() -> None:
    with pytest.raises(ConfigError, match="name=value;name=value"):
        Config.build({}, {"PENSTOCK_KAFKA": "broken"})
    with pytest.raises(ConfigError, match="milliseconds"):
        Config.build({}, {"PENSTOCK_COMMIT_INTERVAL": "soon"})


def test_a_misspelt_variable_is_told(caplog: pytest.LogCaptureFixture) -> None:
    known = {"PENSTOCK_NUM_INSTANCES": "1", "PENSTOCK_SPARK_LOG": "1", "PENSTOCK_JARS": "/jars"}
    Config.build({}, {**known, "PENSTOCK_BOOTSTRAP_SERVER": "a:1", "BOOTSTRAP_SERVER": "a:1"})
    assert [record.getMessage() for record in caplog.records] == [
        "PENSTOCK_BOOTSTRAP_SERVER is no option; did you mean PENSTOCK_BOOTSTRAP_SERVERS?"
    ]


def test_the_page_says_what_kafka_streams_does_not_have() -> None:
    page = options_page()
    assert "| `slice_records_max` | - |" in page
    assert "| `commit_interval` | `commit.interval.ms` | 100 ms |" in page
    assert "86400000 ms" in page
    assert "e+0" not in page


def test_the_page_shows_a_program_that_runs() -> None:
    (program,) = re.findall(r"```python\n(.*?)```", options_page(), flags=re.DOTALL)
    made: dict[str, ps.Application] = {}
    exec(program, {}, made)
    assert made["app"].config.num_instances == 2
    assert made["app"].config.topic == {"segment.bytes": "104857600"}
