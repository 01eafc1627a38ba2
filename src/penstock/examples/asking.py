"""How often each heart beat, asked for while it is counted.

The host with the active copy of a key is asked first. While it is down, or its task moves, a host
with a standby answers, and says how old what it has is. Run the file to see it ask; end it with
Ctrl-C.
"""

import time
from datetime import timedelta
from typing import Any

import penstock as ps
from penstock.errors import StoreUnavailableError
from penstock.queries.contract import Answer, Question

STORE = "asked-beats"
PATIENT = "patient-07"


def application(**options: Any) -> ps.Application:
    """The application, with options of `Config`."""
    app = ps.Application("asking", **{"num_standby_replicas": 1, "num_instances": 2, **options})
    (
        app.stream("beats", key=str, value=bytes)
        .group_by_key()
        .count(STORE)
        .to_stream()
        .to("asked-totals")
    )
    return app


def ask(app: ps.Application, key: str, store: str = STORE) -> Answer:
    """What the active host says of a key; if it does not answer, what a standby says."""
    counts = app.store(store)
    question = Question(kind="get", keys=(key,))
    where = app.query_metadata_for_key(store, key)
    if app.is_alive(where.active):
        try:
            return counts.answer(question, timeout=timedelta(seconds=1))
        except StoreUnavailableError:
            pass  # It went away in this very moment.
    return counts.answer(question, stale=True)


def line(answer: Answer) -> str:
    """An answer about one key, for people."""
    [row], [source] = answer.rows, answer.sources
    age = source.age.total_seconds()
    return f"{row.key}: {row.value}, says {source.instance} ({source.role}, {age:.1f} s old)"


app = application()

if __name__ == "__main__":
    with app:
        while True:
            print(line(ask(app, PATIENT)))  # noqa: T201 - it is what the program is for
            time.sleep(1)
