"""`Application`: what a user makes, describes and runs."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from penstock.config import Config, OffsetReset, TimestampRule
from penstock.coordination.states import (
    ApplicationState,
    check_transition,
    end_of,
    ending_of,
)
from penstock.driver.events import StateChanged, Totals, give_notice
from penstock.driver.hearing import Heard
from penstock.driver.http_service import HttpOrder, http_service
from penstock.driver.monitor import Monitor
from penstock.driver.watching import Watching
from penstock.errors import ConfigError
from penstock.observability.prometheus import render
from penstock.observability.readings import MetricName, by_name
from penstock.queries.live import LiveQueries, Queryable
from penstock.queries.probes import Controls, Probes
from penstock.serdes import Serde
from penstock.topology import (
    GlobalKTable,
    KStream,
    KTable,
    Processor,
    StoreBuilder,
    StreamsBuilder,
    Topology,
)
from penstock.topology.callables import check_awaits_nothing
from penstock.topology.changelogs import Logging, RecoverFrom
from penstock.topology.draft import Names
from penstock.topology.external import PostgreSQL, check_external
from penstock.topology.naming import check_name

if TYPE_CHECKING:
    from penstock.driver.bootstrap import BootstrapResult, Offsets
    from penstock.driver.driver import Driver
    from penstock.queries.catalogue import Catalogue

K = TypeVar("K")
V = TypeVar("V")

_S = ApplicationState
_ENDED = (_S.NOT_RUNNING, _S.ERROR)


class Application(Queryable, Heard):
    """One topology under one `application_id`; its consumer group has the same name.

    >>> app = Application("pulse-monitor")
    >>> pulses = app.stream("pulse-events", key=str, value=bytes)
    >>> pulses.group_by_key().count("pulse-counts").to_stream().to("pulse-totals")
    >>> print(app.describe().splitlines()[1].strip())
    Sub-topology: 0

    Options are those of `Config`, as keywords, over those of `config` if it is given; `names` is
    that of `StreamsBuilder`. Raises `ConfigError`, `TopologyError`.
    """

    def __init__(
        self,
        application_id: str,
        *,
        config: Config | None = None,
        names: Names = "stable",
        **options: Any,
    ) -> None:
        self.application_id = check_name(_text(application_id), "application")
        self.config = Config.build(options, os.environ, base=config)
        self.builder = StreamsBuilder(names=names, dsl_store=self.config.dsl_store)
        self.state = _S.CREATED
        Heard.__init__(self)
        self.queries = LiveQueries(state=lambda: self.state)
        self.totals = Totals()
        self.monitor = Monitor(self.application_id, self.config)
        self._watching = Watching(lambda: self.config, self.monitor, self.queries)
        self._listeners += [self.monitor.hear, self._watching.hear]
        self._state_lock = threading.Lock()
        self._urls: Callable[[], dict[str, str]] = dict
        self._stop = threading.Event()
        self._paused = threading.Event()
        self._thread: threading.Thread | None = None
        self._runner: threading.Thread | None = None
        """Who drives it: that thread, or the one that called `run`."""
        self._running = threading.Event()
        self._ended = threading.Event()
        self._error: BaseException | None = None

    def stream(
        self,
        topic: str | Sequence[str] | re.Pattern[str],
        *,
        key: type[K] | Serde[K],
        value: type[V] | Serde[V],
        timestamp: Callable[[K, V, int], int] | TimestampRule | None = None,
        auto_offset_reset: OffsetReset | None = None,
        name: str | None = None,
    ) -> KStream[K, V]:
        """The records of a topic, of several, or of all that match a pattern, as a stream."""
        return self.builder.stream(
            topic,
            key=key,
            value=value,
            timestamp=timestamp,
            auto_offset_reset=auto_offset_reset,
            name=name,
        )

    def table(
        self,
        topic: str,
        store: str | StoreBuilder | None = None,
        *,
        key: type[K] | Serde[K],
        value: type[V] | Serde[V],
        caching: bool = True,
        logging: Logging = True,
        recover_from: RecoverFrom = "changelog",
        persistent: bool | None = None,
        supplier: str | None = None,
        kept_in: PostgreSQL | None = None,
        timestamp: Callable[[K, V, int], int] | TimestampRule | None = None,
        auto_offset_reset: OffsetReset | None = None,
        name: str | None = None,
    ) -> KTable[K, V]:
        """A topic as a table: the latest value of each key, kept in a store.

        As `store` give a name, or a `versioned_store(...)`, which keeps what was before as well.
        """
        return self.builder.table(
            topic,
            store,
            key=key,
            value=value,
            caching=caching,
            logging=logging,
            recover_from=recover_from,
            persistent=persistent,
            supplier=supplier,
            kept_in=kept_in,
            timestamp=timestamp,
            auto_offset_reset=auto_offset_reset,
            name=name,
        )

    def global_table(
        self,
        topic: str,
        store: str | None = None,
        *,
        key: type[K] | Serde[K],
        value: type[V] | Serde[V],
        persistent: bool | None = None,
        timestamp: Callable[[K, V, int], int] | TimestampRule | None = None,
        name: str | None = None,
    ) -> GlobalKTable[K, V]:
        """A topic as a table that every instance holds whole, to be joined by any key."""
        return self.builder.global_table(
            topic,
            store,
            key=key,
            value=value,
            persistent=persistent,
            timestamp=timestamp,
            name=name,
        )

    def add_state_store(self, store: StoreBuilder) -> None:
        """Add a store for processors, to be connected by its name."""
        self.builder.add_state_store(store)

    def add_global_store(
        self,
        topic: str,
        store: StoreBuilder,
        processor: Callable[[], Processor[Any, Any, Any, Any]],
        *,
        key: type[Any] | Serde[Any] | None = None,
        value: type[Any] | Serde[Any] | None = None,
        name: str | None = None,
    ) -> GlobalKTable[Any, Any]:
        """A store that every instance holds whole, filled from a topic by a processor."""
        return self.builder.add_global_store(
            topic, store, processor, key=key, value=value, name=name
        )

    def build(self) -> Topology:
        """The topology as it will run. Raises `TopologyError` where it cannot."""
        topology = self.builder.build().with_times(self.config.default_timestamp_extractor)
        check_external(topology, exactly_once=self.config.exactly_once)
        for option in ("processing_exception_handler", "production_exception_handler"):
            check_awaits_nothing(getattr(self.config, option), f"The {option}")
        return topology

    def describe(self) -> str:
        """Kafka Streams' text for the topology."""
        return self.build().describe()

    def mermaid(self) -> str:
        """The topology as a Mermaid flowchart."""
        return self.build().mermaid()

    def svg(self) -> str:
        """The topology as an SVG."""
        return self.build().svg()

    def run(self) -> None:
        """Run until Ctrl-C, SIGTERM or `stop()`, once; raises what ends it otherwise."""
        with _signals_stop(self._stop):
            self._run()

    def start(self) -> None:
        """Run in the background, once; returns when every task is served."""
        # By a name of its own: whoever stops it meanwhile forgets the thread.
        thread = threading.Thread(target=self._run_in_background, name="penstock-driver")
        self._thread = thread
        thread.start()
        while thread.is_alive() and not self._running.wait(0.05):
            pass
        self._raise_error()

    def pause(self) -> None:
        """Read nothing further until `resume()`; what is under way is committed, tasks are kept.

        The state stays as it is. Timers of processors wait too.
        """
        self._paused.set()

    def resume(self) -> None:
        """Go on after `pause()`."""
        self._paused.clear()

    @property
    def is_paused(self) -> bool:
        """Whether `pause()` holds."""
        return self._paused.is_set()

    def stop(self, timeout: timedelta | None = None) -> bool:
        """Finish what is under way, commit it, and end; one that did not start never will.

        Whether it has ended, with a timeout by then; if not, it goes on ending. Its own listeners
        do not wait, nor, without a timeout, does anybody where another thread called `run`.
        """
        self._stop.set()
        if self._thread is None and self._change(_S.PENDING_SHUTDOWN, only_from=_S.CREATED):
            self._change(_S.NOT_RUNNING)
        seconds = None if timeout is None else timeout.total_seconds()
        if self._runner is threading.current_thread():
            pass
        elif self._thread is not None:
            self._thread.join(seconds)
            if self._thread.is_alive():
                return False
            self._thread = None
            self._raise_error()
        elif seconds is not None and self.state not in _ENDED:
            self._ended.wait(seconds)
        return self.state in _ENDED

    def metrics(self) -> dict[MetricName, float | str]:
        """What all metrics show now, by Kafka Streams' group, name and tags."""
        return by_name(self.monitor.snapshot())

    def bootstrap(
        self,
        store: str,
        history: Any,
        *,
        key: str = "key",
        value: str = "value",
        timestamp: str | None = None,
        window_start: str | None = None,
        window_end: str | None = None,
        offsets: Offsets = None,
        replace: bool = False,
    ) -> BootstrapResult:
        """Fill a store from a Spark DataFrame of history, before the application runs.

        `history` may also be `parquet:PATH`, `table:NAME` or `topic:NAME`; `key`, `value` and so on
        name its columns. Of several rows of a key the latest counts. `offsets` say where the stream
        goes on: offsets by (topic, partition), "earliest", "latest" or a time (one that does not
        say where it is one is of UTC). Raises `BootstrapError`, and `AnotherDriverError` while the
        application runs.
        """
        from penstock.coordination.history import Columns
        from penstock.driver.bootstrap import BootstrapOrder, bootstrap

        columns = Columns(
            key=key,
            value=value,
            timestamp=timestamp,
            window_start=window_start,
            window_end=window_end,
        )
        return bootstrap(
            BootstrapOrder(
                application_id=self.application_id,
                config=self.config,
                topology=self.build(),
                store=store,
                history=history,
                columns=columns,
                offsets=offsets,
                replace=replace,
            )
        )

    def instance_urls(self) -> dict[str, str]:
        """Where instances answer over HTTP, by name: those that `instance_http_listen` lets."""
        return self._urls()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _catalogue(self) -> Catalogue:
        from penstock.queries.catalogue import Catalogue

        return Catalogue.of(self.build(), self.application_id, {})

    def _run_in_background(self) -> None:
        try:
            self._run()
        except BaseException as error:  # noqa: BLE001 - told to whoever waits for us
            self._error = error

    def _raise_error(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _run(self) -> None:
        topology = self.build()
        self.monitor.begin(topology.describe())
        self._watching.begin(topology)
        if not self._change(_S.REBALANCING, only_from=_S.CREATED):
            raise ConfigError(f"The application is {self.state}", hint="Make a new Application")
        self._runner = threading.current_thread()
        try:
            order = _http_order(self, self._watching)
            with http_service(order) as url:
                self._drive(topology, http_url=url, http_token=order.token)
        except BaseException as error:
            self.monitor.failed(error)
            self._begin_to_end(failed=True)
            raise
        finally:
            self._change(end_of(self.state))
            self._ended.set()

    def _drive(self, topology: Topology, *, http_url: str, http_token: str) -> None:
        """Drive until it is to stop, and anew whenever other topics match a pattern."""
        # Spark takes a second to import; those who only describe a topology need not wait for it.
        from penstock.driver.opening import OpeningOrder, open_driver, run_token
        from penstock.driver.watch import InputsChangedError

        self.totals = Totals()
        while True:
            order = OpeningOrder(
                application_id=self.application_id,
                config=self.config,
                topology=topology,
                totals=self.totals,
                monitor=self.monitor,
                watching=self._watching,
                listener=self._tell,
                hear_restore=self._restore_listeners.tell,
                token=run_token(self.config, os.environ),
                http_url=http_url,
                http_token=http_token,
                should_stop=self._stop.is_set,
                is_paused=self._paused.is_set,
                state=lambda: self.state,
            )
            try:
                self._drive_once(partial(open_driver, order))
            except InputsChangedError as change:
                give_notice(self._tell, str(change))
                self._hear_settled(False)
            else:
                return

    def _drive_once(self, open_one: Callable[..., Driver | None]) -> None:
        """Open the driver's parts one after the other, loop, and close them in reverse."""
        from penstock.driver.watch import InputsChangedError

        with contextlib.ExitStack() as stack:
            self._restore_listeners.open()
            stack.callback(self._restore_listeners.close)
            try:
                driver = open_one(stack=stack)
                if driver is not None:
                    self.queries.open(driver.queries)
                    stack.callback(self.queries.close)
                    self._urls = driver.places.urls
                    stack.callback(setattr, self, "_urls", dict)
                    driver.run(self._stop.is_set, hear_settled=self._hear_settled)
            except InputsChangedError:
                raise  # It goes on, with another driver.
            except BaseException:
                self._begin_to_end(failed=True)
                raise
            self._begin_to_end(failed=False)

    def _hear_settled(self, is_settled: bool) -> None:
        new = _S.RUNNING if is_settled else _S.REBALANCING
        if new is not self.state:
            self._change(new)

    def _begin_to_end(self, *, failed: bool) -> None:
        new = ending_of(self.state, failed=failed)
        if new is not None:
            self._change(new)

    def _change(self, new: ApplicationState, *, only_from: ApplicationState | None = None) -> bool:
        """Go to another state, and tell; False if `only_from` is not the state that it is in.

        Raises `StateTransitionError`.
        """
        with self._state_lock:
            old = self.state
            if only_from is not None and old is not only_from:
                return False
            check_transition(old, new)
            self.state = new
        if new is _S.RUNNING:
            self._running.set()
        self._tell(StateChanged(old=old, new=new))
        return True


def _http_order(app: Application, watching: Watching) -> HttpOrder:
    """What is served over HTTP while the application runs."""
    health = app.monitor.health
    return HttpOrder(
        application_id=app.application_id,
        config=app.config,
        queries=app.queries,
        probes=Probes(live=lambda: health().live, ready=lambda: health().ready),
        controls=Controls(pause=app.pause, resume=app.resume, is_paused=lambda: app.is_paused),
        metrics=lambda: render(app.monitor.snapshot()),
        extend=partial(_add_console, watching),
        open_below=("/console",),
        instances=app.instance_urls,
        on_state_change=app.on_state_change,
    )


def _add_console(watching: Watching, service: Any, in_thread: Any) -> None:
    # It loads FastAPI, which takes a second: only when somebody asks.
    from penstock.console.routes import add_data, add_page
    from penstock.queries.service import guarded

    add_page(service)
    add_data(service, watching, watching.history, in_thread=in_thread, options=guarded("read"))


def _text(application_id: object) -> str:
    if not isinstance(application_id, str):
        raise ConfigError(
            f"The application id is {application_id!r}",
            hint='Use a name, as in Application("pulse-monitor"); the consumer group has it too',
        )
    return application_id


@contextlib.contextmanager
def _signals_stop(stop: threading.Event) -> Iterator[None]:
    """Ctrl-C and SIGTERM stop the application in order; a second Ctrl-C interrupts at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def heard(number: int, frame: FrameType | None) -> None:
        if stop.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.set()

    previous = {n: signal.signal(n, heard) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
