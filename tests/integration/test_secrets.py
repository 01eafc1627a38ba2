"""A secret in every field that takes one, and a search through everything that comes out."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.guarded_kafka import PASSWORD_WORD, USER, Guarded, allow
from tests.harness import Scene, wait_until
from tests.schema_registry import serving

TOKEN = "planted-token-0123456789abcdef-0123456789abcdef"
S3_SECRET, KEY_PASSWORD, OAUTH = "planted-s3-secret", "planted-key-password", "planted-oauth"
DSN_PASSWORD, LOCATION_SECRET = "planted-dsn-password", "planted-location-secret"
SHORT_NAMED = "planted-under-a-short-name"
REGISTRY_PASSWORDS = "planted-registry-in-address", "planted-registry-in-options"
NOWHERE = "region=here&scheme=http&endpoint_override=127.0.0.1:1"
READER, ADMIN = "planted-reader-0123456789abcdef-01", "planted-admin-0123456789abcdef-012"
OWN_PAGES = [
    *("/metrics", "/docs", "/openapi.json", "/health/ready", "/console"),
    *("/v1/stores", "/v1/stores/counts/all", "/v1/instances", "/v1/lags"),
    *("/v1/console/configuration", "/v1/console/topics", "/v1/console/groups"),
    *("/v1/console/topology.svg", "/v1/console/events", "/v1/stores/nowhere/all", "/nowhere"),
]

PROGRAM = """
import json, logging, os, sys
import penstock as ps

logging.basicConfig(level=logging.DEBUG, stream=sys.stderr)
app = ps.Application({application_id!r})
schema = json.dumps({{"title": "Count", "type": "object"}})
by_address = ps.JsonSchemaSerde(schema, registry=os.environ["REGISTRY"])
plain, options = os.environ["PLAIN_REGISTRY"], json.loads(os.environ["REGISTRY_OPTIONS"])
by_options = ps.JsonSchemaSerde(schema, registry=ps.SchemaRegistry(plain, options))
counted = app.stream({source!r}, key=bytes, value=bytes).group_by_key().count("counts")
told = counted.to_stream().map_values(lambda count: {{"count": count}}, value=by_address)
told.to({results!r}, value=by_options)
told.to({results!r})
logging.getLogger("test").debug("%r", app.config)


@app.on_event
def hear(event):
    if type(event).__name__ == "StateChanged" and event.new == "running":
        from pyspark import SparkContext

        context = SparkContext._active_spark_context
        context.setLogLevel("DEBUG")
        print("ui", context.uiWebUrl, flush=True)
    print(repr(event), flush=True)
"""


@dataclass(frozen=True)
class Output:
    """What a run showed, by where."""

    texts: dict[str, str]
    credentials: set[str]
    """What the schema registry was shown."""
    listeners: set[str]
    """The addresses at which the run's processes listened, Spark's too."""

    def holders_of(self, secret: str) -> list[str]:
        return [where for where, text in self.texts.items() if secret in text]


@pytest.fixture(scope="module")
def output(guarded: Guarded, tmp_path_factory: pytest.TempPathFactory) -> Output:
    """Everything that an application shows which runs, counts and stops."""
    directory = tmp_path_factory.mktemp("secrets")
    scene = Scene(guarded.plain_servers, directory, partitions=2).create_topics()
    scene.produce([(f"k{i}".encode(), b"v") for i in range(50)])
    # No more than the page says: an application needs nothing else.
    named = {"word-count": scene.application_id, "lines": scene.source}
    allow(guarded.plain_servers, USER, {**named, "word-totals": scene.results})
    program = directory / "program.py"
    program.write_text(
        PROGRAM.format(
            application_id=scene.application_id, source=scene.source, results=scene.results
        )
    )
    with serving() as (registry, address):
        environment = os.environ | planted(guarded, scene, directory) | registered(address)
        texts, listeners = shown(scene, program, environment, directory)
    return Output(texts, registry.credentials, listeners)


def shown(
    scene: Scene, program: Path, environment: dict[str, str], directory: Path
) -> tuple[dict[str, str], set[str]]:
    """What a run shows, by where, and where its processes listen."""
    found: dict[str, str] = {}
    log = directory / "run.log"
    command = [sys.executable, "-m", "penstock.cli", "run", str(program)]
    with log.open("wb") as stream:
        run = subprocess.Popen(command, stdout=stream, stderr=stream, env=environment)
    try:
        wait_until(
            # Its group has a coordinator once it runs.
            lambda: (
                run.poll() is not None or ("\nui " in log.read_text() and scene.committed() == 50)
            ),
            what="it counted",
            seconds=120,
        )
        assert run.poll() is None, log.read_text()[-4000:]
        found |= command_lines(run.pid)
        listeners = addresses(run.pid)
        found["penstock status"] = printed(["status"], program, environment)
        found |= spark_pages(log)
        found |= own_pages(scene)
    finally:
        run.send_signal(signal.SIGTERM)
        run.wait(60)
    commands = ("topology describe", "topics describe --json", "state ls", "reset")
    with ThreadPoolExecutor() as pool:
        texts = pool.map(lambda words: printed(words.split(), program, environment), commands)
        found |= {f"penstock {words}": text for words, text in zip(commands, texts, strict=True)}
    found["log"] = log.read_text(errors="replace")
    for path in [*(directory / "events").rglob("*"), *scene.state_dir.rglob("*")]:
        if path.is_file():
            found[str(path.relative_to(directory))] = path.read_bytes().decode("latin-1")
    return found, listeners


def registered(address: str) -> dict[str, str]:
    """How the program reaches its schema registry, as two users."""
    in_address, in_options = REGISTRY_PASSWORDS
    return {
        "REGISTRY": address.replace("://", f"://ann:{in_address}@"),
        "PLAIN_REGISTRY": address,
        "REGISTRY_OPTIONS": json.dumps({"basic.auth.user.info": f"bob:{in_options}"}),
    }


def planted(guarded: Guarded, scene: Scene, directory: Path) -> dict[str, str]:
    """The environment of an application with a secret wherever one can be."""
    (directory / "events").mkdir()
    tokens = {"reader": READER, "admin": ADMIN}
    for name, token in tokens.items():
        (directory / name).write_text(token)
        (directory / name).chmod(0o600)
    kafka = {
        **guarded.scram.kafka,
        "ssl.certificate.pem": guarded.client.certificate.read_text(),
        "ssl.key.pem": guarded.client.key.read_text(),
        "sasl.oauthbearer.client.secret": OAUTH,
    }
    spark = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": (directory / "events").as_uri(),
        "spark.ui.enabled": "true",
        "spark.ui.port": "0",
        "spark.penstock.log": "1",
        "spark.hadoop.fs.s3a.secret.key": S3_SECRET,
        "spark.hadoop.fs.s3a.access.key": S3_SECRET,
        "spark.ssl.keyPassword": KEY_PASSWORD,
        # As the page on state in PostgreSQL says for clusters.
        "spark.executorEnv.SUMS_DSN": f"host=db password={DSN_PASSWORD}",
        "spark.executorEnv.BALANCES_DSN": f"postgresql://me:{DSN_PASSWORD}@db/bank",
        "spark.executorEnv.DB_PWD": SHORT_NAMED,
        "spark.executorEnv.WARDS_DSN": f"server=db,pwd={SHORT_NAMED}",
    }
    return {
        "PENSTOCK_BOOTSTRAP_SERVERS": guarded.scram.bootstrap_servers,
        "PENSTOCK_STATE_DIR": str(scene.state_dir),
        "PENSTOCK_KAFKA": ";".join(f"{name}={value}" for name, value in kafka.items()),
        "PENSTOCK_SPARK": ";".join(f"{name}={value}" for name, value in spark.items()),
        # Nobody is there, which is told, with its address.
        "PENSTOCK_SNAPSHOT_LOCATION": f"s3://me:{LOCATION_SECRET}@bucket/x?{NOWHERE}",
        "PENSTOCK_SNAPSHOT_INTERVAL": "1000",
        "PENSTOCK_COORDINATOR_LISTEN": "127.0.0.1:0",
        "PENSTOCK_NUM_INSTANCES": "1",
        "PENSTOCK_TOKEN": TOKEN,
        "PENSTOCK_HTTP_TOKEN_FILE": str(directory / "reader"),
        "PENSTOCK_HTTP_ADMIN_TOKEN_FILE": str(directory / "admin"),
        "SUMS_DSN": f"host=127.0.0.1 password={DSN_PASSWORD}",
    }


def command_lines(pid: int) -> dict[str, str]:
    """Of the application and all its children: every user of the machine can read them."""
    root = psutil.Process(pid)
    found = {}
    for each in (root, *root.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):  # It has ended meanwhile.
            found[f"command line of {each.pid}"] = "\0".join(each.cmdline())
            names = Path(f"/proc/{each.pid}/task").glob("*/comm")
            with contextlib.suppress(OSError):  # A thread has.
                found[f"threads of {each.pid}"] = "".join(name.read_text() for name in names)
    return found


def addresses(pid: int) -> set[str]:
    """Where the application and all its children listen."""
    root = psutil.Process(pid)
    found = set()
    for each in (root, *root.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            sockets = each.net_connections("inet")
            found |= {at.laddr.ip for at in sockets if at.status == psutil.CONN_LISTEN}
    return found


def spark_pages(log: Path) -> dict[str, str]:
    """Spark's pages and its REST interface: settings, jobs and plans."""
    url = next(line.split()[1] for line in log.read_text().splitlines() if line.startswith("ui "))
    api = f"{url}/api/v1/applications"
    application = json.loads(page(api))[0]["id"]
    sql = f"{api}/{application}/sql?details=true&planDescription=true&length=100"
    places = [
        f"{url}/environment/",
        f"{url}/jobs/",
        f"{url}/stages/",
        f"{url}/SQL/",
        f"{url}/SQL/execution/?id=0",
        f"{url}/executors/",
        f"{api}/{application}/environment",
        sql,
    ]
    found = {place: page(place) for place in places}
    assert "kafka" in found[sql]
    return found


def own_pages(scene: Scene) -> dict[str, str]:
    """What the application's own service tells, refusals and the console's first news too."""
    path = scene.state_dir / scene.application_id / "driver.json"
    url = json.loads(path.read_text())["url"]
    found = {}
    for each in OWN_PAGES:
        request = urllib.request.Request(url + each, headers={"Authorization": f"Bearer {ADMIN}"})
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                # News go on for ever.
                text = answer.readline() if each.endswith("events") else answer.read()
                found[each] = str(text.decode())
        except urllib.error.HTTPError as refused:
            found[each] = str(refused.read().decode())
    return found


def page(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return str(answer.read().decode())


def printed(words: list[str], program: Path, environment: dict[str, str]) -> str:
    command = [sys.executable, "-m", "penstock.cli", *words, str(program)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    "secret",
    [
        *(PASSWORD_WORD, TOKEN, READER, ADMIN, S3_SECRET, KEY_PASSWORD, OAUTH, DSN_PASSWORD),
        *(LOCATION_SECRET, SHORT_NAMED, *REGISTRY_PASSWORDS),
        "private key",
    ],
)
def test_no_secret_comes_out(output: Output, guarded: Guarded, secret: str) -> None:
    if secret == "private key":
        secret = guarded.client.key.read_text().splitlines()[1]
    assert output.holders_of(secret) == []
    # As headers have them.
    for user in (USER, "ann", "bob", "me"):
        encoded = base64.b64encode(f"{user}:{secret}".encode()).decode()
        assert output.holders_of(encoded) == []


def test_nothing_listens_to_other_machines(output: Output) -> None:
    # Java's sockets are of version 6, and bear version 4's addresses so.
    assert {each.removeprefix("::ffff:") for each in output.listeners} == {"127.0.0.1"}


def test_what_was_searched_is_what_there_is(output: Output) -> None:
    searched = " ".join(output.texts)
    for place in ("log", "command line", "/environment/", "/SQL/", "events/", "state/", "penstock"):
        assert place in searched
    shown_to_registry = {
        "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
        for user, password in zip(("ann", "bob"), REGISTRY_PASSWORDS, strict=True)
    }
    assert shown_to_registry <= output.credentials
    # The words around the secrets are there, and so would they be.
    assert "sasl.jaas.config" in output.texts["log"]
    assert "'sasl.password': '***'" in output.texts["log"]
    assert "s3://me:***@bucket/x" in output.texts["log"]
    settings = next(text for at, text in output.texts.items() if at.endswith("/environment"))
    assert "spark.hadoop.fs.s3a.secret.key" in settings
    assert "sasl.password=***" in output.texts["/v1/console/configuration"]
    assert '"key":"k0"' in output.texts["/v1/stores/counts/all"].replace("0x6b30", "k0")
    assert "kafka_streams_stream_metrics_info" in output.texts["/metrics"]
    assert "running" in output.texts["/v1/console/events"]
    assert "unknown_store" in output.texts["/v1/stores/nowhere/all"]
    assert "(redacted)" in settings
