"""Known results of joins: of tables, of streams with tables, of streams, and by foreign keys."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.conformance.cases import CACHE_BYTES, Step
from tests.conformance.known_case import Known, known_case

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
        yield known_case(f"tables, {name}", steps, _ROWS, _rows(rows))
        if not versioned:
            kept = _joined(left, right, kind=name, store="joined")
            held = "joined: k=(F,f)@4"
            cached = f"tables in a cache, {name}"
            yield known_case(cached, kept, _ROWS, _rows(rows), cache=CACHE_BYTES, held=held)
    for name, rows in _LOOKED_UP.items():
        versioned = {"versioned": 300_000} if name.startswith("versioned") else {}
        right = {"op": "table", "topic": "r", "store": "r-held", **versioned}
        grace = {"grace": 2} if "waiting" in name else {}
        kind = name.split()[-1]
        steps = _joined({"op": "stream", "topics": ["l"]}, right, kind=kind, **grace)
        yield known_case(f"stream and table, {name}", steps, _ROWS, _rows(rows))
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
        yield known_case(f"streams, {kind}", steps, rows, both.format(*ends))
    yield known_case(
        "left, grace 10",
        _streams("left", 100, 100, 10),
        "l/0:A0@0 l/0:B0@0 r/1:a0@111 r/2:dummy@500 l/2:A2@1000 l/2:B2@1000 r/2:a2@1001 r/3:a3@315",
        "0=(A0,null)@0 0=(B0,null)@0 2=(A2,a2)@1001 2=(B2,a2)@1001",
    )
    yield known_case(
        "left, no grace",
        _streams("left", 100, 100, 0),
        "l/0:A0@1 l/1:A1@2 l/0:B0@3 r/1:a1@3 l/2:dummy@401 r/2:dummy@401",
        " | | | 1=(A1,a1)@3 | 0=(A0,null)@1 0=(B0,null)@3 | 2=(dummy,dummy)@401",
    )
    yield known_case(
        "left, before alone",
        _streams("left", 100, 0, 0),
        "l/0:A0@1000 l/1:A1@1001 l/2:A2@1002 l/3:A3@1003 r/0:a0@999 r/1:a1@999 r/3:d3@1003",
        " | 0=(A0,null)@1000 | 1=(A1,null)@1001 | 2=(A2,null)@1002 | 0=(A0,a0)@1000"
        " | 1=(A1,a1)@1001 | 3=(A3,d3)@1003",
    )
    yield known_case(
        "outer, grace 10",
        _streams("outer", 100, 100, 10),
        "l/0:A0@0 l/0:B0@0 r/1:11@0 r/1:12@0 r/1:10@111 r/3:100@211 l/2:A2@200 l/2:B2@200"
        " r/2:13@201 r/2:14@201 r/3:100@1500",
        " | | | | 1=(null,11)@0 1=(null,12)@0 0=(A0,null)@0 0=(B0,null)@0 | | | "
        " | 2=(A2,13)@201 2=(B2,13)@201 | 2=(A2,14)@201 2=(B2,14)@201"
        " | 1=(null,10)@111 3=(null,100)@211",
    )
    yield known_case(
        "outer, no grace",
        _streams("outer", 100, 100, 0),
        "l/0:A0@0 l/1:A1@100 r/1:11@110",
        " | | 0=(A0,null)@0 1=(A1,11)@110",
    )
    yield known_case(
        "outer, both wait",
        _streams("outer", 100, 100, 10),
        "l/0:A0@0 r/1:11@0 l/1:A1@101 r/0:10@101 r/0:100@112",
        " | | | | 1=(null,11)@0 0=(A0,null)@0",
    )
    yield known_case(
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
        yield known_case(f"foreign key, inner, {name}", steps("inner"), records, inner)
        yield known_case(f"foreign key, left, {name}", steps("left"), records, left)
    yield known_case(
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
