"""A Kafka client that refuses its properties says which, in an error of ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.changelog.clients import LogClients
from penstock.changelog.topic_admin import TopicAdmin
from penstock.cli import main
from penstock.config import Config
from penstock.driver.lease import DriverLease
from penstock.errors import ConfigError
from penstock.examples.catalogue import find_example
from penstock.examples.sending import Sender

WRONG = {
    "nonsense": "1",
    "security.protocol": "SASL_SSLX",
    "socket.timeout.ms": "1",
}


@pytest.mark.parametrize("name", WRONG)
def test_the_property_is_named_with_a_next_step(name: str) -> None:
    config = Config(bootstrap_servers="127.0.0.1:1", kafka={name: WRONG[name]})
    for make in (
        lambda: LogClients(config, "app"),
        lambda: TopicAdmin(config),
        lambda: Sender(find_example("word-count"), config),
    ):
        with pytest.raises(ConfigError) as refused:
            make()
        assert f'"{name}"' in refused.value.message
        assert "PENSTOCK_KAFKA" in refused.value.hint


def test_what_only_a_transactional_producer_refuses_is_told_before_the_start() -> None:
    config = Config(bootstrap_servers="127.0.0.1:1", kafka={"message.timeout.ms": "600000"})
    with pytest.raises(ConfigError, match=r"message\.timeout\.ms"):
        DriverLease("app", config, LogClients(config, "app"))


def test_commands_refuse_it_before_they_look_for_a_broker(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "program_nonsense.py"
    program.write_text(
        "import penstock as ps\n"
        "app = ps.Application('x', bootstrap_servers='127.0.0.1:1', kafka={'nonsense': '1'})\n"
        "app.stream('in', key=str, value=str).to('out')\n"
    )
    with pytest.raises(SystemExit) as ended:
        main(["topics", "plan", str(program)])
    assert ended.value.code == 1
    assert "nonsense" in capsys.readouterr().err
