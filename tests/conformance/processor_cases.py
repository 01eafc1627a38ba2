"""Cases with processors from seeds, and with what stands beside them in a program.

That is stores of limited size, topics that a function names, partitioners, times of sources, and
records on which code fails. A seed stands for a kind of processor, an operator of the DSL, and
which of both comes first, so that any run of 480 seeds has each of these once. What is around them
is drawn, as in cases.py.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from tests.conformance import programs
from tests.conformance.cases import (
    CACHE_BYTES,
    GIVES_STREAM,
    NEEDS_TABLE,
    STATEFUL,
    Case,
    Draft,
    Flow,
    Record,
    Step,
    joins_its_own,
    records_of,
)

# The stores that each kind can use; what it is about is in processor_words.py.
KINDS: dict[str, tuple[str, ...]] = {
    "counter": ("plain", "plain", "lru"),
    "absent": ("plain",),
    "last": ("window",),
    "history": ("versioned",),
    "sessions": ("session",),
    "stamps": ("timestamped",),
    "walker": ("plain", "plain", "lru"),
    "waker": ("plain", "plain", "lru"),
    "later": ("plain",),
    "marker": (),
    "spread": (),
    "router": (),
    "teller": (),
    "reader": (),
    "fragile": ("plain",),
}
# These make records of their own, which have no key to be left alone.
_CALLED = {"walker", "waker", "later"}
_MAY_FAIL = {"filter", "filter_not", "map_values", "map", "flat_map", "select_key", "group_by"}
_MAY_FAIL |= {"reduce", "aggregate", "join"}
_FAIL_AT_WORK = {"router", "walker", "waker"}
_TRIES = 25
Cell = tuple[str, str, bool]  # kind, operator, whether the operator comes behind it


def cells() -> list[Cell]:
    """What seeds stand for, in their order."""
    return [
        (kind, operator, behind)
        for behind in (False, True)
        for operator in STATEFUL
        for kind in KINDS
    ]


def make_processor_case(seed: int) -> Case:
    """The case of a seed; the same one every time."""
    everything = cells()
    kind, operator, behind = everything[seed % len(everything)]
    for attempt in itertools.count():
        chance = random.Random(f"processors {seed} {attempt}")
        if attempt >= _TRIES:
            # Behind a repartition topic there is no one clock for both drivers.
            operator, behind = chance.choice(STATEFUL), chance.random() < 0.5
        draft = _draft(chance, kind)
        draft.build(_plan(chance, operator, behind=behind))
        case = _case(seed, chance, draft)
        if _has_one_clock(case, draft):
            return case
    raise AssertionError("unreachable")


def covered(case: Case) -> set[Cell]:
    """Which kinds of processors a case has above and below which operators."""
    pairs = case.pairs
    above = {(a, b, True) for a, b in pairs if a in KINDS and b in STATEFUL}
    return above | {(b, a, False) for a, b in pairs if a in STATEFUL and b in KINDS}


def _draft(chance: random.Random, kind: str) -> _ProcessorDraft:
    versions, later, newer, knots = (random.Random(chance.random()) for _ in range(4))
    tied = knots if chance.random() < 0.5 else None
    cache = chance.choice([0, 0, CACHE_BYTES])
    return _ProcessorDraft(chance, versions, later, newer, tied, cache=cache, wanted=[kind])


def _plan(chance: random.Random, operator: str, *, behind: bool) -> list[str]:
    plan = ["process", operator] if behind else [operator, "process"]
    if chance.random() < 0.5:
        more = chance.choice([*STATEFUL, *["process"] * 10])
        plan.insert(chance.randint(0, 2), more)
    completed: list[str] = []
    for each in plan:
        if each in NEEDS_TABLE and completed and completed[-1] in {*GIVES_STREAM, "process"}:
            completed.append("to_table")
        completed.append(each)
    return completed


def _case(seed: int, chance: random.Random, draft: _ProcessorDraft) -> Case:
    kinds = iter(draft.kinds)
    operators = [next(kinds) if each == "process" else each for each in draft.operators]
    handles = ["processing"] if "fragile" in draft.kinds or chance.random() < 0.3 else []
    if any(step.get("buffer", {}).get("full") == "shut_down" for step in draft.steps):
        # Kafka Streams lets the handler go on where a buffer is to shut it down: differences.md.
        handles = []
    handles += ["deserialization"] if chance.random() < 0.25 else []
    if "processing" in handles:
        _let_fail(chance, draft.steps)
    if chance.random() < 0.15:
        _take_times(chance.choice(["half", "not_x", "by_length"]), draft)
    records = records_of(chance, draft)
    if "deserialization" in handles:
        records = [_poisoned(chance, draft, record) for record in records]
    if draft.interval:
        records = list(_with_the_clock(chance, records, draft.interval))
    return Case(
        seed=seed,
        # By the wall clock, which is far behind, come windows that a cache alone remembers then.
        cache=0 if joins_its_own(draft.steps) or "waker" in draft.kinds else draft.cache,
        steps=tuple(draft.steps),
        records=tuple(records),
        operators=tuple(operators),
        marked="marker" in draft.kinds or chance.random() < 0.6,
        handles=tuple(handles),
    )


def _let_fail(chance: random.Random, steps: list[Step]) -> None:
    # In Kafka Streams what waits and fails stays for ever, before all that waits behind it.
    waiting = any("grace" in step for step in steps)
    for step in steps:
        # Which of a record's sliding windows come first is left open.
        slides = step.get("window", {}).get("kind") == "sliding"
        waits = waiting or ("before" in step.get("window", {}) and step["kind"] != "inner")
        may = step["op"] in _MAY_FAIL or _work(step) in _FAIL_AT_WORK
        if _work(step) == "fragile" or (may and not (slides or waits) and chance.random() < 0.3):
            step["fails"] = True


def _take_times(word: str, draft: _ProcessorDraft) -> None:
    for step in draft.steps:
        topics = step.get("topics", [step.get("topic")])
        if step["op"] in ("stream", "table") and topics[0] in draft.topics:
            step["time"] = word


def _poisoned(chance: random.Random, draft: _ProcessorDraft, record: Record) -> Record:
    topic, key, value, time = record
    if draft.topics[topic] == "global" or chance.random() > 0.08:
        return record
    return chance.choice([(topic, "¡", value, time), (topic, key, "¡a", time)])


def _with_the_clock(
    chance: random.Random, records: list[Record], interval: int
) -> Iterator[Record]:
    for record in records:
        yield record
        if chance.random() < 0.15:
            span = chance.choice([1, interval // 2, interval, 3 * interval + 1])
            yield "", None, None, span


def _has_one_clock(case: Case, draft: _ProcessorDraft) -> bool:
    """Whether what processors are told of the time is the same in both drivers.

    That of Kafka Streams has one task with one stream time for a whole topology.
    """
    timed = {
        step["name"] for step in case.steps if _work(step) in _CALLED or step.get("clock", False)
    }
    if not timed:
        return True
    if any(step.get("shift", 0) > 0 or _work(step) == "spread" for step in case.steps):
        return False
    given = {topic for topic, kind in draft.topics.items() if kind != "global"}
    parts = programs.application(case).build().sub_topologies
    if "later" in draft.kinds and case.cache and len(parts) > 1:
        # What is scheduled as a cache is flushed would be called for a record of another part.
        return False
    for part in parts:
        read = {topic for source in part.sources for topic in source.topics}
        if timed & part.by_name.keys() and not given <= read:
            return False
    return True


@dataclass
class _ProcessorDraft(Draft):
    """The steps so far; `wanted` are kinds of processors that must be among them."""

    wanted: list[str] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    owned: dict[str, str] = field(default_factory=dict)  # kind: the store of one such processor
    readable: list[tuple[str, bool]] = field(default_factory=list)  # step, whether keys are texts
    interval: int = 0  # of calls by the wall clock

    def process(self, flow: Flow) -> Flow:
        kind = self.wanted.pop() if self.wanted else self.chance.choice(self.others())
        self.kinds.append(kind)
        keeps_keys = kind not in _CALLED and self.chance.random() < 0.5
        options = {**getattr(self, f"{kind}_options", dict)(), **self.own_store(kind)}
        if kind == "reader":
            options = self.read_options()
        op = "process_values" if keeps_keys else "process"
        step = self.add(op, flow, f=kind, name=self.name("work"), **options)
        if keeps_keys:
            made = replace(flow, step=step, longs=False, versioned=None)
        else:
            made = Flow(step, rekeyed=True)
        return self.routed(made) if kind == "router" else made

    def others(self) -> list[str]:
        """The kinds of which there may be another; what calls itself is there once at most."""
        return [kind for kind in KINDS if kind not in _CALLED]

    def own_store(self, kind: str) -> dict[str, Any]:
        """The store of a processor, which two of a kind may share."""
        if not KINDS[kind]:
            return {}
        foreseen = True if self.chance.random() < 0.3 else None
        if kind not in self.owned or self.chance.random() < 0.5:
            name = f"own{len(self.steps)}"
            self.owned[kind] = name
            of = self.chance.choice(KINDS[kind])
            self.add("add_store", store=name, kind=of, **self.store_options(of))
        return {"store": self.owned[kind], "foreseen": foreseen}

    def store_options(self, kind: str) -> dict[str, Any]:
        if kind == "lru":
            return {"persistent": False, "entries": self.chance.randint(1, 6)}
        options: dict[str, Any] = {"persistent": self.chance.random() < 0.3}
        if kind in ("versioned", "session"):
            # In memory, Kafka Streams has no versions, and forgets sessions only at a put.
            options["persistent"] = True
        if kind in ("versioned", "session", "window"):
            options["retention"] = self.chance.choice([20, 60, 200, 10_000]) * self.scale
        if kind == "window":
            options["size"] = self.scale
        return options

    def span(self) -> dict[str, int]:
        return {"span": self.time(0, 30)}

    last_options = history_options = sessions_options = span

    def walker_options(self) -> dict[str, Any]:
        walks = ["all", "reverse_all", "range", "reverse_range", "prefix_scan"]
        return {"interval": self.time(3, 40), "walk": self.chance.choice(walks)}

    def waker_options(self) -> dict[str, Any]:
        options = self.walker_options()
        self.interval = options["interval"]
        return options

    def later_options(self) -> dict[str, Any]:
        return {"interval": self.time(3, 40)}

    def marker_options(self) -> dict[str, Any]:
        shift = self.chance.choice([0, self.time(1, 6), -self.time(1, 6), -self.time(1, 6)])
        words = ["add", "replace", "clear", "twice", "keep"]
        return {"shift": shift, "headers": self.chance.choice(words)}

    def router_options(self) -> dict[str, Any]:
        number = len(self.steps)
        return {"children": [f"child{number}a", f"child{number}b"]}

    def teller_options(self) -> dict[str, Any]:
        return {"clock": True} if self.chance.random() < 0.3 else {}

    def read_options(self) -> dict[str, Any]:
        """A store to look into: of a table, an aggregation, another processor, or a global one."""
        drawn = self.chance.random()
        if drawn < 0.15:
            self.stores += 1
            topic, store = self.topic("global"), f"store{self.stores}"
            self.add(self.chance.choice(["global_table", "global_store"]), topic=topic, store=store)
            timed = True if self.steps[-1]["op"] == "global_table" else None
            return {"reads": store, "kind": "key_value", "global": True, "timed": timed, "span": 0}
        known = {step["id"]: step for step in self.steps if "store" in step}
        candidates = [(known[each], texts) for each, texts in self.readable if each in known]
        found = [step for step, texts in candidates if _reads(step, texts=texts)]
        found += [step for step in self.steps if step["op"] == "add_store"]
        if not found:
            found = [self.stored_source()]
        step = self.chance.choice(found)
        kind = _kind(step)
        timed = True if kind == "key_value" and step["op"] != "add_store" else None
        if step["op"] == "add_store" and step["kind"] in ("plain", "lru", "timestamped"):
            kind, timed = "key_value", None
        return {"reads": step["store"], "kind": kind, "timed": timed, **self.span()}

    def stored_source(self) -> Step:
        """A table to look into."""
        self.add("table", topic=self.topic("table"), **self.kept())
        return self.steps[-1]

    def routed(self, flow: Flow) -> Flow:
        """What a processor gives to the steps behind it by their names."""
        names = self.steps[-1]["children"]
        predicates = ["has_value", "short_key", "even_end"]
        first, second = (
            self.add("filter", flow, f=self.chance.choice(predicates), name=name) for name in names
        )
        if self.chance.random() < 0.5:
            self.taps += 1
            self.end(replace(flow, step=second), f"tap{self.taps}")
            return replace(flow, step=first)
        step = self.add("merge", replace(flow, step=first), **{"with": second})
        return replace(flow, step=step)

    # What cases.py has without this

    def flow(self, step: str, **known: Any) -> Flow:
        self.readable.append((step, known.get("key", "text") == "text"))
        return super().flow(step, **known)

    def folded(self, op: str, grouped: Flow, window: Step | None = None) -> Flow:
        before = len(self.steps)
        table = super().folded(op, grouped, window)
        made = self.steps[before]
        if window is None and "versioned" not in made and self.chance.random() < 0.35:
            # With a cache, results depend on its size: differences.md.
            made |= {"lru": self.chance.randint(1, 5), "caching": False}
        return table

    def repartitioned(self, flow: Flow) -> Flow:
        made = super().repartitioned(flow)
        self.partition(0.5)
        return made

    def partition(self, share: float) -> None:
        """Sometimes, a function for the partitions of the last step."""
        if self.chance.random() < share:
            self.steps[-1]["partitioner"] = self.chance.choice(["first", "unsaid", "some"])

    def end(self, flow: Flow, topic: str) -> None:
        flow = self.stream(flow)
        drawn = self.chance.random()
        if drawn < 0.2:
            topics = [f"{topic}-{letter}" for letter in "abc"[: self.chance.randint(1, 3)]]
            word = self.chance.choice(["by_value", "by_key"])
            self.add("to", flow, topics=topics, f=word)
        elif drawn < 0.3 and flow.key == "text":
            self.read_again(self.texts(flow), topic)
        else:
            super().end(flow, topic)
        self.partition(0.15)

    def read_again(self, flow: Flow, topic: str) -> None:
        """Write to a topic that the program reads itself."""
        self.add("to", flow, topic=f"mid-{topic}")
        again = Flow(self.add("stream", topics=[f"mid-{topic}"]))
        counted = self.add("count", Flow(self.add("group_by_key", again)), **self.store())
        super().end(Flow(counted, table=True), topic)


def _work(step: Step) -> str | None:
    """The kind of a step's processor."""
    return step["f"] if step["op"] in ("process", "process_values") else None


def _kind(step: Step) -> str:
    """The kind of a step's store."""
    if step["op"] == "add_store":
        return str(step["kind"])
    if "window" in step and step["op"] != "join":
        return "session" if step["window"]["kind"] == "session" else "window"
    return "versioned" if "versioned" in step else "key_value"


def _reads(step: Step, *, texts: bool) -> bool:
    """Whether a store can be asked for a text: those of windows have the key inside."""
    return texts or _kind(step) in ("window", "session")
