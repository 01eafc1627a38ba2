"""What docs/deploying.md, http.md, monitoring.md and topology-changes.md type on several hosts.

Hosts are terminals here, each with a state directory of its own; their addresses are the
loopback's, with ports that are free. Otherwise the commands are the pages'.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.local.jars import SPARK_KAFKA, ensure
from penstock.local.kraft import free_ports
from tests.harness import Scene, wait_until
from tests.integration.test_docs_on_kafka import of_scene
from tests.terminals import PATIENCE_SECONDS, Terminal
from tests.unit.test_docs_commands import PROGRAM
from tests.unit.test_docs_snippets import ROOT

DOCS = ROOT / "docs"
RUNS = """
if __name__ == "__main__":
    app.run()
"""
SH = re.compile(r"^```sh\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def lines(page: str, words: str) -> list[str]:
    """The lines of the page's block in which one has these words, each command on one."""
    [block] = [each for each in SH.findall((DOCS / page).read_text()) if words in each]
    return block.replace("\\\n", " ").splitlines()


class Hosts:
    """Several of them, which are all this machine: 10.0.0.7, and queries.example.org too."""

    def __init__(self, scene: Scene) -> None:
        self.folder, self._scene = scene.directory, scene
        self._terminals: dict[str, Terminal] = {}
        names = ("7600", "8443", "7700", "instance")
        self._ports = dict(zip(names, map(str, free_ports(len(names))), strict=True))
        self.secret = ""

    def host(self, name: str) -> Terminal:
        if name not in self._terminals:
            environment = {
                **os.environ,
                "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                "XDG_DATA_HOME": str(self.folder / name),
                "PENSTOCK_BOOTSTRAP_SERVERS": self._scene.bootstrap,
                "TERM": "xterm",
                "no_proxy": "localhost,127.0.0.1",
            }
            self._terminals[name] = Terminal(self.folder, environment)
        return self._terminals[name]

    def here(self, line: str, *, is_instance: bool = False) -> str:
        """The line with addresses of this machine."""
        https = self._ports["instance" if is_instance else "8443"]
        line = line.replace("10.0.0.7:7600", f"127.0.0.1:{self._ports['7600']}")
        line = line.replace("queries.example.org:8443", "localhost:8443").replace("8443", https)
        return line.replace("7700", self._ports["7700"])

    def instance(self, name: str, line: str) -> Terminal:
        """A host on which it is typed, with the driver's secret and certificates."""
        host = self.host(name)
        host.run(f"export PENSTOCK_TOKEN={self.secret}")
        host.run(lines("deploying.md", "PENSTOCK_TOKEN")[1])
        # Two on one host need a directory each, as the page says.
        host.type(f"{self.here(line, is_instance=True)} --slot {name}")
        return host

    def close(self) -> None:
        for each in self._terminals.values():
            each.interrupt()
            each.close()


@pytest.fixture
def hosts(kafka: str, tmp_path: Path) -> Iterator[Hosts]:
    ensure(SPARK_KAFKA)
    scene = Scene(kafka, tmp_path, partitions=2).create_topics()
    (tmp_path / "app.py").write_text(of_scene(PROGRAM, scene) + RUNS)
    *signing, _ask = lines("http.md", "openssl req")
    signed = "\n".join([lines("http.md", "PENSTOCK_HTTP_HOSTS")[0], *signing])
    subprocess.run(
        ["bash", "-euo", "pipefail", "-c", signed], cwd=tmp_path, check=True, capture_output=True
    )
    for name, own in {"chain.pem": "host.pem", "key.pem": "host.key"}.items():
        shutil.copy(tmp_path / name, tmp_path / own)
    scene.produce([(b"ann", (71).to_bytes(8)), (b"ann", (72).to_bytes(8))])
    found = Hosts(scene)
    yield found
    found.close()


def counted(terminal: Terminal, question: str) -> None:
    """The question is answered with what was sent, as soon as that was read."""
    wait_until(
        lambda: "ann = 2" in terminal.run(f"{question} || true"),
        what=f"{question} was answered",
        seconds=PATIENCE_SECONDS,
    )


@pytest.mark.timeout(600)
def test_a_driver_and_instances_on_other_hosts(hosts: Hosts) -> None:
    driver, other = hosts.host("driver"), hosts.host("other")
    secret, certificates, run = lines("deploying.md", "PENSTOCK_TOKEN")
    _, serve, _ = lines("http.md", "PENSTOCK_HTTP_HOSTS")
    driver.run(secret)
    found = re.search("[0-9a-f]{64}", driver.run("echo $PENSTOCK_TOKEN"))
    assert found is not None
    hosts.secret = found[0]
    driver.run(certificates)
    # One run for the lines of two pages: the variables of one stand before the other's.
    driver.type(hosts.here(serve.replace("penstock run app.py", run)))
    [plain] = lines("deploying.md", "penstock instance")
    _, answering = lines("http.md", "penstock instance")
    instances = [hosts.instance("ward", plain), hosts.instance("lab", answering)]
    driver.wait_for("\nrunning")
    *_, ask = lines("http.md", "openssl req")
    counted(other, hosts.here(ask))
    # An instance that answers gives the same.
    counted(other, hosts.here(ask, is_instance=True))
    diff, describe, against = lines("topology-changes.md", "topology diff")
    assert other.run(diff)
    other.run(describe)
    assert (hosts.folder / "before.json").stat().st_size > 0
    assert other.run(against)
    assert driver.interrupt().endswith("=0")
    for each in instances:
        # They end by themselves, well.
        assert each.run("true").endswith("=0")
    fixed_address(hosts)


@pytest.mark.timeout(600)
def test_an_application_is_submitted_to_a_standalone_cluster(hosts: Hosts) -> None:
    head, worker, driver = (hosts.host(name) for name in ("head", "worker", "cluster"))
    [port] = free_ports(1)
    for each in (head, worker, driver):
        # Spark asks for the machine's name, and writes beside its programs, unless it is told.
        each.run(f"export SPARK_LOCAL_IP=127.0.0.1 SPARK_WORKER_DIR='{hosts.folder}/work'")
    spark = f"'{Path(find_spec('pyspark').origin).parent}/bin/spark-class' org.apache.spark.deploy"
    head.type(f"{spark}.master.Master --host 127.0.0.1 --port {port} --webui-port 0")
    own = "--host 127.0.0.1 --webui-port 0 --cores 2 --memory 1g"
    worker.type(f"{spark}.worker.Worker {own} spark://127.0.0.1:{port}")
    worker.wait_for("Successfully registered with master")
    *certificates, submit = lines("deploying.md", "spark://head")
    for line in certificates:
        driver.run(line.replace("/etc/pulse", str(hosts.folder)))
    submit = submit.replace("spark://head:7077", f"spark://127.0.0.1:{port}")
    # Its executor is to fit beside all else that runs on a machine for tests.
    submit = submit.replace("--conf", "--conf spark.executor.memory=600m --conf", 1)
    driver.type(submit.replace("/opt/pulse/bin/python", sys.executable))
    state = hosts.folder / "cluster" / "penstock"
    counted(hosts.host("other"), f"penstock query app.py pulse-counts ann --state-dir '{state}'")
    assert driver.interrupt().endswith("=0")


def fixed_address(hosts: Hosts) -> None:
    """The same application as docs/monitoring.md has it, with instances that answer, too."""
    driver = hosts.host("watched")
    _, run = lines("monitoring.md", "PENSTOCK_HTTP_LISTEN")
    answering, _ = lines("http.md", "penstock instance")
    driver.type(hosts.here(run.replace("penstock run app.py", answering)))
    driver.wait_for("\nrunning")
    [target] = re.findall(r'targets: \["(.*)"\]', (DOCS / "monitoring.md").read_text())
    url = f"http://{hosts.here(target)}"
    assert b"penstock_" in fetched(f"{url}/metrics", hosts)
    told: Any = msgspec.json.decode(fetched(f"{url}/v1/instances", hosts))
    assert all(each["url"].startswith("http://") for each in told["data"]["instances"])
    assert told["data"]["instances"]
    assert driver.interrupt().endswith("=0")


def fetched(url: str, hosts: Hosts) -> bytes:
    """What the service says to who has the file with the token."""
    token = (hosts.folder / "token").read_text().strip()
    request = urllib.request.Request(url, headers={"authorization": f"Bearer {token}"})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=30) as reply:
        return bytes(reply.read())
