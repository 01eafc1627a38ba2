"""What a change does to a store that both programs have."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.serdes import BytesSerde
from penstock.topology.difference import RESET, Difference, are_exchanged, listed, span
from penstock.topology.manifest import BUFFER, StoreFacts, SubTopologyFacts, WindowFacts


def kept_store(
    old_sub: SubTopologyFacts,
    old: StoreFacts,
    new_sub: SubTopologyFacts,
    new: StoreFacts,
    *,
    sources: set[str],
) -> Iterator[Difference]:
    """What changed of a store; `sources` are the topics that the old program read."""
    exchanged = are_exchanged(old.origins, new.origins, sources)
    if exchanged:
        yield _exchanged_store(old, new)
    for moved in _moved_store(old_sub, new_sub, new.name):
        if moved.severity != "harmless" or not exchanged:
            yield moved
    if old.kind != new.kind:
        yield Difference(
            kind="store_kind_changed",
            severity="misreads",
            name=new.name,
            change=f"Store {new.name!r} was a {old.kind} store and is a {new.kind} store",
            advice=f"Its keys have another form. Give the new store another name, or {RESET}",
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
                f"{RESET}",
            )
    yield from _windows(old, new)
    yield from _waiting(old, new)
    yield from _limit(old, new)
    if (old.kept_in or "") != (new.kept_in or "") and old.kept_in is not None:
        yield _place(old, new)
    elif (old.changelog is None) != (new.changelog is None):
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
            f"number of partitions, give the store another name, or {RESET}",
        )
    elif not _inputs(old) & _inputs(new):
        yield Difference(
            kind="store_moved",
            severity="harmless",
            name=name,
            change=f"Store {name!r} was filled from {listed(_inputs(old))} and is filled from "
            f"{listed(_inputs(new))}",
            advice="It keeps its content; see that its keys still mean the same",
        )


def _exchanged_store(old: StoreFacts, new: StoreFacts) -> Difference:
    return Difference(
        kind="store_exchanged",
        severity="misreads",
        name=new.name,
        change=f"Store {new.name!r} was made of {listed(set(old.origins))} and would be of "
        f"{listed(set(new.origins))}, which was read before for something else",
        advice="What it holds would pass for records of the other topic. Give the stores, or the "
        f"sides of the join, their old order, give the new store another name, or {RESET}",
    )


def _inputs(sub: SubTopologyFacts) -> set[str]:
    return {*sub.sources, *(each.topic for each in sub.repartitions)}


def _windows(old: StoreFacts, new: StoreFacts) -> Iterator[Difference]:
    was, now = old.windows, new.windows
    if was is not None and now is not None and _slides(was) != _slides(now):
        yield Difference(
            kind="window_kind_changed",
            severity="misreads",
            name=new.name,
            change=f"The windows of store {new.name!r} used to {_begin(was)} and would "
            f"{_begin(now)}",
            advice="Only their starts are stored, so each would be taken for the other. Give the "
            f"new store another name, or {RESET}",
        )
    elif old.window_ms != new.window_ms and _is_size_known(old):
        yield Difference(
            kind="window_size_changed",
            severity="misreads",
            name=new.name,
            change=f"The windows of store {new.name!r} were {span(old.window_ms)} long and are "
            f"{span(new.window_ms)}",
            advice="Only their starts are stored, so old windows would pass for new ones. Give "
            f"the new store another name, or {RESET}",
        )
    elif was is not None and now is not None and was != now:
        yield _starts(was, now, new.name)
    if old.retention_ms != new.retention_ms:
        yield _retention(old, new)


def _is_size_known(old: StoreFacts) -> bool:
    """Of windows that are keys nothing was written at first."""
    return old.kind == "window" or old.window_ms is not None


def _slides(windows: WindowFacts) -> bool:
    return windows.advance_ms is None


def _begin(windows: WindowFacts) -> str:
    return "slide with records" if _slides(windows) else f"begin every {span(windows.advance_ms)}"


def _starts(was: WindowFacts, now: WindowFacts, store: str) -> Difference:
    """Windows of the same size that begin at other times."""
    assert was.advance_ms is not None
    assert now.advance_ms is not None
    all_go_on = was.start_ms == now.start_ms and was.advance_ms % now.advance_ms == 0
    return Difference(
        kind="window_starts_changed",
        severity="harmless" if all_go_on else "orphans",
        name=store,
        change=f"The windows of store {store!r} began every {span(was.advance_ms)} from "
        f"{was.start_ms} ms on and begin every {span(now.advance_ms)} from {now.start_ms} ms on",
        advice="Those that there are go on; the new ones between them lack what came before"
        if all_go_on
        else "Windows that begin elsewhere stay as they are, half filled, and pass for whole ones. "
        "Give the new store another name, or allow the change",
    )


def _retention(old: StoreFacts, new: StoreFacts) -> Difference:
    shorter = (new.retention_ms or 0) < (old.retention_ms or 0)
    kept, setting = "windows", "retention.ms"
    if new.kind == "versioned":
        kept, setting = "versions", "min.compaction.lag.ms"
    return Difference(
        kind="retention_changed",
        severity="orphans" if shorter else "harmless",
        name=new.name,
        change=f"Store {new.name!r} kept {kept} for {span(old.retention_ms)} and keeps them for "
        f"{span(new.retention_ms)}",
        advice=f"{kept.capitalize()} that are older than that are deleted. Give it back its old "
        "retention, or allow the change"
        if shorter
        else f"Let the changelog keep them as long: raise {setting} of {new.changelog!r}",
    )


def _waiting(old: StoreFacts, new: StoreFacts) -> Iterator[Difference]:
    if old.waits_for is None or new.waits_for is None or old.waits_for == new.waits_for:
        return
    was, now = _RELEASES[old.waits_for], _RELEASES[new.waits_for]
    yield Difference(
        kind="waiting_changed",
        severity="misreads",
        name=new.name,
        change=f"What waits in {new.name!r} was put there by {was} and would be let go by {now}",
        advice="It would come out at a wrong time, perhaps before its window closed. Give the "
        f"suppress another name once nothing waits in the old one, or {RESET}",
    )


_RELEASES = {"window_end": "the end of its window", "time_limit": "the time of its record"}


def _limit(old: StoreFacts, new: StoreFacts) -> Iterator[Difference]:
    """A store that forgot keys before may forget more; one that kept all was to keep them."""
    if old.max_entries == 0 and new.max_entries:
        yield Difference(
            kind="store_limit_changed",
            severity="orphans",
            name=new.name,
            change=f"Store {new.name!r} kept all keys and keeps {new.max_entries} at most",
            advice="The others are deleted. Leave max_entries= out, give the new store another "
            "name, or allow the change",
        )


def _place(old: StoreFacts, new: StoreFacts) -> Difference:
    was, now = (
        f"the table {each.kept_in!r}" if each.kept_in else "the instances" for each in (old, new)
    )
    return Difference(
        kind="store_place_changed",
        severity="orphans",
        name=new.name,
        change=f"Store {new.name!r} was kept in {was} and would be in {now}",
        advice="It would begin empty. Say kept_in= as before, give the new store another name, or "
        "allow the change",
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
