"""Tables of records and results that are known of Kafka Streams, as cases.

A record is written `key:value@time`, or `topic/key:value@time`; a result `key=value@time`, where a
windowed key is `key[start,end]`; `-` is no key or no value. `|` stands between records' results.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.conformance.cases import Case, Record, Step

Answer = dict[str, Any]


@dataclass(frozen=True)
class Known:
    """A case whose results are known."""

    name: str
    case: Case
    results: str

    def shown(self, answer: Answer) -> str:
        """An answer in the words of `results`."""
        assert "error" not in answer, answer["error"]
        groups = [" ".join(map(_result, each.get("out", []))) for each in answer["outputs"]]
        if "|" in self.results:
            return " | ".join(groups).replace("  ", " ").strip()
        return " ".join(group for group in groups if group)

    @property
    def expected(self) -> str:
        """The results, with the spaces of `shown`."""
        if "|" not in self.results:
            return " ".join(self.results.split())
        groups = [" ".join(group.split()) for group in self.results.split("|")]
        return " | ".join(groups).replace("  ", " ").strip()


def _result(row: list[Any]) -> str:
    key, value, time = row
    if isinstance(key, list):
        key = f"{key[0]}[{key[1]},{key[2]}]"
    return f"{'-' if key is None else key}={'-' if value is None else value}@{time}"


def _record(written: str) -> Record:
    rest, _, time = written.rpartition("@")
    topic, separator, pair = rest.rpartition("/")
    key, _, value = pair.partition(":")
    return (topic if separator else "in"), _none(key), _none(value), int(time)


def _none(written: str) -> str | None:
    return None if written == "-" else written


def _known(name: str, steps: list[Step], records: str, results: str) -> Known:
    numbered = tuple({"id": f"s{number}", **step} for number, step in enumerate(steps))
    case = Case(0, 0, numbered, tuple(_record(each) for each in records.split()))
    return Known(name, case, results)


def _windowed(window: Step, op: str = "aggregate", **more: Any) -> list[Step]:
    fold = {} if op == "count" else {"f": "add"}
    return [
        {"op": "stream", "topics": ["in"]},
        {"op": "group_by_key", "from": "s0"},
        {"op": op, "from": "s1", "store": "held", "window": window, **fold, **more},
        {"op": "to_stream", "from": "s2"},
        {"op": "to", "from": "s3", "topic": "out"},
    ]


def _suppressed(window: Step) -> list[Step]:
    steps = _windowed(window, "count")[:3]
    return [
        *steps,
        {"op": "suppress", "from": "s2", "until": "window_closes", "name": "calm"},
        {"op": "to_stream", "from": "s3"},
        {"op": "to", "from": "s4", "topic": "out"},
    ]


def windows() -> Iterator[Known]:
    """Hopping, tumbling and session windows, as they change and as they close."""
    hopping = {"kind": "hopping", "size": 10, "advance": 5, "grace": 100}
    yield _known(
        "hopping",
        _windowed(hopping),
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
    yield _known(
        "hopping, none closes", _windowed({**hopping, "emit": "close"}), "A:1@0 B:2@14", ""
    )
    late = {"kind": "hopping", "size": 10, "advance": 5, "grace": 90}
    records = "k:100@100 k:0@0 k:1@1 k:2@2 k:3@3 k:4@4 k:5@5 k:6@6 k:105@105 k:106@106"
    yield _known(
        "late",
        _windowed(late, retention=100),
        records,
        "k[95,105]=0+100@100 k[100,110]=0+100@100 k[5,15]=0+5@5 k[5,15]=0+5+6@6"
        " k[100,110]=0+100+105@105 k[105,115]=0+105@105 k[100,110]=0+100+105+106@106"
        " k[105,115]=0+105+106@106",
    )
    closing = _windowed({**late, "emit": "close"}, retention=100)
    yield _known("late, at the close", closing, records, "k[5,15]=0+5+6@6")
    yield _known(
        "late by grace",
        _windowed({"kind": "tumbling", "size": 10, "grace": 90}),
        "k:100@200 k:0@100 k:1@101 k:2@102 k:3@103 k:4@104 k:5@105 k:6@6",
        "k[200,210]=0+100@200",
    )
    closes = {"kind": "hopping", "size": 10, "advance": 5, "grace": 5}
    yield _known(
        "closing",
        _windowed({**closes, "emit": "close"}),
        "A:1@0 B:2@5 C:3@15 D:4@15 E:5@19",
        " | | A[0,10]=0+1@0 B[0,10]=0+2@5 | | ",
    )
    yield _known(
        "not closing",
        _windowed(closes),
        "A:1@0 B:2@5 C:3@15 D:4@15 E:5@19",
        "A[0,10]=0+1@0 | B[0,10]=0+2@5 B[5,15]=0+2@5 | C[10,20]=0+3@15 C[15,25]=0+3@15"
        " | D[10,20]=0+4@15 D[15,25]=0+4@15 | E[10,20]=0+5@19 E[15,25]=0+5@19",
    )
    yield _known(
        "closing in time",
        _windowed({**closes, "emit": "close"}),
        "A:1@0 A:1@5 B:2@10 C:3@15 D:4@20",
        " | | | A[0,10]=0+1+1@5 | A[5,15]=0+1@5 B[5,15]=0+2@10",
    )
    yield from _sessions()


def _sessions() -> Iterator[Known]:
    minutes = 300_000
    gap = {"kind": "session", "size": minutes, "grace": 0}
    yield _known(
        "session",
        _windowed(gap, "count"),
        "a:x@0 a:x@5",
        "a[0,0]=1@0 | a[0,0]=-@0 a[0,5]=2@5",
    )
    yield _known(
        "sessions that meet",
        _windowed({**gap, "grace": minutes}, "count"),
        f"mel:x@0 mel:x@{minutes + 1} mel:x@{minutes // 2}",
        f"mel[0,0]=1@0 | mel[{minutes + 1},{minutes + 1}]=1@{minutes + 1}"
        f" | mel[0,0]=-@0 mel[{minutes + 1},{minutes + 1}]=-@{minutes + 1}"
        f" mel[0,{minutes + 1}]=3@{minutes + 1}",
    )
    for grace, kept in ((0, ""), (1, "Late1[0,0]=1@0")):
        yield _known(
            f"session, grace {grace}",
            _windowed({"kind": "session", "size": 10, "grace": grace}, "count"),
            "d:x@0 OnTime1:x@0 d:x@11 Late1:x@0",
            f"d[0,0]=1@0 | OnTime1[0,0]=1@0 | d[11,11]=1@11 | {kept}",
        )
    yield _known(
        "session, past grace",
        _windowed({"kind": "session", "size": 10, "grace": 1}, "count"),
        "d:x@0 d:x@12 Late1:x@0",
        "d[0,0]=1@0 | d[12,12]=1@12 | ",
    )


def _counted_by_value(*suppress: Step) -> list[Step]:
    last = 2 + len(suppress)
    return [
        {"op": "table", "topic": "in", "store": "held"},
        {"op": "group_by", "from": "s0", "f": "whole_value"},
        {"op": "count", "from": "s1", "store": "counts"},
        *suppress,
        {"op": "to_stream", "from": f"s{last}"},
        {"op": "to", "from": f"s{last + 1}", "topic": "out"},
    ]


def suppression() -> Iterator[Known]:
    """Suppressed until a limit of time, records or bytes, and until windows close."""
    raw, base = "k1:v1@0 k1:v2@1 k2:v1@2", {"op": "suppress", "from": "s2", "name": "calm"}
    yield _known("not suppressed", _counted_by_value(), raw, "v1=1@0 | v1=0@1 v2=1@1 | v1=1@2")
    limit = {**base, "until": "time_limit"}
    yield _known(
        "limit 0",
        _counted_by_value({**limit, "limit": 0}),
        f"{raw} x:x@3 x:y@4",
        "v1=1@0 | v1=0@1 v2=1@1 | v1=1@2 | x=1@3 | x=0@4 y=1@4",
    )
    yield _known(
        "limit 2",
        _counted_by_value({**limit, "limit": 2}),
        f"{raw} tick:tick@3 tick:tock@4",
        " | | v1=1@2 | v2=1@1 | ",
    )
    for buffer in ({"max_records": 1, "full": "emit"}, {"max_bytes": 120, "full": "emit"}):
        yield _known(
            f"emit early {buffer}",
            _counted_by_value({**limit, "limit": 10**12, "buffer": buffer}),
            f"{raw} x:x@3",
            " | v1=0@1 | v2=1@1 | v1=1@2",
        )
    yield from _final_results()
    yield _known(
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


def _final_results() -> Iterator[Known]:
    def times(*given: int) -> str:
        return " ".join(f"k1:x@{time}" for time in given)

    yield _known(
        "final, grace 1",
        _suppressed({"kind": "tumbling", "size": 2, "grace": 1}),
        times(0, 1, 2, 1, 0, 5, 0),
        "k1[0,2]=4@1 k1[2,4]=1@2",
    )
    yield _known(
        "final, grace 2",
        _suppressed({"kind": "tumbling", "size": 2, "grace": 2}),
        times(0, 1, 2, 0, 3, 0, 4, 0, 30),
        "k1[0,2]=4@1 k1[2,4]=2@3 k1[4,6]=1@4",
    )
    yield _known(
        "final sessions",
        _suppressed({"kind": "session", "size": 5, "grace": 0}),
        "k1:x@0 k1:x@5 k1:x@1 k2:x@11 k1:x@5 k1:x@30",
        "k1[0,5]=3@5 k2[11,11]=1@11",
    )
    yield _known(
        "final sliding windows",
        _suppressed({"kind": "sliding", "size": 5, "grace": 15}),
        times(10, 11, 10, 13, 10, 24, 5, 7, 90),
        "k1[5,10]=5@10 k1[6,11]=5@11 k1[8,13]=5@13 k1[11,16]=2@13 k1[12,17]=1@13 k1[19,24]=1@24",
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

    yield _known(
        "grouped by the same key",
        grouped("same"),
        "A:1@10 B:2@15 A:3@20 B:4@18 C:5@5 D:6@25 B:7@15 C:8@10",
        "A=0+1@10 | B=0+2@15 | A=0+1-1+3@20 | B=0+2-2+4@18 | C=0+5@5 | D=0+6@25"
        " | B=0+2-2+4-4+7@18 | C=0+5-5+8@10",
    )
    records = "A:1@10 A:-@15 A:1@12 B:2@20 B:4@23 B:7@22"
    yield _known(
        "grouped by value",
        grouped("first_of_value"),
        records,
        "1=0+1@10 | 1=0+1-1@15 | 1=0+1-1+1@15 | 2=0+2@20 | 2=0+2-2@23 4=0+4@23"
        " | 4=0+4-4@23 7=0+7@22",
    )
    yield _known(
        "grouped by value, versioned",
        grouped("first_of_value", versioned=300_000),
        records,
        "1=0+1@10 | 1=0+1-1@15 | | 2=0+2@20 | 2=0+2-2@23 4=0+4@23 | ",
    )
    yield _known(
        "counted by value",
        grouped("first_of_value", "count"),
        "A:green@10 B:green@9 A:blue@12 C:yellow@15 D:green@11",
        "g=1@10 | g=2@10 | g=1@12 b=1@12 | y=1@15 | g=2@12",
    )
    yield _known("counted, same key", grouped("same", "count"), "1:@8 1:@9", "1=1@8 | 1=1@9")


_ROWS = (
    "l/k:-@1 r/k:-@2 l/k:A@3 r/k:a@4 l/k:B@5 r/k:b@6 l/k:-@7 r/k:-@8 l/k:C@9 r/k:c@10 r/k:-@11"
    " l/k:-@12 r/k:-@13 r/k:d@7 l/k:D@6 l/k:-@2 r/k:-@3 r/k:e@14 l/k:E@15 l/k:-@10 r/k:-@9 l/k:F@4"
    " r/k:f@3"
)
# Row by row, from row 3 on; `n` is null.
_JOINED = {
    "inner": ",A-a@4,B-a@5,B-b@6,-@7,,,C-c@10,-@11,,,,D-d@7,-@7,,,E-e@15,-@14,,,F-f@4",
    "left": "A-n@3,A-a@4,B-a@5,B-b@6,-@7,,C-n@9,C-c@10,C-n@11,-@12,,,D-d@7,-@7,,,E-e@15,-@14,,"
    "F-n@4,F-f@4",
    "outer": "A-n@3,A-a@4,B-a@5,B-b@6,n-b@7,-@8,C-n@9,C-c@10,C-n@11,-@12,,n-d@7,D-d@7,n-d@7,-@3,"
    "n-e@14,E-e@15,n-e@14,-@9,F-n@4,F-f@4",
    "versioned inner": ",A-a@4,B-a@5,B-b@6,-@7,,,C-c@10,-@11,,,,,,,,E-e@15,,,,",
    "versioned left": "A-n@3,A-a@4,B-a@5,B-b@6,-@7,,C-n@9,C-c@10,C-n@11,-@12,,,,,,,E-e@15,,,,",
    "versioned outer": "A-n@3,A-a@4,B-a@5,B-b@6,n-b@7,-@8,C-n@9,C-c@10,C-n@11,-@12,,,,,,n-e@14,"
    "E-e@15,,,,",
}
_LOOKED_UP = {
    "inner": ",,B-a@5,,,,,,,,,,D-d@6,,,,E-e@15,,,,",
    "left": "A-n@3,,B-a@5,,,,C-n@9,,,,,,D-d@6,,,,E-e@15,,,F-n@4,",
    "versioned inner": ",,B-a@5,,,,,,,,,,D-b@6,,,,E-e@15,,,F-a@4,",
    "versioned left": "A-n@3,,B-a@5,,,,C-n@9,,,,,,D-b@6,,,,E-e@15,,,F-a@4,",
    "versioned waiting inner": ",,,,,,B-a@5,,,,,,D-b@6,,,,,,,F-a@4,",
    "versioned waiting left": ",,A-n@3,,,,B-a@5,,,,,,D-b@6,,,,C-n@9,,,F-a@4,",
}


def _rows(written: str) -> str:
    """Rows 1 and 2, which give nothing, and the others as results of key k."""
    groups = ["", ""]
    for row in written.split(","):
        value, _, time = row.partition("@")
        left, _, right = value.partition("-")
        pair = "-" if value == "-" else f"({_side(left)},{_side(right)})"
        groups.append(f"k={pair}@{time}" if row else "")
    return " | ".join(groups)


def _side(written: str) -> str:
    return "null" if written == "n" else written


def _joined(left: Step, right: Step, **join: Any) -> list[Step]:
    steps: list[Step] = [
        left,
        right,
        {"op": "join", "from": "s0", "with": "s1", "f": "pair", "name": "j", **join},
    ]
    if left["op"] == "table":
        steps.append({"op": "to_stream", "from": "s2"})
    return [*steps, {"op": "to", "from": f"s{len(steps) - 1}", "topic": "out"}]


def joins() -> Iterator[Known]:
    """Joins of tables, of streams with tables, and of streams."""
    for name, rows in _JOINED.items():
        versioned = {"versioned": 300_000} if name.startswith("versioned") else {}
        left, right = (
            {"op": "table", "topic": side, "store": f"{side}-held", **versioned} for side in "lr"
        )
        steps = _joined(left, right, kind=name.split()[-1])
        yield _known(f"tables, {name}", steps, _ROWS, _rows(rows))
    for name, rows in _LOOKED_UP.items():
        versioned = {"versioned": 300_000} if name.startswith("versioned") else {}
        right = {"op": "table", "topic": "r", "store": "r-held", **versioned}
        grace = {"grace": 2} if "waiting" in name else {}
        kind = name.split()[-1]
        steps = _joined({"op": "stream", "topics": ["l"]}, right, kind=kind, **grace)
        yield _known(f"stream and table, {name}", steps, _ROWS, _rows(rows))
    yield from _stream_joins()
    yield from foreign_joins()


def _streams(kind: str, before: int, after: int, grace: int) -> list[Step]:
    window = {"before": before, "after": after, "grace": grace}
    left, right = ({"op": "stream", "topics": [side]} for side in "lr")
    return _joined(left, right, kind=kind, window=window)


def _stream_joins() -> Iterator[Known]:
    rows = " ".join(_ROWS.split()[:13]) + " r/k:d@14 l/k:D@15 l/-:E@16 r/-:e@17"
    both = (
        " | | | k=(A,a)@4 | k=(B,a)@5 | k=(A,b)@6 k=(B,b)@6 | | | k=(C,a)@9 k=(C,b)@9"
        " | k=(A,c)@10 k=(B,c)@10 k=(C,c)@10 | | | | k=(A,d)@14 k=(B,d)@14 k=(C,d)@14"
        " | k=(D,a)@15 k=(D,b)@15 k=(D,c)@15 k=(D,d)@15 | {} | {}"
    )
    alone = {"inner": ("", ""), "left": ("-=(E,null)@16", "")}
    alone["outer"] = ("-=(E,null)@16", "-=(null,e)@17")
    for kind, ends in alone.items():
        steps = _streams(kind, 10_000, 10_000, 86_400_000)
        yield _known(f"streams, {kind}", steps, rows, both.format(*ends))
    yield _known(
        "left, grace 10",
        _streams("left", 100, 100, 10),
        "l/0:A0@0 l/0:B0@0 r/1:a0@111 r/2:dummy@500 l/2:A2@1000 l/2:B2@1000 r/2:a2@1001 r/3:a3@315",
        "0=(A0,null)@0 0=(B0,null)@0 2=(A2,a2)@1001 2=(B2,a2)@1001",
    )
    yield _known(
        "left, no grace",
        _streams("left", 100, 100, 0),
        "l/0:A0@1 l/1:A1@2 l/0:B0@3 r/1:a1@3 l/2:dummy@401 r/2:dummy@401",
        " | | | 1=(A1,a1)@3 | 0=(A0,null)@1 0=(B0,null)@3 | 2=(dummy,dummy)@401",
    )
    yield _known(
        "left, before alone",
        _streams("left", 100, 0, 0),
        "l/0:A0@1000 l/1:A1@1001 l/2:A2@1002 l/3:A3@1003 r/0:a0@999 r/1:a1@999 r/3:d3@1003",
        " | 0=(A0,null)@1000 | 1=(A1,null)@1001 | 2=(A2,null)@1002 | 0=(A0,a0)@1000"
        " | 1=(A1,a1)@1001 | 3=(A3,d3)@1003",
    )
    yield _known(
        "outer, grace 10",
        _streams("outer", 100, 100, 10),
        "l/0:A0@0 l/0:B0@0 r/1:11@0 r/1:12@0 r/1:10@111 r/3:100@211 l/2:A2@200 l/2:B2@200"
        " r/2:13@201 r/2:14@201 r/3:100@1500",
        " | | | | 1=(null,11)@0 1=(null,12)@0 0=(A0,null)@0 0=(B0,null)@0 | | | "
        " | 2=(A2,13)@201 2=(B2,13)@201 | 2=(A2,14)@201 2=(B2,14)@201"
        " | 1=(null,10)@111 3=(null,100)@211",
    )
    yield _known(
        "outer, no grace",
        _streams("outer", 100, 100, 0),
        "l/0:A0@0 l/1:A1@100 r/1:11@110",
        " | | 0=(A0,null)@0 1=(A1,11)@110",
    )
    yield _known(
        "outer, both wait",
        _streams("outer", 100, 100, 10),
        "l/0:A0@0 r/1:11@0 l/1:A1@101 r/0:10@101 r/0:100@112",
        " | | | | 1=(null,11)@0 0=(A0,null)@0",
    )
    yield _known(
        "outer, uneven",
        _streams("outer", 5, 20, 0),
        "l/0:A0@29 l/1:A1@30 r/2:12@31 r/3:13@36 r/4:14@37 r/5:15@50",
        " | | | | 2=(null,12)@31 | 0=(A0,null)@29 3=(null,13)@36 4=(null,14)@37",
    )


def foreign_joins() -> Iterator[Known]:
    """Joins of tables by a key in the left one's values."""

    def steps(kind: str) -> list[Step]:
        left, right = ({"op": "table", "topic": side, "store": f"{side}-held"} for side in "lr")
        return _joined(left, right, kind=kind, foreign_key="behind_hash")

    first = "r/r1:x@1 r/r2:y@2 r/r3:z@3 l/a:v#r1@4 l/b:w#r2@5 l/c:u#r1@6 l/a:-@7"
    joined = " | | | a=(v#r1,x)@4 | b=(w#r2,y)@5 | c=(u#r1,x)@6 | a=-@7"
    later = "l/a:v#r1@1 l/b:w#r2@2 l/c:u#r1@3 r/r1:x@4 r/r2:y@5 r/r3:z@6 r/r1:-@7"
    deleted = "l/a:v#r1@1 l/a:-@2 l/a:-@3"
    moved = "l/a:v#r1@1 l/a:v#r2@2 l/a:v#r3@3"
    waiting = (
        "a=(v#r1,null)@1 | b=(w#r2,null)@2 | c=(u#r1,null)@3 | a=(v#r1,x)@4 c=(u#r1,x)@4"
        " | b=(w#r2,y)@5 | | a=(v#r1,null)@7 c=(u#r1,null)@7"
    )
    for name, records, inner, left in (
        ("right first", first, joined, joined),
        (
            "left first",
            later,
            " | | | a=(v#r1,x)@4 c=(u#r1,x)@4 | b=(w#r2,y)@5 | | a=-@7 c=-@7",
            waiting,
        ),
        ("deleted twice", deleted, " | a=-@2 | ", "a=(v#r1,null)@1 | a=-@2 | "),
        ("deleted first", "l/a:-@1 l/b:-@2", " | ", " | "),
        (
            "moved",
            moved,
            " | a=-@2 | a=-@3",
            "a=(v#r1,null)@1 | a=(v#r2,null)@2 | a=(v#r3,null)@3",
        ),
    ):
        yield _known(f"foreign key, inner, {name}", steps("inner"), records, inner)
        yield _known(f"foreign key, left, {name}", steps("left"), records, left)
    yield _known(
        "foreign key, then a filter with a store that knows what the join does not",
        [
            *steps("inner")[:3],
            {"op": "filter", "from": "s2", "f": "has_value", "store": "kept"},
            {"op": "table", "topic": "t", "store": "t-held"},
            {"op": "join", "from": "s3", "with": "s4", "f": "pair", "kind": "inner", "name": "jj"},
            {"op": "filter_not", "from": "s5", "f": "has_a"},
            {"op": "to_stream", "from": "s6"},
            {"op": "to", "from": "s7", "topic": "out"},
        ],
        "r/r1:x@1 t/k:T@2 l/k:v#r1@3 l/k:-@4",
        " | | k=((v#r1,x),T)@3 | k=-@4",
    )


def transformed() -> Iterator[Known]:
    """A table's transformer is asked about rows that are not there, where another step looks."""
    for kind, end in (("inner", "a=-@15"), ("outer", "a=(null,<null>%a)@15")):
        yield _known(
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
        yield _known(name, [stream, *ends, end], "a:1@0 b:2@1", "a=1@0 | b=2@1")
    again = [
        {"op": "filter", "from": "s0", "f": "has_a"},
        {"op": "merge", "from": "s0", "with": "s1"},
        {"op": "merge", "from": "s2", "with": "s0"},
        {"op": "merge", "from": "s3", "with": "s3"},
        {"op": "to", "from": "s4", "topic": "out"},
    ]
    yield _known(
        "merged by three ways", [stream, *again], "a:b@0 b:a@1", "a=b@0 a=b@0 | b=a@1 b=a@1 b=a@1"
    )
    tumbling = {"window": {"kind": "tumbling", "size": 10, "grace": 0}}
    for name, window, key in (("", {}, "a"), (", in windows", tumbling, "a[0,10]")):
        yield _known(
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
    yield _known(
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
        yield _known(
            f"limit 0, {kind} 0, {full}",
            _counted_by_value({"op": "suppress", "from": "s2", "name": "calm", **limit}),
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
        yield _known(
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
        yield _known(f"{name}, joined", calm(*steps, both), records, joined)
        merged = [
            {"op": "to_stream", "from": "s2"},
            {"op": "to_stream", "from": "s5"},
            {"op": "merge", "from": "s6", "with": "s7"},
            {**table, "from": "s8"},
        ]
        last = f" | | | | | | a[0,10]={count} | "
        yield _known(f"{name}, merged", calm(*steps, *merged), records, last)
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
        yield _known(
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
        yield _known(
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
    yield _known(
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
