"""Cases from seeds in which keys stay windowed: what cases.py makes texts of goes on as it is.

Windows and sessions are kept anew, folded again, merged, cogrouped, sent through a topic, and meet
each other in time, as rows, and by foreign key.
"""

from __future__ import annotations

import random
from dataclasses import replace

from tests.conformance.cases import (
    CACHE_BYTES,
    Case,
    Draft,
    Flow,
    joins_its_own,
    records_of,
)

_KINDS = ("tumbling", "hopping", "session")
_FOLDS = ("count", "reduce", "aggregate")


def make_windowed_case(seed: int) -> Case:
    """The case of a seed; the same one every time."""
    chance = random.Random(f"windowed {seed}")
    shape = SHAPES[seed % len(SHAPES)]
    kind = _KINDS[seed // len(SHAPES) % len(_KINDS)]
    more = [random.Random(chance.random()) for _ in range(3)]
    draft = _WindowedDraft(chance, *more, None, cache=chance.choice([0, 0, CACHE_BYTES]))
    # As before a suppress: windows end, and their changes are told.
    draft.coming = "suppress"
    flow = getattr(draft, shape)(draft.begun(kind))
    draft.end(flow, "out")
    return Case(
        seed=seed,
        cache=0 if joins_its_own(draft.steps) else draft.cache,
        steps=tuple(draft.steps),
        records=tuple(records_of(chance, draft)),
        operators=(kind, shape),
        marked=chance.random() < 0.5,
    )


class _WindowedDraft(Draft):
    """The steps so far, of which the first makes windows."""

    def history(self, *, often: bool = False) -> dict[str, int]:
        """No versions, whose keys the cases guess as texts."""
        del often
        return {}

    def begun(self, kind: str) -> Flow:
        """A table of windows, which may be kept again in a store of another step."""
        flow = self.windowed(kind, self.source(), emit=None)
        for _ in range(self.chance.choice([0, 1, 1, 2])):
            flow = self.kept_again(flow)
        return flow

    def kept_again(self, flow: Flow) -> Flow:
        """Another table of the windows of a table, with a store in most places."""
        kept = self.store() if self.chance.random() < 0.7 else {}
        op = self.chance.choice(["filter", "filter_not", "map_values", "transform_values"])
        if op.startswith("filter"):
            word = self.chance.choice(["even_end", "has_b_or_none"])
            return replace(flow, step=self.add(op, flow, f=word, **kept))
        word = self.chance.choice(["text", "suffix", "bracket", "drop_b"])
        return replace(flow, step=self.add(op, flow, f=word, **kept), longs=False)

    def like(self, flow: Flow) -> Flow:
        """A table of the same windows over another topic."""
        assert flow.window is not None
        grouped = Flow(self.add("group_by_key", self.source()))
        return self.folded(self.chance.choice(_FOLDS), grouped, flow.window)

    def partner(self) -> Flow:
        """What a stream of windows is joined with: another one of the same windows."""
        [window] = [step["window"] for step in self.steps if "window" in step][:1]
        known = Flow("", key="session" if window["kind"] == "session" else "time", window=window)
        return self.texts(self.stream(self.like(known)))

    def told(self, flow: Flow) -> Flow:
        """The windows as a stream of texts."""
        return self.texts(self.stream(flow))

    # What follows: the shapes.

    def waited_for(self, flow: Flow) -> Flow:
        """Waits for their close, or for some time, in a buffer that may have two limits."""
        flow = self.suppress(flow)
        buffer = self.steps[-1].get("buffer", {})
        if "max_records" in buffer and self.chance.random() < 0.5:
            buffer["max_bytes"] = self.chance.choice([300, 800, 100_000])
        return flow

    def folded_again(self, flow: Flow) -> Flow:
        """Folds what is told of each window, as it is or behind a topic."""
        flow = self.told(flow)
        if self.chance.random() < 0.5:
            flow = replace(flow, step=self.add("repartition", flow, name=self.name("again")))
        grouped = replace(flow, step=self.add("group_by_key", flow))
        made = self.folded(self.chance.choice(_FOLDS), grouped)
        return replace(made, key=flow.key)

    def merged_windows(self, flow: Flow) -> Flow:
        """Folds what two streams tell of the same windows."""
        flow = self.told(flow)
        merged = self.add("merge", flow, **{"with": self.partner().step})
        grouped = replace(flow, step=self.add("group_by_key", replace(flow, step=merged)))
        return replace(self.folded(self.chance.choice(_FOLDS), grouped), key=flow.key)

    def cogrouped(self, flow: Flow) -> Flow:
        """Folds them into one value, each in its way."""
        flow = self.told(flow)
        groups = [
            self.add("group_by_key", side, name=self.name("group"))
            for side in (flow, self.partner())
        ]
        words = [self.chance.choice(["add", "times", "add_or_delete"]) for _ in groups]
        step = self.add("cogroup", f=words, **self.store())
        self.steps[-1]["from"] = groups
        return replace(self.flow(step), key=flow.key)

    def met_in_time(self, flow: Flow) -> Flow:
        """Joins what two streams tell of the same windows."""
        window = {
            "before": self.time(0, 12),
            "after": self.time(0, 12),
            "grace": self.chance.choice([0, self.time(1, 20)]),
        }
        kinds = ["inner", "left", "outer"]
        return self.join(self.told(flow), self.partner().step, kinds, window=window)

    def looked_up(self, flow: Flow) -> Flow:
        """Joins what is told of windows with rows of the same windows."""
        other = self.like(flow)
        return self.join(self.told(flow), other.step, ["inner", "left"], **self.keyed())

    def joined(self, flow: Flow) -> Flow:
        """Joins rows of the same windows; of the result it may be waited for the close."""
        store = self.store() if self.chance.random() < 0.6 else {}
        other = self.like(flow)
        for _ in range(self.chance.choice([0, 1])):
            other = self.kept_again(other)
        made = self.join(flow, other.step, ["inner", "left", "outer"], **store)
        made = replace(made, window=flow.window)
        return self.suppress(made) if self.chance.random() < 0.5 else made

    def refers(self, flow: Flow) -> Flow:
        """Joins windows with the rows of texts that they refer to."""
        flow = replace(flow, step=self.add("map_values", flow, f="text"), longs=False)
        other = self.source(table=True)
        store = self.store() if self.chance.random() < 0.6 else {}
        word = self.chance.choice(["first", "first"])
        kinds = ["inner", "left"]
        return self.join(flow, other.step, kinds, foreign_key=word, **store, **self.keyed())


SHAPES = (
    "waited_for",
    "folded_again",
    "merged_windows",
    "cogrouped",
    "met_in_time",
    "looked_up",
    "joined",
    "refers",
)
