"""`penstock query`: what a running application's stores hold."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, cast

import typer
import urllib3.exceptions

from penstock.cli.answers import counted, print_answer
from penstock.cli.entries import shown, shown_time
from penstock.cli.liveness import check_driver
from penstock.cli.running import ApplicationId, Meant, StateDir, is_app_file
from penstock.cli.times import FORM, time_or_milliseconds
from penstock.cli.usage import as_usage
from penstock.errors import (
    ClientCertificateError,
    ServiceUnreachableError,
    StoreUnavailableError,
    UsageError,
)
from penstock.queries.client import Client
from penstock.queries.contract import LIMIT_MAX, Answer, Bound, Question, QuestionKind, Row, Source

_MILLISECOND = timedelta(milliseconds=1)
WINDOWED = ("window", "session")
_OPTIONS_OF = {
    "--prefix": ("key_value",),
    "--start": WINDOWED,
    "--end": WINDOWED,
    "--as-of": ("versioned",),
}
"""Which kinds of stores an option says something to."""


def _time(what: str) -> Any:
    return typer.Option(
        metavar="TIME",
        parser=time_or_milliseconds,
        help=f"{what}: {FORM}, or milliseconds since 1970.",
    )


def query(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[APP] [STORE] [KEY]...",
            help="The program; a store's name, else all are listed; keys, bytes as 0x6162.",
        ),
    ] = None,
    application: ApplicationId = "",
    state_dir: StateDir = None,
    url: Annotated[str, typer.Option(help="Where it answers, if elsewhere.")] = "",
    token_file: Annotated[
        Path | None, typer.Option(help="With --url: a file with the token.")
    ] = None,
    ca_file: Annotated[Path | None, typer.Option(help="A CA to trust instead of usual.")] = None,
    certificate_file: Annotated[
        Path | None, typer.Option(help="What to show, if it wants to see a certificate.")
    ] = None,
    key_file: Annotated[Path | None, typer.Option(help="The private key of that.")] = None,
    all_rows: Annotated[bool, typer.Option("--all", help="Everything.")] = False,
    lower: Annotated[str | None, typer.Option("--from", help="From this key on.")] = None,
    upper: Annotated[str | None, typer.Option("--to", help="Up to and with this key.")] = None,
    prefix: Annotated[str | None, typer.Option(help="Keys that begin with this.")] = None,
    start: Annotated[int | None, _time("Windows that begin from this time on")] = None,
    end: Annotated[int | None, _time("Windows that begin up to this time")] = None,
    as_of: Annotated[int | None, _time("As it was at this time")] = None,
    partition: Annotated[int | None, typer.Option(min=0, help="Of one partition only.")] = None,
    reverse: Annotated[bool, typer.Option("--reverse", help="From the last.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=LIMIT_MAX, help="At most so many.")] = 100,
    page: Annotated[str | None, typer.Option(help="Go on where the last answer says.")] = None,
    stale: Annotated[bool, typer.Option("--stale", help="Let a standby answer.")] = False,
    max_lag: Annotated[int | None, typer.Option(min=0, help="What it may lack.")] = None,
    timeout_ms: Annotated[int, typer.Option(min=1, help="How long to wait.")] = 5_000,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    options: dict[str, Any] = {"certificate_file": certificate_file, "key_file": key_file}
    options["timeout"] = timeout = timeout_ms * _MILLISECOND
    file, store, keys = _split(words or [])
    place = (file, application, state_dir, url, token_file, ca_file)
    with _failures_worded(), _client(*place, options) as client:
        if not store:
            _print_stores(client, as_json=json)
            return
        given = {"--prefix": prefix, "--start": start, "--end": end, "--as-of": as_of}
        store_kind = _checked_kind(client, store, given)
        question = Question(
            kind=_question_kind(
                keys=keys,
                windowed=store_kind in WINDOWED,
                versions=as_of is not None,
                prefix=prefix is not None,
                ranged=lower is not None or upper is not None,
                timed=start is not None or end is not None,
                everything=all_rows,
            ),
            keys=keys,
            lower=lower,
            upper=upper,
            prefix=prefix,
            start=start,
            end=end,
            as_of=as_of,
            reverse=reverse,
            partition=partition,
            limit=limit,
            page=page,
        )
        bound = Bound(stale=stale, max_lag=max_lag)
        answer = client.ask(store, question, bound=bound, timeout=timeout, as_text=True)
    _print(store, answer, as_json=json)


@contextlib.contextmanager
def _failures_worded() -> Iterator[None]:
    """Tell failures in the words of the command line: its options, and nothing of Python's."""
    try:
        yield
    except StoreUnavailableError as error:
        raise StoreUnavailableError(
            error.message, where=error.where, hint=error.hint.replace("stale=True", "--stale")
        ) from error
    except (ServiceUnreachableError, ClientCertificateError) as error:
        message = error.message
        if message.startswith("No answer") and error.__cause__ is not None:
            message = _no_answer(error.__cause__)
        raise type(error)(message, where=error.where, hint=_with_options(error.hint)) from error


def _with_options(hint: str) -> str:
    """The hint, with the options of the command for the client's.

    >>> _with_options("Give certificate_file and key_file, or ca_file")
    'Give --certificate-file and --key-file, or --ca-file'
    """
    for name in ("certificate_file", "key_file", "ca_file"):
        hint = re.sub(rf"\b{name}\b", f"--{name.replace('_', '-')}", hint)
    return hint


def _no_answer(error: BaseException) -> str:
    """Why there is none, as the system says it.

    >>> _no_answer(ConnectionRefusedError(111, "Connection refused"))
    'No answer: Connection refused'
    """
    found: BaseException | None = error
    while found is not None:
        if isinstance(found, OSError) and found.strerror:
            return f"No answer: {found.strerror}"
        found = found.__cause__ or found.__context__
    in_time = isinstance(error, urllib3.exceptions.TimeoutError)
    return "No answer in time" if in_time else "No answer: the connection broke off"


def _split(words: list[str]) -> tuple[str, str, tuple[str, ...]]:
    """The program, the store and the keys, of which the first may be left out.

    >>> _split(["app.py", "counts", "ann"]), _split(["counts", "app.py"])
    (('app.py', 'counts', ('ann',)), ('', 'counts', ('app.py',)))
    """
    file, rest = (words[0], words[1:]) if words and is_app_file(words[0]) else ("", words)
    return file, rest[0] if rest else "", tuple(rest[1:])


def _client(
    file: str,
    application: str,
    state_dir: Path | None,
    url: str,
    token_file: Path | None,
    ca_file: Path | None,
    options: dict[str, Any],
) -> Client:
    if bool(application or file) and url:
        raise UsageError(
            "It is said twice where to ask", hint="Leave out --url, or app.py and --application"
        )
    if not url:
        meant = Meant.of(file, application, state_dir)
        place = meant.state_dir
        client = Client.of_application(meant.application_id, state_dir=place, **options)
        check_driver(meant.application_id, place)
        return client
    if token_file is None:
        raise UsageError("--url takes --token-file, for arguments can be seen by all")
    try:
        token = token_file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        raise UsageError(f"The file {token_file} cannot be read") from None
    with as_usage():
        return Client(url, token=token, ca_file=ca_file, **options)


def _checked_kind(client: Client, store: str, options: Mapping[str, object]) -> str:
    """The store's kind; "" of one that is not there, which is left for the question to tell."""
    kind = next((each.kind for each in client.stores() if each.name == store), "")
    _check_options(store, kind, options)
    return kind


def _check_options(store: str, kind: str, options: Mapping[str, object]) -> None:
    """Refuse what would be passed over: the answer would be taken for that to another question.

    >>> _check_options("counts", "key_value", {"--start": 0, "--end": None})  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    penstock.errors.UsageError: --start is for window and session stores; counts is a key_value ...
    """
    for name in (name for name, value in options.items() if value is not None):
        if kind and kind not in _OPTIONS_OF[name]:
            kinds = " and ".join(_OPTIONS_OF[name])
            raise UsageError(
                f"{name} is for {kinds} stores; {store} is a {kind} store",
                hint="Leave it out, or ask another store: `penstock query APP` lists them",
            )


def _question_kind(
    *,
    keys: tuple[str, ...],
    windowed: bool,
    versions: bool,
    prefix: bool,
    ranged: bool,
    timed: bool,
    everything: bool,
) -> QuestionKind:
    if sum([bool(keys), prefix, ranged, everything]) > 1:
        raise UsageError("Say one of: keys, --prefix, --from and --to, --all")
    if windowed:
        if keys:
            return "fetch"
        return "fetch_range" if ranged or timed else "all"
    if versions and keys:
        return "as_of"
    if keys:
        return "get"
    kinds = {"prefix": prefix, "range": ranged, "all": everything}
    found = [kind for kind, is_meant in kinds.items() if is_meant]
    if not found:
        raise UsageError("Say what is wanted: keys, --prefix, --from and --to, or --all")
    return cast("QuestionKind", found[0])


def _print_stores(client: Client, *, as_json: bool) -> None:
    stores = client.stores()
    lines = [
        f"{each.name}  {each.kind}, {counted(each.partitions, 'partition')}, "
        f"{each.key} to {each.value}"
        for each in stores
    ]
    data = [
        {"name": each.name, "kind": each.kind, "partitions": each.partitions} for each in stores
    ]
    print_answer("\n".join(lines) or "There are no stores", {"stores": data}, as_json=as_json)


def _print(store: str, answer: Answer, *, as_json: bool) -> None:
    lines = [_line(row) for row in answer.rows] or ["Nothing"]
    if answer.next_page is not None:
        lines.append(f"There is more: --page {answer.next_page}")
    lines += [_source_line(each) for each in answer.sources]
    data: dict[str, Any] = {
        "store": store,
        "rows": [
            {
                "key": row.key,
                "value": row.value,
                "timestamp": row.timestamp,
                "start": row.start,
                "end": row.end,
            }
            for row in answer.rows
        ],
        "sources": [
            {
                "partition": each.partition,
                "instance": each.instance,
                "role": each.role,
                "position": each.position,
                "age_ms": each.age // _MILLISECOND,
            }
            for each in answer.sources
        ],
        "next_page": answer.next_page,
    }
    print_answer("\n".join(lines), data, as_json=as_json)


def _line(row: Row) -> str:
    key = shown(row.key)
    if row.start is not None:
        until = "" if row.end is None else f" to {shown_time(row.end)}"
        key = f"{key} [{shown_time(row.start)}{until}]"
    return f"{key} = {'nothing' if row.value is None else shown(row.value)}"


def _source_line(source: Source) -> str:
    age = "" if source.role == "active" else f", {source.age.total_seconds():.1f} s old"
    position = "no position" if source.position is None else f"position {source.position}"
    return f"(partition {source.partition}: {source.role} on {source.instance}, {position}{age})"
