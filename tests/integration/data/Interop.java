// What a Java program finds in the topics of an application.
//   read BOOTSTRAP TOPIC                          prints key, count and timestamp of each record
//   run BOOTSTRAP APPLICATION SOURCE RESULTS DIRECTORY TOTAL
//                                                 is the same application, until its offsets add up to TOTAL
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.*;
import org.apache.kafka.streams.*;
import org.apache.kafka.streams.kstream.*;

public class Interop {
  public static void main(String[] arguments) throws Exception {
    if (arguments[0].equals("read")) read(arguments[1], arguments[2]);
    else run(arguments);
  }

  static void read(String bootstrap, String topic) {
    Map<String, Object> properties = Map.of("bootstrap.servers", bootstrap, "isolation.level", "read_committed");
    try (var consumer = new KafkaConsumer<>(properties, new StringDeserializer(), new LongDeserializer())) {
      List<TopicPartition> partitions = new ArrayList<>();
      consumer.partitionsFor(topic).forEach(each -> partitions.add(new TopicPartition(topic, each.partition())));
      consumer.assign(partitions);
      consumer.seekToBeginning(partitions);
      var ends = consumer.endOffsets(partitions);
      while (partitions.stream().anyMatch(each -> consumer.position(each) < ends.get(each)))
        for (ConsumerRecord<String, Long> record : consumer.poll(Duration.ofMillis(100)))
          System.out.println(record.key() + " " + record.value() + " " + record.timestamp());
    }
  }

  static void run(String[] arguments) throws Exception {
    StreamsBuilder builder = new StreamsBuilder();
    builder.stream(arguments[3], Consumed.with(Serdes.String(), Serdes.ByteArray()))
        .groupByKey()
        .count(Materialized.as("counts"))
        .toStream()
        .to(arguments[4], Produced.with(Serdes.String(), Serdes.Long()));
    Properties properties = new Properties();
    properties.put("application.id", arguments[2]);
    properties.put("bootstrap.servers", arguments[1]);
    properties.put("state.dir", arguments[5]);
    properties.put("processing.guarantee", "exactly_once_v2");
    properties.put("statestore.cache.max.bytes", "0");
    properties.put("auto.offset.reset", "none");
    properties.put("heartbeat.interval.ms", "500");
    long total = Long.parseLong(arguments[6]);
    try (var admin = Admin.create(Map.of("bootstrap.servers", (Object) arguments[1]))) {
      try (var streams = new KafkaStreams(builder.build(), properties)) {
        streams.start();
        while (true) {
          var offsets = admin.listConsumerGroupOffsets(arguments[2]).partitionsToOffsetAndMetadata().get();
          long sum = offsets.values().stream().mapToLong(each -> each == null ? 0 : each.offset()).sum();
          if (sum >= total) break;
          if (streams.state() == KafkaStreams.State.ERROR) System.exit(1);
          Thread.sleep(50);
        }
      }
      // Kafka Streams says no goodbye: else the group has its member until the session times out.
      admin.removeMembersFromConsumerGroup(arguments[2], new RemoveMembersFromConsumerGroupOptions()).all().get();
    }
  }
}
