"""`penstock topics`: an application's own topics, as they are and as its program wants them."""

from __future__ import annotations

import dataclasses
from enum import StrEnum
from typing import Annotated, Any

import typer

from penstock.application import Application
from penstock.changelog.clients import LogClients
from penstock.changelog.topic_admin import TopicAdmin
from penstock.changelog.topic_plan import (
    Setting,
    TopicPlan,
    left_alone,
    settings_of,
)
from penstock.changelog.topics import ExistingTopic, TopicSpec
from penstock.cli.answers import EXIT_REFUSED, counted, print_answer
from penstock.cli.choices import completed_from, one_of
from penstock.cli.loading import AppFile, load_application
from penstock.driver.setup import Outlook, check_broker, look, plan_internal
from penstock.examples.catalogue import inputs_of, outputs_of

_WHO = {
    "program": "the program",
    "earlier": "an earlier version of the program",
    "hand": "set by hand",
    "broker": "the brokers",
    "default": "default",
}


class Action(StrEnum):
    """What to do with topics."""

    DESCRIBE = "describe"
    PLAN = "plan"
    APPLY = "apply"
    CREATE = "create"


def topics(
    action: Annotated[
        Action,
        typer.Argument(
            parser=one_of(Action),
            autocompletion=completed_from(Action),
            help="describe shows settings; plan what differs; apply makes it as the program says; "
            "create makes the topics that the program reads and writes, where they are missing.",
        ),
    ],
    application: AppFile,
    partitions: Annotated[
        int, typer.Option(min=1, help="For create: how many each new topic has.")
    ] = 1,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    app = load_application(application)
    if action == Action.CREATE:
        _create(app, partitions, as_json=json)
        return
    logs = LogClients(app.config, app.application_id)
    admin = TopicAdmin(app.config, admin=logs.admin)
    if action == Action.DESCRIBE:
        _describe(_outlook(app, logs, admin, any_program=True), admin, as_json=json)
        return
    outlook = _outlook(app, logs, admin)
    plan = plan_internal(outlook, app.config, logs, admin)
    if plan.problems:
        raise plan.problems[0]
    others = _others(outlook, admin)
    if action == Action.APPLY:
        admin.carry_out(plan)
    steps = _lines(plan, done=action == Action.APPLY)
    lines = (steps or ["The topics are as the program says"]) + _others_lines(others)
    print_answer("\n".join(lines), _data(plan, others), as_json=json)
    if action == Action.PLAN and steps:
        raise typer.Exit(EXIT_REFUSED)


def _create(app: Application, partitions: int, *, as_json: bool) -> None:
    check_broker(app.config)
    admin = TopicAdmin(app.config)
    wanted = sorted({*inputs_of(app), *outputs_of(app)})
    existing = admin.describe(wanted)
    missing = [name for name in wanted if name not in existing]
    factor = app.config.replication_factor
    admin.create([TopicSpec(name, partitions, {}, factor) for name in missing])
    lines = [f"{'created':10}  {name}: {_partitions(partitions)}" for name in missing]
    lines += [
        f"{'was there':10}  {name}: {_partitions(existing[name].partitions)}" for name in existing
    ]
    data = {"created": missing, "existing": sorted(existing)}
    print_answer("\n".join(lines), data, as_json=as_json)


def _others_lines(others: dict[str, list[Setting]]) -> list[str]:
    return [
        f"left alone  {topic}: {each.name}={each.value}, set by hand"
        for topic, settings in others.items()
        for each in settings
    ]


def _outlook(
    app: Application, logs: LogClients, admin: TopicAdmin, *, any_program: bool = False
) -> Outlook:
    config = app.config
    if any_program:
        # Looking does no harm, whatever ran before.
        config = dataclasses.replace(config, allow_topology_change=True)
    return look(app.build(), app.application_id, config, logs, admin)


def _others(outlook: Outlook, admin: TopicAdmin) -> dict[str, list[Setting]]:
    existing = admin.describe(spec.name for spec in outlook.internal)
    found = {
        spec.name: left_alone(spec, existing[spec.name], outlook.asked.get(spec.name))
        for spec in outlook.internal
        if spec.name in existing
    }
    return {topic: settings for topic, settings in found.items() if settings}


def _partitions(count: int) -> str:
    return counted(count, "partition")


def _lines(plan: TopicPlan, *, done: bool) -> list[str]:
    create, grow, alter = (
        ("created", "grown", "altered") if done else ("to create", "to grow", "to alter")
    )
    return [
        *(f"{create:10}  {spec.name}: {_partitions(spec.partitions)}" for spec in plan.create),
        *(f"{grow:10}  {spec.name}: to {_partitions(spec.partitions)}" for spec in plan.grow),
        *(
            f"{alter:10}  {each.topic}: {each.name} from {each.old} to {each.to}"
            for each in plan.alter
        ),
    ]


def _data(plan: TopicPlan, others: dict[str, list[Setting]]) -> dict[str, Any]:
    return {
        "create": [_wanted(spec) for spec in plan.create],
        "grow": [{"topic": spec.name, "partitions": spec.partitions} for spec in plan.grow],
        "alter": [
            {"topic": each.topic, "name": each.name, "old": each.old, "new": each.new}
            for each in plan.alter
        ],
        "left_alone": [
            {"topic": topic, "name": each.name, "value": each.value}
            for topic, settings in others.items()
            for each in settings
        ],
    }


def _wanted(spec: TopicSpec) -> dict[str, Any]:
    return {"topic": spec.name, "partitions": spec.partitions, "settings": dict(spec.config)}


def _describe(outlook: Outlook, admin: TopicAdmin, *, as_json: bool) -> None:
    existing = admin.describe(spec.name for spec in outlook.internal)
    lines: list[str] = []
    data: list[dict[str, Any]] = []
    for spec in outlook.internal:
        found = existing.get(spec.name)
        settings = settings_of(spec, found, outlook.asked.get(spec.name))
        lines += [_heading(spec, found), *map(_setting_line, settings), ""]
        data.append(
            {
                "name": spec.name,
                "kind": spec.kind,
                "exists": found is not None,
                "partitions": found.partitions if found else None,
                "wanted_partitions": spec.partitions,
                "replication_factor": found.replication_factor if found else None,
                "settings": [dataclasses.asdict(each) for each in settings],
            }
        )
    print_answer("\n".join(lines).rstrip("\n"), {"topics": data}, as_json=as_json)


def _heading(spec: TopicSpec, found: ExistingTopic | None) -> str:
    if found is None:
        return f"{spec.name} ({spec.kind}) does not exist; as it would be made:"
    wrong = found.partitions < spec.partitions or (
        found.partitions != spec.partitions and not spec.may_grow
    )
    more = f" (not {spec.partitions})" if wrong else ""
    partitions = _partitions(found.partitions)
    replicas = counted(found.replication_factor, "replica")
    return f"{spec.name} ({spec.kind}): {partitions}{more}, {replicas}"


def _setting_line(setting: Setting) -> str:
    who = _WHO[setting.who]
    if setting.wanted is not None:
        who = f"{who}; the program says {setting.wanted}"
    elif setting.default is not None and setting.who != "default":
        who = f"{who}; default {setting.default}"
    return f"  {setting.name:26} {setting.value:20} {who}"
