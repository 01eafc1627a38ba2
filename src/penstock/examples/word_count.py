"""How often each word came by.

Words become keys, so equal ones must meet in one task: they go through a repartition topic.
"""

import re
from typing import Any

import penstock as ps


def words(line: str) -> list[str]:
    """The words of a line, in small letters."""
    return re.findall(r"\w+", line.lower())


def application(**options: Any) -> ps.Application:
    """The application, with options of `Config`."""
    app = ps.Application("word-count", **options)
    (
        app.stream("lines", key=str, value=str)
        .flat_map_values(words)
        .group_by(lambda key, word: word, key=str)
        .count("word-counts")
        .to_stream()
        .to("word-totals")
    )
    return app


app = application()

if __name__ == "__main__":
    app.run()
