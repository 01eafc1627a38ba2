"""Which patients are in the house: a reduce that forgets those who check out.

A reducer that returns None deletes the key: from the store, from the changelog (a tombstone, so
that a restored store does not know the patient either), and downstream.
"""

from typing import Any

import penstock as ps

CHECKED_OUT = "checked out"


def latest(known: str, event: str) -> str | None:
    """The patient's latest event; nothing once the patient has left."""
    return None if event == CHECKED_OUT else event


def application(**options: Any) -> ps.Application:
    """The application, with options of `Config`."""
    app = ps.Application("tombstone", **options)
    (
        app.stream("patient-events", key=str, value=str)
        .group_by_key()
        .reduce(latest, "patients")
        .to_stream()
        .to("patients-in-house")
    )
    return app


app = application()

if __name__ == "__main__":
    app.run()
