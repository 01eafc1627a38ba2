"""Opening a driver: each part in turn, and closing them in reverse."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from penstock.changelog.clients import LogClients
from penstock.changelog.commit_record import DRIVER_PARTITION
from penstock.changelog.topic_admin import TopicAdmin
from penstock.changelog.topics import commits_name
from penstock.config import Config
from penstock.coordination.gathering import Gathering
from penstock.coordination.history import refuse_half_filled
from penstock.driver.announcement import announced
from penstock.driver.coordinator import Coordinator
from penstock.driver.driver import Driver
from penstock.driver.events import Listener, RestoreHearer, Totals, Waiting, give_notice
from penstock.driver.inputs import InputLogs
from penstock.driver.instance_metrics import InstanceReadings
from penstock.driver.kafka_view import KafkaView, types_of
from penstock.driver.lease import DriverLease
from penstock.driver.monitor import Monitor
from penstock.driver.overview import Overviews, starting
from penstock.driver.parts import DriverParts, WarmSpark
from penstock.driver.setup import Prepared, prepare
from penstock.driver.telling import PlacesTelling
from penstock.driver.watch import InputWatch
from penstock.driver.watching import Watching
from penstock.errors import AnotherDriverError, ConfigError, InstanceError
from penstock.instance.client import tcp_location
from penstock.instance.http_options import HttpOptions
from penstock.instance.process import TOKEN_VARIABLE
from penstock.instance.protocol import Settings
from penstock.instance.tls import TlsFiles
from penstock.instance.told_messages import HttpTold
from penstock.local.jars import SPARK_KAFKA, ensure
from penstock.option_values import check_listening
from penstock.pipeline.executors import (
    ExecutorVisits,
    InstancesOrder,
    start_on_executors,
    wait_for_executors,
)
from penstock.pipeline.group import leave_group
from penstock.pipeline.jobs import Jobs, pickle_programs
from penstock.pipeline.log_sizes import log_sizes
from penstock.pipeline.session import Session, open_session
from penstock.queries.catalogue import Catalogue
from penstock.queries.told_stores import told_store
from penstock.topology import StoreSpec, Topology
from penstock.topology.external import kept_sentence

_log = logging.getLogger("penstock.driver")

_DRAIN_SECONDS = 30.0
_CLOSE_SECONDS = 30.0
_REGISTER_SECONDS = 60.0
_EXECUTORS_SECONDS = 30.0
_TOKEN_LENGTH_MIN = 32


@dataclass(frozen=True, kw_only=True)
class OpeningOrder:
    """What a driver is opened for."""

    application_id: str
    config: Config
    topology: Topology
    totals: Totals
    monitor: Monitor
    watching: Watching
    listener: Listener
    hear_restore: RestoreHearer
    token: str = field(repr=False)
    http_url: str
    http_token: str = field(repr=False)
    should_stop: Callable[[], bool]
    is_paused: Callable[[], bool]
    state: Callable[[], str]


class _StopAskedError(Exception):
    """Someone asked to stop before the driver was open."""


def run_token(config: Config, environment: Mapping[str, str]) -> str:
    """What calls between the processes of a run bear; a new one, unless an operator is to know it.

    Raises `ConfigError` if it is for the operator to give and is missing or short.
    """
    if not config.coordinator_listen:
        return secrets.token_hex(32)
    token = environment.get(TOKEN_VARIABLE, "")
    if len(token) < _TOKEN_LENGTH_MIN:
        raise ConfigError(
            f"{TOKEN_VARIABLE} is not set, or has less than {_TOKEN_LENGTH_MIN} characters",
            hint="coordinator_listen lets in whoever has it: give the application and each "
            "instance the same one, such as `openssl rand -hex 32` prints",
        )
    return token


def _programs(order: OpeningOrder) -> bytes:
    handler = order.config.processing_exception_handler
    return pickle_programs(order.topology.global_tables, handler)


def kept_elsewhere(store: StoreSpec) -> str | None:
    """What is to be known of a store that has no changelog, when the application starts.

    >>> from penstock.serdes import serde_of
    >>> types = {"key_serde": serde_of(str), "value_serde": serde_of(int)}
    >>> kept_elsewhere(StoreSpec(name="seen", **types, logging=False))
    'Store seen is ephemeral (logging=False): no changelog, no standbys, empty after each move'
    """
    if store.kept_in is not None:
        return kept_sentence(store.name, store.kept_in)
    if store.logging or store.recover_from == "input":
        return None
    return (
        f"Store {store.name} is ephemeral (logging=False): no changelog, no standbys, "
        "empty after each move"
    )


def open_driver(order: OpeningOrder, *, stack: contextlib.ExitStack) -> Driver | None:
    """A driver whose instances are there and whose Spark is on its way; `stack` closes it.

    None if it was asked to stop meanwhile.
    """
    try:
        return _open_driver(order, stack)
    except _StopAskedError:
        return None


def _open_driver(order: OpeningOrder, stack: contextlib.ExitStack) -> Driver:
    """Kafka is asked first, because its errors come at once; Spark takes seconds to start, so the
    lease and the instances are had meanwhile, and on one machine restores begin.
    """
    config, application_id = order.config, order.application_id
    order.monitor.log(order.token)
    logs = LogClients(config, application_id)
    admin = TopicAdmin(config, admin=logs.admin)
    _tell(order, f"asking Kafka at {config.bootstrap_servers} for its topics")
    prepared = prepare(order.topology, application_id, config, logs, admin)
    if prepared.notice:
        give_notice(order.listener, prepared.notice)
    for store in order.topology.stores:
        if (sentence := kept_elsewhere(store)) is not None:
            _log.info("%s", sentence)
    lease = DriverLease(application_id, config, logs)
    lease.check_free()
    _go_on(order)
    pool = stack.enter_context(ThreadPoolExecutor(2))
    opening = pool.submit(_open_spark, application_id, config)
    stack.callback(_close_spark, opening)
    stack.callback(lease.release, lambda member: _leave(order, opening, member))
    commits = _become_driver(order, prepared, lease)
    _tell(order, "starting Spark and instances")
    coordinator, expected, session = _start_instances(order, prepared, opening, stack)
    coordinator.overview = lambda: starting(
        prepared, lease.record, state=order.state(), waits_for=order.monitor.waits_for
    )
    stack.enter_context(
        announced(
            config.state_dir,
            application_id=application_id,
            coordinator=coordinator.location,
            token=order.token,
            trust=coordinator.trust,
        )
    )
    _go_on(order)
    inputs = InputLogs(logs, prepared.inputs, last_known=True)
    parts = DriverParts(
        prepared=prepared,
        lease=lease,
        coordinator=coordinator,
        inputs=inputs,
        changelogs=InputLogs(logs, [log for own in prepared.changelogs().values() for log in own]),
        watch=InputWatch(prepared, admin, inputs, notice=partial(give_notice, order.listener)),
        spark=pool.submit(_warm_up, order, opening),
        monitor=order.monitor,
        hear_restore=order.hear_restore,
        is_paused=order.is_paused,
        visit_executors=_visits(order, session, coordinator, stack),
        catalogue=_catalogue(order, prepared),
    )
    _watch_instances(order.monitor, coordinator, stack)
    driver = Driver(parts, commits, order.listener, order.totals)
    stack.callback(driver.drain, _DRAIN_SECONDS)
    overviews = Overviews(parts=parts, driver=driver, totals=order.totals, state=order.state)
    coordinator.overview, coordinator.telling = overviews, PlacesTelling(driver.places)
    sizes = partial(_sizes, opening, config)
    kafka = KafkaView(prepared, logs, sizes, types_of(prepared), describe=admin.describe)
    stack.enter_context(order.watching.opened(overviews, kafka))
    _tell(order, "waiting for instances")
    _wait_for_instances(order, coordinator, expected)
    return driver


def _tell(order: OpeningOrder, step: str) -> None:
    order.listener(Waiting(step=step))


def _become_driver(
    order: OpeningOrder, prepared: Prepared, lease: DriverLease
) -> Mapping[str, int]:
    """Take the lease; by task's name, where in the commits topic it is."""
    _tell(order, "starting Spark, and joining the consumer group as its only driver")
    lease.acquire()
    refuse_half_filled(lease.bootstrap)
    if lease.topology != prepared.last_run.topology_record:
        raise AnotherDriverError(
            f"Another driver of {order.application_id!r} started at the same time with another "
            "program",
            hint="Stop it, and start again",
        )
    _go_on(order)
    return lease.name_tasks([t.name for t in prepared.layout.tasks], prepared.manifest.encode())


def _catalogue(order: OpeningOrder, prepared: Prepared) -> Catalogue:
    # As they are laid out: names of an earlier program are kept, and patterns are resolved.
    subs = {each.task.sub_topology: each.sub_topology for each in prepared.layout.tasks}
    topology = Topology(
        sub_topologies=tuple(subs.values()), global_tables=order.topology.global_tables
    )
    return Catalogue.of(topology, order.application_id, prepared.layout.widths)


def _told(order: OpeningOrder, prepared: Prepared) -> HttpTold:
    """What instances that answer over HTTP are told; an operator may start one at any time."""
    return HttpTold(
        token=order.http_token,
        driver_url=order.http_url,
        stores=[told_store(store) for store in _catalogue(order, prepared).all()],
    )


def _watch_instances(
    monitor: Monitor, coordinator: Coordinator, stack: contextlib.ExitStack
) -> None:
    asker = InstanceReadings(coordinator)
    stack.callback(asker.close)
    monitor.asks(asker.snapshot)
    stack.callback(monitor.asks, None)
    stack.callback(monitor.pulse.rest)


def _open_spark(application_id: str, config: Config) -> Session:
    return open_session(application_id, config, ensure(SPARK_KAFKA))


def _warm_up(order: OpeningOrder, opening: Future[Session]) -> WarmSpark:
    session = opening.result()
    jobs = Jobs(session.spark, order.config, order.application_id)
    jobs.warm_up(commits_name(order.application_id), DRIVER_PARTITION)
    return WarmSpark(jobs=jobs, cores=session.cores, how_ended=session.how_ended)


def _sizes(
    opening: Future[Session], config: Config, topics: Mapping[str, int]
) -> Mapping[str, int]:
    """What Spark's client tells; nobody waits for it to start."""
    if not opening.done() or opening.exception() is not None:
        return {}
    return log_sizes(opening.result(), config, topics)


def _leave(order: OpeningOrder, opening: Future[Session], member: str) -> None:
    if opening.exception() is None and not opening.result().how_ended():
        group = order.application_id
        leave_group(opening.result(), order.config, group=group, member=member)


def _close_spark(opening: Future[Session]) -> None:
    if opening.exception() is None:
        opening.result().close()


def _start_instances(
    order: OpeningOrder,
    prepared: Prepared,
    opening: Future[Session],
    stack: contextlib.ExitStack,
) -> tuple[Coordinator, int | None, Session | None]:
    """Children on one machine; on a cluster one per executor, through a job that visits them.

    Also how many are to come, None if nobody knows, and the session if it had to be waited for.
    """
    on_one_machine = order.config.master.startswith("local[") or order.config.master == "local"
    session = None if on_one_machine and not _submitted() else opening.result()
    if session is not None:
        on_one_machine = session.on_one_machine
    listen = order.config.coordinator_listen
    if not listen and not on_one_machine and session is not None:
        listen = tcp_location(session.driver_host, 0).partition("://")[2]
    tls = TlsFiles.of(order.config)
    # Spark says only now where the driver is.
    check_listening(listen, tls=tls is not None, allowed=order.config.allow_unencrypted)
    if order.config.allow_unencrypted and listen and tls is None:
        _log.warning(
            "Driver and instances listen at %s without TLS, as allow_unencrypted has it", listen
        )
    settings = Settings.of(
        order.application_id,
        order.config,
        over_tcp=bool(listen),
        global_tables=list(prepared.global_tables),
    )
    programs = _programs(order)
    coordinator = Coordinator(
        settings,
        token=order.token,
        programs=programs,
        group_instance_id=order.config.group_instance_id,
        listen=listen,
        client_tags=order.config.client_tags,
        tls=tls,
        http=HttpOptions.of(order.config),
        told=_told(order, prepared),
    )
    stack.callback(coordinator.close, _CLOSE_SECONDS)
    if order.config.coordinator_listen:
        _start_children(coordinator, order.config.num_instances)
        return coordinator, None, session
    if session is not None and not on_one_machine:
        are_all = wait_for_executors(
            session, seconds=_EXECUTORS_SECONDS, should_stop=order.should_stop
        )
        wanted = InstancesOrder(
            coordinator.location, order.token, tls, HttpOptions.of(order.config)
        )
        started = start_on_executors(session, wanted, programs)
        return coordinator, started if are_all else None, session
    count = order.config.num_instances or max((os.cpu_count() or 1) // 2, 1)
    _start_children(coordinator, count)
    return coordinator, count, session


def _start_children(coordinator: Coordinator, count: int) -> None:
    for number in range(count):
        coordinator.start_child("" if count == 1 else f"instance-{number}")


def _visits(
    order: OpeningOrder,
    session: Session | None,
    coordinator: Coordinator,
    stack: contextlib.ExitStack,
) -> Callable[[], object]:
    if session is None or session.on_one_machine or order.config.coordinator_listen:
        return lambda: None
    visits = ExecutorVisits(
        session,
        InstancesOrder(
            coordinator.location,
            order.token,
            TlsFiles.of(order.config),
            HttpOptions.of(order.config),
        ),
        programs=_programs(order),
        instances=lambda: len(coordinator.names()),
    )
    stack.callback(visits.close)
    return visits.wake


def _submitted() -> bool:
    """Whether spark-submit started us: then its master counts, and only Spark knows it."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _go_on(order: OpeningOrder) -> None:
    if order.should_stop():
        raise _StopAskedError


def _wait_for_instances(
    order: OpeningOrder, coordinator: Coordinator, expected: int | None
) -> None:
    """Until one is there, and a moment for the others, so that tasks need not move to them."""
    if order.config.coordinator_listen and not coordinator.names():
        address = order.config.coordinator_listen
        give_notice(order.listener, f"Waiting at {address} for instances")
    deadline = time.monotonic() + _REGISTER_SECONDS
    gathering = Gathering(
        expected=expected, delay_seconds=order.config.initial_rebalance_delay.total_seconds()
    )
    while not gathering.is_over(now := time.monotonic(), len(coordinator.names())):
        _go_on(order)
        if now > deadline and not coordinator.names() and not order.config.coordinator_listen:
            raise InstanceError(
                "No instance has registered",
                hint="See the instances' standard error for the reason",
            )
        coordinator.start_others()
        time.sleep(0.02)
