"""Cases from seeds: a topology as data, and the records that go through it.

A seed stands for one ordered pair of stateful operators, so that any run of 256 seeds has each pair
once; what is around the pair, and every parameter, is drawn.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from tests.conformance.functions import (
    FLAT_PAIRS,
    FLAT_VALUES,
    FOREIGN_KEYS,
    PREDICATES,
    VALUES,
)

Step = dict[str, Any]
Record = tuple[str, str | None, str | None, int]  # topic, key, value, timestamp

STEPS_MAX = 4
RECORDS_MIN = 50
CACHE_BYTES = 10_485_760
LONG_MAX = 2**63 - 1
UNMARKED_EACH = 4  # Oracle.java has the same number.

# What counts as a stateful operator; the matrix of pairs is made of these.
STATEFUL = (
    "count",
    "reduce",
    "aggregate",
    "tumbling",
    "hopping",
    "sliding",
    "session",
    "cogroup",
    "to_table",
    "table_group",
    "suppress",
    "stream_join",
    "table_lookup",
    "global_lookup",
    "table_join",
    "foreign_join",
)
NEEDS_TABLE = {"table_group", "suppress", "table_join", "foreign_join"}
GIVES_STREAM = {"stream_join", "table_lookup", "global_lookup"}
WINDOWED = {"tumbling", "hopping", "sliding", "session"}
# Tables of these can be joined with others of the same windows.
_MEETING = ["tumbling", "hopping", "session"]

# Letters of values are keys too, so that re-keyed records and foreign keys meet.
_KEYS = ("a", "b", "c", "d", "e", "é", "日本", "𝄞", "", "ключ")
_LETTERS = "aabbccddeé𝄞1x"


@dataclass(frozen=True)
class Case:
    """A topology as data, with its records; `operators` are its stateful steps in order.

    If it is `marked`, most records have a header with their number, so that a result's headers say
    which record it has them from.

    What it `handles`, of deserialization and processing, it continues after. A record without a
    topic lets the wall clock go on by its timestamp.

    If it is in `memory`, so are all stores of the DSL.
    """

    seed: int
    cache: int
    steps: tuple[Step, ...]
    records: tuple[Record, ...]
    operators: tuple[str, ...] = ()
    marked: bool = False
    handles: tuple[str, ...] = ()
    memory: bool = False

    def as_json(self) -> dict[str, Any]:
        """What the oracle reads."""
        return {
            "seed": self.seed,
            "cache": self.cache,
            "steps": list(self.steps),
            "records": [list(record) for record in self.records],
            "operators": list(self.operators),
            **({"marked": True} if self.marked else {}),
            **({"handles": list(self.handles)} if self.handles else {}),
            **({"memory": True} if self.memory else {}),
        }

    @staticmethod
    def from_json(data: dict[str, Any]) -> Case:
        """The case that `as_json` wrote."""
        return Case(
            seed=data["seed"],
            cache=data["cache"],
            steps=tuple(data["steps"]),
            records=tuple((topic, key, value, time) for topic, key, value, time in data["records"]),
            operators=tuple(data["operators"]),
            marked=data.get("marked", False),
            handles=tuple(data.get("handles", ())),
            memory=data.get("memory", False),
        )

    def headers(self, number: int) -> tuple[tuple[str, bytes], ...]:
        """The headers of a record, by its place."""
        has_some = self.marked and number % UNMARKED_EACH != 0
        return (("number", str(number).encode()),) if has_some else ()

    @property
    def pairs(self) -> set[tuple[str, str]]:
        """Which stateful operators stand above which."""
        return set(itertools.combinations(self.operators, 2))

    @property
    def unordered(self) -> bool:
        """Whether a record may change windows in any order (sliding windows, as they change)."""
        windows = [step["window"] for step in self.steps if "window" in step]
        return any(
            window.get("kind") == "sliding" and window.get("emit") != "close" for window in windows
        )


def make_case(seed: int, *, knotted: bool = True) -> Case:
    """The case of a seed; the same one every time.

    One that is not `knotted` uses what a step gives once, and joins it with nothing of its own.
    """
    chance = random.Random(seed)
    size = len(STATEFUL)
    pair = (STATEFUL[seed % size], STATEFUL[seed // size % size])
    # What is drawn of versions leaves all else as it was.
    versions = random.Random(f"versions {seed}")
    # And so does what was added later: functions that are given the key, and unlimited windows.
    later = random.Random(f"later {seed}")
    # And headers, and sliding windows of cogroups, which came after those.
    newer = random.Random(f"newer {seed}")
    # And steps that are used twice, joined with themselves or merged, and windows that meet.
    knots = random.Random(f"knots {seed}") if knotted else None
    cache = chance.choice([0, 0, CACHE_BYTES])
    draft = Draft(chance, versions, later, newer, knots, cache=cache)
    draft.build(draft.tied(_plan(chance, pair)))
    return Case(
        seed=seed,
        # Kafka Streams joins rows that a cache holds back, and Penstock does not: differences.md.
        cache=0 if joins_its_own(draft.steps) else draft.cache,
        steps=tuple(draft.steps),
        records=tuple(records_of(chance, draft)),
        operators=tuple(draft.operators),
        marked=newer.random() < 0.5,
    )


def matrix(cases: Iterable[Case]) -> Counter[tuple[str, str]]:
    """How many cases have each pair of stateful operators, one above the other."""
    cells = Counter(dict.fromkeys(itertools.product(STATEFUL, STATEFUL), 0))
    for case in cases:
        cells.update(case.pairs)
    return cells


def joins_its_own(steps: list[Step]) -> bool:
    """Whether one record can change both sides of a join of tables that has no cached store."""
    origins: dict[str, set[str]] = {}
    for step in steps:
        above = step.get("from", [])
        sides = [*([above] if isinstance(above, str) else above), *filter(None, [step.get("with")])]
        topics = {*step.get("topics", []), *filter(None, [step.get("topic")])}
        found = topics.union(*(origins[side] for side in sides))
        for name in step.get("ids", [step["id"]]):
            origins[name] = found
        has_cache = "store" in step and step.get("caching", True) and "versioned" not in step
        is_bare = step["op"] == "join" and "window" not in step and not has_cache
        if is_bare and origins[sides[0]] & origins[sides[1]]:
            return True
    return False


def _plan(chance: random.Random, pair: tuple[str, str]) -> list[str]:
    """Which stateful operators follow each other: the pair, or one, or some more around it."""
    if chance.random() < 0.08:
        return [chance.choice(pair)]
    plan = list(pair)
    for _ in range(chance.choice([0, 0, 1, 1, 2])):
        plan.insert(chance.randint(0, len(plan)), chance.choice(STATEFUL))
    if plan[0] == "suppress" and chance.random() < 0.5:
        # Behind windows it can wait for their close.
        plan.insert(0, chance.choice(sorted(WINDOWED)))
    while _steps_at_most(plan) > STEPS_MAX and len(plan) > 2:
        # The pair stays; what was drawn in addition goes.
        plan.remove(chance.choice([each for each in plan if plan.count(each) > pair.count(each)]))
    return _completed(plan)


def _steps_at_most(plan: list[str]) -> int:
    """How many stateful steps a plan can become: windowed keys may need another table."""
    completed = _completed(plan)
    keeps_windows = {*WINDOWED, "cogroup", "suppress", "to_table"}
    return len(completed) + sum(
        lower in {"table_join", "foreign_join"} and upper in keeps_windows
        for upper, lower in itertools.pairwise(completed)
    )


def _completed(plan: list[str]) -> list[str]:
    """The plan with a table made where an operator needs one and a stream comes in."""
    completed: list[str] = []
    for operator in plan:
        if operator in NEEDS_TABLE and completed and completed[-1] in GIVES_STREAM:
            completed.append("to_table")
        completed.append(operator)
    return completed


@dataclass(frozen=True)
class Flow:
    """What a step gives, as far as later choices depend on it."""

    step: str
    table: bool = False
    key: str = "text"  # text, time, session
    longs: bool = False
    rekeyed: bool = False
    window: Step | None = None  # of keys whose windows can be waited for
    paired: bool = False  # whether it may be joined with a table of the same windows
    versioned: str | None = None  # the step that keeps versions, of a versioned table


@dataclass
class Draft:
    """The steps so far."""

    chance: random.Random
    versions: random.Random
    later: random.Random
    newer: random.Random
    knots: random.Random | None
    cache: int = 0
    steps: list[Step] = field(default_factory=list)
    operators: list[str] = field(default_factory=list)
    topics: dict[str, str] = field(default_factory=dict)  # topic: stream, table or global
    stores: int = 0
    taps: int = 0
    coming: str | None = None
    ties: bool = False

    def __post_init__(self) -> None:
        # Sizes that stay within one segment of a store, and sizes that do not.
        self.scale = self.chance.choice([1, 1, 1000, 30_000])

    def build(self, plan: list[str]) -> None:
        flow = self.source(table=plan[0] in NEEDS_TABLE)
        for number, operator in enumerate(plan):
            self.coming = plan[number + 1] if number + 1 < len(plan) else None
            flow = self.stateless(flow) if self.chance.random() < 0.5 else flow
            self.aside(flow)
            above, flow = flow, getattr(self, operator)(self.shaped(operator, flow))
            # What the step made its table do, later steps find done.
            self.aside(above)
            self.operators.append(operator)
            if self.chance.random() < 0.25 and self.coming is not None:
                self.taps += 1
                self.end(flow, f"tap{self.taps}")
        flow = self.stateless(flow) if self.chance.random() < 0.3 else flow
        self.end(flow, "out")

    def tied(self, plan: list[str]) -> list[str]:
        """The plan; some windows that meet, or were a stream meanwhile, are waited for."""
        if "suppress" not in plan or not self.knot(0.5):
            return plan
        place = plan.index("suppress")
        above, below = plan[:place], plan[place:]
        if not above or above[-1] not in _MEETING:
            above.append(self.one_of(_MEETING))
        above.append(self.one_of(["to_table", "table_join", "table_join"]))
        if len(above) + _steps_at_most(below) > STEPS_MAX:
            return plan
        self.ties = True
        return above + below

    @property
    def is_tied(self) -> bool:
        """Whether what comes next is to have windows that are waited for later."""
        return self.ties and self.coming in ("to_table", "table_join")

    def aside(self, flow: Flow) -> None:
        """Sometimes, another step behind a table, which goes its own way."""
        if not flow.table or not self.knot(0.12):
            return
        word = self.one_of(["even_end", "short_key", "has_b_or_none"])
        step = self.add(self.one_of(["filter", "filter_not"]), flow, f=word)
        if self.knot(0.3):
            step = self.add("map_values", replace(flow, step=step), f="text")
            flow = replace(flow, longs=False)
        self.taps += 1
        self.end(replace(flow, step=step), f"tap{self.taps}")

    def knot(self, share: float) -> bool:
        """Whether to do here what ties a topology together, in that share of the places."""
        return self.knots is not None and self.knots.random() < share

    def still(self, flow: Flow) -> Step | None:
        """The windows of keys that went through a join, a suppress, or a stream."""
        return None if self.knots is None else flow.window

    def one_of(self, choices: list[Any]) -> Any:
        """One of the choices, where there is a knot."""
        assert self.knots is not None
        return self.knots.choice(choices)

    # Parts of steps

    def add(self, op: str, flow: Flow | None = None, **parameters: Any) -> str:
        step = f"s{len(self.steps)}"
        origin = {} if flow is None else {"from": flow.step}
        given = {name: value for name, value in parameters.items() if value is not None}
        self.steps.append({"id": step, "op": op, **origin, **given})
        return step

    def store(self) -> dict[str, Any]:
        self.stores += 1
        caching = {} if self.chance.random() < 0.8 else {"caching": False}
        return {"store": f"store{self.stores}", **caching}

    def kept(self, *, may: bool = True, often: bool = False) -> dict[str, Any]:
        """A store, which may be a versioned one if its keys are texts."""
        return {**self.store(), **(self.history(often=often) if may else {})}

    def loose(self, kept: dict[str, Any]) -> dict[str, Any]:
        """The options of a store that is there only if another step needs it, in some places."""
        if not self.knot(0.25):
            return kept
        return {name: value for name, value in kept.items() if name == "caching"}

    def history(self, *, often: bool = False) -> dict[str, int]:
        """How long a store keeps versions, if it does."""
        if self.versions.random() > (0.6 if often else 0.3):
            return {}
        return {"versioned": self.versions.choice([5, 20, 60, 200, 10_000]) * self.scale}

    def flow(self, step: str, **known: Any) -> Flow:
        """The table that a step gives."""
        [made] = [each for each in self.steps if each["id"] == step]
        versioned = step if "versioned" in made else None
        return Flow(step, table=True, versioned=versioned, **known)

    def name(self, kind: str) -> str:
        return f"{kind}{len(self.steps)}"

    def sometimes_name(self, kind: str) -> str | None:
        return self.name(kind) if self.chance.random() < 0.5 else None

    def time(self, low: int, high: int) -> int:
        return self.chance.randint(low, high) * self.scale

    def topic(self, kind: str) -> str:
        topic = f"in{len(self.topics)}"
        self.topics[topic] = kind
        return topic

    def source(self, *, table: bool = False, often: bool = False) -> Flow:
        if table:
            kept = self.loose(self.kept(often=often))
            return self.flow(self.add("table", topic=self.topic("table"), **kept))
        count = 2 if self.chance.random() < 0.1 else 1
        return Flow(self.add("stream", topics=[self.topic("stream") for _ in range(count)]))

    def end(self, flow: Flow, topic: str) -> None:
        self.add("to", self.stream(flow), topic=topic)

    # From one shape to another

    def shaped(self, operator: str, flow: Flow) -> Flow:
        if operator not in NEEDS_TABLE:
            return self.stream(flow)
        assert flow.table
        return flow

    def stream(self, flow: Flow) -> Flow:
        if not flow.table:
            return flow
        step = self.add("to_stream", flow)
        return replace(flow, step=step, table=False, window=self.still(flow), versioned=None)

    def texts(self, flow: Flow) -> Flow:
        if not flow.longs:
            return flow
        return replace(flow, step=self.add("map_values", flow, f="text"), longs=False)

    def text_key(self, flow: Flow) -> Flow:
        """A stream whose keys are texts."""
        if flow.key == "text":
            return flow
        word = self.chance.choice(["inner", "inner", "same"])
        step = self.add("select_key", flow, f=word)
        return replace(flow, step=step, key="text", rekeyed=True, window=None)

    def text_table(self, flow: Flow) -> Flow:
        """A table whose keys are texts."""
        if flow.key == "text":
            return flow
        self.operators.append("to_table")
        return self.to_table(self.text_key(self.stream(flow)))

    def grouped(self, flow: Flow, *, named: bool = False) -> Flow:
        name = self.name("group") if named else self.sometimes_name("group")
        if flow.key != "text":
            word = self.chance.choice(["inner", "inner", "same"])
            step = self.add("group_by", flow, f=word, name=name)
            return replace(flow, step=step, key="text", window=None)
        if self.chance.random() < 0.6:
            step = self.add("group_by_key", flow, name=name)
        else:
            words = ["same", "first_of_value", "first_of_value", "length_of_value", "none_if_x"]
            step = self.add("group_by", flow, f=self.chance.choice(words), name=name)
        return replace(flow, step=step, rekeyed=False)

    # Stateless steps

    def stateless(self, flow: Flow) -> Flow:
        if flow.table:
            kinds = [self.filtered, self.mapped_values]
        else:
            kinds = [self.filtered, self.mapped_values, self.flat_values, self.moved, self.merged]
            kinds += [self.branched, self.repartitioned]
        return self.chance.choice(kinds)(flow)

    def filtered(self, flow: Flow) -> Flow:
        op = self.chance.choice(["filter", "filter_not"])
        words = [word for word in PREDICATES if word not in ("has_value", "has_key")]
        words += ["has_value"] if op == "filter" else []
        if flow.longs:
            words = ["even_end", "short_key", "has_b_or_none"]
        word = self.chance.choice(words)
        return self.row_by_row(flow, op, word)

    def mapped_values(self, flow: Flow) -> Flow:
        word = self.chance.choice(list(VALUES))
        if flow.table and self.knot(0.4):
            # "bracket" makes something of a row that is not there.
            word = self.one_of(["bracket", word])
            return replace(self.row_by_row(flow, "transform_values", word), longs=False)
        return replace(self.row_by_row(flow, "map_values", word, **self.keyed()), longs=False)

    def keyed(self) -> dict[str, bool]:
        """Whether a function is given the key, too."""
        return {"with_key": True} if self.later.random() < 0.3 else {}

    def row_by_row(self, flow: Flow, op: str, word: str, **options: bool) -> Flow:
        if not flow.table or flow.key != "text" or self.versions.random() < 0.7:
            return replace(flow, step=self.add(op, flow, f=word, **options))
        self.stores += 1
        kept = {"store": f"store{self.stores}", **self.history()}
        step = self.add(op, flow, f=word, **kept, **options)
        return replace(flow, step=step, versioned=self.flow(step).versioned)

    def flat_values(self, flow: Flow) -> Flow:
        word = self.chance.choice(list(FLAT_VALUES))
        step = self.add("flat_map_values", flow, f=word, **self.keyed())
        return replace(flow, step=step, longs=False)

    def moved(self, flow: Flow) -> Flow:
        op = self.chance.choice(["select_key", "map", "flat_map"])
        words = {
            "select_key": ["same", "inner", "first_of_value", "length_of_value", "none_if_x"],
            "map": ["same", "inner", "first_of_value", "length_of_value", "swap"],
            "flat_map": list(FLAT_PAIRS),
        }[op]
        step = self.add(op, flow, f=self.chance.choice(words))
        longs = flow.longs and op == "select_key"
        return replace(flow, step=step, key="text", rekeyed=True, longs=longs, window=None)

    def merged(self, flow: Flow) -> Flow:
        if self.knot(0.4):
            return self.merged_with_own(flow)
        flow = self.texts(self.text_key(flow))
        return replace(flow, step=self.add("merge", flow, **{"with": self.source().step}))

    def merged_with_own(self, flow: Flow) -> Flow:
        """A stream with itself, with a part of itself, or with what reads the same topics."""
        other = flow.step
        kind = self.one_of(["self", "self", "part", "source"])
        if kind == "part":
            other = self.add("filter", flow, f=self.one_of(["even_end", "short_key"]))
        sources = {step["id"]: step["topics"] for step in self.steps if step["op"] == "stream"}
        if kind == "source" and flow.step in sources:
            other = self.add("stream", topics=sources[flow.step])
        ends = [other, flow.step] if self.knot(0.5) else [flow.step, other]
        step = self.add("merge", replace(flow, step=ends[0]), **{"with": ends[1]})
        return replace(flow, step=step)

    def branched(self, flow: Flow) -> Flow:
        words = self.chance.sample(["has_a", "has_b_or_none", "short_key"], 2)
        step = self.add("branch", flow, f=words, name=self.name("split"))
        ids = [f"{step}-{number}" for number in range(3)]
        self.steps[-1]["ids"] = ids
        kept = self.chance.randrange(3)
        for number, branch in enumerate(ids):
            if number != kept and self.chance.random() < 0.5:
                self.taps += 1
                self.end(replace(flow, step=branch), f"tap{self.taps}")
        if self.knot(0.3):
            # With another part, with all that is left of the stream, or with itself.
            step = self.add("merge", replace(flow, step=ids[kept]), **{"with": self.one_of(ids)})
            return replace(flow, step=step)
        return replace(flow, step=ids[kept])

    def repartitioned(self, flow: Flow) -> Flow:
        step = self.add("repartition", flow, name=self.name("again"))
        return replace(flow, step=step, rekeyed=False)

    # Stateful steps, by their names in STATEFUL

    def count(self, flow: Flow) -> Flow:
        return self.folded("count", self.grouped(flow))

    def reduce(self, flow: Flow) -> Flow:
        return self.folded("reduce", self.grouped(self.texts(flow)))

    def aggregate(self, flow: Flow) -> Flow:
        return self.folded("aggregate", self.grouped(flow))

    def folded(self, op: str, grouped: Flow, window: Step | None = None) -> Flow:
        word = None if op == "count" else self.chance.choice(["add", "add", "add_or_delete"])
        options = self.kept(may=window is None)
        retention = self.retention(window, options)
        step = self.add(op, grouped, f=word, window=window, retention=retention, **options)
        if self.knot(0.1):
            self.taps += 1
            other = self.add("aggregate", grouped, f="add", **self.store())
            self.end(Flow(other, table=True), f"tap{self.taps}")
        longs = op == "count" or (op == "reduce" and grouped.longs)
        key = "text" if window is None else _key_of(window)
        # Kafka Streams cannot join windowed tables that were cogrouped: it looks for plain stores.
        paired = window is not None and "emit" not in window
        return self.flow(step, key=key, longs=longs, window=window, paired=paired)

    def retention(self, window: Step | None, options: dict[str, Any]) -> int | None:
        if window is None or window["kind"] == "unlimited":
            return None
        spans = 2 if window["kind"] == "sliding" else 1
        span: int = spans * window["size"] + window["grace"]
        if self.cache and options.get("caching", True):
            # Kafka Streams' cache gives back what its store has forgotten, until it is evicted.
            return span + self.time(2000, 2000)
        return span + self.time(0, 40) if self.chance.random() < 0.3 else None

    def windowed(self, kind: str, flow: Flow, *, emit: str | None) -> Flow:
        op = self.chance.choice(["count", "reduce", "aggregate"])
        grouped = self.grouped(self.texts(flow) if op == "reduce" else flow)
        return self.folded(op, grouped, self.window(kind, emit=emit))

    def window(self, kind: str, *, emit: str | None) -> Step:
        size = self.time(3, 20)
        window = {"kind": kind, "size": size, "grace": self.chance.choice([0, self.time(1, 15)])}
        if kind == "hopping":
            parts = [part for part in (2, 3, 4) if size % part == 0] or [1]
            window["advance"] = self.chance.choice([size // self.chance.choice(parts), size - 1])
        if kind == "tumbling" and emit is None and self.coming != "suppress" and not self.is_tied:
            window = self.unlimited() or window
        return window if emit is None else {**window, "emit": emit}

    def unlimited(self) -> Step | None:
        """Sometimes, instead of windows that end, one that does not."""
        if self.later.random() > 0.15:
            return None
        start = (
            self.later.choice([0, self.later.randint(1, 60), self.later.randint(1, 60)])
            * self.scale
        )
        return {"kind": "unlimited", "size": LONG_MAX, "grace": 0, "start": start}

    def emit(self) -> str | None:
        rarely = 0.0 if self.coming == "suppress" or self.is_tied else 0.3
        return "close" if self.chance.random() < rarely else None

    def tumbling(self, flow: Flow) -> Flow:
        return self.windowed("tumbling", flow, emit=self.emit())

    def hopping(self, flow: Flow) -> Flow:
        return self.windowed("hopping", flow, emit=self.emit())

    def session(self, flow: Flow) -> Flow:
        return self.windowed("session", flow, emit=self.emit())

    def sliding(self, flow: Flow) -> Flow:
        # As they change, windows have no order among them; nothing behind them may depend on it.
        free = self.coming in (None, "suppress") and self.chance.random() < 0.7
        return self.windowed("sliding", flow, emit=None if free else "close")

    def cogroup(self, flow: Flow) -> Flow:
        groups = [self.grouped(flow, named=True)]
        groups += [
            self.grouped(self.source(), named=True) for _ in range(self.chance.choice([1, 1, 2]))
        ]
        if self.knot(0.2):
            groups.append(self.grouped(flow, named=True))
        if self.knot(0.4):
            groups.append(self.one_of(groups))
        words = [self.chance.choice(["add", "times", "add_or_delete"]) for _ in groups]
        window = None
        if self.chance.random() < 0.5:
            window = self.window(self.chance.choice(["tumbling", "hopping", "session"]), emit=None)
            # As with one stream, nothing behind such windows may depend on their order.
            free = window["kind"] in ("tumbling", "hopping") and self.coming in (None, "suppress")
            if free and self.newer.random() < 0.3:
                window = {"kind": "sliding", "size": window["size"], "grace": window["grace"]}
        options = self.kept(may=window is None)
        retention = self.retention(window, options)
        step = self.add("cogroup", f=words, window=window, retention=retention, **options)
        self.steps[-1]["from"] = [group.step for group in groups]
        key = "text" if window is None else _key_of(window)
        return self.flow(step, key=key, window=window)

    def to_table(self, flow: Flow) -> Flow:
        kept = self.loose(self.kept(may=flow.key == "text"))
        step = self.add("to_table", flow, name=self.name("latest"), **kept)
        return self.flow(
            step, key=flow.key, longs=flow.longs, window=flow.window, paired=flow.paired
        )

    def table_group(self, flow: Flow) -> Flow:
        words = ["inner", "same", "first_of_value", "first_of_value", "length_of_value", "skip_x"]
        word, name = self.chance.choice(words), self.sometimes_name("group")
        grouped = self.add("group_by", flow, f=word, name=name)
        op = self.chance.choice(["count", "reduce", "aggregate"])
        added = None if op == "count" else self.chance.choice(["add", "add", "add_or_delete"])
        words = ["subtract", "subtract", "subtract_or_delete"]
        taken = None if op == "count" else self.chance.choice(words)
        options = self.kept()
        step = self.add(op, Flow(grouped), f=added, g=taken, **options)
        return self.flow(step, longs=op == "count")

    def suppress(self, flow: Flow) -> Flow:
        name = self.name("calm")
        if flow.versioned is not None:
            # Kafka Streams suppresses no table that keeps versions.
            [kept] = [step for step in self.steps if step["id"] == flow.versioned]
            del kept["versioned"]
            flow = replace(flow, versioned=None)
        window = flow.window
        waits = window is not None and (window.get("emit") != "close" or self.knot(0.3))
        if waits and self.chance.random() < 0.8:
            full = {"max_records": self.chance.choice([5, 500, 500]), "full": "shut_down"}
            buffer = self.chance.choice([None, None, full])
            step = self.add("suppress", flow, until="window_closes", buffer=buffer, name=name)
        else:
            buffer = self.chance.choice(
                [
                    None,
                    {"max_records": self.chance.randint(1, 5), "full": "emit"},
                    {"max_bytes": self.chance.randint(60, 600), "full": "emit"},
                    {"max_records": self.chance.choice([10, 500, 500]), "full": "shut_down"},
                ]
            )
            limit = self.chance.choice([0, self.time(1, 30), self.time(1, 30), self.time(500, 500)])
            if self.knot(0.15):
                # In a buffer that can hold nothing, nothing waits; or it is full at once.
                limit = self.one_of([0, 0, limit])
                full = "emit" if limit else self.one_of(["emit", "shut_down"])
                buffer = {self.one_of(["max_records", "max_bytes"]): 0, "full": full}
            step = self.add(
                "suppress", flow, until="time_limit", limit=limit, buffer=buffer, name=name
            )
        return replace(flow, step=step, window=self.still(flow))

    def joiner(self) -> str:
        return self.chance.choice(["pair", "pair", "pair", "pair_or_none"])

    def join(self, flow: Flow, other: str, kinds: list[str], **parameters: Any) -> Flow:
        kind, name = self.chance.choice(kinds), self.name("join")
        parameters = {"kind": kind, "f": self.joiner(), "with": other, "name": name, **parameters}
        step = self.add("join", flow, **parameters)
        versioned = step if "versioned" in parameters else None
        changes: dict[str, Any] = {"longs": False, "rekeyed": False, "window": self.still(flow)}
        return replace(flow, step=step, versioned=versioned, **changes)

    def stream_join(self, flow: Flow) -> Flow:
        flow = self.text_key(flow)
        own = (not flow.rekeyed or self.knot(0.5)) and self.chance.random() < 0.15
        other = flow.step if own else self.partner().step
        window = {
            "before": self.time(0, 12),
            "after": self.time(0, 12),
            "grace": self.chance.choice([0, self.time(1, 20)]),
        }
        return self.join(flow, other, ["inner", "left", "outer"], window=window, **self.keyed())

    def partner(self) -> Flow:
        """Another stream, of which some have new keys."""
        return self.moved(self.source()) if self.knot(0.25) else self.source()

    def table_lookup(self, flow: Flow) -> Flow:
        flow = self.text_key(flow)
        if not flow.rekeyed and self.chance.random() < 0.2:
            grouped = Flow(self.add("group_by_key", flow))
            other = self.flow(self.add("count", grouped, **self.kept(often=True)))
        else:
            other = self.source(table=True, often=True)
        if self.knot(0.25):
            other = self.stateless(other)
        grace = self.grace(other)
        if grace:
            # Kafka Streams fails when a record without a key is to wait.
            flow = replace(flow, step=self.add("filter", flow, f="has_key"))
        return self.join(flow, other.step, ["inner", "left"], **grace, **self.keyed())

    def grace(self, table: Flow) -> dict[str, int]:
        """How long a record waits for a row, if the table remembers it."""
        if table.versioned is None or self.versions.random() < 0.4:
            return {}
        [kept] = [step for step in self.steps if step["id"] == table.versioned]
        most = min(30 * self.scale, kept["versioned"])
        return {"grace": self.versions.choice([0, self.versions.randint(0, most), most])}

    def global_lookup(self, flow: Flow) -> Flow:
        store = self.store()["store"]  # Kafka Streams does not cache a global store.
        other = self.add("global_table", topic=self.topic("global"), store=store)
        word = self.chance.choice(["inner", "first_of_value", "first_of_value", "none_if_x"])
        joined = self.join(flow, other, ["inner", "left"], select=word, **self.keyed())
        return replace(joined, rekeyed=flow.rekeyed)

    def table_join(self, flow: Flow) -> Flow:
        store = self.kept(may=flow.key == "text") if self.chance.random() < 0.6 else {}
        paired = flow.paired and flow.window is not None
        if paired and (self.chance.random() < 0.5 or (self.ties and self.coming == "suppress")):
            assert flow.window is not None
            grouped = Flow(self.add("group_by_key", self.source()))
            op = self.chance.choice(["count", "reduce", "aggregate"])
            window = flow.window
            if self.knot(0.6):
                # A result waits for the longer grace of both.
                window = {**window, "grace": self.one_of([0, 1, 5, 20, 40]) * self.scale}
            other = self.folded(op, grouped, window).step
        elif paired and self.knot(0.2):
            other = flow.step
        else:
            flow = self.text_table(flow)
            own = self.chance.random() < 0.15
            other = self.mapped_values(flow).step if own else self.source(table=True).step
            other = flow.step if self.knot(0.1) else other
        return self.join(flow, other, ["inner", "left", "outer"], **store)

    def foreign_join(self, flow: Flow) -> Flow:
        flow = self.text_table(flow)
        other = flow.step if self.knot(0.15) else self.source(table=True).step
        words = [word for word in FOREIGN_KEYS if word != "behind_hash"]
        store = self.kept() if self.chance.random() < 0.6 else {}
        return self.join(
            flow,
            other,
            ["inner", "left"],
            foreign_key=self.chance.choice(words),
            **store,
            **self.keyed(),
        )


def _key_of(window: Step) -> str:
    return "session" if window["kind"] == "session" else "time"


def records_of(chance: random.Random, draft: Draft) -> list[Record]:
    """Records with times that go on, stand still, come late, and jump at the end."""
    # Not the present: Kafka Streams' caches walk through all segments since 1970.
    base = chance.choice([0, 0, 5_000_000])
    keys = chance.sample(_KEYS, chance.randint(5, 8))
    topics = list(draft.topics)
    # The first topic carries the chain; tables get some rows before they are asked.
    weights = [6 if topic == topics[0] else 3 for topic in topics]
    records: list[Record] = []
    clock = 20
    for number in range(chance.randint(RECORDS_MIN, RECORDS_MIN + 30)):
        topic = chance.choices(topics, weights)[0]
        if number < len(topics):
            topic = topics[-1 - number]
        clock += chance.choice([0, 0, 1, 1, 2, 3, 5]) if chance.random() < 0.96 else 40
        records.append(_record(chance, topic, keys, base + _time(chance, clock) * draft.scale))
    # Every key is there, whatever was drawn; then the windows close.
    for key in keys:
        clock += 1
        records.append((topics[0], key, chance.choice("abcd"), base + clock * draft.scale))
    for later in (60, 200, 201, 400):
        for topic in topics:
            time = base + (clock + later) * draft.scale
            records.append((topic, chance.choice(keys), chance.choice("abcd"), time))
    return records


def _time(chance: random.Random, clock: int) -> int:
    drawn = chance.random()
    if drawn < 0.65:
        return clock
    return max(0, clock - (chance.randint(0, 15) if drawn < 0.93 else chance.randint(20, 120)))


def _record(chance: random.Random, topic: str, keys: list[str], time: int) -> Record:
    key = None if chance.random() < 0.06 else chance.choice(keys)
    value = "".join(chance.choice(_LETTERS) for _ in range(chance.choice([0, 1, 1, 1, 2, 2, 3])))
    return topic, key, None if chance.random() < 0.12 else value, time


def printed(case: Case) -> str:
    """The case for people: steps, then records."""
    lines = [f"seed {case.seed}, cache {case.cache}, operators {', '.join(case.operators)}"]
    lines += [f"  {step}" for step in case.steps]
    lines += [f"  {number}: {record}" for number, record in enumerate(case.records)]
    return "\n".join(lines)
