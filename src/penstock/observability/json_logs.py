"""The log as JSON, one object a line with the fields by which it is searched, or as plain lines.

Neither has secrets in it.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import IO

from penstock.config import Config
from penstock.hidden import HIDDEN, is_secret, secrets_in, spellings, without_secrets

LOGGER = "penstock"
_PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_SHORT = 4
"""A secret of fewer characters would blot out innocent words."""
_WORDS = ("true", "false")
"""What settings say that are named as secrets and only switch something."""


def secrets_of(config: Config, *more: str) -> tuple[str, ...]:
    """What must not be written anywhere: what is secret in the config, and `more`, however it is
    spelt; the longest first.
    """
    settings = [*config.kafka.items(), *config.spark.items()]
    settings.append(("snapshot_location", config.snapshot_location))
    named = [each for name, value in settings for each in secrets_in(name, value)]
    known = {each for each in (*named, *more) if len(each) >= _SHORT and each not in _WORDS}
    spelt = {each for secret in known for each in spellings(secret)}
    return tuple(sorted(spelt, key=lambda each: (len(each), each), reverse=True))


class _Hiding(logging.Formatter):
    """Writes no secret, neither one that it knows nor what looks like one."""

    def __init__(self, *, secrets: Iterable[str] = ()) -> None:
        super().__init__()
        self._secrets = tuple(secrets)

    def without_secrets(self, text: str) -> str:
        """The text, with stars in the place of secrets."""
        for secret in self._secrets:
            text = text.replace(secret, HIDDEN)
        return without_secrets(text)


class LineFormatter(_Hiding):
    """A record as people read it on a terminal: what it says, and nothing else.

    >>> record = logging.makeLogRecord({"msg": "Joined with token=%s", "args": ("t0ken",)})
    >>> LineFormatter().format(record)
    'Joined with token=***'
    """

    def format(self, record: logging.LogRecord) -> str:
        return self.without_secrets(super().format(record))


class JsonFormatter(_Hiding):
    """A record as a line: time, level, logger, message, the fixed fields, those of `extra`.

    >>> record = logging.makeLogRecord({"msg": "Task %s is %s", "args": ("0_1", "running")})
    >>> record.created, record.task = 0.0, "0_1"
    >>> print(JsonFormatter({"application": "pulse"}).format(record))
    {"time": "1970-01-01T00:00:00.000Z", "level": "INFO", "logger": "root", \
"message": "Task 0_1 is running", "application": "pulse", "task": "0_1"}
    """

    def __init__(self, fields: Mapping[str, str], *, secrets: Iterable[str] = ()) -> None:
        super().__init__(secrets=secrets)
        self._fields = dict(fields)

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": _time(record.created),
            "level": record.levelname if record.levelno else "INFO",
            "logger": record.name or "root",
            "message": record.getMessage(),
            **self._fields,
        }
        for name, value in vars(record).items():
            if name not in _PLAIN and not name.startswith("_"):
                line[name] = HIDDEN if is_secret(name) else str(value)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        shown = {
            name: self.without_secrets(value) if isinstance(value, str) else value
            for name, value in line.items()
        }
        return json.dumps(shown, ensure_ascii=False)


def _time(created: float) -> str:
    moment = datetime.fromtimestamp(created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class _OurHandler(logging.StreamHandler[IO[str]]):
    """The handler that one of the functions below has put in place: there is one at most."""


def log_as_json(
    fields: Mapping[str, str], *, secrets: Iterable[str] = (), stream: IO[str] | None = None
) -> None:
    """Write what Penstock logs as JSON to a stream, standard error unless given; once a process."""
    _log_with(JsonFormatter(fields, secrets=secrets), stream)


def log_as_lines(*, secrets: Iterable[str] = (), stream: IO[str] | None = None) -> None:
    """Write what Penstock logs as lines to a stream, standard error unless given.

    `log_as_json` takes its place, where both are called.
    """
    _log_with(LineFormatter(secrets=secrets), stream)


def _log_with(formatter: logging.Formatter, stream: IO[str] | None) -> None:
    logger = logging.getLogger(LOGGER)
    for handler in [each for each in logger.handlers if isinstance(each, _OurHandler)]:
        logger.removeHandler(handler)
    handler = _OurHandler(stream or sys.stderr)
    handler.setFormatter(formatter)
    logger.addHandler(handler)
    if logger.getEffectiveLevel() > logging.INFO:
        logger.setLevel(logging.INFO)
    # The root's handlers would write each line again, and in another form.
    logger.propagate = False
