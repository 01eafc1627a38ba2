"""Tables of records and results that are known of Kafka Streams, as cases."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from tests.conformance.cases import Step
from tests.conformance.known_case import Known, counted_by_value, known_case, windowed
from tests.conformance.known_joins import joins
from tests.conformance.known_suppression import suppression


def windows() -> Iterator[Known]:
    """Hopping, tumbling and session windows, as they change and as they close."""
    hopping = {"kind": "hopping", "size": 10, "advance": 5, "grace": 100}
    yield known_case(
        "hopping",
        windowed(hopping),
        "A:1@0 B:2@1 C:3@2 D:4@3 A:1@4 A:1@5 B:2@6 D:4@7 B:2@8 C:3@9 A:1@10 B:2@11 D:4@12"
        " B:2@13 C:3@14 B:1@3 B:2@2 B:3@9",
        "A[0,10]=0+1@0 B[0,10]=0+2@1 C[0,10]=0+3@2 D[0,10]=0+4@3 A[0,10]=0+1+1@4"
        " A[0,10]=0+1+1+1@5 A[5,15]=0+1@5 B[0,10]=0+2+2@6 B[5,15]=0+2@6 D[0,10]=0+4+4@7"
        " D[5,15]=0+4@7 B[0,10]=0+2+2+2@8 B[5,15]=0+2+2@8 C[0,10]=0+3+3@9 C[5,15]=0+3@9"
        " A[5,15]=0+1+1@10 A[10,20]=0+1@10 B[5,15]=0+2+2+2@11 B[10,20]=0+2@11 D[5,15]=0+4+4@12"
        " D[10,20]=0+4@12 B[5,15]=0+2+2+2+2@13 B[10,20]=0+2+2@13 C[5,15]=0+3+3@14 C[10,20]=0+3@14"
        " B[0,10]=0+2+2+2+1@8 B[0,10]=0+2+2+2+1+2@8 B[0,10]=0+2+2+2+1+2+3@9"
        " B[5,15]=0+2+2+2+2+3@13",
    )
    yield known_case(
        "hopping, none closes", windowed({**hopping, "emit": "close"}), "A:1@0 B:2@14", ""
    )
    late = {"kind": "hopping", "size": 10, "advance": 5, "grace": 90}
    records = "k:100@100 k:0@0 k:1@1 k:2@2 k:3@3 k:4@4 k:5@5 k:6@6 k:105@105 k:106@106"
    yield known_case(
        "late",
        windowed(late, retention=100),
        records,
        "k[95,105]=0+100@100 k[100,110]=0+100@100 k[5,15]=0+5@5 k[5,15]=0+5+6@6"
        " k[100,110]=0+100+105@105 k[105,115]=0+105@105 k[100,110]=0+100+105+106@106"
        " k[105,115]=0+105+106@106",
    )
    closing = windowed({**late, "emit": "close"}, retention=100)
    yield known_case("late, at the close", closing, records, "k[5,15]=0+5+6@6")
    yield known_case(
        "late by grace",
        windowed({"kind": "tumbling", "size": 10, "grace": 90}),
        "k:100@200 k:0@100 k:1@101 k:2@102 k:3@103 k:4@104 k:5@105 k:6@6",
        "k[200,210]=0+100@200",
    )
    closes = {"kind": "hopping", "size": 10, "advance": 5, "grace": 5}
    yield known_case(
        "closing",
        windowed({**closes, "emit": "close"}),
        "A:1@0 B:2@5 C:3@15 D:4@15 E:5@19",
        " | | A[0,10]=0+1@0 B[0,10]=0+2@5 | | ",
    )
    yield known_case(
        "not closing",
        windowed(closes),
        "A:1@0 B:2@5 C:3@15 D:4@15 E:5@19",
        "A[0,10]=0+1@0 | B[0,10]=0+2@5 B[5,15]=0+2@5 | C[10,20]=0+3@15 C[15,25]=0+3@15"
        " | D[10,20]=0+4@15 D[15,25]=0+4@15 | E[10,20]=0+5@19 E[15,25]=0+5@19",
    )
    yield known_case(
        "closing in time",
        windowed({**closes, "emit": "close"}),
        "A:1@0 A:1@5 B:2@10 C:3@15 D:4@20",
        " | | | A[0,10]=0+1+1@5 | A[5,15]=0+1@5 B[5,15]=0+2@10",
    )
    yield from _sessions()


def _sessions() -> Iterator[Known]:
    minutes = 300_000
    gap = {"kind": "session", "size": minutes, "grace": 0}
    yield known_case(
        "session",
        windowed(gap, "count"),
        "a:x@0 a:x@5",
        "a[0,0]=1@0 | a[0,0]=-@0 a[0,5]=2@5",
    )
    yield known_case(
        "sessions that meet",
        windowed({**gap, "grace": minutes}, "count"),
        f"mel:x@0 mel:x@{minutes + 1} mel:x@{minutes // 2}",
        f"mel[0,0]=1@0 | mel[{minutes + 1},{minutes + 1}]=1@{minutes + 1}"
        f" | mel[0,0]=-@0 mel[{minutes + 1},{minutes + 1}]=-@{minutes + 1}"
        f" mel[0,{minutes + 1}]=3@{minutes + 1}",
    )
    for grace, kept in ((0, ""), (1, "Late1[0,0]=1@0")):
        yield known_case(
            f"session, grace {grace}",
            windowed({"kind": "session", "size": 10, "grace": grace}, "count"),
            "d:x@0 OnTime1:x@0 d:x@11 Late1:x@0",
            f"d[0,0]=1@0 | OnTime1[0,0]=1@0 | d[11,11]=1@11 | {kept}",
        )
    yield known_case(
        "session, past grace",
        windowed({"kind": "session", "size": 10, "grace": 1}, "count"),
        "d:x@0 d:x@12 Late1:x@0",
        "d[0,0]=1@0 | d[12,12]=1@12 | ",
    )


def tables() -> Iterator[Known]:
    """Tables that are grouped again: what was is subtracted before what is gets added."""

    def grouped(word: str, op: str = "aggregate", **source: Any) -> list[Step]:
        folds = {} if op == "count" else {"f": "add", "g": "subtract"}
        return [
            {"op": "table", "topic": "in", "store": "held", **source},
            {"op": "group_by", "from": "s0", "f": word},
            {"op": op, "from": "s1", "store": "totals", **folds},
            {"op": "to_stream", "from": "s2"},
            {"op": "to", "from": "s3", "topic": "out"},
        ]

    yield known_case(
        "grouped by the same key",
        grouped("same"),
        "A:1@10 B:2@15 A:3@20 B:4@18 C:5@5 D:6@25 B:7@15 C:8@10",
        "A=0+1@10 | B=0+2@15 | A=0+1-1+3@20 | B=0+2-2+4@18 | C=0+5@5 | D=0+6@25"
        " | B=0+2-2+4-4+7@18 | C=0+5-5+8@10",
    )
    records = "A:1@10 A:-@15 A:1@12 B:2@20 B:4@23 B:7@22"
    yield known_case(
        "grouped by value",
        grouped("first_of_value"),
        records,
        "1=0+1@10 | 1=0+1-1@15 | 1=0+1-1+1@15 | 2=0+2@20 | 2=0+2-2@23 4=0+4@23"
        " | 4=0+4-4@23 7=0+7@22",
    )
    yield known_case(
        "grouped by value, versioned",
        grouped("first_of_value", versioned=300_000),
        records,
        "1=0+1@10 | 1=0+1-1@15 | | 2=0+2@20 | 2=0+2-2@23 4=0+4@23 | ",
    )
    yield known_case(
        "counted by value",
        grouped("first_of_value", "count"),
        "A:green@10 B:green@9 A:blue@12 C:yellow@15 D:green@11",
        "g=1@10 | g=2@10 | g=1@12 b=1@12 | y=1@15 | g=2@12",
    )
    yield known_case("counted, same key", grouped("same", "count"), "1:@8 1:@9", "1=1@8 | 1=1@9")


def transformed() -> Iterator[Known]:
    """A table's transformer is asked about rows that are not there, where another step looks."""
    for kind, end in (("inner", "a=-@15"), ("outer", "a=(null,<null>%a)@15")):
        yield known_case(
            f"transformed, {kind}",
            [
                {"op": "table", "topic": "l", "store": "lefts"},
                {"op": "table", "topic": "r", "store": "rights"},
                {"op": "transform_values", "from": "s1", "f": "bracket"},
                {"op": "join", "from": "s0", "with": "s2", "kind": kind, "f": "pair", "name": "j"},
                {"op": "to_stream", "from": "s3"},
                {"op": "to", "from": "s4", "topic": "out"},
            ],
            "l/a:1@10 r/a:x@12 r/a:-@13 l/a:3@14 l/a:-@15",
            f"a=(1,<null>%a)@10 | a=(1,<x>%a)@12 | a=(1,<null>%a)@13 | a=(3,<null>%a)@14 | {end}",
        )


def knots() -> Iterator[Known]:
    """What a step gives that is used twice, and meets itself or others further down."""
    stream: Step = {"op": "stream", "topics": ["in"]}
    for name, ends in (
        ("merged with itself", [{"op": "merge", "from": "s0", "with": "s0"}]),
        ("one topic merged with itself", [stream, {"op": "merge", "from": "s0", "with": "s1"}]),
    ):
        end: Step = {"op": "to", "from": f"s{len(ends)}", "topic": "out"}
        yield known_case(name, [stream, *ends, end], "a:1@0 b:2@1", "a=1@0 | b=2@1")
    again = [
        {"op": "filter", "from": "s0", "f": "has_a"},
        {"op": "merge", "from": "s0", "with": "s1"},
        {"op": "merge", "from": "s2", "with": "s0"},
        {"op": "merge", "from": "s3", "with": "s3"},
        {"op": "to", "from": "s4", "topic": "out"},
    ]
    yield known_case(
        "merged by three ways", [stream, *again], "a:b@0 b:a@1", "a=b@0 a=b@0 | b=a@1 b=a@1 b=a@1"
    )
    tumbling = {"window": {"kind": "tumbling", "size": 10, "grace": 0}}
    for name, window, key in (("", {}, "a"), (", in windows", tumbling, "a[0,10]")):
        yield known_case(
            f"cogrouped twice{name}",
            [
                stream,
                {"op": "group_by_key", "from": "s0"},
                {"op": "stream", "topics": ["other"]},
                {"op": "group_by_key", "from": "s2"},
                {
                    "op": "cogroup",
                    "from": ["s1", "s3", "s1"],
                    "f": ["add", "add", "times"],
                    "store": "held",
                    **window,
                },
                {"op": "to_stream", "from": "s4"},
                {"op": "to", "from": "s5", "topic": "out"},
            ],
            "a:1@0 other/a:2@1 a:3@2",
            f"{key}=0*1@0 | {key}=0*1+2@1 | {key}=0*1+2*3@2",
        )
    yield from _filters_before_and_behind()
    # The right side drops the record without a key, and yet the join's time is 100 from then on.
    yield known_case(
        "a record without a key on the inner side of a left join",
        [
            stream,
            {"op": "stream", "topics": ["other"]},
            {"op": "select_key", "from": "s1", "f": "none_if_x"},
            {
                "op": "join",
                "from": "s0",
                "with": "s2",
                "f": "pair",
                "kind": "left",
                "name": "j",
                "window": {"before": 5, "after": 5, "grace": 5},
            },
            {"op": "to", "from": "s3", "topic": "out"},
        ],
        "a:1@0 other/b:x@100 b:2@50 a:3@120",
        " | | b=(2,null)@50 | a=(1,null)@0",
    )
    yield from _windows_that_meet()
    for full, kind in itertools.product(("emit", "shut_down"), ("max_records", "max_bytes")):
        limit = {"until": "time_limit", "limit": 0, "buffer": {kind: 0, "full": full}}
        yield known_case(
            f"limit 0, {kind} 0, {full}",
            counted_by_value({"op": "suppress", "from": "s2", "name": "calm", **limit}),
            "k1:v1@0 k1:v2@1 k2:v1@2 k1:-@1",
            "v1=1@0 | v1=0@1 v2=1@1 | v1=1@2 | v2=0@1",
        )


def _filters_before_and_behind() -> Iterator[Known]:
    """A table that nobody named is kept for the join; a filter of before does not know of it."""
    wanted: Step = {"op": "filter", "from": "s1", "f": "has_a"}
    other: Step = {"op": "stream", "topics": ["other"]}
    join: Step = {"op": "join", "with": "s1", "kind": "inner", "f": "pair", "name": "j"}
    for name, steps, end, results in (
        (
            "before",
            [wanted, other, {**join, "from": "s3"}],
            "s2",
            "k=-@0 | k=-@1 | k=a@2 | k=-@3 | k=-@4",
        ),
        ("behind", [other, {**join, "from": "s2"}, wanted], "s4", " | | k=a@2 | k=-@3 | "),
    ):
        yield known_case(
            f"a filter {name} the join that makes a table keep its rows",
            [
                {"op": "stream", "topics": ["in"]},
                {"op": "to_table", "from": "s0", "name": "latest"},
                *steps,
                {"op": "to_stream", "from": end},
                {"op": "to", "from": "s5", "topic": "out"},
            ],
            "k:b@0 k:c@1 k:a@2 k:b@3 k:-@4",
            results,
        )


def _windows_that_meet() -> Iterator[Known]:
    def counted(number: int, topic: str, grace: int) -> list[Step]:
        window = {"kind": "tumbling", "size": 10, "grace": grace}
        return [
            {"op": "stream", "topics": [topic]},
            {"op": "group_by_key", "from": f"s{number}"},
            {"op": "count", "from": f"s{number + 1}", "store": topic, "window": window},
        ]

    def calm(*steps: Step) -> list[Step]:
        last = len(steps) - 1
        return [
            *steps,
            {"op": "suppress", "from": f"s{last}", "until": "window_closes", "name": "calm"},
            {"op": "to_stream", "from": f"s{last + 1}"},
            {"op": "to", "from": f"s{last + 2}", "topic": "out"},
        ]

    records = (
        "in/a:1@0 other/a:1@1 in/a:1@11 other/a:1@12 in/a:1@16 in/a:1@2 other/a:1@31 in/a:1@35"
    )
    both = {"op": "join", "from": "s2", "with": "s5", "kind": "inner", "f": "pair", "name": "j"}
    table = {"op": "to_table", "name": "latest", "store": "held"}
    for graces, count in (((0, 20), "1@1"), ((20, 0), "2@2")):
        steps = [*counted(0, "in", graces[0]), *counted(3, "other", graces[1])]
        name = f"windows with graces of {graces[0]} and {graces[1]}"
        joined = " | | | | | | | a[0,10]=(1,1)@1"
        yield known_case(f"{name}, joined", calm(*steps, both), records, joined)
        merged = [
            {"op": "to_stream", "from": "s2"},
            {"op": "to_stream", "from": "s5"},
            {"op": "merge", "from": "s6", "with": "s7"},
            {**table, "from": "s8"},
        ]
        last = f" | | | | | | a[0,10]={count} | "
        yield known_case(f"{name}, merged", calm(*steps, *merged), records, last)
    through = [
        {"op": "to_stream", "from": "s2"},
        {"op": "repartition", "from": "s3", "name": "again"},
        {**table, "from": "s4"},
    ]
    for name, more in (
        ("a stream", [through[0], {**table, "from": "s3"}]),
        ("a repartition topic", through),
    ):
        steps = calm(*counted(0, "in", 5), *more)
        yield known_case(
            f"windows through {name}",
            steps,
            "a:1@0 a:1@11 a:1@2 a:1@15 a:1@30",
            " | | | a[0,10]=2@2 | a[10,20]=2@15",
        )


def turns() -> Iterator[Known]:
    """Topics that a topology writes and reads: it is a record's turn by the time of its source."""
    for times, results in (
        ((None, None), "k=<a>@10 k=ab@10 k=<b>@10 k=ab'@10"),
        (("by_length", None), "k=ab@10 k=ab'@10 k=<a>@11 k=<b>@11"),
        (("by_length", "half"), "k=ab@5 k=ab'@5 k=<a>@11 k=<b>@11"),
        ((None, "half"), "k=ab@5 k=ab'@5 k=<a>@10 k=<b>@10"),
    ):
        first, second = ({} if word is None else {"time": word} for word in times)
        yield known_case(
            f"turns by the times of sources, {times}",
            [
                {"op": "stream", "topics": ["in"]},
                {"op": "flat_map_values", "from": "s0", "f": "letters"},
                {"op": "to", "from": "s1", "topic": "mid1"},
                {"op": "flat_map_values", "from": "s0", "f": "twice"},
                {"op": "to", "from": "s3", "topic": "mid2"},
                {"op": "stream", "topics": ["mid1"], **first},
                {"op": "map_values", "from": "s5", "f": "bracket"},
                {"op": "stream", "topics": ["mid2"], **second},
                {"op": "merge", "from": "s6", "with": "s7"},
                {"op": "to", "from": "s8", "topic": "out"},
            ],
            "k:ab@10",
            results,
        )
    yield known_case(
        "a global table, which waits for no turn",
        [
            {"op": "stream", "topics": ["in"]},
            {"op": "repartition", "from": "s0", "name": "again"},
            {"op": "to", "from": "s0", "topic": "rows"},
            {"op": "global_table", "topic": "rows", "store": "held"},
            {
                "op": "join",
                "from": "s1",
                "with": "s3",
                "kind": "left",
                "f": "pair",
                "select": "same",
                "name": "j",
            },
            {"op": "to", "from": "s4", "topic": "out"},
        ],
        "k:a@10 k:b@12 k:c@5",
        "k=(a,a)@10 | k=(b,b)@12 | k=(c,c)@5",
    )


_PARTS = (windows, suppression, tables, joins, transformed, knots, turns)
KNOWN = tuple(each for part in _PARTS for each in part())
