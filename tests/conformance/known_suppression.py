"""Known results of suppress: limits of time, records and bytes, and windows that close."""

from __future__ import annotations

from collections.abc import Iterator

from tests.conformance.cases import Step
from tests.conformance.known_case import Known, counted_by_value, known_case, windowed


def _suppressed(window: Step) -> list[Step]:
    steps = windowed(window, "count")[:3]
    return [
        *steps,
        {"op": "suppress", "from": "s2", "until": "window_closes", "name": "calm"},
        {"op": "to_stream", "from": "s3"},
        {"op": "to", "from": "s4", "topic": "out"},
    ]


def suppression() -> Iterator[Known]:
    """Suppressed until a limit of time, records or bytes, and until windows close."""
    raw, base = "k1:v1@0 k1:v2@1 k2:v1@2", {"op": "suppress", "from": "s2", "name": "calm"}
    yield known_case("not suppressed", counted_by_value(), raw, "v1=1@0 | v1=0@1 v2=1@1 | v1=1@2")
    limit = {**base, "until": "time_limit"}
    yield known_case(
        "limit 0",
        counted_by_value({**limit, "limit": 0}),
        f"{raw} x:x@3 x:y@4",
        "v1=1@0 | v1=0@1 v2=1@1 | v1=1@2 | x=1@3 | x=0@4 y=1@4",
    )
    yield known_case(
        "limit 2",
        counted_by_value({**limit, "limit": 2}),
        f"{raw} tick:tick@3 tick:tock@4",
        " | | v1=1@2 | v2=1@1 | ",
    )
    for buffer in ({"max_records": 1, "full": "emit"}, {"max_bytes": 120, "full": "emit"}):
        yield known_case(
            f"emit early {buffer}",
            counted_by_value({**limit, "limit": 10**12, "buffer": buffer}),
            f"{raw} x:x@3",
            " | v1=0@1 | v2=1@1 | v1=1@2",
        )
    yield from _final_results()
    yield from _one_by_one()
    yield known_case(
        "the view through suppress",
        [
            {"op": "table", "topic": "left", "store": "lefts"},
            {"op": "table", "topic": "right", "store": "rights"},
            {"op": "suppress", "from": "s1", "until": "time_limit", "limit": 10, "name": "calm"},
            {"op": "join", "from": "s0", "with": "s2", "kind": "outer", "f": "pair", "name": "j"},
            {"op": "to_stream", "from": "s3"},
            {"op": "to", "from": "s4", "topic": "out"},
        ],
        "right/B:1@0 right/A:1@0 right/tick:tick@10 right/A:2@11 left/A:a@12 left/B:b@12"
        " left/A:b@13 right/tick:tick1@21",
        " | | A=(null,1)@0 B=(null,1)@0 | | A=(a,1)@12 | B=(b,1)@12 | A=(b,1)@13"
        " | tick=(null,tick1)@21 A=(b,2)@13",
    )


def _times(*given: int) -> str:
    return " ".join(f"k1:x@{time}" for time in given)


def _final_results() -> Iterator[Known]:
    """What windows tell as they change, and what is left of it when they close."""
    for name, window, records, raw, final in (
        (
            "grace 1",
            {"kind": "tumbling", "size": 2, "grace": 1},
            _times(0, 1, 2, 1, 0, 5, 0),
            "[0,2]=1@0 | [0,2]=2@1 | [2,4]=1@2 | [0,2]=3@1 | [0,2]=4@1 | [4,6]=1@5 | ",
            " | | | | | [0,2]=4@1 [2,4]=1@2 | ",
        ),
        (
            "grace 2",
            {"kind": "tumbling", "size": 2, "grace": 2},
            _times(0, 1, 2, 0, 3, 0, 4, 0, 30),
            (
                "[0,2]=1@0 | [0,2]=2@1 | [2,4]=1@2 | [0,2]=3@1 | [2,4]=2@3 | [0,2]=4@1 | [4,6]=1@4"
                " | | [30,32]=1@30"
            ),
            " | | | | | | [0,2]=4@1 | | [2,4]=2@3 [4,6]=1@4",
        ),
        (
            "sliding windows",
            {"kind": "sliding", "size": 5, "grace": 15},
            _times(10, 11, 10, 13, 10, 24, 5, 7, 90),
            (
                "[5,10]=1@10 | [11,16]=1@11 [6,11]=2@11 | [6,11]=3@11 [5,10]=2@10"
                " | [11,16]=2@13 [12,17]=1@13 [8,13]=4@13 | [8,13]=5@13 [6,11]=4@11 [5,10]=3@10"
                " | [19,24]=1@24 | [5,10]=4@10 | [6,11]=5@11 [5,10]=5@10 | [85,90]=1@90"
            ),
            "[5,10]=5@10 [6,11]=5@11 [8,13]=5@13 [11,16]=2@13 [12,17]=1@13 [19,24]=1@24",
        ),
    ):
        steps = windowed(window, "count")
        yield known_case(f"changing, {name}", steps, records, raw.replace("[", "k1["))
        yield known_case(f"final, {name}", _suppressed(window), records, final.replace("[", "k1["))
    window = {"kind": "session", "size": 5, "grace": 0}
    records = "k1:x@0 k1:x@5 k1:x@1 k2:x@11 k1:x@5 k1:x@30"
    yield known_case(
        "changing, sessions",
        windowed(window, "count"),
        records,
        "k1[0,0]=1@0 | k1[0,0]=-@0 k1[0,5]=2@5 | k1[0,5]=-@5 k1[0,5]=3@5 | k2[11,11]=1@11 | "
        " | k1[30,30]=1@30",
    )
    yield known_case(
        "final, sessions",
        _suppressed(window),
        records,
        " | | | k1[0,5]=3@5 | | k2[11,11]=1@11",
    )


def _one_by_one() -> Iterator[Known]:
    """What one record does to one that waits."""
    rows: list[Step] = [
        {"op": "table", "topic": "in", "store": "held"},
        {"op": "suppress", "from": "s0", "name": "calm", "until": "time_limit", "limit": 1},
        {"op": "to_stream", "from": "s1"},
        {"op": "to", "from": "s2", "topic": "out"},
    ]
    yield known_case("limit 1", rows, "hey:v@0 tick:v@1", " | hey=v@0")
    for size, records, results in (
        (1, "hey:x@99 dummy:x@100 dummy:x@101", " | | hey[99,100]=1@99"),
        (100, "hey:x@5 other:x@100", " | hey[0,100]=1@5"),
    ):
        window = {"kind": "tumbling", "size": size, "grace": 1 if size == 1 else 0}
        yield known_case(f"final, of {size} ms", _suppressed(window), records, results)
    for full, end in (("emit", "hey=v@100"), ("shut_down", "!")):
        buffer = {"buffer": {"max_records": 1, "full": full}, "limit": 10**12}
        steps = [rows[0], {**rows[1], **buffer}, *rows[2:]]
        yield known_case(f"room for one, {full}", steps, "hey:v@100 dummyKey:v@101", f" | {end}")
    yield from _deleted()


def _deleted() -> Iterator[Known]:
    """Windows and sessions that go are no final results, and else go on as deletions."""
    tumbling = windowed({"kind": "tumbling", "size": 10, "grace": 0}, f="add_or_delete")
    session = windowed({"kind": "session", "size": 10, "grace": 0}, "count")
    at_once = {"until": "time_limit", "limit": 0, "buffer": {"max_records": 0, "full": "emit"}}
    for name, steps, records, told, final in (
        (
            "window",
            tumbling,
            "k:a@1 k:x@2 z:a@30",
            "k[0,10]=0+a@1 | k[0,10]=-@2 | z[30,40]=0+a@30",
            " | | ",
        ),
        (
            "session",
            session,
            "k:a@1 k:b@2 z:a@30",
            "k[1,1]=1@1 | k[1,1]=-@1 k[1,2]=2@2 | z[30,30]=1@30",
            " | | k[1,2]=2@2",
        ),
    ):
        calm: Step = {"op": "suppress", "from": "s2", "name": "calm"}
        ends: list[Step] = [
            {"op": "to_stream", "from": "s3"},
            {"op": "to", "from": "s4", "topic": "out"},
        ]
        for until, results in ((at_once, told), ({"until": "window_closes"}, final)):
            yield known_case(
                f"a {name} that goes, {until['until']}",
                [*steps[:3], {**calm, **until}, *ends],
                records,
                results,
            )
