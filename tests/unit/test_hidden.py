"""Secrets are not in what objects and errors show of themselves."""

from __future__ import annotations

import re
import traceback
from typing import Any

import pytest

from penstock.changelog.clients import LogClients
from penstock.changelog.snapshots import SnapshotLocation
from penstock.config import Config
from penstock.errors import ConfigError, PenstockError
from penstock.hidden import HIDDEN, SECRET_WORDS, is_secret, shown, without_secrets
from penstock.instance.process import InstanceOptions
from penstock.instance.protocol import Settings
from penstock.pipeline.kafka_options import java_properties
from penstock.pipeline.session import _redaction, _settings
from penstock.serdes.registry import SchemaRegistry

SECRET = "planted"
NAMES = [
    "sasl.password",
    "sasl.jaas.config",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.config",
    "sasl.oauthbearer.assertion.private.key.passphrase",
    "ssl.key.password",
    "ssl.key.pem",
    "ssl.keystore.password",
    "ssl.keystore.key",
    "ssl.truststore.password",
    "basic.auth.user.info",
    "spark.hadoop.fs.s3a.access.key",
    "spark.hadoop.fs.s3a.secret.key",
    "spark.hadoop.fs.s3a.session.token",
    "spark.hadoop.fs.azure.account.key.wards.dfs.core.windows.net",
    "spark.hadoop.fs.azure.sas.wards.clinic.blob.core.windows.net",
    "spark.hadoop.fs.gs.auth.service.account.private.key",
    "spark.hadoop.fs.s3a.encryption.key",
    "spark.hadoop.fs.s3a.server-side-encryption.key",
    "spark.authenticate.secret",
    "spark.ssl.keyPassword",
    "spark.executorEnv.DB_PWD",
    "spark.executorEnv.DB_PASS",
    "spark.executorEnv.KEYSTORE_PASS",
]


@pytest.mark.parametrize("name", NAMES)
def test_names_of_secrets_are_known(name: str) -> None:
    assert is_secret(name)
    assert shown({name: SECRET}) == {name: HIDDEN}


@pytest.mark.parametrize(
    "address",
    [
        "s3://me:planted@bucket/path",
        "s3://me:p@planted@bucket/x",
        "s3://me:wJa/planted@bucket/x",
        "host=db user=me password=planted",
        "host=db password = 'two planted' user=me",
        "https://me:planted@registry:8081",
        "s3://bucket/path?secret_key=planted&region=x",
        "jdbc:postgresql://host/db?user=x&password=planted",
    ],
)
def test_passwords_in_addresses_are_not_shown(address: str) -> None:
    assert SECRET not in without_secrets(address)
    assert HIDDEN in without_secrets(address)


def test_an_address_without_one_is_shown_as_it_is() -> None:
    for address in ("file:///state/me@home", "s3://bucket/a:b@c", "localhost:9092", "spark://h:7"):
        assert without_secrets(address) == address


def planted_config() -> Config:
    kafka = dict.fromkeys(NAMES[4:5], SECRET) | {
        "sasl.password": SECRET,
        "ssl.key.pem": SECRET,
        "sasl.username": "nurse",
    }
    return Config(
        kafka=kafka,
        spark={name: SECRET for name in NAMES if name.startswith("spark.")},
        snapshot_location=f"s3://me:{SECRET}@bucket",
    )


def test_objects_do_not_show_them() -> None:
    config = planted_config()
    settings = Settings.of("a", config, over_tcp=False, global_tables=[])
    options = InstanceOptions(name="i", coordinator="c", token=SECRET)
    registry = SchemaRegistry(f"https://me:{SECRET}@r", {"basic.auth.user.info": SECRET})
    for each in (config, settings, options, registry):
        assert SECRET not in repr(each)
        assert SECRET not in str(each)
    assert "'sasl.username': 'nurse'" in repr(config)


@pytest.mark.parametrize(
    "options",
    [
        {"kafka": {"sasl.password": SECRET, "acks": SECRET}},
        {"kafka": {"sasl.jaas.config": SECRET}},
        {"kafka": {"sasl.password": 7, "x": SECRET}},
        {"kafka": SECRET},
        {"snapshot_location": ["s3://me:planted@b"]},
        {"master": "", "spark": {"spark.authenticate.secret": SECRET}},
    ],
)
def test_errors_of_options_do_not_show_them(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as told:
        Config(**options)
    assert SECRET not in "".join(traceback.format_exception(told.value))


@pytest.mark.parametrize(
    "text",
    [f"sasl.password={SECRET};{SECRET}", SECRET, f'{{"sasl.password": "{SECRET}"'],
)
def test_errors_of_the_environment_do_not_show_them(text: str) -> None:
    with pytest.raises(ConfigError) as told:
        Config.build({}, {"PENSTOCK_KAFKA": text})
    assert SECRET not in "".join(traceback.format_exception(told.value))


def test_errors_of_clients_do_not_show_them() -> None:
    kafka = {"sasl.password": SECRET, "sasl.pasword": SECRET}
    with pytest.raises(ConfigError) as told:
        LogClients(Config(kafka=kafka), "a")
    assert SECRET not in str(told.value)
    with pytest.raises(PenstockError) as told:
        java_properties({"ssl.key.pem": f"-----BEGIN RSA PRIVATE KEY-----{SECRET}"})
    assert SECRET not in str(told.value)


def test_a_location_that_is_none_does_not_show_its_password() -> None:
    with pytest.raises(ConfigError) as told:
        SnapshotLocation(f"nowhere://me:{SECRET}@b/", "a")
    assert SECRET not in "".join(traceback.format_exception(told.value))


def test_spark_hides_what_we_hide_and_what_the_user_wants_hidden() -> None:
    settings = _settings({"spark.redaction.regex": "ward"}, [], submitted=True)
    for name in (*NAMES, "my.ward"):
        assert re.search(settings["spark.redaction.regex"].replace("(?i)", ""), name, re.I)
    assert SECRET_WORDS in _redaction({})["spark.sql.redaction.options.regex"]
    for value in ("postgresql://me:planted@db/bank", "server=db;PWD=planted", "host=db pwd = p"):
        assert re.search(settings["spark.redaction.regex"].replace("(?i)", ""), value, re.I)
