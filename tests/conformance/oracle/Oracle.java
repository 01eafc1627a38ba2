import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Stream;
import org.apache.kafka.common.Metric;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.TestInputTopic;
import org.apache.kafka.streams.TestOutputTopic;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.errors.LogAndContinueExceptionHandler;
import org.apache.kafka.streams.errors.LogAndContinueProcessingExceptionHandler;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.state.BuiltInDslStoreSuppliers.InMemoryDslStoreSuppliers;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.ValueAndTimestamp;
import org.apache.kafka.streams.state.VersionedKeyValueStore;
import org.apache.kafka.streams.state.VersionedRecord;
import org.apache.kafka.streams.test.TestRecord;

/**
 * Runs cases through Kafka Streams' TopologyTestDriver: a JSON line in, a JSON line out.
 *
 * <p>In: {"cache": bytes, "steps": [...], "records": [[topic, key, value, timestamp], ...]}. Out: {"outputs": [{topic:
 * [[key, value, timestamp], ...]}, ...], one object per record, "stores": {name: [[key, value, timestamp], ...]}}; a
 * windowed key is [key, start, end], a session has no timestamp; every value is a text or null. An exception gives
 * "error" and "at", the number of the record, or -1 where the topology could not be built. "full_stores" asks for the
 * default stores instead of the quick ones, "memory" for those in memory, "changelogs" for what was written to them,
 * and for the topology as it is "described". If it is "marked", records have headers, and results end with theirs. What
 * it "handles" it continues after. A record without a topic lets the wall clock go on, from 0, by its timestamp. Lines
 * with "commands" are for {@link StoreCommands}.
 */
public final class Oracle {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final int UNMARKED_EACH = 4;

  private Oracle() {}

  public static void main(String[] arguments) throws Exception {
    // What libraries print must not come between the answers.
    PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    System.setOut(System.err);
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line; (line = lines.readLine()) != null; ) {
      Path state = Files.createTempDirectory(Path.of(arguments[0]), "state");
      JsonNode test = JSON.readTree(line);
      ObjectNode answer = test.has("commands")
          ? StoreCommands.run(test, state.toString())
          : run(test, state.toString());
      answers.println(JSON.writeValueAsString(answer));
      remove(state);
    }
  }

  private static ObjectNode run(JsonNode test, String stateDirectory) {
    ObjectNode answer = JSON.createObjectNode();
    int at = -1;
    TopologyTestDriver driver = null;
    try {
      Program program = new Program(test.get("steps"), handles(test, "deserialization"));
      Topology topology = program.builder.build();
      if (test.has("changelogs")) answer.put("described", topology.describe().toString());
      driver = new TopologyTestDriver(topology, properties(test, stateDirectory), Instant.EPOCH);
      Map<String, TestInputTopic<String, String>> inputs = new HashMap<>();
      Map<String, TestOutputTopic<Object, Object>> sinks = new LinkedHashMap<>();
      for (Map.Entry<String, Program.Flow> sink : program.sinks.entrySet()) {
        Program.Flow flow = sink.getValue();
        sinks.put(sink.getKey(),
            driver.createOutputTopic(sink.getKey(), flow.key().deserializer(), flow.value().deserializer()));
      }
      ArrayNode outputs = answer.putArray("outputs");
      for (JsonNode record : test.get("records")) {
        at++;
        if (record.get(0).asText().isEmpty()) {
          driver.advanceWallClockTime(Duration.ofMillis(record.get(3).asLong()));
          outputs.add(drained(sinks, isMarked(test)));
          continue;
        }
        TopologyTestDriver running = driver;
        inputs.computeIfAbsent(record.get(0).asText(),
            topic -> running.createInputTopic(topic, new StringSerializer(), new StringSerializer()))
            .pipeInput(new TestRecord<>(
                text(record.get(1)), text(record.get(2)), headers(test, at), record.get(3).asLong()));
        outputs.add(drained(sinks, isMarked(test)));
      }
      answer.put("dropped", dropped(driver));
      ObjectNode stores = answer.putObject("stores");
      for (Map.Entry<String, Program.Held> store : program.stores.entrySet()) {
        stores.set(store.getKey(), contents(driver, store.getKey(), store.getValue().kind(), test.get("records")));
      }
      if (test.has("changelogs")) changelogs(driver, answer.putObject("changelogs"));
    } catch (RuntimeException problem) {
      Throwable cause = problem;
      while (cause.getCause() != null) cause = cause.getCause();
      answer.put("error", cause.getClass().getSimpleName() + ": " + cause.getMessage()).put("at", at);
    } finally {
      close(driver);
    }
    return answer;
  }

  private static void close(TopologyTestDriver driver) {
    try {
      if (driver != null) driver.close();
    } catch (RuntimeException afterFailure) {
      // The failure is in the answer already.
    }
  }

  private static void remove(Path directory) throws IOException {
    try (Stream<Path> files = Files.walk(directory)) {
      for (Path file : files.sorted(Comparator.reverseOrder()).toList()) Files.delete(file);
    }
  }

  private static Properties properties(JsonNode test, String stateDirectory) {
    Properties properties = new Properties();
    properties.put("application.id", "conformance");
    properties.put("statestore.cache.max.bytes", test.get("cache").asText());
    properties.put("state.dir", stateDirectory);
    if (test.has("memory")) properties.put("dsl.store.suppliers.class", InMemoryDslStoreSuppliers.class.getName());
    else if (!test.has("full_stores")) properties.put("dsl.store.suppliers.class", QuickStores.class.getName());
    if (handles(test, "deserialization")) {
      properties.put("deserialization.exception.handler", LogAndContinueExceptionHandler.class);
    }
    if (handles(test, "processing")) {
      properties.put("processing.exception.handler", LogAndContinueProcessingExceptionHandler.class);
    }
    properties.put("default.key.serde", "org.apache.kafka.common.serialization.Serdes$StringSerde");
    properties.put("default.value.serde", "org.apache.kafka.common.serialization.Serdes$StringSerde");
    return properties;
  }

  // Whether what fails on a record of that kind goes on with the next.
  private static boolean handles(JsonNode test, String kind) {
    for (JsonNode each : test.path("handles")) if (each.asText().equals(kind)) return true;
    return false;
  }

  private static boolean isMarked(JsonNode test) { return test.path("marked").asBoolean(false); }

  // Most records of a marked case have a header with their number.
  private static Headers headers(JsonNode test, int number) {
    Headers headers = new RecordHeaders();
    if (isMarked(test) && number % UNMARKED_EACH != 0) {
      headers.add("number", Integer.toString(number).getBytes(StandardCharsets.UTF_8));
    }
    return headers;
  }

  private static String marks(Headers headers) {
    List<String> marks = new ArrayList<>();
    for (Header header : headers) marks.add(new String(header.value(), StandardCharsets.UTF_8));
    return String.join(",", marks);
  }

  private static ObjectNode drained(Map<String, TestOutputTopic<Object, Object>> sinks, boolean marked) {
    ObjectNode caused = JSON.createObjectNode();
    for (Map.Entry<String, TestOutputTopic<Object, Object>> sink : sinks.entrySet()) {
      if (sink.getValue().isEmpty()) continue;
      ArrayNode rows = caused.putArray(sink.getKey());
      for (TestRecord<Object, Object> record : sink.getValue().readRecordsToList()) {
        ArrayNode row = row(rows, record.key(), record.value()).add(record.timestamp());
        if (marked) row.add(marks(record.headers()));
      }
    }
    return caused;
  }

  // What was written to the changelogs, in bytes: key, value, timestamp.
  private static void changelogs(TopologyTestDriver driver, ObjectNode changelogs) {
    for (String topic : new TreeSet<>(driver.producedTopicNames())) {
      if (!topic.endsWith("-changelog")) continue;
      ArrayNode rows = changelogs.putArray(topic);
      ByteArrayDeserializer bytes = new ByteArrayDeserializer();
      for (TestRecord<byte[], byte[]> record : driver.createOutputTopic(topic, bytes, bytes).readRecordsToList()) {
        rows.addArray().add(hex(record.key())).add(hex(record.value())).add(record.timestamp());
      }
    }
  }

  private static String hex(byte[] data) { return data == null ? null : HexFormat.of().formatHex(data); }

  // How many records went no further, by Kafka Streams' own count.
  private static long dropped(TopologyTestDriver driver) {
    double sum = 0;
    for (Metric metric : driver.metrics().values()) {
      if (metric.metricName().name().equals("dropped-records-total")) sum += (double) metric.metricValue();
    }
    return (long) sum;
  }

  private static ArrayNode contents(TopologyTestDriver driver, String store, String kind, JsonNode records) {
    ArrayNode rows = JSON.createArrayNode();
    switch (kind) {
      case "key_value" -> {
        try (var all = driver.<Object, Object>getTimestampedKeyValueStore(store).all()) { timed(rows, all); }
      }
      case "window" -> {
        try (var all = driver.<Object, Object>getTimestampedWindowStore(store).all()) { timed(rows, all); }
      }
      case "plain" -> logged(rows, driver, store);
      case "unlogged" -> {
        try (var all = driver.<Object, Object>getKeyValueStore(store).all()) {
          all.forEachRemaining(each -> row(rows, each.key, each.value));
        }
      }
      case "plain_window" -> {
        try (var all = driver.<Object, Object>getWindowStore(store).all()) {
          all.forEachRemaining(each -> row(rows, each.key, each.value));
        }
      }
      case "session" -> {
        try (var all = driver.<Object, Object>getSessionStore(store).fetch(null, null)) {
          while (all.hasNext()) {
            KeyValue<Windowed<Object>, Object> each = all.next();
            row(rows, each.key, each.value);
          }
        }
      }
      default -> versioned(rows, driver, store, records);
    }
    return rows;
  }

  // A plain store's values have the times that its changelog has for them; what it alone has is shown, too.
  private static void logged(ArrayNode rows, TopologyTestDriver driver, String store) {
    Map<String, TestRecord<String, String>> log = new LinkedHashMap<>();
    StringDeserializer texts = new StringDeserializer();
    driver.createOutputTopic("conformance-" + store + "-changelog", texts, texts).readRecordsToList()
        .forEach(each -> log.put(each.key(), each));
    log.values().removeIf(each -> each.value() == null);
    try (var all = driver.<Object, Object>getKeyValueStore(store).all()) {
      all.forEachRemaining(each -> {
        TestRecord<String, String> last = log.remove((String) each.key);
        boolean same = last != null && last.value().equals(each.value);
        row(rows, each.key, each.value).add(same ? last.timestamp() : -1);
      });
    }
    log.forEach((key, last) -> row(rows, key, "only in the changelog"));
  }

  private static <K> void timed(ArrayNode rows, KeyValueIterator<K, ValueAndTimestamp<Object>> all) {
    while (all.hasNext()) {
      KeyValue<K, ValueAndTimestamp<Object>> each = all.next();
      row(rows, each.key, each.value.value()).add(each.value.timestamp());
    }
  }

  // A versioned store cannot be walked through: its keys are those of the records, and some that functions make.
  private static void versioned(ArrayNode rows, TopologyTestDriver driver, String store, JsonNode records) {
    Set<String> keys = new LinkedHashSet<>();
    TreeSet<Long> times = new TreeSet<>();
    for (JsonNode record : records) {
      if (!record.get(1).isNull()) keys.add(record.get(1).asText());
      times.add(record.get(3).asLong());
    }
    keys.addAll(Functions.GUESSED_KEYS);
    VersionedKeyValueStore<Object, Object> versions = driver.getVersionedKeyValueStore(store);
    for (String key : keys) {
      VersionedRecord<Object> latest = versions.get(key);
      if (latest != null) row(rows, key, latest.value()).add(latest.timestamp());
      int number = 0;
      for (long time : times) {
        if (number++ % 3 != 0) continue;
        VersionedRecord<Object> found = versions.get(key, time);
        if (found != null) row(rows, key + "@" + time, found.value()).add(found.timestamp());
      }
    }
  }

  private static ArrayNode row(ArrayNode rows, Object key, Object value) {
    ArrayNode row = rows.addArray();
    if (key instanceof Windowed<?> window) {
      row.addArray().add((String) window.key()).add(window.window().start()).add(window.window().end());
    } else {
      row.add((String) key);
    }
    return row.add(value == null ? null : value.toString());
  }

  private static String text(JsonNode node) { return node.isNull() ? null : node.asText(); }
}
