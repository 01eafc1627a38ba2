"""The log as JSON: one object a line, with its fields and without secrets."""

from __future__ import annotations

import base64
import io
import json
import logging
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, quote_plus

import pytest

from penstock.config import Config
from penstock.coordination.states import ApplicationState
from penstock.driver.events import StateChanged
from penstock.driver.monitor import Monitor
from penstock.errors import UserFunctionError
from penstock.hidden import spellings
from penstock.instance.meters import TaskMeter
from penstock.instance.protocol import FollowOrder
from penstock.observability.json_logs import LOGGER, log_as_json, log_as_lines, secrets_of
from penstock.observability.recorder import Recorder


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    logger = logging.getLogger(LOGGER)
    before = (list(logger.handlers), logger.level, logger.propagate)
    yield io.StringIO()
    logger.handlers[:], logger.level, logger.propagate = before


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_has_the_fields_of_the_process_and_of_the_call(stream: io.StringIO) -> None:
    log_as_json({"application": "pulse", "instance": "instance.1"}, stream=stream)
    logging.getLogger("penstock.instance").info("Task %s", "0_3", extra={"task": "0_3"})
    [line] = lines(stream)
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "INFO",
        "logger": "penstock.instance",
        "message": "Task 0_3",
        "application": "pulse",
        "instance": "instance.1",
        "task": "0_3",
    }


def test_whatever_is_logged_is_one_line(stream: io.StringIO) -> None:
    log_as_json({}, stream=stream)
    try:
        int("over\nseveral lines")
    except ValueError:
        logging.getLogger("penstock.driver").exception('with "quotes"\nand ✓')
    [line] = lines(stream)
    assert line["message"] == 'with "quotes"\nand ✓'
    assert "ValueError: invalid literal" in line["exception"]


def test_what_ends_an_application_is_logged_with_the_traceback_of_ones_function(
    stream: io.StringIO,
) -> None:
    log_as_json({}, stream=stream)
    error = UserFunctionError("The function of step s raised").arrived("in half\n  value // 0")
    monitor = Monitor("pulse", Config())
    monitor.failed(error)
    monitor.failed(KeyboardInterrupt())
    [line] = lines(stream)
    assert line["message"] == "The application ends: The function of step s raised"
    assert "in half\n  value // 0" in line["exception"]


def test_each_change_of_state_is_a_line(stream: io.StringIO) -> None:
    log_as_json({}, stream=stream)
    logging.getLogger(LOGGER).setLevel(logging.INFO)
    monitor = Monitor("pulse", Config())
    created, rebalancing, running = list(ApplicationState)[:3]
    for old, new in ((created, rebalancing), (rebalancing, running), (running, running)):
        monitor.hear(StateChanged(old=old, new=new))
    followed = FollowOrder(task="0_1", name="counts-1", stores=[], commits_partition=1)
    assert TaskMeter(Recorder("INFO"), followed).became("following") == "following"
    told = [(line["message"], line.get("old_state"), line.get("task")) for line in lines(stream)]
    assert told == [
        ("The application is now rebalancing", "created", None),
        ("The application is now running", "rebalancing", None),
        ("Task 0_1 is now following", None, "0_1"),
    ]


def test_setting_it_up_twice_writes_each_line_once(stream: io.StringIO) -> None:
    log_as_json({"application": "one"}, stream=stream)
    log_as_json({"application": "two"}, stream=stream)
    logging.getLogger("penstock").warning("here")
    assert [line["application"] for line in lines(stream)] == ["two"]


SECRET = "hunter2-and-more"


@pytest.mark.parametrize(
    "setting",
    ["sasl.password", "ssl.key.password", "sasl.oauthbearer.client.secret", "ssl.key.pem"],
)
def test_a_secret_of_the_config_is_not_written_wherever_it_comes_up(
    stream: io.StringIO, setting: str
) -> None:
    config = Config(kafka={setting: SECRET})
    log_as_json({}, secrets=secrets_of(config, "the-token-of-the-run"), stream=stream)
    logger = logging.getLogger("penstock.driver")
    logger.warning("cannot log in with %s", SECRET, extra={"where": {"x": SECRET}})
    logger.warning("token the-token-of-the-run")
    try:
        int(SECRET)
    except ValueError:
        logger.exception("failed")
    assert SECRET not in stream.getvalue()
    assert "the-token-of-the-run" not in stream.getvalue()
    assert len(lines(stream)) == 3


ODD = 'w4"rd é/\\7+x'
LOGIN = f'Module required username="nurse" password={json.dumps(ODD, ensure_ascii=False)};'
KEY = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\n-----END PRIVATE KEY-----"


@pytest.mark.parametrize(
    ("config", "secret"),
    [
        (Config(kafka={"sasl.password": ODD}), ODD),
        (Config(spark={"spark.kafka.sasl.jaas.config": LOGIN}), ODD),
        (Config(kafka={"basic.auth.user.info": f"nurse:{ODD}"}), ODD),
        (Config(kafka={"ssl.key.pem": KEY}), KEY.splitlines()[1]),
        (Config(spark={"spark.executorEnv.DSN": "host=db password=w4rd7"}), "w4rd7"),
        (Config(spark={"spark.executorEnv.DSN": "postgresql://me:w4rd7@db/bank"}), "w4rd7"),
        (Config(snapshot_location="s3://me:w4rd7@bucket/x"), "w4rd7"),
    ],
)
def test_what_others_take_out_of_a_secret_is_not_written_however_it_is_spelt(
    stream: io.StringIO, config: Config, secret: str
) -> None:
    log_as_json({}, secrets=secrets_of(config), stream=stream)
    ways = [
        *(secret, repr(secret), repr(secret.encode()), json.dumps(secret)),
        *(quote(secret), quote(secret, safe=""), quote_plus(secret)),
        base64.b64encode(secret.encode()).decode(),
    ]
    for each in ways:
        # Nothing stands before it by which it were known.
        logging.getLogger("penstock.driver").warning("refused %s", each)
    told = [line["message"] for line in lines(stream)]
    assert set(told) <= {
        *("refused ***", "refused '***'", 'refused "***"', "refused b'***'", 'refused b"***"')
    }


def test_lines_for_people_hide_what_is_known_too(stream: io.StringIO) -> None:
    log_as_lines(secrets=["the-token-of-the-run"], stream=stream)
    try:
        try:
            int("the-token-of-the-run")
        except ValueError as error:
            error.add_note("asked with the-token-of-the-run")
            raise RuntimeError("no") from error
    except RuntimeError:
        logging.getLogger(LOGGER).exception("failed")
    assert "the-token-of-the-run" not in stream.getvalue()
    assert "asked with ***" in stream.getvalue()


def test_settings_of_spark_are_secrets_by_the_names_that_are_hidden_elsewhere() -> None:
    account = "spark.hadoop.fs.azure.account.key.wards.dfs.core.windows.net"
    switch = "spark.security.credentials.hive.enabled"
    found = secrets_of(Config(spark={account: SECRET, switch: "false"}))
    assert set(found) == spellings(SECRET)


@pytest.mark.parametrize(
    "text",
    [
        f"postgresql://penstock:{SECRET}@localhost/db cannot be reached",
        f"host=localhost password={SECRET} user=penstock",
        f"'password': '{SECRET}'",
        f"authorization: Bearer {SECRET}",
    ],
)
def test_what_looks_like_a_secret_is_not_written(stream: io.StringIO, text: str) -> None:
    log_as_json({}, stream=stream)
    logging.getLogger("penstock").error(text)
    assert SECRET not in stream.getvalue()
    assert "***" in stream.getvalue()


def test_a_field_named_as_a_secret_is_not_written(stream: io.StringIO) -> None:
    log_as_json({}, stream=stream)
    logging.getLogger("penstock").error("here", extra={"api_token": SECRET})
    assert SECRET not in stream.getvalue()
