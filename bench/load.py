"""Input topics: loaded once, the same for every system."""

from __future__ import annotations

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench import clients
from bench.errors import BenchError
from bench.inputs import CHUNK, Input, Message, TopicLoad

PARTITIONS = 4
IN_FLIGHT_MAX = 400_000


def create_topic(
    admin: AdminClient, topic: str, *, cleanup_policy: str = "delete", partitions: int = PARTITIONS
) -> None:
    settings = {"cleanup.policy": cleanup_policy}
    admin.create_topics([NewTopic(topic, partitions, 1, config=settings)])[topic].result(30)


def delete_topics(admin: AdminClient, topics: list[str]) -> None:
    """Free the disk that a run used; topics that do not exist are passed over."""
    present = admin.list_topics(timeout=30).topics
    doomed = [topic for topic in topics if topic in present]
    for future in admin.delete_topics(doomed).values() if doomed else ():
        future.result(30)


def ensure_loaded(bootstrap_servers: str, spec: Input) -> None:
    """Load the topics that the broker lacks; raise if one of them holds anything else."""
    admin = clients.admin(bootstrap_servers)
    for load in spec.loads:
        if load.topic not in admin.list_topics(timeout=30).topics:
            create_topic(admin, load.topic)
            produce(bootstrap_servers, load)
        held = records_held(bootstrap_servers, load.topic)
        if held != load.records:
            raise BenchError(
                f"topic {load.topic} holds {held} records, not {load.records}: "
                "delete the topic and run again"
            )


def produce(bootstrap_servers: str, load: TopicLoad) -> None:
    """Write the records in order, by a producer that neither repeats nor loses any."""
    producer = clients.producer(
        bootstrap_servers,
        # Not transactional: markers would take offsets, and offsets are what we measure by.
        enable_idempotence=True,
        partitioner="murmur2_random",
        linger_ms=50,
        batch_size=1 << 20,
        batch_num_messages=CHUNK,
        queue_buffering_max_messages=2 * IN_FLIGHT_MAX,
        queue_buffering_max_kbytes=1 << 20,
    )
    for messages in load.chunks():
        # A full queue refuses single records out of the middle of a batch: never let it fill.
        while len(producer) > IN_FLIGHT_MAX:
            producer.poll(0.02)
        send(producer, load.topic, messages)
        producer.poll(0)
    if producer.flush(120):
        raise BenchError(f"the broker did not take all records of {load.topic} within 120 s")


def send(producer: Producer, topic: str, messages: list[Message]) -> None:
    if "timestamp" in messages[0]:
        # The client's batches cannot carry timestamps.
        for message in messages:
            producer.produce(topic, **message)
    elif producer.produce_batch(topic, messages) != len(messages):
        raise BenchError(f"the producer refused records for {topic}")


def records_held(bootstrap_servers: str, topic: str, *, partitions: int = PARTITIONS) -> int:
    """How many offsets the topic's partitions span."""
    consumer = clients.consumer(bootstrap_servers, group="bench-watermarks")
    try:
        count = 0
        for partition in range(partitions):
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)
            count += high - low
        return count
    finally:
        consumer.close()
