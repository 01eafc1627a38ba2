"""What differs between two topologies, and what that does to the state of the older one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping

from penstock.topology.difference import (
    RESET,
    Difference,
    Kind,
    are_exchanged,
    listed,
    span,
)
from penstock.topology.manifest import (
    GlobalFacts,
    RepartitionFacts,
    StoreFacts,
    TopologyManifest,
)
from penstock.topology.store_changes import kept_store

_NUMBER = re.compile(r"-[0-9]+(?=-|$)")


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
    made = [{name: each.made_by for name, (_, each) in all_.items()} for all_ in (before, after)]
    for name, (sub, store) in before.items():
        if name in after:
            yield from kept_store(sub, store, *after[name], sources=set(old.sources))
            yield from _renumbered(name, *made, kind="store_renumbered")
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


def _renumbered(
    name: str, before: Mapping[str, str], after: Mapping[str, str], *, kind: Kind
) -> Iterator[Difference]:
    """Of names that differ in a number alone, one that another step has now.

    What is known of the step that had it must be found under another of these names: a function
    that was changed is no sign of that.
    """
    was, now = before[name], after[name]
    if not was or not now or was == now:
        return
    went = [each for each in _alike(name, after) if after[each] == was != before.get(each)]
    came = [each for each in _alike(name, before) if before[each] == now != after.get(each)]
    if not went and not came:
        return
    step = f"what was {name!r} before is {went[0]!r}" if went else f"it is what {came[0]!r} was"
    yield Difference(
        kind=kind,
        severity="misreads",
        name=name,
        change=f"{name!r} belongs to another step now, for nobody named it: {step}",
        advice=f"Name those that are alike, so that each keeps what it has: in the one that was "
        f"{name!r} before say so; or {RESET}",
    )


def _alike(name: str, names: Iterable[str]) -> list[str]:
    """The names that differ from one in a number."""
    base = _NUMBER.sub("", name)
    return [each for each in names if each != name and _NUMBER.sub("", each) == base]


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


def _repartitions(old: TopologyManifest, new: TopologyManifest) -> Iterator[Difference]:
    before, after = old.repartitions, new.repartitions
    made = [{name: each.made_by for name, (_, each) in all_.items()} for all_ in (before, after)]
    for topic, (_, facts) in before.items():
        if topic not in after:
            added = [after[each][1] for each in after if each not in before]
            yield _removed_repartition(facts, added, old.application_id)
            continue
        yield from _kept_repartition(facts, after[topic][1], set(old.sources))
        yield from _renumbered(topic, *made, kind="repartition_renumbered")
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


def _kept_repartition(
    old: RepartitionFacts, new: RepartitionFacts, sources: set[str]
) -> Iterator[Difference]:
    topic, advice = old.topic, f"Give it another name once it is read to the end, or {RESET}"
    for part, was, now in (("keys", old.key, new.key), ("values", old.value, new.value)):
        if was != now:
            yield Difference(
                kind="repartition_serde_changed",
                severity="misreads",
                name=topic,
                change=f"The {part} in repartition topic {topic!r} were written as {was} and "
                f"would be read as {now}",
                advice=advice,
            )
    if None not in (old.window_ms, new.window_ms) and old.window_ms != new.window_ms:
        yield Difference(
            kind="repartition_windows_changed",
            severity="misreads",
            name=topic,
            change=f"The windows in repartition topic {topic!r} were {span(old.window_ms)} long "
            f"and would be read as {span(new.window_ms)}",
            advice=advice,
        )
    if are_exchanged(old.origins, new.origins, sources):
        yield Difference(
            kind="repartition_exchanged",
            severity="misreads",
            name=topic,
            change=f"Repartition topic {topic!r} was written from {listed(set(old.origins))} and "
            f"would be from {listed(set(new.origins))}, which was read before for something else",
            advice=f"What waits in it would be taken for the other. {advice}",
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
