"""The HTTP service in the life of an application: opened before its driver, closed after it."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from penstock.config import Config
from penstock.coordination.states import ApplicationState
from penstock.driver.hearing import StateListener
from penstock.errors import StateDirectoryError
from penstock.instance.http_options import HttpOptions
from penstock.queries.driver_file import DriverFile, remove_driver_file, write_driver_file
from penstock.queries.gate import AsgiApp
from penstock.queries.limits import Limits
from penstock.queries.listening import Listening, check_safe
from penstock.queries.live import LiveQueries
from penstock.queries.probes import Controls, Probes
from penstock.queries.server import HttpServer

_log = logging.getLogger("penstock.queries")


@dataclass(frozen=True, kw_only=True)
class HttpOrder:
    """What is served: who answers, whether it is healthy, and what may be done to it."""

    application_id: str
    config: Config
    queries: LiveQueries
    probes: Probes
    controls: Controls | None = None
    metrics: Callable[[], bytes] | None = None
    """Prometheus' text."""
    extend: Callable[..., object] | None = None
    """Adds routes, as `penstock.queries.service.service` says; those of a console."""
    open_below: tuple[str, ...] = ()
    limits: Limits = Limits()  # noqa: RUF009 - frozen
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    """Of this run; those of its instances that answer over HTTP let it in too."""
    instances: Callable[[], Mapping[str, str]] | None = None
    """Where those are, by name."""
    on_state_change: Callable[[StateListener], object] | None = None
    """Has a listener hear of the application's states."""


@contextlib.contextmanager
def http_service(order: HttpOrder) -> Iterator[str]:
    """Answer while the block runs; gives the address, or nothing if `http_listen` is empty.

    Raises `ConfigError` where it must not, or cannot, listen.
    """
    instances = HttpOptions.of(order.config)
    if instances is not None:
        # Told now, and not by the first of them that starts.
        check_safe(instances.config(), option="instance_http_listen")
    if not order.config.http_listen:
        yield ""
        return
    listening = Listening.of(order.config, token=order.token)
    server = HttpServer(lambda: _service(order, listening), listening, order.limits)
    facts = DriverFile(
        application_id=order.application_id,
        process=os.getpid(),
        url=server.url,
        local_url=server.local_url,
        token=listening.token,
        certificate=listening.certificate,
    )
    with contextlib.ExitStack() as stack:
        stack.callback(server.stop)
        server.start()
        if order.on_state_change is not None:
            order.on_state_change(_preparing(server))
        # Not before: a second driver of the same id, which is refused, must leave the file alone.
        order.queries.tell_when_first_opened(lambda: _write_down(order, facts, stack))
        yield server.url


def _preparing(server: HttpServer) -> StateListener:
    """Have what answers made when the application runs, and not by whoever asks first."""

    def heard(old: ApplicationState, new: ApplicationState) -> None:
        del old
        if new is ApplicationState.RUNNING:
            server.prepare()

    return heard


def _service(order: HttpOrder, listening: Listening) -> AsgiApp:
    # It loads FastAPI, which takes a second: not before the application runs, or somebody asks.
    from penstock.queries.service import service

    return service(
        order.queries,
        access=listening.access,
        probes=order.probes,
        limits=order.limits,
        metrics=order.metrics,
        controls=order.controls,
        extend=order.extend,
        open_below=order.open_below,
        instances=order.instances,
    )


def _write_down(order: HttpOrder, facts: DriverFile, stack: contextlib.ExitStack) -> None:
    """Say where it is; a driver on a machine without a state directory is asked by its address."""
    state_dir = order.config.state_dir
    try:
        write_driver_file(state_dir, facts)
    except StateDirectoryError as error:
        _log.warning("The application cannot be found by its id on this machine: %s", error)
    else:
        stack.callback(remove_driver_file, state_dir, facts)
    _log.info("Queries are answered at %s", facts.url)
