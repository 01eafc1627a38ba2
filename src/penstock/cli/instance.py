"""`penstock instance`: a process that holds state for an application elsewhere."""

from __future__ import annotations

import logging
import os
import socket
from typing import Annotated, Any

import typer

from penstock.cli.answers import print_answer, print_progress
from penstock.cli.loading import load_application
from penstock.cli.usage import as_usage
from penstock.errors import ApplicationUnreachableError, MemberRefusedError, UsageError
from penstock.instance.client import tcp_location
from penstock.instance.global_processing import Programs, programs_of
from penstock.instance.http_options import HttpOptions
from penstock.instance.process import TOKEN_VARIABLE, Ending, InstanceOptions, run_instance
from penstock.instance.tls import TlsFiles
from penstock.observability.json_logs import LOGGER, log_as_lines
from penstock.option_values import check_group_instance_id, check_tls_files, parse_address
from penstock.pipeline.instances import serve_http
from penstock.queries.listening import Listening

_Capacity = Annotated[
    int, typer.Option(min=1, help="How many tasks it gets for each of an instance with 1.")
]
_Certificate = Annotated[
    str, typer.Option(envvar="PENSTOCK_TLS_CERTIFICATE_FILE", help="What it shows, as PEM.")
]
_Key = Annotated[str, typer.Option(envvar="PENSTOCK_TLS_KEY_FILE", help="Its private key.")]
_Authority = Annotated[
    str, typer.Option(envvar="PENSTOCK_TLS_CA_FILE", help="Who signed the others'.")
]
_ServerName = Annotated[
    str, typer.Option(envvar="PENSTOCK_TLS_SERVER_NAME", help="The name in all of them.")
]
_VerifyClients = Annotated[
    bool,
    typer.Option(
        "--tls-verify-clients",
        envvar="PENSTOCK_TLS_VERIFY_CLIENTS",
        help="Callers show certificates too.",
    ),
]
_HttpClientAuthority = Annotated[
    str,
    typer.Option(
        envvar="PENSTOCK_HTTP_TLS_CLIENT_CA_FILE", help="Who signs those of whoever asks."
    ),
]
_HttpToken = Annotated[
    str,
    typer.Option(envvar="PENSTOCK_HTTP_TOKEN_FILE", help="A file with a token that may ask."),
]
_HttpCertificate = Annotated[
    str,
    typer.Option(envvar="PENSTOCK_HTTP_TLS_CERTIFICATE_FILE", help="What it shows over HTTP."),
]
_HttpKey = Annotated[
    str, typer.Option(envvar="PENSTOCK_HTTP_TLS_KEY_FILE", help="Its private key.")
]

_HttpHost = Annotated[
    list[str] | None, typer.Option(help="A name by which it may be called there.")
]
_Program = Annotated[
    str,
    typer.Option(help="The program, app.py or app.py:name, if its processors keep global stores."),
]


def instance(
    coordinator: Annotated[str, typer.Option(help="The driver's coordinator, HOST:PORT.")],
    name: Annotated[str, typer.Option(help="A name; host and process make one if not given.")] = "",
    group_instance_id: Annotated[
        str,
        typer.Option(
            help="Its name, and it is static: back in time with the same, it keeps its tasks."
        ),
    ] = "",
    client_tag: Annotated[
        list[str] | None,
        typer.Option(help="NAME=VALUE, such as zone=a; standbys go where the values differ."),
    ] = None,
    capacity: _Capacity = 1,
    tls_certificate_file: _Certificate = "",
    tls_key_file: _Key = "",
    tls_ca_file: _Authority = "",
    tls_server_name: _ServerName = "",
    tls_verify_clients: _VerifyClients = False,
    http: Annotated[
        str, typer.Option(help="HOST:PORT where it answers queries over HTTP; port 0 is free.")
    ] = "",
    http_token_file: _HttpToken = "",
    http_tls_certificate_file: _HttpCertificate = "",
    http_tls_key_file: _HttpKey = "",
    http_tls_client_ca_file: _HttpClientAuthority = "",
    http_host: _HttpHost = None,
    slot: Annotated[str, typer.Option(help="A directory for one of several on a host.")] = "",
    application: _Program = "",
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object at the end.")] = False,
) -> None:
    with as_usage():
        files = (tls_certificate_file, tls_key_file, tls_ca_file)
        tls = _tls(files, server_name=tls_server_name, verify_clients=tls_verify_clients)
        options = InstanceOptions(
            name=_name(name, group_instance_id),
            coordinator=tcp_location(*parse_address(coordinator), tls=tls is not None),
            token=_token(),
            slot=slot,
            is_static=bool(group_instance_id),
            is_patient=True,
            tags={"host": socket.gethostname(), **_tags(client_tag or [])},
            capacity=capacity,
            tls=tls,
            http=_http(
                http,
                token_file=http_token_file,
                tls_certificate_file=http_tls_certificate_file,
                tls_key_file=http_tls_key_file,
                tls_client_ca_file=http_tls_client_ca_file,
                hosts=tuple(http_host or ()),
            ),
        )
    programs = Programs()
    if application:
        app = load_application(application)
        tables = app.build().global_tables
        programs = programs_of(tables, app.config.processing_exception_handler)
    print_progress(f"Joining the application at {coordinator} as {options.name}; Ctrl-C leaves it")
    if not logging.getLogger(LOGGER).hasHandlers():
        # Whoever started it sees what it does: it joined, and which tasks it has.
        log_as_lines(secrets=[options.token])
    _tell(run_instance(options, programs, serve=serve_http))
    print_progress(f"Instance {options.name} has ended")
    if json:
        print_answer("", {"instance": options.name}, as_json=True)


def _tell(ending: Ending) -> None:
    """Raise what tells why it ended, if nobody asked it to."""
    if ending is Ending.DRIVER_LOST:
        raise ApplicationUnreachableError(
            "The driver has not answered for as long as session_timeout",
            hint="Start this instance again: it waits for the driver",
        )
    if ending is Ending.GIVEN_UP:
        raise MemberRefusedError(
            "It was silent for longer than session_timeout, and its tasks went to others",
            hint="Start this instance again: it joins anew, with what is on its disk",
        )


def _token() -> str:
    token = os.environ.pop(TOKEN_VARIABLE, "")
    if not token:
        raise UsageError(
            f"{TOKEN_VARIABLE} is not set",
            hint="Set it to what the application has in it, which has coordinator_listen too",
        )
    return token


def _name(name: str, group_instance_id: str) -> str:
    if group_instance_id and name:
        raise UsageError(
            "A static instance goes by its group_instance_id",
            hint="Leave --name or --group-instance-id out",
        )
    if group_instance_id:
        return check_group_instance_id(group_instance_id)
    return name or f"{socket.gethostname()}-{os.getpid()}"


def _tls(files: tuple[str, str, str], *, server_name: str, verify_clients: bool) -> TlsFiles | None:
    check_tls_files(files, server_name=server_name, verify_clients=verify_clients)
    if not all(files):
        return None
    certificate, key, authority = files
    return TlsFiles(
        certificate=certificate,
        key=key,
        authority=authority,
        server_name=server_name,
        verify_clients=verify_clients,
    )


def _http(listen: str, **others: Any) -> HttpOptions | None:
    if not listen:
        return None
    options = HttpOptions(listen=listen, **others)
    # Before anything is waited for: what is not safe is refused at once.
    Listening.of(options.config(), option="--http")
    return options


def _tags(given: list[str]) -> dict[str, str]:
    """What the options say, by name.

    >>> _tags(["zone=a", "rack=7"])
    {'zone': 'a', 'rack': '7'}
    """
    wrong = [each for each in given if "=" not in each]
    if wrong:
        raise UsageError(f"--client-tag is {wrong[0]!r}", hint="Use NAME=VALUE")
    return dict(each.split("=", 1) for each in given)
