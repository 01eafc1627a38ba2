// Runs cases through Kafka Streams' TopologyTestDriver: a JSON line in, a JSON line out.
// In:  {"topology": name, "cache": bytes, "records": [[key hex or null, value hex or null, ts, headers]]}
// Out: {topic: [[key hex or null, value hex or null, ts, headers], ...], ...}, changelogs included.
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Instant;
import java.util.Collections;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.*;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.*;
import org.apache.kafka.streams.kstream.*;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.test.TestRecord;

public class Oracle {
  static final Serde<String> TEXT = Serdes.String();
  static final Serde<Long> LONG = Serdes.Long();

  // In memory: only what is written counts here, and a database per case takes long to open.
  static Materialized<String, Long, KeyValueStore<Bytes, byte[]>> store(String name) {
    return Materialized.<String, Long>as(Stores.inMemoryKeyValueStore(name)).withKeySerde(TEXT).withValueSerde(LONG);
  }

  static Long forget(long total) { return total % 5 == 0 ? null : total; }

  static Topology topology(String name) {
    StreamsBuilder builder = new StreamsBuilder();
    KStream<String, Long> in = builder.stream("in", Consumed.with(TEXT, LONG));
    Produced<String, Long> produced = Produced.with(TEXT, LONG);
    KGroupedStream<String, Long> grouped = in.groupByKey();
    switch (name) {
      case "count" -> grouped.count(store("s")).toStream().to("out", produced);
      case "reduce" -> grouped.reduce((a, v) -> a + v, store("s")).toStream().to("out", produced);
      case "aggregate" -> grouped.aggregate(() -> 0L, (k, v, t) -> forget(t + v), store("s"))
          .toStream().to("out", produced);
      case "rekeyed" -> in.filter((k, v) -> v == null || v > 0)
          .groupBy((k, v) -> v == null ? null : "k" + v % 3, Grouped.with(TEXT, LONG))
          .count(store("s")).toStream().mapValues(n -> n * 10).to("out", produced);
      case "mapped" -> in.map((k, v) -> KeyValue.pair(v == null ? k : k + v, v)).filterNot((k, v) -> v != null && v == 2)
          .groupByKey(Grouped.<String, Long>as("by-pair").withKeySerde(TEXT).withValueSerde(LONG))
          .reduce((a, v) -> Math.max(a, v), store("s")).toStream().to("out", produced);
      case "branches" -> {
        in.filter((k, v) -> v != null && v % 2 == 0).to("even", produced);
        KStream<String, Long> counts = grouped.count(store("s")).toStream();
        counts.to("out", produced);
        counts.filter((k, n) -> n > 1).to("many", produced);
        grouped.reduce((a, v) -> a + v, store("t")).toStream().to("out", produced);
      }
      case "chain" -> {
        KStream<String, Long> first = grouped.aggregate(() -> 0L, (k, v, t) -> forget(t + v), store("s")).toStream();
        first.to("first", produced);
        first.groupByKey(Grouped.with(TEXT, LONG)).count(store("t")).toStream().to("out", produced);
      }
      case "divided" -> {
        KStream<String, Long> flat = in.flatMapValues(v -> v == null ? List.of() : Collections.nCopies(v.intValue(), v));
        flat.to("out", produced);
        flat.flatMap((k, v) -> List.of(KeyValue.pair(k, v), KeyValue.pair("x", 1L))).to("out", produced);
        Map<String, KStream<String, Long>> parts = flat.split(Named.as("by-"))
            .branch((k, v) -> v == 1, Branched.as("one")).branch((k, v) -> v % 2 == 0).defaultBranch();
        parts.get("by-one").to("out", produced);
        parts.get("by-2").groupByKey(Grouped.with(TEXT, LONG)).count(store("s")).toStream().to("out", produced);
        parts.get("by-0").to("rest", produced);
      }
      case "tables" -> {
        KTable<String, Long> sums = grouped.aggregate(() -> 0L, (k, v, t) -> forget(t + v), store("s"));
        sums.filter((k, v) -> v % 2 == 0).toStream().to("out", produced);
        sums.filterNot((k, v) -> v > 6).mapValues(v -> v * 10).toStream().to("small", produced);
        sums.mapValues(v -> v % 3).filter((k, v) -> v == 1).toStream().to("mapped", produced);
        sums.mapValues(v -> v + 1).toStream().to("out", produced);
      }
      case "latest" -> {
        KTable<String, Long> latest = in.toTable(store("s"));
        latest.toStream().to("out", produced);
        latest.filter((k, v) -> v > 1).toStream().to("out", produced);
        in.selectKey((k, v) -> v == null ? k : "k" + v % 3).toTable(Named.as("mover"), store("t")).mapValues(v -> v * 2).toStream().to("moved", produced);
      }
      default -> throw new IllegalArgumentException(name);
    }
    return builder.build();
  }

  public static void main(String[] arguments) throws Exception {
    ObjectMapper json = new ObjectMapper();
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
    for (String line; (line = lines.readLine()) != null; ) {
      System.out.println(json.writeValueAsString(run(json, json.readTree(line))));
    }
  }

  static ObjectNode run(ObjectMapper json, JsonNode test) {
    Properties properties = new Properties();
    properties.put("application.id", "app");
    properties.put("statestore.cache.max.bytes", test.get("cache").asText());
    properties.put("state.dir", System.getProperty("java.io.tmpdir") + "/oracle-" + ProcessHandle.current().pid());
    ObjectNode result = json.createObjectNode();
    try (TopologyTestDriver driver = new TopologyTestDriver(topology(test.get("topology").asText()), properties)) {
      TestInputTopic<byte[], byte[]> in = driver.createInputTopic("in", new ByteArraySerializer(), new ByteArraySerializer());
      for (JsonNode record : test.get("records")) in.pipeInput(record(record));
      for (String topic : driver.producedTopicNames()) {
        ArrayNode rows = result.putArray(topic);
        driver.createOutputTopic(topic, new ByteArrayDeserializer(), new ByteArrayDeserializer())
            .readRecordsToList().forEach(each -> row(rows.addArray(), each));
      }
    }
    return result;
  }

  static TestRecord<byte[], byte[]> record(JsonNode record) {
    Headers headers = new RecordHeaders();
    record.get(3).forEach(each -> headers.add(each.get(0).asText(), bytes(each.get(1))));
    return new TestRecord<>(bytes(record.get(0)), bytes(record.get(1)), headers, Instant.ofEpochMilli(record.get(2).asLong()));
  }

  static void row(ArrayNode row, TestRecord<byte[], byte[]> record) {
    row.add(hex(record.key())).add(hex(record.value())).add(record.timestamp());
    ArrayNode headers = row.addArray();
    for (Header header : record.headers()) headers.addArray().add(header.key()).add(hex(header.value()));
  }

  static byte[] bytes(JsonNode hex) { return hex.isNull() ? null : HexFormat.of().parseHex(hex.asText()); }

  static String hex(byte[] data) { return data == null ? null : HexFormat.of().formatHex(data); }
}
