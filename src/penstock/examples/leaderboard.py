"""The three best scores of each game, with the game's title from a global table.

Scores have the player as their key, so a score and its game are in different partitions. A global
table is held whole by every instance: a score finds its game there by `key_selector`, with no
repartition topic in between.
"""

from dataclasses import dataclass, replace
from typing import Any

import penstock as ps

PLACES = 3


@dataclass(frozen=True)
class Score:
    """What a player made in a game."""

    player: str
    game: str
    points: int


def with_title(score: Score, title: str) -> Score:
    """The score with the game's title in place of its id."""
    return replace(score, game=title)


def with_score(title: str, score: Score, best: list[Score]) -> list[Score]:
    """The best scores of a game after one more; of equal ones the older stays ahead."""
    return sorted([*best, score], key=lambda each: -each.points)[:PLACES]


def application(**options: Any) -> ps.Application:
    """The application, with options of `Config`."""
    app = ps.Application("leaderboard", **options)
    titles = app.global_table("games", "game-titles", key=str, value=str)
    (
        app.stream("scores", key=str, value=Score)
        .join(titles, with_title, key_selector=lambda player, score: score.game)
        .group_by(lambda player, score: score.game, key=str)
        .aggregate(list, with_score, "best-scores", value=list[Score])
        .to_stream()
        .to("leaderboards")
    )
    return app


app = application()

if __name__ == "__main__":
    app.run()
