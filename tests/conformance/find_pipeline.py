"""`python -m tests.conformance.find_pipeline`: look for cases that hold however tasks take turns.

Each case runs several times in tasks of two and three partitions, which take turns by chance and a
few records at a time; what it gives then must be what the test driver gives.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter

from penstock.topology.naming import changelog_topic
from tests.conformance import programs
from tests.conformance.cases import Case
from tests.conformance.pipeline_cases import (
    Expected,
    alive,
    at,
    by_key,
    driven,
    make_pipeline_case,
    named_stores,
)
from tests.conformance.streams_cases import StreamsCase
from tests.conformance.tasks import Tasks

_DAY_MS = 86_400_000
_FIRST_DAY = 20_000


def holds(case: Case, *, turns: int) -> bool:
    """Whether a case gives the driver's answer whoever is first, at some times of day."""
    chance = random.Random(case.seed)
    for turn in range(turns):
        moved = at(case, _FIRST_DAY * _DAY_MS + chance.randrange(_DAY_MS))
        if not _agrees(moved, 2 + turn % 2, chance):
            return False
    return True


def _agrees(case: Case, partitions: int, chance: random.Random) -> bool:
    wanted = driven(case)
    sent = tuple((*record, ()) for record in case.records)
    given = StreamsCase(case.seed, "", 0, partitions, 0, case.steps, (sent,), 0)
    tasks = Tasks(given)
    tasks.write(sent)
    tasks.run_by(chance)
    return wanted == _found(case, tasks, wanted, given.id)


def _found(case: Case, tasks: Tasks, wanted: Expected, application_id: str) -> Expected:
    results = {
        topic: by_key(row for rows in tasks.topics[topic] for row in rows)
        for topic in wanted.results
    }
    stores = {}
    for spec in named_stores(case):
        rows = tasks.topics[changelog_topic(application_id, spec.name)]
        last = {row.key: row for each in rows for row in each}
        held = {
            row.key: (row.value, row.timestamp)
            for row in last.values()
            if row.key is not None and row.value is not None
        }
        stores[spec.name] = alive(spec, held)
    return Expected(results, stores)


def main(arguments: list[str] | None = None) -> None:
    """Print the seeds that hold, with their operators and how many records they drop."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=500)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--turns", type=int, default=40)
    parser.add_argument("--disordered", action="store_true", help="records as they come")
    parser.add_argument("--operators", nargs="*", default=[], help="only cases with one of these")
    options = parser.parse_args(arguments)
    told: Counter[str] = Counter()
    for seed in range(options.first, options.first + options.seeds):
        case = make_pipeline_case(seed, disordered=options.disordered)
        if options.operators and not set(options.operators) & set(case.operators):
            continue
        answer = programs.run(case)
        if "error" in answer or not all(driven(case).results.values()):
            continue
        if holds(case, turns=options.turns):
            told.update(case.operators)
            print(seed, *case.operators, answer["dropped"], flush=True)
    print(dict(told))


if __name__ == "__main__":
    main()
