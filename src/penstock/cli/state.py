"""`penstock state`: what is on this machine's disk, without running anything."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager, closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.changelog.clients import LogClients
from penstock.changelog.restore import RestoreProgress
from penstock.changelog.snapshots import Manifest, SnapshotLocation
from penstock.cli.answers import EXIT_REFUSED, print_answer
from penstock.cli.changelog_ends import ChangelogEnds
from penstock.cli.entries import Row, key_bytes, row_of, shown, shown_time, version_row
from penstock.cli.loading import AppFile, load_application
from penstock.cli.parquet import write_parquet
from penstock.cli.progress import Bar
from penstock.cli.running import is_app_file
from penstock.config import Config
from penstock.coordination.ids import TaskId
from penstock.driver.setup import check_broker
from penstock.errors import (
    ChangelogError,
    ConfigError,
    CustomStoreError,
    StateDirectoryError,
    StoreDamagedError,
    UsageError,
)
from penstock.instance.inspection import (
    OpenStore,
    StoreOnDisk,
    held,
    holder_of,
    opened,
    stores_below,
)
from penstock.instance.verification import verify
from penstock.stores.comparison import Difference, compare, entries_of, history_start
from penstock.stores.contract import WindowStore
from penstock.stores.versioned import VersionsStore
from penstock.stores.whole_topic import LAYOUT
from penstock.topology import StoreSpec

state = typer.Typer(no_args_is_help=True)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
ApplicationId = Annotated[str, typer.Option("--application", help="An application by its id.")]
StateDir = Annotated[Path | None, typer.Option(help="Where the state is, if not where usual.")]
Partition = Annotated[int | None, typer.Option(min=0, help="Of one partition only.")]
Bootstrap = Annotated[str, typer.Option("--bootstrap-servers", help="Where Kafka listens.")]
Opened = AbstractContextManager[OpenStore]
_TIME_MAX = 2**63 - 2


@dataclass(frozen=True, kw_only=True)
class _Subject:
    """What a command is about: whose state, where, and by which serdes it is read."""

    application_id: str
    config: Config
    state_dir: Path
    specs: dict[str, StoreSpec]

    @classmethod
    def of(
        cls, file: str, application_id: str, state_dir: Path | None, servers: str = ""
    ) -> _Subject:
        options: dict[str, Any] = {"bootstrap_servers": servers} if servers else {}
        config, specs = Config.build({}, os.environ), {}
        config = replace(config, **options)
        if file:
            app = load_application(file)
            if application_id not in ("", app.application_id):
                raise UsageError(f"{file} is the application {app.application_id!r}")
            application_id = app.application_id
            # The program's security settings hold for another address too.
            config = replace(app.config, **options)
            topology = app.build()
            subs = (*topology.sub_topologies, *topology.global_tables)
            specs = {store.name: store for sub in subs for store in sub.stores}
            state_dir = state_dir or app.config.state_dir
        return cls(
            application_id=application_id,
            config=config,
            state_dir=state_dir or config.state_dir,
            specs=specs,
        )

    def stores(self) -> list[StoreOnDisk]:
        """The application's stores, or those of all."""
        found = [self.known(each) for each in stores_below(self.state_dir)]
        if not self.application_id:
            return found
        return [each for each in found if each.application_id == self.application_id]

    def known(self, disk: StoreOnDisk) -> StoreOnDisk:
        """Told by the program whose it is: a store that it brings may keep files like RocksDB's."""
        spec = self.specs.get(disk.name)
        return disk if spec is None else replace(disk, custom=bool(spec.supplier))

    def copies(self, store: str, partition: int | None) -> list[StoreOnDisk]:
        """The stores of that name; `ConfigError` names those that there are."""
        found = self.stores()
        named = [each for each in found if each.name == store]
        wanted = [each for each in named if partition is None or each.partition == partition]
        if not wanted:
            known = ", ".join(sorted({each.name for each in found})) or "none"
            what = f"{store!r}" if not named else f"{store!r} of partition {partition}"
            raise ConfigError(
                f"There is no store {what} in {self.state_dir}", hint=f"There is: {known}"
            )
        if len({each.application_id for each in wanted}) > 1:
            raise ConfigError(
                f"Several applications have a store {store!r}", hint="Say which: --application ID"
            )
        return wanted

    def opened(self, disk: StoreOnDisk, *, ends: ChangelogEnds | None = None) -> Opened:
        """A store, to be read as the program would; without one, as far as that is possible."""
        spec = self.specs.get(disk.name)
        retention = self.retention_ms(disk.name)
        if retention is None and ends is not None:
            retention = ends.retention_ms(disk.name)
        supplier = "" if spec is None else spec.supplier
        return opened(disk, retention_ms=retention, supplier=supplier)

    def retention_ms(self, store: str) -> int | None:
        """How long a store keeps windows, if the program is at hand."""
        spec = self.specs.get(store)
        return None if spec is None else spec.retention_ms


@state.command(
    "ls",
    help="List tasks and stores with sizes, offsets and lag.",
    epilog="Example: penstock state ls app.py",
)
def ls(
    app: AppFile = "",
    application: ApplicationId = "",
    state_dir: StateDir = None,
    bootstrap_servers: Bootstrap = "",
    json: Json = False,
) -> None:
    subject = _Subject.of(app, application, state_dir, bootstrap_servers)
    stores = subject.stores()
    facts = [_facts(subject, each) for each in stores]
    ends = ChangelogEnds.ask(subject.config, [_changelog(each) for each in facts])
    for each in facts:
        lacks = ends.of(_changelog(each), each["offset"], application_id=each["application"])
        each.update(lacks)
    columns = ("place", "size_bytes", "approximate_entries", "offset", "changelog_end", "lag")
    lines = _aligned([columns, *([each[name] for name in columns] for each in facts)])
    lines += [f"{each['place']}: {each['problem']}" for each in facts if each["problem"]]
    if ends.unreachable:
        lines.append(f"Without ends and lag: {ends.unreachable}")
    if not stores:
        lines = [f"There is no state in {subject.state_dir}"]
    data = {"state_dir": str(subject.state_dir), "stores": facts, "broker": not ends.unreachable}
    print_answer("\n".join(lines), data, as_json=json)


@state.command(
    "show",
    help="Print a store's entries, decoded if the application is given.",
    epilog="Example: penstock state show pulse-counts app.py --key ann",
)
def show(
    store: Annotated[str, typer.Argument(help="The store's name.")],
    app: AppFile = "",
    application: ApplicationId = "",
    state_dir: StateDir = None,
    partition: Partition = None,
    key: Annotated[str, typer.Option(help="Only this key; bytes as 0x6162.")] = "",
    limit: Annotated[int, typer.Option(min=1, help="At most so many entries.")] = 100,
    json: Json = False,
) -> None:
    if is_app_file(store):
        # As `query` and `records` have it; a store has no such name.
        store, app = app, store
    subject = _Subject.of(app, application, state_dir)
    copies = subject.copies(store, partition)
    wanted = key_bytes(key, subject.specs.get(store)) if key else None
    with held(copies), closing(_rows(subject, _newest(subject, copies), wanted)) as found:
        rows = list(islice(found, limit + 1))
    more = len(rows) > limit
    lines = [row.line() for row in rows[:limit]] or ["Nothing"]
    lines += [f"More than {limit}; see --limit"] if more else []
    data = {"store": store, "entries": [row.facts() for row in rows[:limit]], "more": more}
    print_answer("\n".join(lines), data, as_json=json)


@state.command(
    "snapshots",
    help="List the snapshots of stores in a snapshot location.",
    epilog="Example: penstock state snapshots app.py --location file:///data/snapshots",
)
def snapshots(
    app: AppFile = "",
    application: ApplicationId = "",
    location: Annotated[str, typer.Option(help="Where, if not in snapshot_location.")] = "",
    json: Json = False,
) -> None:
    subject = _Subject.of(app, application, None)
    where = location or subject.config.snapshot_location
    if not subject.application_id:
        raise UsageError("It is not said whose snapshots", hint="Say app.py, or --application ID")
    if not where:
        raise UsageError(
            "It is not said where the snapshots are",
            hint="Say --location file:///directory, or set snapshot_location",
        )
    with Bar("Looking") as bar:
        facts = _snapshots(SnapshotLocation(where, subject.application_id), bar)
    columns = ("place", "number", "written", "offset", "size_bytes")
    lines = _aligned([columns, *([each[name] for name in columns] for each in facts)])
    if not facts:
        lines = ["There is no snapshot"]
    print_answer("\n".join(lines), {"snapshots": facts}, as_json=json)


def _snapshots(location: SnapshotLocation, bar: Bar) -> list[dict[str, Any]]:
    """Each that is kept, the newest of a store first; their sizes are not of files of their own."""
    bar.show(0)
    stores = location.stores()
    return [
        {
            "place": f"{task}/{store}",
            "store": store,
            "partition": TaskId.parse(manifest.identity.task).partition,
            "number": number,
            "written": shown_time(manifest.written_ms) if manifest.written_ms else None,
            "written_ms": manifest.written_ms or None,
            "offset": manifest.offset,
            "size_bytes": manifest.size,
        }
        for done, (task, store) in enumerate(stores)
        for number, manifest in enumerate(_history(location, task, store, bar, done, len(stores)))
    ]


def _history(
    location: SnapshotLocation, task: str, store: str, bar: Bar, done: int, total: int
) -> list[Manifest]:
    bar.show(done, total)
    return location.history(task, store)


@state.command(
    "export",
    help="Write a store's entries to a Parquet file.",
    epilog="Example: penstock state export pulse-counts counts.parquet app.py",
)
def export(
    store: Annotated[str, typer.Argument(help="The store's name.")],
    file: Annotated[Path, typer.Argument(help="The file to write; it must not be there yet.")],
    app: AppFile = "",
    application: ApplicationId = "",
    state_dir: StateDir = None,
    partition: Partition = None,
    json: Json = False,
) -> None:
    subject = _Subject.of(app, application, state_dir)
    copies = subject.copies(store, partition)
    with held(copies):
        newest = _newest(subject, copies)
        with subject.opened(newest[0]) as first:
            windowed = isinstance(first.store, WindowStore)
        spec = subject.specs.get(store)
        with Bar("Exporting") as bar:
            rows = bar.over(_exported(subject, newest), _about(subject, newest))
            written = write_parquet(file, rows, spec=spec, windowed=windowed)
    print_answer(
        f"{file}: {written} entries of {store}",
        {"file": str(file), "store": store, "entries": written},
        as_json=json,
    )


@state.command(
    "verify",
    help="Compare stores with their changelogs; exit 1 if they differ.",
    epilog="Example: penstock state verify app.py --store pulse-counts",
)
def verify_stores(
    app: AppFile = "",
    application: ApplicationId = "",
    state_dir: StateDir = None,
    store: Annotated[str, typer.Option(help="Only this store.")] = "",
    partition: Partition = None,
    limit: Annotated[int, typer.Option(min=1, help="Name at most so many keys of each.")] = 20,
    bootstrap_servers: Bootstrap = "",
    json: Json = False,
) -> None:
    subject = _Subject.of(app, application, state_dir, bootstrap_servers)
    stores = subject.copies(store, partition) if store else subject.stores()
    stores = [each for each in stores if partition is None or each.partition == partition]
    check_broker(subject.config)
    found: list[dict[str, Any]] = []
    names = {each.application_id for each in stores}
    ends = {name: ChangelogEnds(subject.config, name) for name in names}
    with held(stores), Bar("Comparing") as bar:
        for number, each in enumerate(stores):
            far = partial(_show_store, bar, each, number, len(stores))
            judge = partial(_verified, subject, each, ends[each.application_id], limit, far)
            found.append(_judged(each.place, judge))
    lines = [line for each in found for line in _verified_lines(each)]
    different = any(each["differences"] or each["problem"] for each in found)
    print_answer("\n".join(lines) or "Nothing to compare", {"stores": found}, as_json=json)
    if different:
        raise typer.Exit(EXIT_REFUSED)


@state.command(
    "diff",
    help="Compare two state directories, or two copies of a task.",
    epilog="Example: penstock state diff /data/instance-0 /data/instance-1",
)
def diff(
    left: Annotated[Path, typer.Argument(help="A state directory, or an application's or task's.")],
    right: Annotated[Path, typer.Argument(help="Another one.")],
    app: Annotated[str, typer.Option(help="The program, for stores that it brings.")] = "",
    limit: Annotated[int, typer.Option(min=1, help="Name at most so many keys of each.")] = 20,
    json: Json = False,
) -> None:
    subject = _Subject.of(app, "", left)
    ours = {each.place: subject.known(each) for each in stores_below(left)}
    theirs = {each.place: subject.known(each) for each in stores_below(right)}
    found: list[dict[str, Any]] = []
    places = sorted(ours.keys() | theirs.keys())
    with held([*ours.values(), *theirs.values()]), Bar("Comparing") as bar:
        for number, place in enumerate(places):
            bar.show(number, len(places), f"Comparing {place}")
            if place not in ours or place not in theirs:
                only = str(left if place in ours else right)
                found.append(_found(place) | {"only_in": only})
            else:
                judge = partial(_difference, subject, ours[place], theirs[place], limit)
                found.append(_judged(place, judge))
    lines = [line for each in found for line in _difference_lines(each)]
    print_answer("\n".join(lines) or "Nothing to compare", {"stores": found}, as_json=json)
    if any(each["only_in"] or each["differences"] or each["problem"] for each in found):
        raise typer.Exit(EXIT_REFUSED)


def _facts(subject: _Subject, disk: StoreOnDisk) -> dict[str, Any]:
    """What is known of a store; of one that is held, only what lies beside it."""
    facts: dict[str, Any] = {
        "place": disk.place,
        "application": disk.application_id,
        "task": disk.task,
        "store": disk.name,
        "partition": disk.partition,
        "size_bytes": disk.size_bytes,
        "problem": holder_of(disk),
        "approximate_entries": None,
        "offset": None,
        "layout": None,
        "changelog": None,
        "changelog_id": None,
    }
    if facts["problem"]:
        # The last flush's: what came since is in the holder's memory.
        named = f"{disk.application_id}-{disk.name}-changelog"
        with suppress(StateDirectoryError):
            for (topic, partition), offset in disk.checkpoint().items():
                if topic == named and partition == disk.partition:
                    facts |= {"offset": offset, "changelog": topic}
        return facts
    try:
        with held([disk]), subject.opened(disk) as found:
            return facts | _inner_facts(found)
    except (StoreDamagedError, StateDirectoryError, CustomStoreError) as error:
        return facts | {"problem": error.message}


def _inner_facts(found: OpenStore) -> dict[str, Any]:
    identity = found.identity
    # A store without a changelog is known by another topic's id.
    logged = identity if identity is not None and identity.changelog_topic else None
    return {
        "approximate_entries": found.store.approximate_num_entries(),
        "offset": found.store.offset(),
        "layout": None if identity is None else identity.layout,
        "changelog": None if logged is None else logged.changelog_topic,
        "changelog_id": None if logged is None else logged.changelog_topic_id,
    }


def _changelog(facts: dict[str, Any]) -> tuple[str, str, int] | None:
    """A store's changelog, its id if known, and the partition; None if it has none."""
    if facts["partition"] is None or not facts["changelog"]:
        return None
    return facts["changelog"], facts["changelog_id"] or "", facts["partition"]


def _newest(subject: _Subject, copies: list[StoreOnDisk]) -> list[StoreOnDisk]:
    """Of each task the copy that holds most of its changelog."""
    newest: dict[str, tuple[int, StoreOnDisk]] = {}
    for each in copies:
        with subject.opened(each) as found:
            offset = found.store.offset()
            at = sum(found.positions.values()) if offset is None else offset
        if each.task not in newest or at > newest[each.task][0]:
            newest[each.task] = (at, each)
    return [each for _, each in sorted(newest.values(), key=lambda pair: pair[1].partition or 0)]


def _rows(subject: _Subject, stores: Iterable[StoreOnDisk], key: bytes | None) -> Generator[Row]:
    for disk in stores:
        spec = subject.specs.get(disk.name)
        with subject.opened(disk) as found:
            kind = found.order.kind
            for entry in _entries(found, key):
                yield row_of(entry, kind=kind, spec=spec, partition=disk.partition)


def _exported(subject: _Subject, stores: Iterable[StoreOnDisk]) -> Generator[Row]:
    """All entries, of a store of versions with all that they were in its history."""
    for disk in stores:
        spec, partition = subject.specs.get(disk.name), disk.partition
        with subject.opened(disk) as found:
            kind = found.order.kind
            if isinstance(found.store, VersionsStore):
                for _, versions in found.store.history(found.store.oldest):
                    for entry in versions:
                        yield version_row(entry, spec=spec, partition=partition)
            else:
                for entry in found.store.all():
                    yield row_of(entry, kind=kind, spec=spec, partition=partition, strict=True)


def _entries(found: OpenStore, key: bytes | None) -> Iterator[tuple[bytes, bytes]]:
    if key is None:
        yield from found.store.all()
    elif isinstance(found.store, WindowStore):
        yield from found.store.fetch(key, 0, _TIME_MAX)
    else:
        [value] = found.store.get_many([key])
        if value is not None:
            yield key, value


def _about(subject: _Subject, stores: list[StoreOnDisk]) -> int:
    """How many entries these have, by what they think themselves."""
    total = 0
    for each in stores:
        with subject.opened(each) as found:
            total += found.store.approximate_num_entries()
    return total


def _show_store(bar: Bar, disk: StoreOnDisk, number: int, count: int, far: RestoreProgress) -> None:
    """Each store is a part of the bar, and its changelog fills that part."""
    whole = max(far.until - far.start, 1)
    share = 1 - min(far.remaining / whole, 1)
    bar.show(number + share, count, f"Comparing {disk.place}")


def _judged(place: str, judge: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What was found of a store; one that cannot be read does not hold up the others."""
    try:
        return _found(place) | judge()
    except (StoreDamagedError, StateDirectoryError, ChangelogError, CustomStoreError) as error:
        return _found(place) | {"problem": error.summary}


def _found(place: str) -> dict[str, Any]:
    words = {"only_in": "", "skipped": "", "problem": ""}
    return {"place": place, **words, "differences": {}, "keys": []}


def _verified(
    subject: _Subject,
    disk: StoreOnDisk,
    ends: ChangelogEnds,
    limit: int,
    on_progress: Callable[[RestoreProgress], None],
) -> dict[str, Any]:
    if unknown := _unknown(subject, disk):
        return {"skipped": unknown}
    with subject.opened(disk, ends=ends) as found:
        identity = found.identity
        if identity is None or identity.layout == LAYOUT or not identity.changelog_topic:
            is_global = identity is not None and identity.layout == LAYOUT
            return {"skipped": "a global table" if is_global else "it has no changelog"}
        since = ends.check(identity.changelog_topic, identity.changelog_topic_id)
        clients = LogClients(subject.config, disk.application_id)
        with tempfile.TemporaryDirectory(prefix="penstock-verify-") as scratch:
            place = Path(scratch) / disk.name
            result = verify(found, clients, place, on_progress, kept_since_ms=since)
        return {
            "changelog": identity.changelog_topic,
            "offset": found.store.offset(),
            "entries": result.entries,
            "unjudged": result.unjudged,
            "forgotten": result.forgotten,
            **_named(result.differences, limit),
        }


def _unknown(subject: _Subject, disk: StoreOnDisk) -> str:
    """Why a store cannot be looked into, if it cannot."""
    spec = subject.specs.get(disk.name)
    if disk.custom and (spec is None or not spec.supplier):
        return "the program brings it, and was not named"
    return ""


def _difference(
    subject: _Subject, ours: StoreOnDisk, theirs: StoreOnDisk, limit: int
) -> dict[str, Any]:
    if unknown := _unknown(subject, ours) or _unknown(subject, theirs):
        return {"skipped": unknown}
    with subject.opened(ours) as left, subject.opened(theirs) as right:
        since = history_start(left.store, right.store)
        found = compare(entries_of(left.store, since), entries_of(right.store, since))
        differences = tuple(found)
        return {
            "offsets": [left.store.offset(), right.store.offset()],
            **_named(differences, limit),
        }


def _named(differences: tuple[Difference, ...], limit: int) -> dict[str, Any]:
    return {
        "differences": dict(Counter(each.kind for each in differences)),
        "keys": [_named_key(each) for each in differences[:limit]],
    }


def _named_key(difference: Difference) -> dict[str, Any]:
    version = {} if difference.time is None else {"version": difference.time}
    return {"key": f"0x{difference.key.hex()}", "kind": difference.kind, **version}


def _verified_lines(facts: dict[str, Any]) -> Iterator[str]:
    place = facts["place"]
    if facts["skipped"] or facts["problem"]:
        yield _not_compared(facts)
        return
    upto = "nothing" if facts["offset"] is None else f"offset {facts['offset']}"
    what = f"{facts['entries']} entries, {facts['changelog']} up to {upto}"
    yield f"{place}: {_counts(facts['differences']) or 'the same'} ({what})"
    if facts["unjudged"]:
        yield f"  {facts['unjudged']} keys were written again since, and cannot be compared"
    if facts["forgotten"]:
        yield f"  {facts['forgotten']} keys are older than the changelog keeps records"
    yield from _key_lines(facts["keys"])


def _difference_lines(facts: dict[str, Any]) -> Iterator[str]:
    if facts["only_in"]:
        yield f"{facts['place']}: only in {facts['only_in']}"
        return
    if facts["skipped"] or facts["problem"]:
        yield _not_compared(facts)
        return
    left, right = facts["offsets"]
    offsets = f"offset {left}" if left == right else f"offsets {left} and {right}"
    yield f"{facts['place']}: {_counts(facts['differences']) or 'the same'} ({offsets})"
    yield from _key_lines(facts["keys"])


def _not_compared(facts: dict[str, Any]) -> str:
    if facts["problem"]:
        return f"{facts['place']}: {facts['problem']}"
    return f"{facts['place']}: not compared, {facts['skipped']}"


def _counts(differences: dict[str, int]) -> str:
    return ", ".join(f"{number} {kind}" for kind, number in sorted(differences.items()))


def _key_lines(keys: list[dict[str, Any]]) -> Iterator[str]:
    for each in keys:
        since = f" since {shown_time(each['version'])}" if "version" in each else ""
        yield f"  {each['kind']}: {shown(bytes.fromhex(each['key'][2:]))}{since}"


def _aligned(rows: list[Any]) -> list[str]:
    cells = [["-" if cell is None else str(cell) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    return [
        "  ".join(
            cell.rjust(width) if column else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in cells
    ]
