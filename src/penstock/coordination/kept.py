"""Who is ahead when a database keeps a task's state: it, or the commit record in Kafka."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from penstock.coordination.commits import Standing

Ahead = Literal["level", "database", "fenced", "database_behind", "kafka_behind"]


def who_is_ahead(
    *, kept: int, kept_epoch: tuple[int, int], recorded: int, epoch: tuple[int, int]
) -> Ahead:
    """What the numbers of the last commits mean: the database's and the commit record's.

    The database is written first, then the record. So it is `level`, or one commit ahead after a
    crash in between. Anything else is no crash: a database that is `behind` was restored from a
    backup, or is another one; one that is further ahead knows of commits that Kafka forgot.

    >>> who_is_ahead(kept=7, kept_epoch=(2, 1), recorded=6, epoch=(2, 5))
    'database'
    >>> who_is_ahead(kept=7, kept_epoch=(2, 9), recorded=7, epoch=(2, 5))
    'fenced'
    """
    plausible = kept in (recorded, recorded + 1)
    if kept_epoch > epoch and (plausible or kept_epoch[0] == epoch[0]):
        return "fenced"
    if plausible:
        return "level" if kept == recorded else "database"
    return "database_behind" if kept < recorded else "kafka_behind"


def go_on(standing: Standing, kept: dict[str, dict[int, int]]) -> Standing:
    """Where a task goes on whose database is ahead: there, unless someone moved the group since."""
    return standing if standing.moved_by_group else replace(standing, position=kept)
