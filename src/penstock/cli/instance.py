"""`penstock instance`: a process that holds state for an application elsewhere."""

from __future__ import annotations

import os
import socket
import sys
from typing import Annotated

import typer

from penstock.cli.loading import load_application
from penstock.errors import ConfigError
from penstock.instance.client import tcp_location
from penstock.instance.global_processing import programs_of
from penstock.instance.process import TOKEN_VARIABLE, InstanceOptions, run_instance
from penstock.instance.tls import TlsFiles
from penstock.option_values import check_group_instance_id, check_tls_files, parse_address


def instance(
    coordinator: Annotated[str, typer.Option(help="The driver's coordinator, HOST:PORT.")],
    name: Annotated[str, typer.Option(help="A name that stays; the host's unless given.")] = "",
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
    tls_certificate_file: Annotated[
        str, typer.Option(envvar="PENSTOCK_TLS_CERTIFICATE_FILE", help="What it shows, as PEM.")
    ] = "",
    tls_key_file: Annotated[
        str, typer.Option(envvar="PENSTOCK_TLS_KEY_FILE", help="Its private key.")
    ] = "",
    tls_ca_file: Annotated[
        str, typer.Option(envvar="PENSTOCK_TLS_CA_FILE", help="Who signed the others'.")
    ] = "",
    tls_server_name: Annotated[
        str, typer.Option(envvar="PENSTOCK_TLS_SERVER_NAME", help="The name in all of them.")
    ] = "",
    slot: Annotated[str, typer.Option(help="A directory for one of several on a host.")] = "",
    application: Annotated[
        str, typer.Option(help="app.py[:app], if processors of it keep global stores.")
    ] = "",
    json: Annotated[bool, typer.Option("--json", help="Print errors as a JSON object.")] = False,
) -> None:
    token = os.environ.pop(TOKEN_VARIABLE, "")
    if not token:
        raise ConfigError(
            f"{TOKEN_VARIABLE} is not set",
            hint="Set it to what the application has in it, which has coordinator_listen too",
        )
    if group_instance_id and name:
        raise ConfigError(
            "A static instance goes by its group_instance_id",
            hint="Leave --name or --group-instance-id out",
        )
    if group_instance_id:
        name = check_group_instance_id(group_instance_id)
    files = (tls_certificate_file, tls_key_file, tls_ca_file)
    check_tls_files(files, server_name=tls_server_name)
    tls = None
    if all(files):
        certificate, key, authority = files
        tls = TlsFiles(
            certificate=certificate, key=key, authority=authority, server_name=tls_server_name
        )
    location = tcp_location(*parse_address(coordinator), tls=tls is not None)
    options = InstanceOptions(
        name=name or f"{socket.gethostname()}-{os.getpid()}",
        coordinator=location,
        token=token,
        slot=slot,
        is_static=bool(group_instance_id),
        is_patient=True,
        tags={"host": socket.gethostname(), **_tags(client_tag or [])},
        tls=tls,
    )
    tables = load_application(application).build().global_tables if application else ()
    sys.exit(run_instance(options, programs_of(tables)))


def _tags(given: list[str]) -> dict[str, str]:
    """What the options say, by name.

    >>> _tags(["zone=a", "rack=7"])
    {'zone': 'a', 'rack': '7'}
    """
    wrong = [each for each in given if "=" not in each]
    if wrong:
        raise ConfigError(f"--client-tag is {wrong[0]!r}", hint="Use NAME=VALUE")
    return dict(each.split("=", 1) for each in given)
