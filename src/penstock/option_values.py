"""What the text of an option says, and which texts an option may have."""

from __future__ import annotations

import difflib
import importlib
import ipaddress
import json
import logging
import re
import typing
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

from penstock.errors import ConfigError
from penstock.hidden import without_secrets

_log = logging.getLogger("penstock.config")

_PAIRS_HINT = 'Write name=value;name=value or, with a ; in a value, {"name": "value"}'


def with_new_names(given: Mapping[str, Any], renamed: Mapping[str, str]) -> dict[str, Any]:
    """The values by their new names; where both are set, the new one counts.

    >>> with_new_names({"old": 1, "other": 2}, {"old": "new"})
    {'other': 2, 'new': 1}
    """
    values = {name: value for name, value in given.items() if name not in renamed}
    for old, new in renamed.items():
        if old in given:
            values.setdefault(new, given[old])
    return values


def _milliseconds(text: str) -> timedelta:
    try:
        return timedelta(milliseconds=float(text))
    except OverflowError as error:
        raise ValueError(str(error)) from None


def _truth(text: str) -> bool:
    words = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    if text.lower() not in words:
        raise ValueError("Use true or false")
    return words[text.lower()]


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _pairs(text: str) -> dict[str, str]:
    if text.lstrip().startswith("{"):
        return _object(text)
    pairs = [pair.strip() for pair in text.split(";") if pair.strip()]
    if not all("=" in pair for pair in pairs):
        raise ValueError(_PAIRS_HINT)
    return dict(typing.cast("tuple[str, str]", pair.split("=", 1)) for pair in pairs)


def _object(text: str) -> dict[str, str]:
    """The same as JSON: passwords may have a semicolon in them, or a blank at their end."""
    try:
        found = json.loads(text)
    except ValueError:
        # What it says may show what is in there.
        raise ValueError(_PAIRS_HINT) from None
    if not all(isinstance(value, str) for value in found.values()):
        raise ValueError(_PAIRS_HINT)
    return dict(found)


PARSERS: dict[Any, Callable[[str], Any]] = {
    timedelta: _milliseconds,
    int: int,
    bool: _truth,
    Path: Path,
    Mapping[str, str]: _pairs,
    tuple[str, ...]: _names,
}
"""By the option's type, what makes a value of a text; other types are texts."""


LEAST = {
    "snapshot_keep": 1,
    "replication_factor": -1,
    "statestore_cache_max_bytes": 0,
    "num_instances": 0,
    "num_standby_replicas": 0,
    "acceptable_recovery_lag": 0,
    "max_warmup_replicas": 1,
    "slice_records_max": 1,
    "slice_bytes_max": 1,
    "rocksdb_memory_bytes": 16 * 1024 * 1024,
    "rocksdb_write_buffer_bytes": 64 * 1024,
    "rocksdb_write_buffers_max": 2,
    "rocksdb_block_bytes": 1024,
    "rocksdb_bloom_bits": 0,
}
"""The least that numbers may be; others 0."""
NEVER_ZERO = frozenset(
    {
        "heartbeat_interval",
        "probing_rebalance_interval",
        "session_timeout",
        "snapshot_interval",
        "transaction_timeout",
    }
)
"""Times in which something is done, or waited for, again and again: with none it never rests."""
_TIME_MAX = timedelta(days=36_500)
"""What threads can wait for ends at about three times that."""


def parse_address(text: str) -> tuple[str, int]:
    """Host and port of `HOST:PORT`. Raises `ConfigError`.

    >>> parse_address("0.0.0.0:7600"), parse_address("[::1]:7600")
    (('0.0.0.0', 7600), ('::1', 7600))
    """
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65_535:
        raise ConfigError(f"{text!r} is no address", hint="Write HOST:PORT, such as 10.0.0.7:7600")
    return host.strip("[]"), int(port)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens there.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("0.0.0.0"), is_loopback("ward-7")
    (True, True, False, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_listening(address: str, *, tls: bool, allowed: bool) -> None:
    """Refuse to listen to other hosts without TLS. Raises `ConfigError`."""
    if address and not tls and not allowed and not is_loopback(parse_address(address)[0]):
        raise ConfigError(
            f"Driver and instances would listen at {address} without TLS, for all to read",
            hint="Set tls_certificate_file, tls_key_file and tls_ca_file; on a network that you "
            "trust, allow_unencrypted=True",
        )


def check_tls_files(
    files: tuple[str, str, str], *, server_name: str, verify_clients: bool = False
) -> None:
    """Refuse half of what TLS needs. Raises `ConfigError`."""
    needed = bool(server_name) or verify_clients
    if any(files) != all(files) or (needed and not all(files)):
        raise ConfigError(
            "Some of the options for TLS are set, and some are not",
            hint="Set tls_certificate_file, tls_key_file and tls_ca_file, or none",
        )


def check_group_instance_id(text: str) -> str:
    """The id, if Kafka would take it. Raises `ConfigError`.

    >>> check_group_instance_id("rack-1.host_7")
    'rack-1.host_7'
    """
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", text) or text in (".", ".."):
        raise ConfigError(
            f"The group_instance_id is {text!r}",
            hint="Use 1 to 249 letters, digits, dots, underscores and hyphens",
        )
    return text


def tell_misspelt(environment: Mapping[str, str], options: Sequence[str]) -> None:
    """Tell of `PENSTOCK_*` variables that are nobody's and look like an option's."""
    for variable in environment:
        name = variable.removeprefix("PENSTOCK_")
        if name in (variable, *options):
            continue
        for near in difflib.get_close_matches(name, options, n=1, cutoff=0.8):
            _log.warning("%s is no option; did you mean PENSTOCK_%s?", variable, near)


def check_texts(option: str, settings: object) -> None:
    """Raise `ConfigError` unless these are texts by name."""
    if not isinstance(settings, Mapping):
        raise ConfigError(
            f"Option {option} is a {type(settings).__name__}",
            hint=f'Use a dict of texts: {option}={{"name": "value"}}',
        )
    for name, value in settings.items():
        if not isinstance(name, str) or not isinstance(value, str):
            # Without the value: it may be a password.
            raise ConfigError(
                f"Option {option} has a {type(value).__name__} for {name!r}",
                hint=f'Use texts, as in {option}={{"{name}": "..."}}',
            )


def check_topic_settings(settings: Mapping[str, str]) -> None:
    """Raise `ConfigError` for settings that cannot be those of all internal topics."""
    if "cleanup.policy" in settings:
        raise ConfigError(
            "Option topic has cleanup.policy, and no policy is right for all internal topics: "
            "changelogs are compacted, repartition topics must not be",
            hint='Set it for a store: logging={"cleanup.policy": ...}',
        )
    if brokers_times(settings):
        raise ConfigError(f"Option topic has {NOT_OUR_TIMES}", hint="Leave it out")


NOT_OUR_TIMES = (
    "message.timestamp.type=LogAppendTime: records of internal topics would have the times at "
    "which brokers got them, and what is restored other times than before"
)


def brokers_times(settings: Mapping[str, str]) -> bool:
    """Whether brokers are to write their own times in place of those that records come with.

    >>> brokers_times({"message.timestamp.type": "LogAppendTime"}), brokers_times({})
    (True, False)
    """
    return settings.get("message.timestamp.type", "CreateTime").strip().lower() != "createtime"


def imported(path: str, *, option: str) -> Any:
    """What an option names as `module:name`.

    >>> imported("json:dumps", option="x")({})
    '{}'
    """
    module, _, name = path.partition(":")
    try:
        found = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"Option {option} names {path!r}, which cannot be imported: {error}",
            hint="Write module:name, of a module on the Python path of every instance",
        ) from error
    return found


def check_kind(name: str, kind: Any, value: object) -> None:
    """Refuse what is not of the option's type, or not within its bounds."""
    hint = ""
    choices = typing.get_args(kind) if typing.get_origin(kind) is Literal else ()
    if choices and value not in choices:
        hint = f"Use one of {choices}"
    elif kind is timedelta:
        hint = time_hint(name, value)
    elif kind is bool and not isinstance(value, bool):
        hint = "Use True or False"
    elif kind == tuple[str, ...] and not isinstance(value, tuple):
        hint = "Use a tuple of names"
    elif kind is int:
        hint = number_hint(name, value)
    elif kind is str and not isinstance(value, str):
        hint = "Use a text"
    elif kind is Path and not isinstance(value, Path):
        hint = "Use a pathlib.Path"
    elif kind == Mapping[str, str]:
        check_texts(name, value)
    if hint:
        raise ConfigError(f"Option {name} is {without_secrets(repr(value))}", hint=hint)


def time_hint(option: str, value: object) -> str:
    """What to write instead of a value that is no time of this option's, else nothing.

    >>> time_hint("snapshot_interval", timedelta(0)), time_hint("commit_interval", timedelta(0))
    ('Use a timedelta of 1 ms or more', '')
    """
    least = 1 if option in NEVER_ZERO else 0
    if not isinstance(value, timedelta) or value < timedelta(milliseconds=least):
        return f"Use a timedelta of {least} ms or more"
    return "" if value <= _TIME_MAX else f"Use a timedelta of {_TIME_MAX.days} days at most"


def number_hint(option: str, value: object) -> str:
    """What to write instead of a value that is no number of this option's, else nothing.

    >>> number_hint("num_instances", -1)
    'Use a number >= 0'
    """
    least = LEAST.get(option, 0)
    # True is an int to Python.
    fits = isinstance(value, int) and not isinstance(value, bool) and value >= least
    return "" if fits else f"Use a number >= {least}"
