import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.TestInputTopic;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.internals.SessionWindow;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.StoreBuilder;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.ValueAndTimestamp;
import org.apache.kafka.streams.state.WindowStore;

/**
 * Lets a processor of Kafka Streams do with its store what a case says; store_commands.py does the same with Penstock.
 *
 * <p>In: {"store": {kind, persistent, timestamped, retention, window}, "commands": [[timestamp, [name, argument, ...],
 * ...], ...]}, a list for each record. Out: {"answers": [[answer, ...], ...]}, and "error" where a command failed.
 */
@SuppressWarnings({"unchecked", "rawtypes"})
final class StoreCommands {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final Serde<String> TEXT = Serdes.String();

  private final JsonNode spec;
  private final boolean timestamped;
  private ArrayNode answers;

  private StoreCommands(JsonNode spec) {
    this.spec = spec;
    this.timestamped = spec.get("timestamped").asBoolean();
  }

  static ObjectNode run(JsonNode test, String stateDirectory) {
    StoreCommands commands = new StoreCommands(test.get("store"));
    ObjectNode result = JSON.createObjectNode();
    ArrayNode all = result.putArray("answers");
    Topology topology = new Topology();
    topology.addSource("in", TEXT.deserializer(), TEXT.deserializer(), "in");
    topology.addProcessor("does", commands::processor, "in");
    topology.addStateStore(commands.builder(), "does");
    Properties properties = new Properties();
    properties.put("application.id", "stores");
    properties.put("state.dir", stateDirectory);
    try (TopologyTestDriver driver = new TopologyTestDriver(topology, properties)) {
      TestInputTopic<String, String> in = driver.createInputTopic("in", new StringSerializer(), new StringSerializer());
      for (JsonNode record : test.get("commands")) {
        commands.answers = all.addArray();
        in.pipeInput("k", record.get(1).toString(), Instant.ofEpochMilli(record.get(0).asLong()));
      }
    } catch (RuntimeException problem) {
      Throwable cause = problem;
      while (cause.getCause() != null) cause = cause.getCause();
      result.put("error", cause.toString());
    }
    return result;
  }

  private StoreBuilder<?> builder() {
    boolean persistent = spec.get("persistent").asBoolean();
    Duration retention = Duration.ofMillis(spec.get("retention").asLong());
    Duration window = Duration.ofMillis(spec.get("window").asLong());
    return switch (spec.get("kind").asText()) {
      case "key_value" -> {
        var supplier = persistent ? Stores.persistentKeyValueStore("s") : Stores.inMemoryKeyValueStore("s");
        var timed = persistent ? Stores.persistentTimestampedKeyValueStore("s") : Stores.inMemoryKeyValueStore("s");
        yield timestamped
            ? Stores.timestampedKeyValueStoreBuilder(timed, TEXT, TEXT)
            : Stores.keyValueStoreBuilder(supplier, TEXT, TEXT);
      }
      case "window" -> {
        var memory = Stores.inMemoryWindowStore("s", retention, window, false);
        yield timestamped
            ? Stores.timestampedWindowStoreBuilder(
                persistent ? Stores.persistentTimestampedWindowStore("s", retention, window, false) : memory, TEXT, TEXT)
            : Stores.windowStoreBuilder(
                persistent ? Stores.persistentWindowStore("s", retention, window, false) : memory, TEXT, TEXT);
      }
      default -> Stores.sessionStoreBuilder(
          persistent ? Stores.persistentSessionStore("s", retention) : Stores.inMemorySessionStore("s", retention),
          TEXT, TEXT);
    };
  }

  private Processor<String, String, Void, Void> processor() {
    return new Processor<>() {
      private Object store;

      @Override
      public void init(ProcessorContext<Void, Void> context) { store = context.getStateStore("s"); }

      @Override
      public void process(Record<String, String> record) {
        try {
          for (JsonNode command : JSON.readTree(record.value())) answer(command);
        } catch (java.io.IOException impossible) {
          throw new IllegalStateException(impossible);
        }
      }

      private void answer(JsonNode command) {
        switch (spec.get("kind").asText()) {
          case "key_value" -> keyValue((KeyValueStore<String, Object>) store, command);
          case "window" -> window((WindowStore<String, Object>) store, command);
          default -> session((SessionStore<String, Object>) store, command);
        }
      }
    };
  }

  private void keyValue(KeyValueStore<String, Object> store, JsonNode c) {
    switch (c.get(0).asText()) {
      case "get" -> value(store.get(text(c, 1)));
      case "put" -> { store.put(text(c, 1), given(c.get(2))); answers.addNull(); }
      case "put_if_absent" -> value(store.putIfAbsent(text(c, 1), given(c.get(2))));
      case "put_all" -> {
        List<KeyValue<String, Object>> entries = new ArrayList<>();
        c.get(1).forEach(each -> entries.add(KeyValue.pair(text(each, 0), given(each.get(1)))));
        store.putAll(entries);
        answers.addNull();
      }
      case "delete" -> value(store.delete(text(c, 1)));
      case "range" -> all(store.range(text(c, 1), text(c, 2)));
      case "reverse_range" -> all(store.reverseRange(text(c, 1), text(c, 2)));
      case "all" -> all(store.all());
      case "reverse_all" -> all(store.reverseAll());
      case "prefix_scan" -> all(store.prefixScan(text(c, 1), TEXT.serializer()));
      case "walk" -> {
        ArrayNode rows = answers.addArray();
        try (var entries = store.all()) {
          while (entries.hasNext()) {
            KeyValue<String, Object> each = entries.next();
            shown(rows.addArray().add(each.key), each.value);
            store.delete(each.key);
            store.put(each.key + "~", each.value);
          }
        }
      }
      default -> throw new IllegalArgumentException(c.toString());
    }
  }

  private void window(WindowStore<String, Object> store, JsonNode c) {
    switch (c.get(0).asText()) {
      case "put" -> { store.put(text(c, 1), given(c.get(2)), c.get(3).asLong()); answers.addNull(); }
      case "fetch" -> value(store.fetch(text(c, 1), c.get(2).asLong()));
      case "fetch_range" -> all(store.fetch(text(c, 1), c.get(2).asLong(), c.get(3).asLong()));
      case "backward_fetch" -> all(store.backwardFetch(text(c, 1), c.get(2).asLong(), c.get(3).asLong()));
      case "fetch_keys" -> all(store.fetch(text(c, 1), text(c, 2), c.get(3).asLong(), c.get(4).asLong()));
      case "backward_fetch_keys" -> all(store.backwardFetch(text(c, 1), text(c, 2), c.get(3).asLong(), c.get(4).asLong()));
      case "fetch_all" -> all(store.fetchAll(c.get(1).asLong(), c.get(2).asLong()));
      case "backward_fetch_all" -> all(store.backwardFetchAll(c.get(1).asLong(), c.get(2).asLong()));
      case "all" -> all(store.all());
      case "backward_all" -> all(store.backwardAll());
      default -> throw new IllegalArgumentException(c.toString());
    }
  }

  private void session(SessionStore<String, Object> store, JsonNode c) {
    switch (c.get(0).asText()) {
      case "put" -> { store.put(session(c), given(c.get(4))); answers.addNull(); }
      case "remove" -> { store.remove(session(c)); answers.addNull(); }
      case "find_sessions" -> all(store.findSessions(text(c, 1), c.get(2).asLong(), c.get(3).asLong()));
      case "backward_find_sessions" -> backward(store.findSessions(text(c, 1), c.get(2).asLong(), c.get(3).asLong()));
      case "find_sessions_of_keys" ->
          all(store.findSessions(text(c, 1), text(c, 2), c.get(3).asLong(), c.get(4).asLong()));
      case "backward_find_sessions_of_keys" ->
          backward(store.findSessions(text(c, 1), text(c, 2), c.get(3).asLong(), c.get(4).asLong()));
      case "fetch" -> all(store.fetch(text(c, 1)));
      case "backward_fetch" -> backward(store.fetch(text(c, 1)));
      case "fetch_keys" -> all(store.fetch(text(c, 1), text(c, 2)));
      case "backward_fetch_keys" -> backward(store.fetch(text(c, 1), text(c, 2)));
      case "fetch_session" -> value(store.fetchSession(text(c, 1), c.get(2).asLong(), c.get(3).asLong()));
      default -> throw new IllegalArgumentException(c.toString());
    }
  }

  /** What a session store gives, from its end: those that processors are given have no backwardFindSessions. */
  private void backward(KeyValueIterator<Windowed<String>, Object> entries) {
    List<KeyValue<Windowed<String>, Object>> found = new ArrayList<>();
    try (entries) { entries.forEachRemaining(found::add); }
    java.util.Collections.reverse(found);
    all(found.iterator());
  }

  private static Windowed<String> session(JsonNode c) {
    return new Windowed<>(text(c, 1), new SessionWindow(c.get(2).asLong(), c.get(3).asLong()));
  }

  private Object given(JsonNode value) {
    if (value.isNull()) return null;
    return timestamped ? ValueAndTimestamp.make(value.get(0).asText(), value.get(1).asLong()) : value.asText();
  }

  private void value(Object found) {
    ArrayNode row = JSON.createArrayNode();
    shown(row, found);
    answers.add(row.get(0));
  }

  private static void shown(ArrayNode row, Object value) {
    if (value instanceof ValueAndTimestamp<?> timed) row.addArray().add((String) timed.value()).add(timed.timestamp());
    else row.add((String) value);
  }

  private void all(Iterator<?> entries) {
    ArrayNode rows = answers.addArray();
    while (entries.hasNext()) {
      KeyValue<Object, Object> each = (KeyValue<Object, Object>) entries.next();
      ArrayNode row = rows.addArray();
      if (each.key instanceof Windowed<?> key) {
        row.add((String) key.key()).add(key.window().start());
        if (key.window() instanceof SessionWindow) row.add(key.window().end());
      } else if (each.key instanceof Long start) {
        row.add(start);
      } else {
        row.add((String) each.key);
      }
      shown(row, each.value);
    }
    if (entries instanceof AutoCloseable open) {
      try {
        open.close();
      } catch (Exception impossible) {
        throw new IllegalStateException(impossible);
      }
    }
  }

  private static String text(JsonNode command, int at) {
    return command.get(at).isNull() ? null : command.get(at).asText();
  }
}
