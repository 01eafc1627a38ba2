"""How often the ten latest patients were seen: a store of at most ten entries, in two ways.

The store forgets the key that was not used for longest, and says so in the changelog. A patient who
comes back after that is counted from one again. The same is written once in the DSL and once with a
processor and a store of its own.
"""

from typing import Any

import penstock as ps

MOST = 10


class Counter(ps.Processor[str, str, str, int]):
    """Counts with a store in its own hands."""

    def process(self, record: ps.Record[str, str]) -> None:
        """Count an event and tell."""
        counts = self.context.store("recent-by-hand")
        count = (counts.get(record.key) or 0) + 1
        counts.put(record.key, count)
        self.context.forward(record.with_value(count))


def application(**options: Any) -> ps.Application:
    """The application, with options of `Config`."""
    app = ps.Application("recent", **options)
    app.add_state_store(ps.lru_store("recent-by-hand", key=str, value=int, max_entries=MOST))
    events = app.stream("patient-events", key=str, value=str)
    events.group_by_key().count("recent", max_entries=MOST).to_stream().to("recent-totals")
    events.process_values(Counter, stores=["recent-by-hand"], value=int).to("recent-totals-by-hand")
    return app


app = application()

if __name__ == "__main__":
    app.run()
