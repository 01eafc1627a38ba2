"""How many partitions topics have, those too that a function names while records are processed."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.changelog.topic_admin import TopicAdmin
from penstock.config import Config


class AskedCounts(dict[str, int]):
    """Numbers of partitions by topic; of a topic that is not among them Kafka is asked, once.

    It travels to the workers, each of which asks for itself. Raises `KeyError` for a topic that
    does not exist, and `KafkaError` if Kafka does not answer.
    """

    def __init__(self, known: Mapping[str, int], config: Config) -> None:
        super().__init__(known)
        self.config = config

    def __missing__(self, topic: str) -> int:
        count = _asked(self.config, topic)
        if count is None:
            raise KeyError(topic)
        self[topic] = count
        return count

    def __reduce__(self) -> tuple[object, ...]:
        return (AskedCounts, (dict(self), self.config))


_found: dict[tuple[str, str], int] = {}
_admins: dict[str, TopicAdmin] = {}


def _asked(config: Config, topic: str) -> int | None:
    """What Kafka says; a number is remembered for the life of the process, which is a worker."""
    servers = config.bootstrap_servers
    if (servers, topic) not in _found:
        if servers not in _admins:
            # Made here, after the fork: a client's threads do not come along.
            _admins[servers] = TopicAdmin(config)
        count = _admins[servers].partition_count(topic)
        if count is None:
            return None
        _found[servers, topic] = count
    return _found[servers, topic]
