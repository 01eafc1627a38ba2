"""A count whose changelog topic has settings of its own.

`logging=` takes the settings of a store's changelog by Kafka's names. They are used when the topic
is made; one that exists gets them by `penstock topics apply`.
"""

from typing import Any

import penstock as ps

CHANGELOG = {"segment.bytes": "536870912", "min.cleanable.dirty.ratio": "0.3"}


def application(**options: Any) -> ps.Application:
    """The application, with options of `Config`."""
    app = ps.Application("topic-configs", **options)
    (
        app.stream("beats", key=str, value=bytes)
        .group_by_key()
        .count("beat-counts", logging=CHANGELOG)
        .to_stream()
        .to("beat-totals")
    )
    return app


app = application()

if __name__ == "__main__":
    app.run()
