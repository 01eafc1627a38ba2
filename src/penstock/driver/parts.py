"""What a driver is made of."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

from penstock.driver.coordinator import Coordinator
from penstock.driver.events import RestoreHearer
from penstock.driver.inputs import InputLogs
from penstock.driver.lease import DriverLease
from penstock.driver.monitor import Monitor
from penstock.driver.setup import Prepared
from penstock.driver.watch import InputWatch
from penstock.errors import PenstockError
from penstock.pipeline.jobs import Jobs
from penstock.queries.catalogue import Catalogue


@dataclass(frozen=True, kw_only=True)
class WarmSpark:
    """Spark once it has run a first job."""

    jobs: Jobs
    cores: int
    how_ended: Callable[[], str] = str
    """How its JVM ended, "" while it is there."""

    def check(self) -> None:
        """Raises `PenstockError` if Spark's JVM has ended."""
        how = self.how_ended()
        if how:
            raise PenstockError(
                f"Spark's JVM has ended ({how})",
                hint="Start the application again: it goes on where it was. If the system ended "
                "it for want of memory, the system's log says so",
            )


@dataclass(frozen=True, kw_only=True)
class DriverParts:
    """What the loop works with; each is a shell around one part of the world."""

    prepared: Prepared
    lease: DriverLease
    coordinator: Coordinator
    inputs: InputLogs
    changelogs: InputLogs
    watch: InputWatch
    spark: Future[WarmSpark]
    """Takes seconds to come; tasks are taken, and their stores restored, meanwhile."""
    monitor: Monitor
    hear_restore: RestoreHearer
    is_paused: Callable[[], bool]
    visit_executors: Callable[[], object]
    """Start instances on executors that have none; on one machine there are none to visit."""
    catalogue: Catalogue = field(default_factory=lambda: Catalogue([]))
    """The stores that can be asked."""
