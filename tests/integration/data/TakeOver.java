// The application that test_taking_over.py has in Python too: a windowed count, and a count by another key.
//   run BOOTSTRAP APPLICATION SOURCE WINDOWED REKEYED DIRECTORY HALT
//     prints what Kafka Streams reads beside the group's offsets at its start: topic, partition, time. It runs until
//     everything is processed; or, if HALT is not 0, until so many counts by the other key were made: then it dies
//     where it stands
import java.time.Duration;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.common.serialization.*;
import org.apache.kafka.streams.*;
import org.apache.kafka.streams.kstream.*;
import org.apache.kafka.streams.processor.internals.TopicPartitionMetadata;

public class TakeOver {
  public static void main(String[] arguments) throws Exception {
    try (var admin = Admin.create(Map.of("bootstrap.servers", (Object) arguments[1]))) {
      metadata(admin, arguments[2]);
      run(admin, arguments);
    }
  }

  static void metadata(Admin admin, String application) throws Exception {
    var offsets = admin.listConsumerGroupOffsets(application).partitionsToOffsetAndMetadata().get();
    offsets.forEach((where, each) -> {
      long time = TopicPartitionMetadata.decode(each.metadata()).partitionTime();
      System.out.println(where.topic() + " " + where.partition() + " " + time);
    });
  }

  static void run(Admin admin, String[] arguments) throws Exception {
    long halt = Long.parseLong(arguments[7]);
    AtomicLong counted = new AtomicLong();
    StreamsBuilder builder = new StreamsBuilder();
    var stream = builder.stream(arguments[3], Consumed.with(Serdes.String(), Serdes.String()));
    stream.groupByKey()
        .windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofSeconds(10), Duration.ofSeconds(5)))
        .count(Materialized.as("windowed"))
        .toStream()
        .to(arguments[4], Produced.with(WindowedSerdes.timeWindowedSerdeFrom(String.class, 10_000), Serdes.Long()));
    stream.groupBy((key, value) -> value, Grouped.with("words", Serdes.String(), Serdes.String()))
        .count(Materialized.as("rekeyed"))
        .toStream()
        .peek((key, count) -> { if (counted.incrementAndGet() == halt) Runtime.getRuntime().halt(0); })
        .to(arguments[5], Produced.with(Serdes.String(), Serdes.Long()));
    Properties properties = new Properties();
    properties.put("application.id", arguments[2]);
    properties.put("bootstrap.servers", arguments[1]);
    properties.put("state.dir", arguments[6]);
    properties.put("processing.guarantee", "exactly_once_v2");
    properties.put("statestore.cache.max.bytes", "0");
    properties.put("auto.offset.reset", "earliest");
    // If it dies it says no goodbye: so long does the test wait for its member to be given up.
    properties.put("session.timeout.ms", "3000");
    properties.put("heartbeat.interval.ms", "500");
    properties.put("transaction.timeout.ms", "3000");
    try (var streams = new KafkaStreams(builder.build(), properties)) {
      streams.start();
      while (lag(admin, arguments[2], arguments[3]) > 0 || halt > 0) {
        if (streams.state() == KafkaStreams.State.ERROR) System.exit(1);
        Thread.sleep(50);
      }
    }
    // Else the group has its member until the session times out.
    admin.removeMembersFromConsumerGroup(arguments[2], new RemoveMembersFromConsumerGroupOptions()).all().get();
  }

  // How many offsets are left of the source, and of what was made of it.
  static long lag(Admin admin, String application, String source) throws Exception {
    var committed = admin.listConsumerGroupOffsets(application).partitionsToOffsetAndMetadata().get();
    var names = java.util.List.of(source, application + "-words-repartition");
    if (!admin.listTopics().names().get().containsAll(names)) return 1;
    var asked = admin.describeTopics(names).allTopicNames().get().values().stream()
        .flatMap(topic -> topic.partitions().stream()
            .map(each -> new org.apache.kafka.common.TopicPartition(topic.name(), each.partition())))
        .collect(Collectors.toMap(each -> each, each -> OffsetSpec.latest()));
    var options = new ListOffsetsOptions(IsolationLevel.READ_COMMITTED);
    var ends = admin.listOffsets(asked, options).all().get();
    return ends.entrySet().stream().mapToLong(each -> {
      var at = committed.get(each.getKey());
      return each.getValue().offset() - (at == null ? 0 : at.offset());
    }).sum();
  }
}
