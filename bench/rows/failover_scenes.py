"""The applications of the row `failover`, and the means to kill, stop and start their parts."""

from __future__ import annotations

import contextlib
import json
import re
import secrets
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import psutil  # type: ignore[import-untyped]
from confluent_kafka import TopicPartition

from bench import clients
from bench.errors import BenchError
from bench.lab import Lab
from bench.processes import Running, running
from bench.systems import Job, flags
from penstock.local.kraft import free_ports

PARTITIONS = 8
INSTANCES = 3
LAG_MAX = 10_000
STORES = 2
PAUSE_SECONDS = 0.1


@dataclass(frozen=True)
class LogEnds:
    """The ends of an application's commits, and of the changelog of its counts, added up."""

    commits: int
    changes: int


def log_ends(lab: Lab, job: Job) -> LogEnds:
    """Where they end now; 0 for a system that has no such topic."""
    topics = lab.admin().list_topics(timeout=30).topics
    consumer = clients.consumer(lab.bootstrap_servers, group="bench-ends")

    def end(topic: str, first: int) -> int:
        partitions = sorted(topics[topic].partitions) if topic in topics else []
        return sum(
            consumer.get_watermark_offsets(TopicPartition(topic, each), timeout=30)[1]
            for each in partitions
            if each >= first
        )

    try:
        name = job.application_id
        # The first partition of the commits is the driver's, with its beats.
        return LogEnds(end(f"{name}-commits", 1), end(f"{name}-counts-changelog", 0))
    finally:
        consumer.close()


class Scene:
    """A running application of some processes, whose parts can be hit."""

    def __init__(self, lab: Lab, job: Job, stack: contextlib.ExitStack) -> None:
        self._lab = lab
        self._job = job
        self._stack = stack
        self._processes: list[Running] = []
        self._victim = ""

    def wait(self, condition: Callable[[], bool], seconds: float, what: str) -> None:
        """Wait until something is so; raise if a process ends, or the time is over."""
        deadline = time.monotonic() + seconds
        while not condition():
            self.check()
            if time.monotonic() > deadline:
                raise BenchError(f"{self._job.application_id}: no {what} after {seconds:.0f} s")
            time.sleep(PAUSE_SECONDS)

    def rest(self, seconds: float) -> None:
        """Let time pass, while all runs."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.check()
            time.sleep(PAUSE_SECONDS)

    def check(self) -> None:
        """Raise if a process that is to run has ended."""
        for each in self._processes:
            each.check()

    def stop(self) -> None:
        """End the application in order."""
        for each in self._processes:
            each.stop()

    def lag_samples(self) -> Iterator[tuple[float, list[int]]]:
        """At which time of day the copies lacked how many changelog records."""
        for each in self._processes:
            for at, lags in re.findall(r"^lags (\S+) (\[.*\])$", each.log_text(), re.MULTILINE):
                yield float(at), json.loads(lags)

    def has_copies(self) -> bool:
        """Whether all the standbys that are to be are there, and have almost all."""
        raise NotImplementedError

    def kill_owner(self) -> list[int] | None:
        """Kill an instance that has tasks; its partitions, if they are known."""
        raise NotImplementedError

    def stop_owner(self) -> list[int] | None:
        """Have an instance that has tasks stand still."""
        raise NotImplementedError

    def start_again(self) -> None:
        """Have an instance in the place of the one that was hit."""
        raise NotImplementedError

    def join(self) -> list[int] | None:
        """Have one more instance come; all tasks have to do with that."""
        raise NotImplementedError


class PenstockScene(Scene):
    """An application with three instances, its children or started by hand."""

    def __init__(
        self,
        lab: Lab,
        job: Job,
        stack: contextlib.ExitStack,
        *,
        options: dict[str, str],
        external: bool,
    ) -> None:
        super().__init__(lab, job, stack)
        self._standbys = int(options["num_standby_replicas"])
        self._token = secrets.token_hex(32)
        self._address = f"127.0.0.1:{free_ports(1)[0]}"
        self._instances: dict[str, Running] = {}
        options = dict(options)
        if external:
            options["coordinator_listen"] = self._address
        else:
            options["num_instances"] = str(INSTANCES)
        environment = {f"PENSTOCK_{name.upper()}": value for name, value in options.items()}
        commands = lab.systems["penstock"].commands(job)
        self._application = stack.enter_context(
            running(commands, lab.log(job), {**environment, "PENSTOCK_TOKEN": self._token})
        )
        self._processes.append(self._application)
        for number in range(INSTANCES if external else 0):
            self._start(f"external-{number}")

    def _start(self, name: str) -> None:
        command = [sys.executable, "-m", "penstock.cli", "instance", "--coordinator", self._address]
        command += ["--name", name, "--slot", name]
        log = self._lab.directory / f"{self._job.application_id}-{name}.log"
        environment = {"PENSTOCK_TOKEN": self._token}
        self._instances[name] = self._stack.enter_context(running([command], log, environment))

    def stop(self) -> None:
        super().stop()
        for each in self._instances.values():
            each.kill()

    def has_copies(self) -> bool:
        lags = [lags for _, lags in self.lag_samples()][-1:]
        near = sum(lag <= LAG_MAX for lag in lags[0]) if lags else 0
        return near >= self._standbys * PARTITIONS

    def _owners(self) -> dict[int, str]:
        text = self._application.log_text()
        found = re.findall(r"^owner (\d+) (\S+)$", text, re.MULTILINE)
        return {int(partition): name for partition, name in found}

    def _choose(self) -> list[int]:
        owners = self._owners()
        self._victim = owners[0]
        return [partition for partition, owner in owners.items() if owner == self._victim]

    def _child(self, name: str) -> psutil.Process:
        for process in self._application.descendants():
            with contextlib.suppress(psutil.Error):
                if f'"name":"{name}"' in " ".join(process.cmdline()):
                    return process
        raise BenchError(f"instance {name} has no process")

    def kill_owner(self) -> list[int] | None:
        hit = self._choose()
        if self._victim in self._instances:
            self._instances.pop(self._victim).kill()
        else:
            self._child(self._victim).kill()
        return hit

    def stop_owner(self) -> list[int] | None:
        hit = self._choose()
        self._instances[self._victim].signal(signal.SIGSTOP)
        return hit

    def start_again(self) -> None:
        stopped = self._instances.pop(self._victim, None)
        if stopped is not None:
            # It finds that nobody counts on it any more, and ends.
            stopped.signal(signal.SIGCONT)
            self.wait(lambda: _has_ended(stopped), 60.0, "end of a stopped instance")
        self._start(self._victim)

    def join(self) -> list[int] | None:
        self._start(f"external-{INSTANCES}")
        return list(range(PARTITIONS))


def _has_ended(process: Running) -> bool:
    try:
        process.check()
    except BenchError:
        return True
    return False


class JavaScene(Scene):
    """Three processes of Kafka Streams."""

    def __init__(
        self, lab: Lab, job: Job, stack: contextlib.ExitStack, *, standbys: int, session: int
    ) -> None:
        super().__init__(lab, job, stack)
        self._standbys = standbys
        for number in range(INSTANCES):
            own = replace(job, state_dir=job.state_dir / str(number))
            [command] = lab.systems["kafka_streams"].commands(own)
            command += flags({"standbys": str(standbys), "session-timeout-ms": str(session * 1000)})
            log = lab.directory / f"{job.application_id}-{number}.log"
            self._processes.append(stack.enter_context(running([command], log)))

    def has_copies(self) -> bool:
        latest = [_latest_lags(each) for each in self._processes]
        near = sum(lag <= LAG_MAX for lags in latest for lag in lags)
        return near >= (1 + self._standbys) * PARTITIONS * STORES

    def kill_owner(self) -> list[int] | None:
        self._processes.pop(0).kill()
        return None


def _latest_lags(process: Running) -> list[int]:
    found = re.findall(r"^lags \S+ (\[.*\])$", process.log_text(), re.MULTILINE)
    return list(json.loads(found[-1])) if found else []
