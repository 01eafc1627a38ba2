import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.BooleanSupplier;
import java.util.function.Supplier;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.Metric;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.common.utils.Timer;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsConfig;

/**
 * Runs cases through a real KafkaStreams on a real broker: a JSON line in, a JSON line out.
 *
 * <p>Arguments: bootstrap servers, a directory. In: {"id": application id and prefix of its topics, "cache", "idle",
 * "emit_interval", "partitions", "steps", "phases": [[[topic, key, value, timestamp, [[name, text], ...]], ...], ...]}.
 * Out: {"commits": [{"phase", "committed": {topic: {partition: offset}}, "ends": {topic: {partition: offset}}}, ...],
 * "topics": {topic: [[partition, key, value, timestamp, [headers]], ...]}}, keys and values in hex.
 *
 * <p>What makes a run the same every time: from one phase to the next the application pauses until all records have come
 * from the broker, so tasks choose among inputs that are complete (the first phase is there before it starts). The clock
 * of the stream thread stands nearly still; only at the end of a phase does it jump over the interval of commits. So a
 * phase is a commit, and one more for each time that its flush fed a repartition topic; and of an emit interval that is
 * longer than a phase the first attempt in each passes.
 */
public final class Streams {
  private static final ObjectMapper JSON = new ObjectMapper();
  // Less than an interval, or the first record would be followed by a commit.
  private static final long START_MS = 1_000;
  private static final long COMMIT_INTERVAL_MS = 1_000_000_000L;
  private static final long PATIENCE_MS = 60_000;

  private final String bootstrap;
  private final JsonNode test;
  private final String id;
  private final Admin admin;
  private final KafkaConsumer<byte[], byte[]> consumer;
  private final StoppedClock clock = new StoppedClock();
  private final Program program;
  private final Set<String> inputs = new TreeSet<>();
  private final ObjectNode answer = JSON.createObjectNode();

  private Streams(String bootstrap, Admin admin, KafkaConsumer<byte[], byte[]> consumer, JsonNode test) {
    this.bootstrap = bootstrap;
    this.admin = admin;
    this.consumer = consumer;
    this.test = test;
    id = test.get("id").asText();
    program = new Program(test.get("steps"), false);
    for (JsonNode step : test.get("steps")) {
      if (step.get("op").asText().equals("stream")) step.get("topics").forEach(topic -> inputs.add(topic.asText()));
      if (step.get("op").asText().equals("table")) inputs.add(step.get("topic").asText());
    }
  }

  public static void main(String[] arguments) throws Exception {
    PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    System.setOut(System.err);
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    Map<String, Object> properties = Map.of("bootstrap.servers", arguments[0]);
    try (Admin admin = Admin.create(properties);
        KafkaConsumer<byte[], byte[]> consumer =
            new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
      for (String line; (line = lines.readLine()) != null; ) {
        Path state = Files.createTempDirectory(Path.of(arguments[1]), "state");
        Streams run = new Streams(arguments[0], admin, consumer, JSON.readTree(line));
        answers.println(JSON.writeValueAsString(run.run(state)));
      }
    }
  }

  private ObjectNode run(Path state) throws Exception {
    List<String> topics = new ArrayList<>(inputs);
    topics.addAll(program.sinks.keySet());
    // For ever: records have times of long ago.
    Map<String, String> kept = Map.of("retention.ms", "-1");
    int partitions = test.get("partitions").asInt();
    admin.createTopics(topics.stream().map(t -> new NewTopic(t, partitions, (short) 1).configs(kept)).toList()).all().get();
    ArrayNode commits = answer.putArray("commits");
    KafkaStreams streams = new KafkaStreams(program.builder.build(), new StreamsConfig(properties(state)), clock);
    List<Throwable> failures = new ArrayList<>();
    streams.setUncaughtExceptionHandler(failure -> {
      failures.add(failure);
      return org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
    });
    try (streams) {
      int number = 0;
      for (JsonNode records : test.get("phases")) {
        write(records);
        if (number == 0) streams.start();
        do {
          await(failures, "all is there", () -> fetched(streams) == available());
          streams.resume();
          await(failures, "all is processed", () -> {
            clock.now.addAndGet(test.get("idle").asLong() + 1);
            return processed(streams) == fetched(streams);
          });
          streams.pause();
          long done = processed(streams);
          clock.now.addAndGet(COMMIT_INTERVAL_MS + 1);
          await(failures, "the commit", () -> sum(committed()) == done);
          ObjectNode commit = commits.addObject().put("phase", number);
          commit.set("committed", JSON.valueToTree(byTopic(committed())));
          commit.set("ends", JSON.valueToTree(byTopic(ends(ownTopics()))));
          // A cache that was flushed into a repartition topic has given other tasks something to do.
        } while (sum(committed()) != available());
        number++;
      }
      streams.close(Duration.ofSeconds(30));
    }
    ObjectNode written = answer.putObject("topics");
    Set<String> read = ownTopics();
    read.removeAll(inputs);
    for (String topic : read) written.set(topic, contents(topic));
    // Brokers of one machine keep every partition's files open.
    admin.deleteTopics(ownTopics()).all().get();
    return answer;
  }

  private Properties properties(Path state) {
    Properties properties = new Properties();
    properties.put("application.id", id);
    properties.put("bootstrap.servers", bootstrap);
    properties.put("state.dir", state.toString());
    properties.put("num.stream.threads", "1");
    properties.put("statestore.cache.max.bytes", test.get("cache").asText());
    properties.put("max.task.idle.ms", test.get("idle").asText());
    properties.put("commit.interval.ms", Long.toString(COMMIT_INTERVAL_MS));
    properties.put("repartition.purge.interval.ms", Long.toString(Long.MAX_VALUE / 2));
    // Their records have times of long ago, and must not be deleted before they are read.
    properties.put("windowstore.changelog.additional.retention.ms", Long.toString(Duration.ofDays(36_500).toMillis()));
    properties.put("metrics.recording.level", "DEBUG");
    properties.put("poll.ms", "10");
    properties.put("producer.linger.ms", "0");
    for (String what : List.of("outer.join.spurious.results.fix", "windowed.aggregation")) {
      properties.put("__emit.interval.ms.kstreams." + what + "__", test.get("emit_interval").asLong());
    }
    return properties;
  }

  private void write(JsonNode records) {
    Map<String, Object> properties = Map.of("bootstrap.servers", bootstrap, "linger.ms", 5);
    try (KafkaProducer<String, String> producer =
        new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer())) {
      for (JsonNode record : records) {
        ProducerRecord<String, String> sent = new ProducerRecord<>(
            record.get(0).asText(), null, record.get(3).asLong(), text(record.get(1)), text(record.get(2)));
        for (JsonNode header : record.get(4)) {
          sent.headers().add(header.get(0).asText(), header.get(1).asText().getBytes(StandardCharsets.UTF_8));
        }
        producer.send(sent);
      }
    }
  }

  private static String text(JsonNode node) { return node.isNull() ? null : node.asText(); }

  private void await(List<Throwable> failures, String what, BooleanSupplier condition) throws Exception {
    long deadline = System.currentTimeMillis() + PATIENCE_MS;
    while (!condition.getAsBoolean()) {
      if (!failures.isEmpty()) throw new IllegalStateException("The application failed", failures.get(0));
      if (System.currentTimeMillis() > deadline) throw new IllegalStateException("Time is over before " + what + ": " + id);
      Thread.sleep(20);
    }
  }

  /** How many records all tasks have taken. */
  private static long processed(KafkaStreams streams) {
    return total(streams, "stream-task-metrics", "process-total", Set.of("thread-id", "task-id"));
  }

  /** How many records the application has got from the broker. */
  private static long fetched(KafkaStreams streams) {
    return total(streams, "consumer-fetch-manager-metrics", "records-consumed-total", Set.of("client-id"));
  }

  private static long total(KafkaStreams streams, String group, String name, Set<String> tags) {
    double total = 0;
    for (Metric metric : streams.metrics().values()) {
      MetricName found = metric.metricName();
      boolean wanted = found.group().equals(group) && found.name().equals(name) && found.tags().keySet().equals(tags);
      // Changelogs are restored by a consumer of their own.
      if (wanted && !found.tags().getOrDefault("client-id", "").contains("restore")) total += (Double) metric.metricValue();
    }
    return (long) total;
  }

  /** How many records there are for tasks to take. */
  private long available() {
    Set<String> read = ownTopics();
    read.removeIf(topic -> !inputs.contains(topic) && !topic.endsWith("-repartition"));
    return sum(ends(read));
  }

  private static long sum(Map<TopicPartition, Long> offsets) {
    return offsets.values().stream().mapToLong(Long::longValue).sum();
  }

  private Set<String> ownTopics() {
    Set<String> topics = new TreeSet<>(quietly(() -> admin.listTopics().names().get()));
    topics.removeIf(topic -> !topic.startsWith(id + "-"));
    return topics;
  }

  private Map<TopicPartition, Long> ends(Collection<String> topics) {
    return consumer.endOffsets(partitions(topics));
  }

  private Map<TopicPartition, Long> committed() {
    Map<TopicPartition, OffsetAndMetadata> found =
        quietly(() -> admin.listConsumerGroupOffsets(id).partitionsToOffsetAndMetadata().get());
    return found.entrySet().stream().filter(each -> each.getValue() != null)
        .collect(Collectors.toMap(Map.Entry::getKey, each -> each.getValue().offset()));
  }

  private static Map<String, Map<String, Long>> byTopic(Map<TopicPartition, Long> offsets) {
    Map<String, Map<String, Long>> result = new TreeMap<>();
    offsets.forEach((where, offset) -> {
      if (offset > 0) {
        result.computeIfAbsent(where.topic(), topic -> new TreeMap<>()).put(Integer.toString(where.partition()), offset);
      }
    });
    return result;
  }

  private List<TopicPartition> partitions(Collection<String> topics) {
    return topics.stream().flatMap(topic -> consumer.partitionsFor(topic).stream())
        .map(each -> new TopicPartition(each.topic(), each.partition())).toList();
  }

  private ArrayNode contents(String topic) {
    ArrayNode rows = JSON.createArrayNode();
    for (TopicPartition each : partitions(List.of(topic))) {
      long end = ends(List.of(topic)).get(each);
      consumer.assign(List.of(each));
      consumer.seekToBeginning(List.of(each));
      while (consumer.position(each) < end) {
        for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
          ArrayNode row = rows.addArray().add(each.partition());
          row.add(hex(record.key())).add(hex(record.value())).add(record.timestamp());
          ArrayNode headers = row.addArray();
          for (Header header : record.headers()) headers.addArray().add(header.key()).add(hex(header.value()));
        }
      }
    }
    return rows;
  }

  private static String hex(byte[] data) { return data == null ? null : HexFormat.of().formatHex(data); }

  private interface Question<T> { T ask() throws Exception; }

  private static <T> T quietly(Question<T> question) {
    try {
      return question.ask();
    } catch (Exception problem) {
      throw new IllegalStateException(problem);
    }
  }

  /** Says the same time until told otherwise; waits as long as any other clock. */
  private static final class StoppedClock implements Time {
    final AtomicLong now = new AtomicLong(START_MS);

    @Override public long milliseconds() { return now.get(); }

    @Override public long nanoseconds() { return Time.SYSTEM.nanoseconds(); }

    @Override public void sleep(long ms) { Time.SYSTEM.sleep(ms); }

    @Override public void waitObject(Object object, Supplier<Boolean> condition, long deadlineMs) throws InterruptedException {
      Time.SYSTEM.waitObject(object, condition, Time.SYSTEM.milliseconds() + Math.max(0, deadlineMs - now.get()));
    }

    @Override public Timer timer(long timeoutMs) { return Time.SYSTEM.timer(timeoutMs); }
  }
}
