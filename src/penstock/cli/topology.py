"""`penstock topology`: a program's topology as text or picture, and what a change would do."""

from __future__ import annotations

import contextlib
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from penstock.application import Application
from penstock.changelog.clients import LogClients
from penstock.changelog.topic_admin import TopicAdmin
from penstock.cli.answers import EXIT_REFUSED, print_answer
from penstock.cli.choices import completed_from, one_of
from penstock.cli.loading import AppFile, load_application
from penstock.coordination.layout import lay_out
from penstock.driver.last_run import read_last_run
from penstock.driver.setup import check_broker
from penstock.errors import UsageError
from penstock.serdes.decoders import decoder
from penstock.topology import Topology
from penstock.topology.diff import diff
from penstock.topology.manifest import TopologyManifest, manifest_of
from penstock.topology.patterns import matching, patterns_of, with_topics
from penstock.topology.succession import keep_names


class _Answer(msgspec.Struct):
    data: msgspec.Raw


class Action(StrEnum):
    """What to do with a topology."""

    DESCRIBE = "describe"
    MERMAID = "mermaid"
    SVG = "svg"
    DIFF = "diff"


def topology(
    action: Annotated[
        Action,
        typer.Argument(
            parser=one_of(Action),
            autocompletion=completed_from(Action),
            help="describe, mermaid, svg or diff.",
        ),
    ],
    application: AppFile,
    against: Annotated[
        Path | None,
        typer.Option(help="For diff: what `describe --json` wrote, instead of what Kafka has."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    app = load_application(application)
    if against is not None and action != Action.DIFF:
        raise UsageError("--against is for diff", hint="penstock topology diff app.py --against F")
    if action == Action.DIFF:
        _diff(app, against, as_json=json)
    elif action == Action.DESCRIBE:
        data = msgspec.to_builtins(manifest_of(app.build(), app.application_id))
        print_answer(app.describe().rstrip("\n"), data, as_json=json)
    else:
        drawn = app.svg() if action == Action.SVG else app.mermaid()
        print_answer(drawn.rstrip("\n"), {str(action): drawn}, as_json=json)


def _diff(app: Application, against: Path | None, *, as_json: bool) -> None:
    old, new = _from_kafka(app) if against is None else (_from_file(against), _manifest(app))
    where = app.config.bootstrap_servers if against is None else str(against)
    if old is None:
        text = f"Application {app.application_id!r} has not run on {where}: nothing to compare with"
        print_answer(text, {"compared": False, "differences": []}, as_json=as_json)
        return
    differences = diff(old, new)
    lines = [f"{each.severity:8}  {each.change}.\n          {each.advice}." for each in differences]
    data: dict[str, Any] = {
        "compared": True,
        "differences": [msgspec.to_builtins(each) for each in differences],
    }
    print_answer("\n".join(lines) or "Nothing durable differs", data, as_json=as_json)
    if differences:
        raise typer.Exit(EXIT_REFUSED)


def _manifest(app: Application) -> TopologyManifest:
    return manifest_of(app.build(), app.application_id)


def _from_file(path: Path) -> TopologyManifest:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    with contextlib.suppress(msgspec.DecodeError):
        # An answer of `describe --json`, or what is in it.
        data = bytes(decoder(_Answer).decode(data).data)
    return TopologyManifest.decode(data, where={"file": path})


def _from_kafka(app: Application) -> tuple[TopologyManifest | None, TopologyManifest]:
    """What runs or last ran, and the program as it would run over the topics that there are."""
    check_broker(app.config)
    logs = LogClients(app.config, app.application_id)
    admin = TopicAdmin(app.config, admin=logs.admin)
    old = read_last_run(app.application_id, logs, admin).topology
    program = app.build()
    patterns = patterns_of(program)
    if patterns:
        program = with_topics(program, matching(patterns, admin.names(), app.application_id))
    program = program if old is None else keep_names(program, old)
    return old, manifest_of(program, app.application_id, _widths(program, app, admin))


def _widths(program: Topology, app: Application, admin: TopicAdmin) -> dict[str, int]:
    """The partitions of each sub-topology; none while a topic is still missing."""
    sources = {
        topic
        for sub in program.sub_topologies
        for source in sub.sources
        if not source.repartition
        for topic in source.topics
    }
    found = admin.describe(sources)
    unmatched = [each for sub in program.sub_topologies for each in sub.sources if not each.topics]
    if set(found) != sources or unmatched:
        return {}
    partitions = {name: topic.partitions for name, topic in found.items()}
    return lay_out(program, app.application_id, partitions).widths
