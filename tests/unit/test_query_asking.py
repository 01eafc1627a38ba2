"""Who is asked, in which order, and what becomes of the answers; instances are scripted."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import structs

import penstock as ps
from penstock.coordination.ids import TaskId
from penstock.driver.whereabouts import Whereabouts
from penstock.errors import (
    PageRefusedError,
    QuestionRefusedError,
    StoreUnavailableError,
    UnknownStoreError,
)
from penstock.instance import protocol
from penstock.instance.query_answers import findings
from penstock.instance.query_messages import (
    Found,
    HeldReply,
    HeldStore,
    StoreAnswer,
    StoreAnswers,
    StoreQuestion,
    StoreQuestions,
)
from penstock.instance.question_socket import QuestionSocket
from penstock.instance.server import Server
from penstock.processors.partitioner import partitions_of
from penstock.queries import asking, connections
from penstock.queries.asking import StoreQueries
from penstock.queries.catalogue import Catalogue
from penstock.queries.contract import Answer, Bound, Question, StoreSize
from penstock.queries.freshness import EndsSeen, Log
from penstock.queries.live import LiveQueries, Queryable
from penstock.queries.loop_lines import LoopLines
from penstock.queries.routing import Holders, candidates, refusal, role_of
from penstock.queries.stores import ReadOnlyStore
from penstock.serdes import serde_of
from penstock.stores.contract import stored_value, version_key
from penstock.stores.memory import MemoryStore
from penstock.stores.versioned import VersionsStore
from penstock.topology import Topology

TOKEN = "t"
PARTITIONS = 3
EPOCH = (1, 1)
STALE = Bound(stale=True)
OWNER = Bound()


def counted(**options: Any) -> Topology:
    app = ps.Application("asked", **options)
    app.stream("in", key=str, value=str).group_by_key().count("counts")
    return app.build()


@dataclass
class Instance:
    """An instance that says what its script says."""

    script: Callable[[StoreQuestion], StoreAnswer]
    directory: Path
    name: str
    asked: int = 0
    server: Server = field(init=False)
    socket: QuestionSocket = field(init=False)

    def __post_init__(self) -> None:
        place = self.directory / self.name
        place.mkdir()
        location = f"grpc+unix://{place}/instance.sock"
        actions = {"ask_many": self._ask_many, "held": self._held}
        self.server = Server(location, token=TOKEN, actions=actions)
        # As in an instance: beside the socket for all other calls.
        self.socket = QuestionSocket(
            place, token=TOKEN, answer=lambda body: protocol.encode(self._ask_many(body))
        )

    def close(self) -> None:
        self.socket.close()
        self.server.shutdown()

    def _ask_many(self, body: bytes) -> StoreAnswers:
        self.asked += 1
        asked = protocol.decode(body, StoreQuestions).questions
        return StoreAnswers(answers=[self.script(question) for question in asked])

    def _held(self, body: bytes) -> HeldReply:
        role = self.script(StoreQuestion(store="counts", task="0_0")).role
        return HeldReply(stores=[HeldStore(task="0_0", store="counts", role=role, next_offset=7)])


class World:
    """Instances with copies, and who is said to hold what."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.instances: dict[str, Instance] = {}
        self.held: dict[TaskId, Holders] = {}
        self.ends_seen = EndsSeen()
        self.token = TOKEN
        self.trust = None
        self.decides = True
        self.log_ends: dict[Log, int] = {}
        self.seen_at: float | None = None
        self.doubt = Whereabouts.doubt

    def add(self, name: str, script: Callable[[StoreQuestion], StoreAnswer]) -> Instance:
        self.instances[name] = Instance(script, self.directory, name)
        return self.instances[name]

    def own(self, owner: str, *followers: str, epoch: tuple[int, int] = EPOCH) -> None:
        for partition in range(PARTITIONS):
            self.held[TaskId(0, partition)] = Holders(owner=owner, epoch=epoch, followers=followers)

    def holders(self, task: TaskId) -> Holders:
        return self.held.get(task, Holders())

    def holders_since(self, task: TaskId, moment: float) -> Holders:
        return replace(self.holders(task), seen_at=self.seen_at)

    def present(self) -> list[str]:
        return sorted(self.instances)

    def location(self, instance: str) -> str | None:
        found = self.instances.get(instance)
        return None if found is None else str(found.server.location)

    def ends(self) -> Mapping[Log, int]:
        return self.log_ends

    def queries(self, topology: Topology | None = None) -> StoreQueries:
        topology = topology or counted()
        widths = {sub.name: PARTITIONS for sub in topology.sub_topologies}
        return StoreQueries(Catalogue.of(topology, "asked", widths), self)

    def close(self) -> None:
        for instance in self.instances.values():
            instance.close()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.close()


def long(number: int) -> bytes:
    return number.to_bytes(8, "big", signed=True)


def says(**facts: Any) -> Callable[[StoreQuestion], StoreAnswer]:
    """Every key has the value 1, as of what these facts say."""

    def script(question: StoreQuestion) -> StoreAnswer:
        value = stored_value(5, long(1))
        found: list[Found] = [(i, b"", value, None) for i in range(len(question.keys))]
        return StoreAnswer(found=found, **facts)

    return script


active = says(role="active", epoch=EPOCH, position=6)
standby = says(role="standby", position=4, next_offset=5, age_ms=9_000)


def get(queries: StoreQueries, key: str, bound: Bound = OWNER, seconds: float = 20) -> Answer:
    question, timeout = Question(kind="get", keys=(key,)), timedelta(seconds=seconds)
    return queries.ask("counts", question, bound=bound, timeout=timeout)


def fails(queries: StoreQueries, key: str, bound: Bound = OWNER) -> str:
    """Why nobody answers, when each was asked once, however long that takes."""
    question, timeout = Question(kind="get", keys=(key,)), timedelta(seconds=20)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asking, "_PAUSE_SECONDS", timeout.total_seconds())
        with pytest.raises(StoreUnavailableError) as error:
            queries.ask("counts", question, bound=bound, timeout=timeout)
    return str(error.value)


def test_the_owner_is_asked_and_nobody_else(world: World) -> None:
    world.add("a", active)
    other = world.add("b", standby)
    world.own("a", "b")
    answer = get(world.queries(), "x")
    [source] = answer.sources
    assert (source.role, source.position, source.age) == ("active", 6, timedelta())
    assert [(row.key, row.value, row.timestamp) for row in answer.rows] == [("x", 1, 5)]
    assert other.asked == 0


def test_a_standby_answers_for_an_owner_that_is_gone_if_it_may(world: World) -> None:
    world.add("b", standby)
    world.own("a", "b")
    queries = world.queries()
    [source] = get(queries, "x", bound=STALE).sources
    assert (source.role, source.position, source.age) == ("standby", 4, timedelta(seconds=9))
    assert "stale=True" in fails(queries, "x")


def test_an_owner_that_hangs_leaves_time_for_a_standby_and_is_asked_last_then(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_SILENT_SECONDS", 60.0)
    over = threading.Event()

    def hang(question: StoreQuestion) -> StoreAnswer:
        over.wait(20)
        return active(question)

    owner = world.add("a", hang)
    world.add("b", standby)
    world.own("a", "b")
    queries = world.queries()
    try:
        assert get(queries, "x", STALE, seconds=4).sources[0].role == "standby"
        assert owner.asked == 1
        assert get(queries, "x", STALE).sources[0].role == "standby"
        assert owner.asked == 1
    finally:
        over.set()


def test_one_that_lost_its_task_is_not_taken_for_the_active_one(world: World) -> None:
    world.add("a", active)
    world.own("a", epoch=(2, 1))
    queries = world.queries()
    assert "not the active one" in fails(queries, "x")
    # It takes itself for up to date: what it says of its age is worth nothing.
    assert "how old" in fails(queries, "x", STALE)
    seen = {("asked-counts-changelog", partition): 7 for partition in range(PARTITIONS)}
    world.ends_seen.note(time.monotonic() - 60, seen)
    # It is no owner's word: it holds up to 6, and the changelog ended at 7 a minute ago.
    world.add("b", says(role="active", epoch=EPOCH, position=6, next_offset=7))
    [source] = get(queries, "x", STALE).sources
    assert source.role == "standby"
    assert source.age > timedelta(seconds=59)


def test_a_driver_that_kafka_does_not_answer_says_of_nobody_that_it_is_active(world: World) -> None:
    world.add("a", active)
    world.own("a")
    queries = world.queries()
    world.seen_at = time.monotonic() - 9
    assert "another driver may have taken over" in fails(queries, "x")
    [source] = get(queries, "x", STALE).sources
    assert source.role == "standby"
    assert source.age > timedelta(seconds=8)


def test_a_driver_knows_who_is_active_for_as_long_as_nobody_can_have_taken_over() -> None:
    task, now = TaskId(0, 0), time.monotonic()
    lease = SimpleNamespace(holds=lambda: True, renewed=now - 9)
    parts: Any = SimpleNamespace(lease=lease, coordinator=None)
    owners: Any = SimpleNamespace(holders={task: Holders(owner="a", epoch=EPOCH)})
    places = Whereabouts(parts, owners, EndsSeen())
    assert places.holders_since(task, now).are_of(now)
    assert places.may_tell()
    lease.holds = lambda: False
    assert not places.holders_since(task, now).are_of(now)
    assert places.holders_since(task, now).are_of(now - 9)
    assert not places.may_tell()


def test_a_task_that_moves_is_asked_where_it_went(world: World) -> None:
    def gone(question: StoreQuestion) -> StoreAnswer:
        world.own("b")
        return StoreAnswer(reason="given up")

    world.add("a", gone)
    world.add("b", active)
    world.own("a")
    assert get(world.queries(), "x").sources[0].instance == "b"


def test_how_old_an_answer_is_is_known_by_where_the_changelog_ended(world: World) -> None:
    world.add("b", standby)
    world.own("", "b")
    queries = world.queries()
    [partition] = partitions_of(ps_keys("x"), PARTITIONS).tolist()
    log = ("asked-counts-changelog", partition)
    world.ends_seen.note(time.monotonic(), {log: 5})
    assert get(queries, "x", bound=STALE).sources[0].age < timedelta(seconds=9)
    assert get(queries, "x", bound=Bound(max_lag=0)).sources
    world.ends_seen.note(time.monotonic(), {log: 8})
    assert get(queries, "x", bound=Bound(max_lag=3)).sources
    assert "lacks 3" in fails(queries, "x", Bound(max_lag=2))
    assert get(queries, "x", bound=Bound(position={partition: 4})).sources
    assert "not to 5" in fails(queries, "x", Bound(position={partition: 5}))


def ps_keys(*keys: str) -> Any:
    import pyarrow as pa

    return pa.array([key.encode() for key in keys], pa.binary())


# Rows and pages, over stores that are real.


@pytest.fixture
def stocked(world: World) -> World:
    """Forty keys in three partitions, all on one instance."""
    stores = [MemoryStore("counts") for _ in range(PARTITIONS)]
    keys = [f"k{i:02}" for i in range(40)]
    for key, partition in zip(keys, partitions_of(ps_keys(*keys), PARTITIONS), strict=True):
        entry = (key.encode(), stored_value(5, long(int(key[1:]))))
        stores[partition].apply([entry], offset=9)

    def script(question: StoreQuestion) -> StoreAnswer:
        store = stores[TaskId.parse(question.task).partition]
        found = findings(store, question)
        return StoreAnswer(
            role="active",
            epoch=EPOCH,
            position=9,
            found=found.found,
            after=found.after,
            count=found.count,
        )

    world.add("a", script)
    world.own("a")
    return world


@pytest.mark.parametrize("limit", [1, 7, 40, 1000])
@pytest.mark.parametrize("reverse", [False, True])
def test_pages_go_through_all_partitions(stocked: World, limit: int, reverse: bool) -> None:
    queries = stocked.queries()
    question = Question(kind="all", limit=limit, reverse=reverse)
    found: list[str] = []
    partitions: list[int] = []
    while True:
        answer = queries.ask("counts", question)
        assert len(answer.rows) <= limit
        found += [row.key for row in answer.rows]
        partitions += [source.partition for source in answer.sources]
        if answer.next_page is None:
            break
        question = replace(question, page=answer.next_page)
    assert sorted(found) == [f"k{i:02}" for i in range(40)]
    assert partitions == sorted(partitions, reverse=reverse)
    assert set(partitions) == set(range(PARTITIONS))
    whole = queries.ask("counts", Question(kind="all", limit=1000, reverse=reverse))
    assert [row.key for row in whole.rows] == found


def test_one_partition_alone_can_be_asked(stocked: World) -> None:
    queries = stocked.queries()
    answer = queries.ask("counts", Question(kind="all", partition=1))
    assert [source.partition for source in answer.sources] == [1]
    assert 0 < len(answer.rows) < 40


def test_keys_that_are_looked_up_have_rows_in_their_order(
    stocked: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries = stocked.queries()
    keys = tuple(f"k{i:02}" for i in reversed(range(45)))
    expected = [None] * 5 + list(range(39, -1, -1))
    answer = queries.ask("counts", Question(kind="get", keys=keys))
    assert [row.value for row in answer.rows] == expected
    assert answer.next_page is None
    assert ReadOnlyStore[str, int](queries, "counts").get_many(keys) == expected
    # Too much for one answer: the first of them, and the others by pages.
    monkeypatch.setattr(asking, "ANSWER_BYTES", 5 * 16)
    question, rows = Question(kind="get", keys=keys), []
    while True:
        answer = queries.ask("counts", question)
        rows += answer.rows
        if answer.next_page is None:
            break
        question = replace(question, page=answer.next_page)
    assert [row.value for row in rows] == expected
    assert ReadOnlyStore[str, int](queries, "counts").get_many(keys) == expected


def test_an_instance_is_asked_once_for_all_its_partitions(stocked: World) -> None:
    keys = tuple(f"k{i:02}" for i in range(40))
    answer = stocked.queries().ask("counts", Question(kind="get", keys=keys))
    assert [row.value for row in answer.rows] == list(range(40))
    assert {source.partition for source in answer.sources} == set(range(PARTITIONS))
    assert stocked.instances["a"].asked == 1


def test_several_instances_are_asked_beside_each_other(world: World) -> None:
    together = threading.Barrier(PARTITIONS, timeout=60)

    def script(question: StoreQuestion) -> StoreAnswer:
        together.wait()
        return active(question)

    for partition in range(PARTITIONS):
        name = f"i-{partition}"
        world.add(name, script)
        world.held[TaskId(0, partition)] = Holders(owner=name, epoch=EPOCH)
    keys = tuple(f"k{i:02}" for i in range(40))
    question, timeout = Question(kind="get", keys=keys), timedelta(seconds=60)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asking, "_TRY_SECONDS_MAX", 60.0)
        answer = world.queries().ask("counts", question, timeout=timeout)
    assert [row.value for row in answer.rows] == [1] * 40
    assert {source.instance for source in answer.sources} == set(world.instances)


def test_a_partition_that_its_instance_has_not_is_asked_for_by_itself(world: World) -> None:
    moved = TaskId(0, 1)

    def old(question: StoreQuestion) -> StoreAnswer:
        if question.task == str(moved):
            world.held[moved] = Holders(owner="b", epoch=EPOCH)
            return StoreAnswer(reason="given up")
        return active(question)

    world.add("a", old)
    world.add("b", active)
    world.own("a")
    keys = tuple(f"k{i:02}" for i in range(40))
    answer = world.queries().ask("counts", Question(kind="get", keys=keys))
    assert [row.value for row in answer.rows] == [1] * 40
    by = {source.partition: source.instance for source in answer.sources}
    assert by == {0: "a", 1: "b", 2: "a"}


def test_a_page_of_another_question_is_refused(stocked: World) -> None:
    queries = stocked.queries()
    page = queries.ask("counts", Question(kind="all", limit=5)).next_page
    assert page is not None
    wrong = [
        Question(kind="all", reverse=True, page=page),
        Question(kind="range", lower="k1", page=page),
        Question(kind="all", page=page[:-4] + "AAAA"),
        Question(kind="all", page="no page"),
        Question(kind="all", page="ä"),
        Question(kind="all", page=""),
    ]
    for question in wrong:
        with pytest.raises(PageRefusedError):
            queries.ask("counts", question)


@pytest.mark.parametrize(
    "question",
    [
        Question(kind="fetch", keys=("a",)),
        Question(kind="as_of", keys=("a",), as_of=1),
        Question(kind="prefix"),
        Question(kind="all", limit=0),
        Question(kind="all", limit=10_001),
        Question(kind="all", partition=PARTITIONS),
        Question(kind="get", keys=(None,)),
        Question(kind="get", keys=(7,)),
        Question(kind="get", keys=("a",) * 10_001),
        Question(kind="nothing"),  # type: ignore[arg-type]
    ],
)
def test_what_a_store_does_not_answer_is_refused(world: World, question: Question) -> None:
    with pytest.raises(QuestionRefusedError):
        world.queries().ask("counts", question)


def test_the_partitioner_of_the_input_finds_keys(world: World) -> None:
    app = ps.Application("asked")
    app.stream("in", key=str, value=str).to(
        "sorted", partitioner=lambda key, value, count: int(key) % count
    )
    app.stream("sorted", key=str, value=str).group_by_key().count("counts")
    queries = world.queries(app.build())
    assert [queries.key_metadata("counts", str(i)).partition for i in range(4)] == [0, 1, 2, 0]
    with pytest.raises(QuestionRefusedError, match="does not say where"):
        queries.key_metadata("counts", "x")


@pytest.mark.parametrize("said", [True, False])
def test_rows_of_a_foreign_key_join_are_found_where_its_left_table_is(
    world: World, said: bool
) -> None:
    def by_number(key: str, _value: object, count: int) -> int:
        return int(key) % count

    app = ps.Application("asked")
    left = app.stream("in", key=str, value=str).repartition(name="re", partitioner=by_number)
    right = app.table("people", key=str, value=str, name="people")
    left.to_table("orders").join(
        right,
        lambda order, person: order + person,
        "joined",
        foreign_key=str,
        value=str,
        partitioner=by_number if said else None,
    )
    queries = world.queries(app.build())
    assert [queries.key_metadata("joined", str(i)).partition for i in range(4)] == [0, 1, 2, 0]


def test_a_keys_versions_are_rows_of_that_key_with_their_ends(world: World) -> None:
    app = ps.Application("asked")
    kept = ps.versioned_store("prices", key=str, value=int, history_retention=timedelta(hours=1))
    app.table("in", kept, key=str, value=int)
    store = VersionsStore(MemoryStore("prices"), retention_ms=3_600_000, segment_ms=60_000)
    serde = serde_of(int)
    changes = [(version_key(b"tea", t), stored_value(t, serde.serialize(t * 2))) for t in (1, 5, 9)]
    store.apply(changes, offset=0)

    def script(question: StoreQuestion) -> StoreAnswer:
        found = findings(store, question)
        return StoreAnswer(role="active", epoch=EPOCH, found=found.found, after=found.after)

    world.add("a", script)
    world.own("a")
    prices = ReadOnlyStore[str, int](world.queries(app.build()), "prices")
    last = ps.VersionedRecord(18, 9, None)
    assert list(prices.versions("tea")) == [
        ps.VersionedRecord(2, 1, 5),
        ps.VersionedRecord(10, 5, 9),
        last,
    ]
    assert list(prices.versions("tea", 9, reverse=True)) == [last]
    [row] = prices.fetch("tea", 0, 1)
    assert (row.key, row.value, row.start, row.end) == ("tea", 2, 1, 5)
    assert list(prices.versions("none")) == []


def test_metadata_and_lags_tell_who_has_what(world: World) -> None:
    world.add("a", active)
    world.add("b", standby)
    world.own("a", "b", "c")
    queries = world.queries()
    where = queries.key_metadata("counts", "x")
    assert (where.active, where.standbys) == ("a", ("b",))
    world.log_ends = {("asked-counts-changelog", 0): 9}
    assert [(lag.instance, lag.role, lag.lag) for lag in queries.lags()] == [
        ("a", "active", 0),
        ("b", "standby", 2),
    ]


def test_what_joins_keep_for_themselves_is_no_store_to_be_asked(world: World) -> None:
    app = ps.Application("asked")
    stream = app.stream("in", key=str, value=str)
    windowed = stream.group_by_key().windowed_by(
        ps.tumbling(timedelta(minutes=1), grace=timedelta())
    )
    windowed.count("counts").suppress(ps.until_window_closes()).to_stream().to("out")
    queries = world.queries(app.build())
    assert [(each.name, each.kind, each.partitions) for each in queries.stores()] == [
        ("counts", "window", PARTITIONS)
    ]
    # A picture that has it says how large it is.
    world.add("a", says(role="active", epoch=EPOCH, count=3, size=50))
    world.own("a")
    [inner] = set(queries.sized_stores()) - {"counts"}
    assert queries.size(inner) == StoreSize(entries=3 * PARTITIONS, bytes=50 * PARTITIONS)
    with pytest.raises(UnknownStoreError):
        queries.approximate_count(inner)


def test_an_application_that_opens_is_waited_for(stocked: World) -> None:
    live = LiveQueries(state=lambda: ps.ApplicationState.REBALANCING)
    opening = threading.Timer(0.05, live.open, [stocked.queries()])
    opening.start()
    answer = live.ask("counts", Question(kind="get", keys=("k07",)))
    assert [row.value for row in answer.rows] == [7]
    live.close()
    with pytest.raises(StoreUnavailableError):
        live.ask("counts", Question(kind="get", keys=("k07",)), timeout=timedelta())
    with pytest.raises(StoreUnavailableError, match="rebalancing"):
        ReadOnlyStore[str, int](live, "counts").approximate_count(timeout=timedelta())


class Clinic(Queryable):
    """An application in a state, with the instances of a world."""

    def __init__(self, state: ps.ApplicationState, world: World) -> None:
        self.state = state
        self.queries = LiveQueries(state=lambda: state)
        self.queries.open(world.queries())


def test_a_host_is_alive_exactly_while_the_application_is_running(stocked: World) -> None:
    [host, *_] = stocked.queries().present()
    alive = {state for state in ps.ApplicationState if Clinic(state, stocked).is_alive(host)}
    assert alive == {ps.ApplicationState.RUNNING}
    running = Clinic(ps.ApplicationState.RUNNING, stocked)
    assert not running.is_alive("nobody")
    running.queries.close()
    assert not running.is_alive(host)


def test_a_count_is_given_up_at_its_deadline(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[timedelta] = []

    def over(timeout: timedelta) -> float:
        given.append(timeout)
        return 0.0

    monkeypatch.setattr(asking, "_deadline", over)
    with pytest.raises(StoreUnavailableError):
        world.queries().approximate_count("counts", timeout=timedelta(minutes=1))
    assert given == [timedelta(minutes=1)]


def test_decisions_about_who_answers() -> None:
    holders = Holders(owner="a", epoch=EPOCH, followers=("b",))
    told = StoreAnswer(role="active", epoch=EPOCH, position=3)
    assert role_of(told, "a", holders) == "active"
    assert role_of(told, "b", holders) == "standby"
    assert candidates(holders, Bound(), ["b"]) == []
    assert candidates(holders, Bound(max_lag=0), ["b", "c"]) == ["b", "c"]
    unknown = StoreAnswer(role="standby")
    assert "not known" in refusal(unknown, "standby", Bound(max_lag=9), partition=0, end=None)
    assert refusal(structs.replace(unknown, reason="no"), "standby", STALE, partition=0, end=0)


def in_loop(queries: StoreQueries, *keys: str) -> Answer | None:
    """What an event loop is told that asks by itself."""
    prepared = queries.prepare("counts", Question(kind="get", keys=keys))
    assert prepared is not None
    return asyncio.run(LoopLines(4).answer(prepared, timedelta(seconds=20)))


def test_an_event_loop_is_told_what_a_thread_is_told(world: World) -> None:
    world.add("a", active)
    world.add("b", active)
    world.own("a")
    world.held[TaskId(0, 1)] = Holders(owner="b", epoch=EPOCH)
    queries, keys = world.queries(), [f"key-{n}" for n in range(30)]
    told = in_loop(queries, *keys)
    assert told == queries.ask("counts", Question(kind="get", keys=tuple(keys)))
    assert {source.instance for source in told.sources} == {"a", "b"}


def test_an_event_loop_is_told_nothing_by_one_that_lost_its_task(world: World) -> None:
    world.add("a", active)
    world.own("a", epoch=(1, 2))
    assert in_loop(world.queries(), "x") is None


def test_an_event_loop_does_not_ask_where_it_would_have_to_wait(world: World) -> None:
    question = Question(kind="get", keys=("x",))
    queries = world.queries()
    assert queries.prepare("counts", question) is None  # Nobody holds it.
    world.add("a", active)
    world.own("a")
    assert queries.prepare("counts", question) is not None
    assert queries.prepare("counts", Question(kind="all")) is None
    world.decides = False
    assert queries.prepare("counts", question) is None
    world.decides = True
    (world.directory / "a" / "questions.sock").unlink()
    assert world.queries().prepare("counts", question) is None
