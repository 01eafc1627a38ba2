"""The HTTP service of an instance: the same questions as the driver answers, asked anywhere.

    python -m penstock.queries.instances OPTIONS

It has the stores' serdes as the driver told them at the start, asks the driver who holds what, and
the holders for the rest. While the driver is silent, those answer whom it named last: an active
copy, of which nobody knows whether it still is one, answers whoever lets standbys answer.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import sys
from collections.abc import Callable, Iterator, Mapping

from penstock.errors import ConfigError
from penstock.instance.http_options import HttpParts
from penstock.instance.process import options_of, run_instance
from penstock.instance.protocol import Hello
from penstock.instance.told_messages import HttpTold
from penstock.queries.access import Access
from penstock.queries.gate import AsgiApp
from penstock.queries.limits import Limits
from penstock.queries.listening import Listening
from penstock.queries.probes import Probes
from penstock.queries.served import ServedQueries
from penstock.queries.server import HttpServer
from penstock.queries.told_places import ToldPlaces
from penstock.queries.told_stores import ToldQueries

_log = logging.getLogger("penstock.queries")


@contextlib.contextmanager
def serve_http(parts: HttpParts, limits: Limits = Limits()) -> Iterator[str]:  # noqa: B008 - frozen
    """Answer while the block runs; gives the address, or nothing if another process has it.

    Raises `ConfigError` where it must not listen.
    """
    told = parts.coordinator.call("http", Hello(instance=parts.name), HttpTold)
    listening = Listening.of(
        parts.options.config(), token=told.token, option="instance_http_listen"
    )
    with contextlib.ExitStack() as stack:
        places = ToldPlaces(parts.coordinator, token=parts.token, trust=parts.trust)
        stack.callback(places.close)
        make = functools.partial(
            instance_service,
            ToldQueries(told.stores, places, driver_url=told.driver_url),
            access=listening.access,
            is_ready=parts.is_ready,
            metrics=parts.metrics,
            limits=limits,
            instances=places.urls,
        )
        try:
            server = HttpServer(make, listening, limits)
        except ConfigError as error:
            # The state is needed more than this: others may well answer for it.
            _log.warning("This instance answers nothing over HTTP: %s", error)
            yield ""
            return
        stack.callback(server.stop)
        server.start()
        server.prepare()
        _log.info("Queries are answered at %s", server.url)
        yield server.url


def instance_service(
    queries: ServedQueries,
    *,
    access: Access,
    is_ready: Callable[[], bool],
    metrics: Callable[[], bytes],
    limits: Limits,
    instances: Callable[[], Mapping[str, str]],
) -> AsgiApp:
    """What an instance serves: state, metrics, and whether it is well; nothing that acts."""
    # It loads FastAPI, which takes a second: a moment after the start, or when somebody asks.
    from penstock.queries.service import service

    return service(
        queries,
        access=access,
        probes=Probes(live=lambda: True, ready=is_ready),
        limits=limits,
        metrics=metrics,
        instances=instances,
    )


def main(arguments: list[str]) -> int:
    """An instance that answers over HTTP."""
    return run_instance(options_of(arguments), serve=serve_http)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
