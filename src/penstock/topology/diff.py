"""What differs between two topologies, and what that does to the state of the older one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import Literal

import msgspec

from penstock.serdes import BytesSerde
from penstock.topology.manifest import (
    BUFFER,
    GlobalFacts,
    RepartitionFacts,
    StoreFacts,
    SubTopologyFacts,
    TopologyManifest,
)

Severity = Literal["harmless", "orphans", "misreads"]
"""`orphans`: state or records are left behind. `misreads`: they would be taken for others."""
Kind = Literal[
    "store_added",
    "store_removed",
    "store_returned",
    "store_moved",
    "store_width_changed",
    "store_kind_changed",
    "store_serde_changed",
    "window_size_changed",
    "retention_changed",
    "logging_changed",
    "source_added",
    "source_removed",
    "repartition_added",
    "repartition_removed",
    "repartition_serde_changed",
    "global_table_added",
    "global_table_removed",
    "global_table_changed",
]

_RESET = "use a new application id"


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One difference: what changed, what that does, and what to do."""

    kind: Kind
    severity: Severity
    name: str
    change: str
    advice: str

    def __str__(self) -> str:
        return f"{self.severity}: {self.change}. {self.advice}"


def diff(old: TopologyManifest, new: TopologyManifest) -> list[Difference]:
    """What of the old topology the new one changes, the worst first.

    A sub-topology is the same if it has the same stores and inputs, whatever it is called.
    """
    found = [
        *_stores(old, new),
        *_repartitions(old, new),
        *_sources(old, new),
        *_global_tables(old, new),
    ]
    order = ("misreads", "orphans", "harmless")
    return sorted(found, key=lambda each: order.index(each.severity))


def _stores(old: TopologyManifest, new: TopologyManifest) -> Iterator[Difference]:
    before, after = old.stores, new.stores
    for name, (sub, store) in before.items():
        if name in after:
            yield from _kept_store(sub, store, *after[name])
        else:
            yield _removed_store(store, [after[each][1] for each in after if each not in before])
    for name in after:
        if name in before:
            continue
        if name in old.retired:
            changelog = after[name][1].changelog
            yield Difference(
                kind="store_returned",
                severity="misreads",
                name=name,
                change=f"Store {name!r} is back; it was left behind by an earlier change",
                advice="It would go on with its old content, without what was processed since. "
                f"Give it another name, or delete the topic {changelog!r} and allow the change",
            )
            continue
        yield Difference(
            kind="store_added",
            severity="harmless",
            name=name,
            change=f"Store {name!r} is new",
            advice="It begins empty, and sees what is processed from now on",
        )


def _removed_store(store: StoreFacts, new: list[StoreFacts]) -> Difference:
    like = [each.name for each in new if _same_bytes(each, store)]
    renamed = f" ({like[0]!r} is new and of the same kind)" if len(like) == 1 else ""
    left = f" and its changelog {store.changelog!r} are" if store.changelog else " is"
    return Difference(
        kind="store_removed",
        severity="orphans",
        name=store.name,
        change=f"Store {store.name!r} is gone{renamed}: its state{left} left behind",
        advice=f"If it was renamed, give the store its old name {store.name!r}; if it is no "
        "longer wanted, allow the change and delete the changelog",
    )


def _same_bytes(one: StoreFacts, other: StoreFacts) -> bool:
    return (one.kind, one.key, one.value, one.window_ms) == (
        other.kind,
        other.key,
        other.value,
        other.window_ms,
    )


def _kept_store(
    old_sub: SubTopologyFacts, old: StoreFacts, new_sub: SubTopologyFacts, new: StoreFacts
) -> Iterator[Difference]:
    yield from _moved_store(old_sub, new_sub, new.name)
    if old.kind != new.kind:
        yield Difference(
            kind="store_kind_changed",
            severity="misreads",
            name=new.name,
            change=f"Store {new.name!r} was a {old.kind} store and is a {new.kind} store",
            advice=f"Its keys have another form. Give the new store another name, or {_RESET}",
        )
        return
    for part, was, now in (("keys", old.key, new.key), ("values", old.value, new.value)):
        if was != now and not _is_told_later(was, now):
            yield Difference(
                kind="store_serde_changed",
                severity="misreads",
                name=new.name,
                change=f"The {part} of store {new.name!r} were written as {was} and would be read "
                f"as {now}",
                advice="Give the serde back its old type, give the new store another name, or "
                f"{_RESET}",
            )
    yield from _windows(old, new)
    if (old.changelog is None) != (new.changelog is None):
        yield _logging(old, new)


def _is_told_later(was: str, now: str) -> bool:
    """Whether it is the same buffer: of what is in one, nothing was written down at first."""
    return was == BytesSerde.name and now.startswith(f"{BUFFER}<")


def _moved_store(old: SubTopologyFacts, new: SubTopologyFacts, name: str) -> Iterator[Difference]:
    widths = (old.partitions, new.partitions)
    if None not in widths and widths[0] != widths[1]:
        yield Difference(
            kind="store_width_changed",
            severity="misreads",
            name=name,
            change=f"Store {name!r} had {old.partitions} partitions and would have "
            f"{new.partitions}",
            advice="Its keys would be looked for in other partitions. Give its inputs their old "
            f"number of partitions, give the store another name, or {_RESET}",
        )
    elif not _inputs(old) & _inputs(new):
        yield Difference(
            kind="store_moved",
            severity="harmless",
            name=name,
            change=f"Store {name!r} was filled from {_listed(_inputs(old))} and is filled from "
            f"{_listed(_inputs(new))}",
            advice="It keeps its content; see that its keys still mean the same",
        )


def _inputs(sub: SubTopologyFacts) -> set[str]:
    return {*sub.sources, *(each.topic for each in sub.repartitions)}


def _windows(old: StoreFacts, new: StoreFacts) -> Iterator[Difference]:
    if old.window_ms != new.window_ms:
        yield Difference(
            kind="window_size_changed",
            severity="misreads",
            name=new.name,
            change=f"The windows of store {new.name!r} were {_span(old.window_ms)} long and are "
            f"{_span(new.window_ms)}",
            advice="Only their starts are stored, so old windows would pass for new ones. Give "
            f"the new store another name, or {_RESET}",
        )
    if old.retention_ms == new.retention_ms:
        return
    shorter = (new.retention_ms or 0) < (old.retention_ms or 0)
    kept, setting = "windows", "retention.ms"
    if new.kind == "versioned":
        kept, setting = "versions", "min.compaction.lag.ms"
    yield Difference(
        kind="retention_changed",
        severity="orphans" if shorter else "harmless",
        name=new.name,
        change=f"Store {new.name!r} kept {kept} for {_span(old.retention_ms)} and keeps them for "
        f"{_span(new.retention_ms)}",
        advice=f"{kept.capitalize()} that are older than that are deleted. Give it back its old "
        "retention, or allow the change"
        if shorter
        else f"Let the changelog keep them as long: raise {setting} of {new.changelog!r}",
    )


def _logging(old: StoreFacts, new: StoreFacts) -> Difference:
    advice = (
        f"From now on its state is on one disk alone, and {old.changelog!r} is left behind"
        if new.changelog is None
        else f"What it holds so far is not in {new.changelog!r}, and would be lost with its disk"
    )
    return Difference(
        kind="logging_changed",
        severity="orphans",
        name=new.name,
        change=f"Store {new.name!r} {'lost its' if new.changelog is None else 'has now a'} "
        "changelog",
        advice=f"{advice}. Say logging={new.changelog is None} as before, give the new store "
        "another name, or allow the change",
    )


def _repartitions(old: TopologyManifest, new: TopologyManifest) -> Iterator[Difference]:
    before, after = old.repartitions, new.repartitions
    for topic, (_, facts) in before.items():
        if topic not in after:
            added = [after[each][1] for each in after if each not in before]
            yield _removed_repartition(facts, added, old.application_id)
            continue
        now = after[topic][1]
        for part, was, is_now in (("keys", facts.key, now.key), ("values", facts.value, now.value)):
            if was != is_now:
                yield Difference(
                    kind="repartition_serde_changed",
                    severity="misreads",
                    name=topic,
                    change=f"The {part} in repartition topic {topic!r} were written as {was} and "
                    f"would be read as {is_now}",
                    advice="Give the grouping another name once its old topic is read to the end, "
                    f"or {_RESET}",
                )
    yield from _only(
        after,
        before,
        lambda topic: Difference(
            kind="repartition_added",
            severity="harmless",
            name=topic,
            change=f"Repartition topic {topic!r} is new",
            advice="It is made at the start",
        ),
    )


def _removed_repartition(
    old: RepartitionFacts, added: list[RepartitionFacts], application_id: str
) -> Difference:
    like = [each.topic for each in added if (each.key, each.value) == (old.key, old.value)]
    renamed = f" ({like[0]!r} is new and holds the same types)" if len(like) == 1 else ""
    base = old.topic.removeprefix(f"{application_id}-").removesuffix("-repartition")
    return Difference(
        kind="repartition_removed",
        severity="orphans",
        name=old.topic,
        change=f"Repartition topic {old.topic!r} is gone{renamed}: records that wait in it would "
        "be lost",
        advice=f"Give the grouping its old name: name={base!r}; or let the old program read it to "
        "the end, and allow the change",
    )


def _sources(old: TopologyManifest, new: TopologyManifest) -> Iterator[Difference]:
    yield from _only(
        old.sources,
        new.sources,
        lambda topic: Difference(
            kind="source_removed",
            severity="harmless",
            name=topic,
            change=f"Topic {topic!r} is no longer read",
            advice="The consumer group remembers how far it was read, as long as Kafka keeps that",
        ),
    )
    yield from _only(
        new.sources,
        old.sources,
        lambda topic: Difference(
            kind="source_added",
            severity="harmless",
            name=topic,
            change=f"Topic {topic!r} is read now",
            advice="It is read from where the group was, or else as auto_offset_reset says",
        ),
    )


def _global_tables(old: TopologyManifest, new: TopologyManifest) -> Iterator[Difference]:
    before, after = set(old.global_tables.items()), set(new.global_tables.items())
    for name, topic in sorted(before - after):
        yield Difference(
            kind="global_table_removed",
            severity="harmless",
            name=name,
            change=f"Global table {name!r} of topic {topic!r} is gone",
            advice="Its topic still holds it all",
        )
    for name, topic in sorted(after - before):
        yield Difference(
            kind="global_table_added",
            severity="harmless",
            name=name,
            change=f"Global table {name!r} of topic {topic!r} is new",
            advice="It is filled from its topic at the start",
        )
    for name, _ in sorted(before & after):
        if name in old.global_facts and name in new.global_facts:
            yield from _kept_global(name, old.global_facts[name], new.global_facts[name])


def _kept_global(name: str, old: GlobalFacts, new: GlobalFacts) -> Iterator[Difference]:
    """Nothing is misread: every instance can make its copy anew."""
    changes = [
        f"the {part} of global table {name!r} were {was} and are {now}"
        for part, was, now in (("keys", old.key, new.key), ("values", old.value, new.value))
        if was != now
    ]
    if old.is_filled_by_code != new.is_filled_by_code:
        by = "by code now" if new.is_filled_by_code else "with its topic's own bytes now"
        changes.append(f"global table {name!r} is filled {by}")
    copied = not (old.is_filled_by_code or new.is_filled_by_code)
    for change in changes:
        yield Difference(
            kind="global_table_changed",
            severity="harmless",
            name=name,
            change=change[0].upper() + change[1:],
            advice="Its bytes are the topic's own: see that what is in there can be read so"
            if copied
            else "Every instance fills it anew from its topic at the start",
        )


def _only(
    these: Iterable[str], those: Iterable[str], made: Callable[[str], Difference]
) -> Iterator[Difference]:
    known = set(those)
    return (made(each) for each in these if each not in known)


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"


def _span(milliseconds: int | None) -> str:
    if milliseconds is None:
        return "unlimited"
    try:
        return str(timedelta(milliseconds=milliseconds))
    except OverflowError:
        return "unlimited"
