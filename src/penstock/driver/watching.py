"""An application as the console sees it, from before its driver opens until after it closed."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.config import Config
from penstock.console.history import History
from penstock.coordination.states import ApplicationState
from penstock.driver.events import BatchEnded, Event, Notice, Rebalanced, StateChanged
from penstock.driver.monitor import Monitor
from penstock.driver.sampling import resident_bytes, sampling
from penstock.errors import PenstockError, StoreUnavailableError
from penstock.hidden import shown, without_secrets
from penstock.observability import groups
from penstock.observability.readings import Reading
from penstock.observability.time_of_day import wall_clock_ms
from penstock.queries.contract import Bound, SizedQueries
from penstock.topology import Topology

if TYPE_CHECKING:
    from penstock.driver.kafka_view import KafkaView
    from penstock.driver.overview import Overviews

_SIZES_SECONDS = 5.0
"""How long the sizes of stores are believed: asking for them goes to every instance."""
_STALE = Bound(stale=True)
_RATES_SECONDS = 0.9
_COUNTS = ("records-consumed-total", "records-produced-total")
_Way = tuple[str, str]
"""A source or a sink with an empty text, or the two steps of an edge."""
_STEP_TAG = groups.GROUPS[groups.TOPIC].tags.index("processor-node-id")


class Watching:
    """`console.model.Watched`, of whichever driver is open; any thread may ask.

    Raises `StoreUnavailableError` for what only an open driver knows.
    """

    def __init__(
        self, config: Callable[[], Config], monitor: Monitor, queries: SizedQueries
    ) -> None:
        self.history = History(now_ms=wall_clock_ms)
        self._config = config
        self._monitor = monitor
        self._sizes = StoreSizes(queries)
        self._rates = StepRates()
        self._topology: Topology | None = None
        self._driver: tuple[Overviews, KafkaView] | None = None

    def begin(self, topology: Topology) -> None:
        """This is about to run."""
        self._topology = topology

    @contextlib.contextmanager
    def opened(self, overviews: Overviews, kafka: KafkaView) -> Iterator[None]:
        """A driver is open for as long as the block."""
        self._driver = (overviews, kafka)
        try:
            with sampling(self.history, overviews):
                yield
        finally:
            self._driver = None

    def hear(self, event: Event) -> None:
        """Keep what is worth a line."""
        match event:
            case StateChanged(old=old, new=new):
                self.history.happened("state", f"{old} → {new}")
            case Notice(text=text):
                self.history.happened("notice", text)
            case Rebalanced(rebalance=rebalance):
                self.history.happened("rebalance", str(rebalance))
            case BatchEnded():
                self.history.batch_ended(
                    event.sub_topology,
                    records=event.records,
                    outputs=event.outputs,
                    seconds=event.seconds,
                    steps=event.steps,
                    latencies=event.latencies,
                )

    def overview(self) -> Mapping[str, Any]:
        """What it is, who is there, where every task stands."""
        found: dict[str, Any] = msgspec.to_builtins(self._open()[0](), str_keys=True)
        here = socket.gethostname()
        for each in found["instances"]:
            each["memory_bytes"] = resident_bytes(each["pid"]) if each["host"] == here else 0
        own = resident_bytes(os.getpid())
        found["memory_bytes"] = own + sum(each["memory_bytes"] for each in found["instances"])
        # Instances that are on their way out are waited for, and this is asked for every second.
        is_settled = found["state"] == ApplicationState.RUNNING
        found["stores"] = self._sizes.now() if is_settled else self._sizes.known()
        return found

    def topology_svg(self) -> str:
        """Its topology as a picture."""
        if self._topology is None:
            raise _not_yet()
        return self._topology.svg()

    def rates(self) -> Mapping[str, Any]:
        """Records a second that sources read, sinks write and edges carry, of all tasks."""
        rates = self._rates.now(self._monitor.recorder.snapshot())
        return {
            "steps": {step: rate for (step, to), rate in rates.items() if not to},
            "edges": [
                {"from": step, "to": to, "rate": rate} for (step, to), rate in rates.items() if to
            ],
        }

    def options(self) -> list[Mapping[str, str]]:
        """Its options; secrets are hidden."""
        config = self._config()
        return [
            {
                "name": each.name,
                "value": _shown(getattr(config, each.name)),
                "doc": each.metadata["doc"],
            }
            for each in dataclasses.fields(config)
        ]

    def topics(self) -> list[Mapping[str, Any]]:
        """Its topics."""
        return self._open()[1].topics()

    def records(self, topic: str, partition: int, limit: int) -> list[Mapping[str, Any]]:
        """The latest records of a partition of one of its topics."""
        return self._open()[1].records(topic, partition, limit)

    def groups(self) -> list[Mapping[str, Any]]:
        """Where its consumer group stands."""
        return self._open()[1].groups()

    def _open(self) -> tuple[Overviews, KafkaView]:
        if self._driver is None:
            raise _not_yet()
        return self._driver


class StepRates:
    """How fast totals grow, by the step that counts them, and the one to which an edge goes."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last: tuple[float, dict[_Way, float]] = (0.0, {})
        self._rates: dict[_Way, float] = {}

    def now(self, readings: Iterable[Reading]) -> dict[_Way, float]:
        """The rates since the last time, which is a second ago or more."""
        then, before = self._last
        at = self._clock()
        if at - then >= _RATES_SECONDS:
            totals: dict[_Way, float] = {}
            for each in readings:
                way = _way(each)
                if way is not None:
                    totals[way] = totals.get(way, 0.0) + float(each.value or 0.0)
            # A total that shrank is one whose instance left: it counts from now on.
            self._rates = {
                way: max(0.0, total - before.get(way, total)) / (at - then)
                for way, total in totals.items()
            }
            self._last = (at, totals)
        return self._rates


def _way(reading: Reading) -> _Way | None:
    """What a reading counts, if it is records on their way."""
    if reading.group == groups.TOPIC and reading.name in _COUNTS:
        return (reading.tags[_STEP_TAG], "")
    if reading.group == groups.EDGE:
        _, start, end = reading.tags
        return (start, end)
    return None


def _aside(work: Callable[[], None]) -> None:
    threading.Thread(target=work, name="penstock-store-sizes", daemon=True).start()


class StoreSizes:
    """About how large each store is, asked for now and then, and not waited for.

    An instance that stands still keeps who asks it waiting for seconds; who looks at the console
    then wants to see what becomes of it.
    """

    def __init__(
        self,
        queries: SizedQueries,
        *,
        clock: Callable[[], float] = time.monotonic,
        aside: Callable[[Callable[[], None]], None] = _aside,
    ) -> None:
        self._queries = queries
        self._clock = clock
        self._aside = aside
        self._asking = threading.Lock()
        self._due = 0.0
        self._known: dict[str, dict[str, int]] = {}

    def now(self) -> dict[str, dict[str, int]]:
        """`entries` and `bytes` by store, as they were told last; the next time they are newer."""
        if self._clock() >= self._due and self._asking.acquire(blocking=False):
            self._aside(self._ask)
        return self.known()

    def _ask(self) -> None:
        try:
            # What cannot be known now is left as it was.
            with contextlib.suppress(PenstockError):
                for store in self._queries.sized_stores():
                    with contextlib.suppress(PenstockError):
                        size = self._queries.size(store, bound=_STALE)
                        self._known[store] = dataclasses.asdict(size)
        finally:
            self._due = self._clock() + _SIZES_SECONDS
            self._asking.release()

    def known(self) -> dict[str, dict[str, int]]:
        """As they were when they were last asked for."""
        return dict(self._known)


def _shown(value: object) -> str:
    """A value of an option, for people.

    >>> _shown(timedelta(milliseconds=100)), _shown({"sasl.password": "w4rd"})
    ('100 ms', 'sasl.password=***')
    """
    if isinstance(value, timedelta):
        return f"{value // timedelta(milliseconds=1)} ms"
    if isinstance(value, Mapping):
        return "; ".join(f"{name}={text}" for name, text in shown(value).items())
    return without_secrets(str(value))


def _not_yet() -> StoreUnavailableError:
    return StoreUnavailableError(
        "The application is starting, or has ended", hint="Ask again when /health/ready says so"
    )
