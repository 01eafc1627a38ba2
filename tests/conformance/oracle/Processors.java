import com.fasterxml.jackson.databind.JsonNode;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.common.errors.SerializationException;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.internals.SessionWindow;
import org.apache.kafka.streams.processor.Cancellable;
import org.apache.kafka.streams.processor.PunctuationType;
import org.apache.kafka.streams.processor.Punctuator;
import org.apache.kafka.streams.processor.api.FixedKeyProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyProcessorContext;
import org.apache.kafka.streams.processor.api.FixedKeyProcessorSupplier;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;
import org.apache.kafka.streams.processor.api.ProcessingContext;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.ProcessorSupplier;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.processor.api.RecordMetadata;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.ReadOnlyKeyValueStore;
import org.apache.kafka.streams.state.ReadOnlySessionStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.StoreBuilder;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.ValueAndTimestamp;
import org.apache.kafka.streams.state.VersionedKeyValueStore;
import org.apache.kafka.streams.state.VersionedRecord;
import org.apache.kafka.streams.state.WindowStore;

/**
 * The processors that a case may name, and their stores. processor_words.py has the same in Python.
 *
 * <p>They keep nothing but what is in their stores, and show in their results what they found there.
 */
@SuppressWarnings({"unchecked", "rawtypes"})
final class Processors {
  private static final Serde<String> TEXT = Serdes.String();
  private static final String POISON = "¡";

  /** Texts, of which some cannot be read. */
  static final Serde<Object> PICKY = (Serde) Serdes.serdeFrom(TEXT.serializer(), (topic, data) -> {
    String text = TEXT.deserializer().deserialize(topic, data);
    if (text != null && text.startsWith(POISON)) throw new SerializationException("poison");
    return text;
  });

  private Processors() {}

  /** What a processor can do, whether it may change keys or not. */
  private abstract static class Hands {
    private final ProcessingContext context;

    Hands(ProcessingContext context) { this.context = context; }

    abstract void forward(Object key, String value, long time, Headers headers, String child);

    Object store(String name) { return context.getStateStore(name); }

    Cancellable schedule(long interval, PunctuationType type, Punctuator action) {
      return context.schedule(Duration.ofMillis(interval), type, action);
    }

    long streamTime() { return context.currentStreamTimeMs(); }

    Optional<RecordMetadata> place() { return context.recordMetadata(); }
  }

  private record Given(Object key, Object value, long time, Headers headers) {
    String name() {
      String inner = Functions.inner(key);
      return inner == null ? "-" : inner;
    }

    String text() { return Functions.text(value); }

    String textOrNull() { return value == null ? null : text(); }

    boolean has(String part) { return Functions.has(value, part); }
  }

  static ProcessorSupplier<Object, Object, Object, Object> of(JsonNode step) {
    return () -> new Processor<>() {
      private Work work;

      @Override
      public void init(ProcessorContext<Object, Object> context) {
        work = new Work(step, new Hands(context) {
          @Override
          public void forward(Object key, String value, long time, Headers headers, String child) {
            Record<Object, Object> made = new Record<>(key, value, time, headers);
            if (child == null) context.forward(made);
            else context.forward(made, child);
          }
        });
      }

      @Override
      public void process(Record<Object, Object> record) {
        work.take(new Given(record.key(), record.value(), record.timestamp(), record.headers()));
      }
    };
  }

  static FixedKeyProcessorSupplier<Object, Object, Object> ofValues(JsonNode step) {
    return () -> new FixedKeyProcessor<>() {
      private Work work;
      private FixedKeyRecord<Object, Object> current;

      @Override
      public void init(FixedKeyProcessorContext<Object, Object> context) {
        work = new Work(step, new Hands(context) {
          @Override
          public void forward(Object key, String value, long time, Headers headers, String child) {
            FixedKeyRecord<Object, Object> made =
                current.<Object>withValue(value).withTimestamp(time).withHeaders(headers);
            if (child == null) context.forward(made);
            else context.forward(made, child);
          }
        });
      }

      @Override
      public void process(FixedKeyRecord<Object, Object> record) {
        current = record;
        work.take(new Given(record.key(), record.value(), record.timestamp(), record.headers()));
      }
    };
  }

  /** Fills a global store. */
  static ProcessorSupplier<Object, Object, Void, Void> keeper(String name) {
    return () -> new Processor<>() {
      private KeyValueStore<String, String> store;

      @Override
      public void init(ProcessorContext<Void, Void> context) { store = context.getStateStore(name); }

      @Override
      public void process(Record<Object, Object> record) {
        Given given = new Given(record.key(), record.value(), record.timestamp(), record.headers());
        if (given.has("x")) store.delete(given.name());
        else store.put(given.name(), Functions.shorten(Functions.text(store.get(given.name())) + given.text()));
      }
    };
  }

  static StoreBuilder<?> store(JsonNode step) {
    String name = step.get("store").asText();
    boolean persistent = step.get("persistent").asBoolean();
    Duration retention = Duration.ofMillis(step.path("retention").asLong());
    Duration window = Duration.ofMillis(step.path("size").asLong());
    return switch (step.get("kind").asText()) {
      case "plain" -> Stores.keyValueStoreBuilder(
          persistent ? Stores.persistentKeyValueStore(name) : Stores.inMemoryKeyValueStore(name), TEXT, TEXT);
      case "lru" -> Stores.keyValueStoreBuilder(Stores.lruMap(name, step.get("entries").asInt()), TEXT, TEXT);
      case "timestamped" -> Stores.timestampedKeyValueStoreBuilder(
          persistent ? Stores.persistentTimestampedKeyValueStore(name) : Stores.inMemoryKeyValueStore(name), TEXT, TEXT);
      case "window" -> Stores.windowStoreBuilder(
          persistent
              ? Stores.persistentWindowStore(name, retention, window, false)
              : Stores.inMemoryWindowStore(name, retention, window, false),
          TEXT, TEXT);
      case "versioned" -> Stores.versionedKeyValueStoreBuilder(
          Stores.persistentVersionedKeyValueStore(name, retention), TEXT, TEXT);
      default -> Stores.sessionStoreBuilder(Stores.persistentSessionStore(name, retention), TEXT, TEXT);
    };
  }

  static int chosen(String word, Object key, Object value, int count) {
    String inner = Functions.inner(key);
    String text = word.equals("by_value") ? Functions.text(value) : inner == null ? "-" : inner;
    return Functions.length(text) % count;
  }

  static Optional<Set<Integer>> partitioned(String word, Object value) {
    return switch (word) {
      case "first" -> Optional.of(Set.of(0));
      case "unsaid" -> Optional.empty();
      default -> Functions.has(value, "x")
          ? Optional.of(Set.of())
          : Functions.has(value, "a") ? Optional.empty() : Optional.of(Set.of(0));
    };
  }

  static long time(String word, Object value, long time) {
    return switch (word) {
      case "half" -> time / 2;
      case "not_x" -> Functions.has(value, "x") ? -1 : time;
      case "by_length" -> time + Functions.length(Functions.text(value));
      default -> throw new IllegalArgumentException(word);
    };
  }

  private static final class Work {
    private final JsonNode step;
    private final Hands hands;
    private final Object store;

    Work(JsonNode step, Hands hands) {
      this.step = step;
      this.hands = hands;
      this.store = step.has("store") ? hands.store(step.get("store").asText()) : null;
      switch (step.get("f").asText()) {
        case "walker" -> hands.schedule(step.get("interval").asLong(), PunctuationType.STREAM_TIME, this::walk);
        case "waker" -> hands.schedule(step.get("interval").asLong(), PunctuationType.WALL_CLOCK_TIME, this::walk);
        default -> { }
      }
    }

    void take(Given given) {
      switch (step.get("f").asText()) {
        case "counter" -> counter(given, (KeyValueStore<String, String>) store);
        case "absent" -> absent(given, (KeyValueStore<String, String>) store);
        case "last" -> last(given, (WindowStore<String, String>) store);
        case "history" -> history(given, (VersionedKeyValueStore<String, String>) store);
        case "sessions" -> sessions(given, (SessionStore<String, String>) store);
        case "stamps" -> stamps(given, (KeyValueStore<String, ValueAndTimestamp<String>>) store);
        case "walker", "waker" -> collect(given, (KeyValueStore<String, String>) store);
        case "later" -> later(given, (KeyValueStore<String, String>) store);
        case "marker" -> mark(given);
        case "spread" -> spread(given);
        case "router" -> route(given);
        case "teller" -> tell(given);
        case "reader" -> read(given, hands.store(step.get("reads").asText()));
        case "fragile" -> fragile(given, (KeyValueStore<String, String>) store);
        default -> throw new IllegalArgumentException(step.toString());
      }
    }

    private boolean mayChangeKeys() { return step.get("op").asText().equals("process"); }

    private void give(Given given, String value) { give(given, value, given.time, given.headers, null); }

    private void give(Given given, String value, long time, Headers headers, String child) {
      Object key = mayChangeKeys() ? Functions.inner(given.key) : given.key;
      hands.forward(key, value == null ? null : Functions.shorten(value), time, headers, child);
    }

    private void counter(Given given, KeyValueStore<String, String> store) {
      if (given.has("x")) {
        String gone = store.delete(given.name());
        give(given, gone == null ? null : "gone" + gone);
        return;
      }
      int number = number(store.get(given.name())) + 1;
      store.put(given.name(), Integer.toString(number));
      String first = Functions.selectKey("first_of_value", null, given.value);
      give(given, given.text() + "#" + number + "/" + Functions.text(store.get(first == null ? "-" : first)));
    }

    private static int number(String text) { return text == null ? 0 : Integer.parseInt(text); }

    private void absent(Given given, KeyValueStore<String, String> store) {
      String name = given.name();
      String value = given.text();
      String before = store.putIfAbsent(name, value);
      String first = value.isEmpty() ? "" : Character.toString(value.codePointAt(0));
      store.putAll(List.of(
          KeyValue.pair(name + "1", value), KeyValue.pair(name + "2", null), KeyValue.pair(first + "3", name)));
      give(given, Functions.text(before) + "?" + value);
    }

    private void last(Given given, WindowStore<String, String> store) {
      long span = step.get("span").asLong();
      store.put(given.name(), given.textOrNull(), given.time);
      if (given.has("a")) {
        List<String> rows = new ArrayList<>();
        try (var found = store.fetchAll(Math.max(0, given.time - span), given.time)) {
          found.forEachRemaining(each ->
              rows.add(each.key.key() + "@" + each.key.window().start() + "=" + each.value));
        }
        give(given, String.join(",", rows));
        return;
      }
      List<String> around = windows(store.fetch(given.name(), Math.max(0, given.time - span), given.time + span));
      List<String> before = windows(store.backwardFetch(given.name(), 0, given.time));
      give(given, String.join(",", around) + "/" + String.join(",", before.subList(0, Math.min(2, before.size())))
          + "/" + Functions.text(store.fetch(given.name(), given.time)));
    }

    private static List<String> windows(KeyValueIterator<Long, ?> entries) {
      List<String> rows = new ArrayList<>();
      try (entries) {
        entries.forEachRemaining(each -> rows.add(each.key + "=" + Functions.text(bare(each.value))));
      }
      return rows;
    }

    private static Object bare(Object value) {
      return value instanceof ValueAndTimestamp<?> timed ? timed.value() : value;
    }

    private void history(Given given, VersionedKeyValueStore<String, String> store) {
      long span = step.get("span").asLong();
      if (given.has("x")) {
        give(given, "gone" + version(store.delete(given.name(), given.time)));
        return;
      }
      long until = store.put(given.name(), given.textOrNull(), given.time);
      String shown = until == VersionedKeyValueStore.PUT_RETURN_CODE_NOT_PUT ? "late" : Long.toString(until);
      String then = version(store.get(given.name(), Math.max(0, given.time - span)));
      give(given, shown + ":" + then + ":" + version(store.get(given.name())));
    }

    private static String version(VersionedRecord<?> found) {
      return found == null ? "null" : Functions.text(found.value()) + "@" + found.timestamp();
    }

    private void sessions(Given given, SessionStore<String, String> store) {
      long span = step.get("span").asLong();
      long first = given.time;
      long last = given.time;
      String whole = given.text();
      List<KeyValue<Windowed<String>, String>> found = new ArrayList<>();
      try (var each = store.findSessions(given.name(), Math.max(0, given.time - span), given.time + span)) {
        each.forEachRemaining(found::add);
      }
      for (KeyValue<Windowed<String>, String> each : found) {
        first = Math.min(first, each.key.window().start());
        last = Math.max(last, each.key.window().end());
        whole = Functions.shorten(each.value + "+" + whole);
        store.remove(each.key);
      }
      store.put(new Windowed<>(given.name(), new SessionWindow(first, last)), whole);
      if (given.has("c")) store.remove(new Windowed<>(given.name(), new SessionWindow(0, 0)));
      int others = 0;
      try (var all = store.fetch(given.name())) {
        for (; all.hasNext(); all.next()) others++;
      }
      give(given, first + "-" + last + ":" + others + ":" + whole);
    }

    private void stamps(Given given, KeyValueStore<String, ValueAndTimestamp<String>> store) {
      ValueAndTimestamp<String> before = store.get(given.name());
      if (given.value == null) store.delete(given.name());
      else if (before == null || before.timestamp() <= given.time) {
        store.put(given.name(), ValueAndTimestamp.make(given.text(), given.time));
      }
      String shown = before == null ? "null" : before.value() + "@" + before.timestamp();
      give(given, given.text() + "~" + shown);
    }

    private void collect(Given given, KeyValueStore<String, String> store) {
      String before = store.get(given.name());
      store.put(given.name(),
          given.value == null ? null : Functions.shorten(Functions.text(before) + given.text()));
      if (given.has("b")) give(given, given.text());
    }

    private void walk(long now) {
      KeyValueStore<String, String> store = (KeyValueStore<String, String>) this.store;
      List<KeyValue<String, String>> found = new ArrayList<>();
      try (var entries = walked(store)) {
        entries.forEachRemaining(found::add);
      }
      for (KeyValue<String, String> each : found) {
        Functions.check(step, each.value);
        hands.forward(each.key, Functions.shorten(each.value + "@" + now), now, new RecordHeaders(), null);
        if (Functions.test("even_end", null, each.value)) store.delete(each.key);
      }
    }

    private KeyValueIterator<String, String> walked(KeyValueStore<String, String> store) {
      return switch (step.get("walk").asText()) {
        case "all" -> store.all();
        case "reverse_all" -> store.reverseAll();
        case "range" -> store.range("a", "c");
        case "reverse_range" -> store.reverseRange("b", null);
        default -> store.prefixScan("a", TEXT.serializer());
      };
    }

    private void later(Given given, KeyValueStore<String, String> store) {
      if (given.has("a")) {
        Cancellable[] own = new Cancellable[1];
        own[0] = hands.schedule(step.get("interval").asLong(), PunctuationType.STREAM_TIME, now -> {
          int calls = number(store.get("calls")) + 1;
          store.put("calls", Integer.toString(calls));
          hands.forward("call", Integer.toString(calls), now, new RecordHeaders(), null);
          if (calls % 3 == 0) own[0].cancel();
        });
      }
      give(given, given.text() + "#" + number(store.get("calls")));
    }

    private void mark(Given given) {
      long times = 1 + Functions.length(given.text()) % 3;
      long time = Math.max(0, given.time + times * step.get("shift").asLong());
      RecordHeader own = new RecordHeader("by", given.name().getBytes(StandardCharsets.UTF_8));
      Headers headers = new RecordHeaders();
      String word = step.get("headers").asText();
      if (word.equals("twice")) headers.add(own);
      if (Set.of("add", "twice", "keep").contains(word)) given.headers.forEach(headers::add);
      if (Set.of("add", "replace", "twice").contains(word)) headers.add(own);
      give(given, given.textOrNull(), time, headers, null);
    }

    private void spread(Given given) {
      String inner = Functions.inner(given.key);
      String[] keys = {
        inner, Functions.selectKey("first_of_value", null, given.value), inner == null ? null : inner + "2"
      };
      for (int number = 0; number < Functions.length(given.text()) % 4; number++) {
        String value = Functions.shorten(given.text() + "." + number);
        Object key = mayChangeKeys() ? keys[number] : given.key;
        hands.forward(key, value, given.time + number, given.headers, null);
      }
    }

    private void route(Given given) {
      String value = given.textOrNull();
      if (given.has("a")) give(given, value, given.time, given.headers, step.get("children").get(0).asText());
      else if (given.has("b")) give(given, value, given.time, given.headers, step.get("children").get(1).asText());
      else if (given.has("x") && step.has("fails")) give(given, value, given.time, given.headers, "nobody");
      else if (value != null) give(given, value);
    }

    private void tell(Given given) {
      Optional<RecordMetadata> place = hands.place();
      String topic = place.isPresent() && place.get().topic() != null ? place.get().topic() : "none";
      if (topic.endsWith("-repartition") || topic.endsWith("-topic")) topic = "again";
      long offset = place.isPresent() ? place.get().offset() : -1;
      String clock = step.has("clock") ? "^" + hands.streamTime() : "";
      give(given, given.text() + "^" + topic + "^" + offset + clock);
    }

    private void read(Given given, Object store) {
      long span = step.get("span").asLong();
      String name = given.name();
      long early = Math.max(0, given.time - span);
      String found = switch (step.get("kind").asText()) {
        case "window" -> String.join(",", windows(
            ((WindowStore<String, Object>) store).fetch(name, early, given.time + span)));
        case "session" -> {
          List<String> rows = new ArrayList<>();
          try (var all = ((ReadOnlySessionStore<String, Object>) store).fetch(name)) {
            all.forEachRemaining(each -> rows.add(
                each.key.window().start() + "-" + each.key.window().end() + "=" + Functions.text(each.value)));
          }
          yield String.join(",", rows);
        }
        case "versioned" -> version(((VersionedKeyValueStore<String, Object>) store).get(name, early));
        default -> entries((ReadOnlyKeyValueStore<String, Object>) store, name, given.has("a"));
      };
      give(given, given.text() + "~" + found);
    }

    private static String entries(ReadOnlyKeyValueStore<String, Object> store, String name, boolean back) {
      Object value = store.get(name);
      StringBuilder found = new StringBuilder(Functions.text(bare(value)));
      if (value instanceof ValueAndTimestamp<?> timed) found.append("@").append(timed.timestamp());
      try (KeyValueIterator<String, Object> some = back ? store.reverseRange(null, name) : store.range(name, null)) {
        for (int number = 0; number < 3 && some.hasNext(); number++) {
          KeyValue<String, Object> each = some.next();
          found.append("|").append(each.key).append("=").append(Functions.text(bare(each.value)));
        }
      }
      return found.toString();
    }

    private void fragile(Given given, KeyValueStore<String, String> store) {
      int number = number(store.get(given.name())) + 1;
      store.put(given.name(), Integer.toString(number));
      give(given, given.text() + "#" + number);
      Functions.check(step, given.value);
      store.put(given.name() + "!", Integer.toString(number));
      give(given, given.text() + "!" + number);
    }
  }
}
