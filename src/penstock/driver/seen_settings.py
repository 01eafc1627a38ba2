"""How the internal topics were set while the application ran: what Kafka removed so stays gone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.changelog.expiring import shorter
from penstock.changelog.topic_plan import losses
from penstock.changelog.topics import TOMBSTONES_MS, ExistingTopic, TopicSpec


class SeenSettings:
    """For how long each topic kept records and deletions at the least, since the start.

    Settings may be changed while the application runs, and back again. A store on a disk that was
    away meanwhile has to be judged by the shortest time.
    """

    def __init__(self, wanted: Iterable[TopicSpec], existing: Mapping[str, ExistingTopic]) -> None:
        self._wanted = {spec.name: spec for spec in wanted}
        self._kept: dict[str, int] = {}
        self._tombstones: dict[str, int] = {}
        self._told: set[str] = set()
        for name in self._wanted.keys() & existing.keys():
            self.note(existing[name])

    @property
    def topics(self) -> set[str]:
        """The topics that are the application's own."""
        return set(self._wanted)

    def kept_ms(self, changelog: str) -> int:
        """How long records are kept: -1 for ever, 0 if that is not known."""
        return self._kept.get(changelog, 0)

    def tombstones_ms(self, changelog: str) -> int:
        """How long deletions are kept."""
        return self._tombstones.get(changelog, TOMBSTONES_MS)

    def note(self, topic: ExistingTopic) -> list[str]:
        """Take note of one as it is now; what an operator should know of it, told once."""
        kept = int(topic.config.get("retention.ms", 0))
        self._kept[topic.name] = shorter(self._kept.get(topic.name, 0), kept)
        lasting = int(topic.config.get("delete.retention.ms", TOMBSTONES_MS))
        self._tombstones[topic.name] = min(self._tombstones.get(topic.name, lasting), lasting)
        spec = self._wanted[topic.name]
        news = [each for each in losses(spec, topic) if each not in self._told]
        self._told.update(news)
        return news
