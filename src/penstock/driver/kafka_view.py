"""An application's topics and consumer group, for people to look at."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any

from confluent_kafka import IsolationLevel, Message

from penstock.changelog.clients import LogClients
from penstock.changelog.reading import EARLIEST, LATEST, LogRange, log_offsets, read_part
from penstock.changelog.topics import ExistingTopic, commits_name
from penstock.driver.setup import Prepared
from penstock.errors import TopicMissingError
from penstock.queries.json_values import encode_json, plain
from penstock.serdes import Serde
from penstock.serdes.texts import is_text

SHOWN_BYTES = 4096
"""How much of a key or a value is shown."""
Types = tuple[Serde[Any] | None, Serde[Any] | None]
_UNKNOWN: Types = (None, None)
_TELLING = ("cleanup.policy", "retention.ms", "segment.bytes", "min.insync.replicas")
"""Settings that are shown wherever they come from; others only if the topic has its own."""
_BACK = (2, 50)
"""So many offsets are looked at for each record that is wanted."""
_READ_TIMEOUT = timedelta(seconds=10)
Described = Callable[[Iterable[str]], Mapping[str, ExistingTopic]]


class KafkaView:
    """Looks at Kafka when it is asked; any thread may ask. Raises `KafkaError`."""

    def __init__(
        self,
        prepared: Prepared,
        logs: LogClients,
        sizes: Callable[[Mapping[str, int]], Mapping[str, int]],
        types: Mapping[str, Types] | None = None,
        *,
        describe: Described,
    ) -> None:
        self._prepared = prepared
        self._logs = logs
        self._describe = describe
        self._sizes = sizes
        self._types = types or {}

    def topics(self) -> list[Mapping[str, Any]]:
        """Every topic that the application touches, as it is now; its bytes, if they are known.

        One that is gone is left out.
        """
        topics = self._describe(self._prepared.topics)
        sizes = self._sizes({name: topic.partitions for name, topic in topics.items()})
        partitions = [(name, p) for name, each in topics.items() for p in range(each.partitions)]
        starts, ends = self._ask(partitions, EARLIEST), self._ask(partitions, LATEST)
        return [
            {
                "name": name,
                "role": self._role(name),
                "partitions": topic.partitions,
                "records": sum(ends[name, p] - starts[name, p] for p in range(topic.partitions)),
                "bytes": sizes.get(name),
                "configs": _configs(topic),
            }
            for name, topic in sorted(topics.items())
        ]

    def records(self, topic: str, partition: int, limit: int) -> list[Mapping[str, Any]]:
        """The latest committed records of a partition; of the application's topics alone."""
        known = self._prepared.topics.get(topic)
        if known is not None and partition >= known.partitions:
            # One that is written may have been given more since the start.
            known = self._describe([topic]).get(topic)
        if known is None or not 0 <= partition < known.partitions:
            raise TopicMissingError(
                "The application has no such topic or partition",
                where={"topic": topic, "partition": partition},
                hint="`penstock topics describe` lists its topics",
            )
        types = self._types.get(topic, _UNKNOWN)
        found = self._latest(topic, partition, limit)
        return [_shown(message, partition, types) for message in found]

    def _latest(self, topic: str, partition: int, limit: int) -> deque[Message]:
        """The latest records before the first open transaction, which nobody waits for."""
        [start] = self._ask([(topic, partition)], EARLIEST).values()
        [end] = self._ask([(topic, partition)], LATEST).values()
        found: deque[Message] = deque()
        for back in _BACK:
            # Markers take offsets too, and so does what was aborted or is compacted away.
            part = LogRange(max(start, end - back * limit), end)
            read = read_part(self._logs, topic, partition, part, timeout=_READ_TIMEOUT)
            found = deque(read, maxlen=limit)
            if len(found) == limit or part.start == start:
                break
        return found

    def groups(self) -> list[Mapping[str, Any]]:
        """Where the consumer group stands in each input partition."""
        inputs = self._prepared.inputs
        ends, positions = self._ask(inputs, LATEST), self._logs.committed(inputs)
        return [
            {
                "topic": topic,
                "partition": partition,
                "position": (at := positions.get((topic, partition), 0)),
                "end": (end := ends[topic, partition]),
                "lag": max(0, end - at),
            }
            for topic, partition in inputs
        ]

    def _ask(self, partitions: list[tuple[str, int]], spec: Any) -> dict[tuple[str, int], int]:
        return log_offsets(self._logs, partitions, spec, IsolationLevel.READ_COMMITTED)

    def _role(self, name: str) -> str:
        layout = self._prepared.layout
        if name in layout.changelogs:
            return "changelog"
        if name in layout.repartitions:
            return "repartition"
        if any(table.topic == name for table in self._prepared.global_tables):
            return "global table"
        if name == commits_name(self._prepared.application_id):
            return "commits"
        if name == self._prepared.config.errors_dead_letter_queue_topic_name:
            return "dead letters"
        return "input" if any(topic == name for topic, _ in self._prepared.inputs) else "output"


def _configs(topic: ExistingTopic) -> dict[str, str]:
    """The settings that tell most, and behind them those that somebody gave the topic.

    >>> config = {"segment.ms": "7", "retention.ms": "-1", "flush.ms": "9"}
    >>> _configs(ExistingTopic("beats", "id", 1, config, origins={"segment.ms": "topic"}))
    {'retention.ms': '-1', 'segment.ms': '7'}
    """
    own = sorted(name for name, origin in topic.origins.items() if origin == "topic")
    return {name: topic.config[name] for name in (*_TELLING, *own) if name in topic.config}


def types_of(prepared: Prepared) -> dict[str, Types]:
    """The types of keys and values by topic, of those that the program reads and writes by name."""
    subs = [task.sub_topology for task in prepared.layout.tasks]
    found: dict[str, Types] = {}
    for sub in subs:
        for sink in sub.sinks:
            if sink.topic_of is None:
                found[sink.topic] = (sink.key_serde, sink.value_serde)
        for source in sub.sources:
            found |= dict.fromkeys(source.topics, (source.key_serde, source.value_serde))
    return found


def _shown(message: Message, partition: int, types: Types) -> Mapping[str, Any]:
    return {
        "partition": partition,
        "offset": message.offset(),
        "timestamp": message.timestamp()[1],
        "key": _read(types[0], message.key()),
        "value": _read(types[1], message.value()),
    }


def _read(serde: Serde[Any] | None, data: bytes | None) -> str | None:
    """Bytes as what the program takes them for, or else as what they look like.

    >>> from penstock.serdes import LongSerde
    >>> _read(LongSerde(), bytes([0, 0, 0, 0, 0, 0, 1, 0])), _read(LongSerde(), b"odd")
    ('256', 'odd')
    """
    if data is None or serde is None or is_text(serde) or len(data) > SHOWN_BYTES:
        return _text(data)
    try:
        value = plain(serde.deserialize(data))
        return value if isinstance(value, str) else encode_json(value).decode()
    except Exception:  # noqa: BLE001 - a serde of the user's may raise whatever it likes
        return _text(data)


def _text(data: bytes | None) -> str | None:
    """Bytes for people: the text that they are, or else their digits.

    >>> _text(b"pulse"), _text(bytes([0, 255])), _text(None)
    ('pulse', '0x00ff', None)
    """
    if data is None:
        return None
    data = data[:SHOWN_BYTES]
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return f"0x{data.hex()}"
    return text if text.isprintable() else f"0x{data.hex()}"
