"""What has to change for the internal topics to be as the program says: decided, not done."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Literal

from penstock.changelog.topics import ExistingTopic, Kind, Origin, TopicSpec, policies
from penstock.errors import ConfigError, KafkaError, PartitionCountError, PenstockError

KAFKA_DEFAULTS = {
    "segment.bytes": "1073741824",
    "segment.ms": "604800000",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "max.compaction.lag.ms": "9223372036854775807",
}
"""What decides when a changelog is compacted, and Kafka's values for it."""

Who = Literal["program", "earlier", "hand", "broker", "default"]
"""Who sets a setting: the program, one that ran before it, someone on the topic itself, the
brokers, or nobody."""
Asked = Mapping[str, Sequence[str]]
"""What programs that ran asked of a topic, by setting; two values while an earlier one stands."""
_MIN_INSYNC = "min.insync.replicas"
_BYTES = "retention.bytes"
_TIMESTAMPS = "message.timestamp.type"
_BY_ORIGIN: dict[Origin, Who] = {"topic": "hand", "broker": "broker", "default": "default"}


@dataclass(frozen=True)
class ConfigChange:
    """A setting of a topic that is not as the program says."""

    topic: str
    name: str
    old: str | None
    new: str | None
    """None takes it off the topic, so that the brokers' value holds."""
    loses: bool = False
    """Whether the topic, as it is, would lose state or records."""

    @property
    def to(self) -> str:
        """What it becomes, for people."""
        return "its default" if self.new is None else self.new

    def __str__(self) -> str:
        why = ", as the program no longer says" if self.new is None else f", not {self.new}"
        return f"{self.topic}: {self.name} is {self.old or 'not set'}{why}"


@dataclass(frozen=True)
class Setting:
    """A setting as it holds for a topic, who says so, and what the program wants instead."""

    name: str
    value: str
    who: Who
    default: str | None = None
    """Kafka's own value, where it is one of those that decide about compaction."""
    wanted: str | None = None
    """Only where it differs."""


@dataclass(frozen=True)
class TopicPlan:
    """What has to happen before the application can run; with `problems`, nothing may."""

    create: tuple[TopicSpec, ...] = ()
    grow: tuple[TopicSpec, ...] = ()
    alter: tuple[ConfigChange, ...] = ()
    problems: tuple[PenstockError, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether the topics are as they should be."""
        return self == TopicPlan()


def plan_topics(
    wanted: Iterable[TopicSpec],
    existing: Mapping[str, ExistingTopic],
    *,
    default_replication: int = -1,
    asked: Mapping[str, Asked] | None = None,
) -> TopicPlan:
    """What to create, grow and alter, and what is wrong beyond that.

    `default_replication` is how many replicas the brokers give a topic that does not say; -1 if
    that is not known. `asked` is what `remembered` noted of each topic at the last start.
    """
    create: list[TopicSpec] = []
    grow: list[TopicSpec] = []
    alter: list[ConfigChange] = []
    problems: list[PenstockError] = []
    for spec in wanted:
        found = existing.get(spec.name)
        problem = _replicas_problem(spec, found, default_replication)
        if found is not None:
            problem = problem or _partitions_problem(spec, found)
        if problem is not None:
            problems.append(problem)
        elif found is None:
            create.append(spec)
        else:
            alter += config_changes(spec, found)
            alter += dropped(spec, found, (asked or {}).get(spec.name, {}))
            if found.partitions < spec.partitions:
                grow.append(spec)
    return TopicPlan(tuple(create), tuple(grow), tuple(alter), tuple(problems))


def config_changes(spec: TopicSpec, found: ExistingTopic) -> list[ConfigChange]:
    """The settings that the program names and the topic has otherwise; others are left alone.

    >>> spec = TopicSpec("counts-changelog", 1, {"segment.bytes": "1048576"})
    >>> found = ExistingTopic("counts-changelog", "id", 1, {"segment.bytes": "1073741824"})
    >>> print(*config_changes(spec, found))
    counts-changelog: segment.bytes is 1073741824, not 1048576
    """
    return [
        ConfigChange(spec.name, name, actual, value, loses=_loses(spec.kind, name, actual, value))
        for name, value in sorted(spec.config.items())
        if not _same(name, actual := found.config.get(name), value)
    ]


def dropped(spec: TopicSpec, found: ExistingTopic, asked: Asked) -> list[ConfigChange]:
    """The settings that stand on the topic because a program asked for them, and this one does not.

    One that somebody has changed since is theirs.

    >>> spec = TopicSpec("counts-changelog", 1, {})
    >>> found = ExistingTopic("counts-changelog", "id", 1, {"segment.bytes": "1048576"},
    ...     origins={"segment.bytes": "topic"})
    >>> print(*dropped(spec, found, {"segment.bytes": ["1048576"]}))
    counts-changelog: segment.bytes is 1048576, as the program no longer says
    >>> dropped(spec, found, {"segment.bytes": ["2097152"]})
    []
    """
    return [
        ConfigChange(spec.name, name, found.config[name], None)
        for name, values in sorted(asked.items())
        if name not in spec.config and _standing(name, found, values)
    ]


def remembered(spec: TopicSpec, found: ExistingTopic, asked: Asked) -> dict[str, tuple[str, ...]]:
    """What a start notes of a topic as it is then, for programs that come after this one.

    That is what this program asks for, whether or not the topic was changed for it; and what
    earlier ones asked for, as long as it stands.
    """
    earlier = {name: _standing(name, found, values) for name, values in asked.items()}
    wanted = {name: (value,) for name, value in spec.config.items()}
    return {
        name: values
        for name in sorted({*earlier, *wanted})
        if (values := tuple(dict.fromkeys((*wanted.get(name, ()), *earlier.get(name, ())))))
    }


def still_to_do(
    changes: Iterable[ConfigChange], existing: Mapping[str, ExistingTopic]
) -> list[ConfigChange]:
    """Those of the changes that the topics, as they are now, do not show."""
    return [
        change
        for change in changes
        if change.topic in existing and not _shows(change, existing[change.topic])
    ]


def settings_of(
    spec: TopicSpec, found: ExistingTopic | None, asked: Asked | None = None
) -> list[Setting]:
    """What decides about compaction, what the program names, and what was set on the topic."""
    actual = {**KAFKA_DEFAULTS, **spec.config} if found is None else found.config
    origins = {} if found is None else found.origins
    by_hand = {name for name, origin in origins.items() if origin == "topic"}
    gone = set() if found is None else {each.name for each in dropped(spec, found, asked or {})}
    result = []
    for name in sorted({*KAFKA_DEFAULTS, *spec.config, *by_hand}):
        value, wanted = actual.get(name), spec.config.get(name)
        differs = wanted is not None and not _same(name, value, wanted)
        who: Who = "earlier" if name in gone else _BY_ORIGIN[origins.get(name, "default")]
        result.append(
            Setting(
                name,
                "" if value is None else value,
                "program" if wanted is not None and not differs else who,
                default=KAFKA_DEFAULTS.get(name),
                wanted=wanted if differs else None,
            )
        )
    return result


def left_alone(spec: TopicSpec, found: ExistingTopic, asked: Asked | None = None) -> list[Setting]:
    """What someone set on the topic, and no program that ran has asked for."""
    return [
        each
        for each in settings_of(spec, found, asked)
        if each.who == "hand" and each.name not in spec.config
    ]


def before_start(plan: TopicPlan, *, manage: bool) -> str:
    """What an operator should know before the application starts on these topics; often nothing.

    Raises the plan's first problem, or the first setting that would lose data; unless `manage`
    has the settings put right.
    """
    if plan.problems:
        raise plan.problems[0]
    if not plan.alter:
        return ""
    if manage:
        changes = "; ".join(f"{c.topic}: {c.name} from {c.old} to {c.to}" for c in plan.alter)
        return f"Settings of internal topics are changed: {changes}"
    for change in plan.alter:
        if change.loses:
            raise KafkaError(
                f"The internal topic {change.topic!r} has {change.name}={change.old}, not "
                f"{change.new}: it would lose state or records",
                where={"topic": change.topic},
                hint=_APPLY,
            )
    differences = "; ".join(map(str, plan.alter))
    return f"Internal topics are not as the program says: {differences}. {_APPLY}"


def losses(spec: TopicSpec, found: ExistingTopic) -> list[str]:
    """The settings with which a topic would lose state or records, each told in a sentence.

    >>> spec = TopicSpec("counts-changelog", 1, {"cleanup.policy": "compact"})
    >>> found = ExistingTopic("counts-changelog", "id", 1, {"cleanup.policy": "delete"})
    >>> [text.partition(". ")[0] for text in losses(spec, found)]
    ['counts-changelog: cleanup.policy is delete, not compact: it would lose state or records']
    """
    return [
        f"{change}: it would lose state or records. {_APPLY}"
        for change in config_changes(spec, found)
        if change.loses
    ]


def copies_note(wanted: Iterable[TopicSpec], existing: Mapping[str, ExistingTopic]) -> str:
    """What an operator should know of how many brokers must have what is written; often nothing.

    What the program says itself is its own decision. What brokers or others set may be less than
    the promises rest on, or more than there are replicas.
    """
    one: dict[int, list[str]] = {}
    notes: list[str] = []
    for spec in wanted:
        found = existing.get(spec.name)
        needed = None if found is None else _number(found.config.get(_MIN_INSYNC))
        if found is None or needed is None or _MIN_INSYNC in spec.config:
            continue
        if needed == 1 < found.replication_factor:
            one.setdefault(found.replication_factor, []).append(spec.name)
        elif needed > found.replication_factor > 0:
            notes.append(
                f"{spec.name} has {_MIN_INSYNC}={needed} and a replication factor of "
                f"{found.replication_factor}: older brokers take no write then, newer ones go by "
                f"the smaller number. Set {_MIN_INSYNC} to {found.replication_factor} or less"
            )
    for replicas, names in one.items():
        notes.append(
            f"Kafka takes a write when one of {replicas} replicas has it ({_MIN_INSYNC}=1 of "
            f"{', '.join(names)}): with that broker, what was committed may be lost. Set "
            f'topic={{"{_MIN_INSYNC}": "2"}}, and run `penstock topics apply`'
        )
    return ". ".join(notes)


def sizes_note(wanted: Iterable[TopicSpec], existing: Mapping[str, ExistingTopic]) -> str:
    """What an operator should know of topics that Kafka keeps to a size; often nothing.

    Windows leave their changelog by their age, and a repartition topic's records when they were
    read. Where brokers or others set a size besides, Kafka removes what is still needed.
    """
    small = {
        spec.name: found.config[_BYTES]
        for spec in wanted
        if (found := existing.get(spec.name)) is not None
        and "delete" in policies(found.config.get("cleanup.policy", ""))
        and _BYTES not in spec.config
        and _number(found.config.get(_BYTES, "-1")) != -1
    }
    if not small:
        return ""
    names = ", ".join(f"{name} ({kept})" for name, kept in small.items())
    return (
        f"Kafka keeps topics to a size ({_BYTES}), and may remove what is still needed: {names}. "
        f'Set topic={{"{_BYTES}": "-1"}}, and run `penstock topics apply`'
    )


_APPLY = "Run `penstock topics apply` on the program, or set manage_topics=True"


def _standing(name: str, found: ExistingTopic, values: Iterable[str]) -> tuple[str, ...]:
    """Which of the values the topic has of its own, if any."""
    if found.origins.get(name) != "topic":
        return ()
    return tuple(value for value in values if _same(name, found.config.get(name), value))


def _shows(change: ConfigChange, found: ExistingTopic) -> bool:
    if change.new is None:
        return found.origins.get(change.name) != "topic"
    return _same(change.name, found.config.get(change.name), change.new)


def _same(name: str, actual: str | None, wanted: str) -> bool:
    if actual is None:
        return False
    if name == "cleanup.policy":
        return policies(actual) == policies(wanted)
    number = _number(wanted)
    # Kafka tells 0.50 as 0.5.
    if number is not None:
        return _number(actual) == number
    return actual.strip().lower() == wanted.strip().lower()


def _number(text: str | None) -> Decimal | None:
    try:
        return Decimal(text or "")
    except InvalidOperation:
        return None


def _loses(kind: Kind, name: str, actual: str | None, wanted: str) -> bool:
    """Whether what is set would lose state or records that the program counts on.

    A changelog that forgets sooner than its store restores less than there was, and one of versions
    that is compacted sooner restores the latest alone. Where brokers write their own times, what is
    restored has other times than before. One that is not cleaned as it could be only grows.
    """
    if name == _TIMESTAMPS:
        return kind != "commits"
    kept, needed = _number(actual), _number(wanted)
    if name == "retention.ms" and kept is not None and needed is not None:
        return kept != -1 and (needed == -1 or kept < needed)
    if name == "min.compaction.lag.ms" and kept is not None and needed is not None:
        return kept < needed
    return name == "cleanup.policy" and bool(policies(actual or "") - policies(wanted))


def _partitions_problem(spec: TopicSpec, found: ExistingTopic) -> PenstockError | None:
    if found.partitions == spec.partitions or spec.may_grow:
        return None
    return PartitionCountError(
        f"The internal topic {spec.name!r} has {found.partitions} partitions, not "
        f"{spec.partitions}",
        where={"topic": spec.name},
        hint="Its keys belong to as many partitions as the input has, and a number cannot be "
        "taken back. Start afresh: delete the application's internal topics, consumer group and "
        "state directory, or use another id",
    )


def _replicas_problem(
    spec: TopicSpec, found: ExistingTopic | None, default_replication: int
) -> PenstockError | None:
    """No write is acknowledged by more replicas than there are; Kafka would not tell."""
    needed = _number(spec.config.get(_MIN_INSYNC))
    replicas = found.replication_factor if found else spec.replication_factor
    replicas = default_replication if replicas < 0 else replicas
    if needed is None or replicas < 0 or needed <= replicas:
        return None
    return ConfigError(
        f"The internal topic {spec.name!r} is to have {_MIN_INSYNC}={needed}, and its replication "
        f"factor is {replicas}",
        where={"topic": spec.name},
        hint=f"Set replication_factor to {needed} or more before the topics are made, or "
        f"{_MIN_INSYNC} to {replicas} or less",
    )
