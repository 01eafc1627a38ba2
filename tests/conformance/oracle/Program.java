import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.time.Instant;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.*;
import org.apache.kafka.streams.processor.ProcessorContext;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.StoreBuilder;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.WindowStore;

/** Builds a Kafka Streams topology from a case's steps. programs.py does the same for Penstock. */
@SuppressWarnings({"unchecked", "rawtypes"})
final class Program {
  static final String INITIAL = "0";

  /** What a step gives: a stream, a table, a grouping; with what is known of its keys and values. */
  record Flow(Object node, Serde<Object> key, Serde<Object> value) {
    KStream<Object, Object> stream() { return (KStream<Object, Object>) node; }
    KTable<Object, Object> table() { return (KTable<Object, Object>) node; }
    boolean isTable() { return node instanceof KTable; }
    Flow with(Object node) { return new Flow(node, key, value); }
  }

  /** A store to look into at the end. */
  record Held(String kind, Serde<Object> key, Serde<Object> value) {}

  private static final Serde<Object> TEXT = (Serde) Serdes.String();
  private static final Serde<Object> LONG = (Serde) Serdes.Long();

  final StreamsBuilder builder = new StreamsBuilder();
  final Map<String, Held> stores = new LinkedHashMap<>();
  final Map<String, Flow> sinks = new LinkedHashMap<>();
  private final Map<String, Flow> flows = new LinkedHashMap<>();
  private final Serde<Object> input;

  Program(JsonNode steps, boolean picky) {
    input = picky ? Processors.PICKY : TEXT;
    for (JsonNode step : steps) {
      Flow flow = build(step);
      if (flow != null) flows.put(step.get("id").asText(), flow);
    }
  }

  private Flow build(JsonNode step) {
    return switch (step.get("op").asText()) {
      case "stream" -> new Flow(builder.stream(topics(step), consumed(step)), TEXT, TEXT);
      case "table" -> table(step);
      case "global_table" -> globalTable(step);
      case "filter", "filter_not", "map_values" -> filterOrMap(step, from(step));
      case "transform_values" -> transformValues(step, from(step));
      case "map", "flat_map", "flat_map_values", "select_key" -> reshape(step, from(step));
      case "merge" -> from(step).with(from(step).stream().merge(with(step).stream()));
      case "branch" -> branch(step, from(step));
      case "repartition" -> repartition(step, from(step));
      case "to" -> to(step, from(step));
      case "to_table" -> from(step).with(from(step).stream().toTable(
          Named.as(step.get("name").asText()), kept(step, from(step).key, from(step).value)));
      case "to_stream" -> from(step).with(from(step).table().toStream());
      case "group_by_key" -> from(step).with(from(step).stream().groupByKey(
          Grouped.with(text(step, "name"), from(step).key, from(step).value)));
      case "group_by" -> groupBy(step, from(step));
      case "count", "reduce", "aggregate" -> aggregate(step, from(step));
      case "cogroup" -> cogroup(step);
      case "suppress" -> from(step).with(from(step).table().suppress(suppressed(step)));
      case "join" -> join(step, from(step), with(step));
      case "add_store" -> addStore(step);
      case "global_store" -> globalStore(step);
      case "process" -> new Flow(
          from(step).stream().process(Processors.of(step), Named.as(step.get("name").asText()), connected(step)), TEXT, TEXT);
      case "process_values" -> new Flow(
          from(step).stream().processValues(Processors.ofValues(step), Named.as(step.get("name").asText()), connected(step)),
          from(step).key, TEXT);
      default -> throw new IllegalArgumentException("No operator " + step.get("op"));
    };
  }

  private Flow table(JsonNode step) {
    return new Flow(builder.table(step.get("topic").asText(), consumed(step), kept(step, TEXT, TEXT)), TEXT, TEXT);
  }

  private Flow globalTable(JsonNode step) {
    return new Flow(
        builder.globalTable(step.get("topic").asText(), Consumed.with(TEXT, TEXT), kept(step, TEXT, TEXT)), TEXT, TEXT);
  }

  private Consumed<Object, Object> consumed(JsonNode step) {
    Consumed<Object, Object> consumed = Consumed.with(input, input);
    if (!step.has("time")) return consumed;
    String word = step.get("time").asText();
    return consumed.withTimestampExtractor(
        (record, partitionTime) -> Processors.time(word, record.value(), record.timestamp()));
  }

  private Flow addStore(JsonNode step) {
    builder.addStateStore(Processors.store(step));
    stores.put(step.get("store").asText(), new Held(seen(step.get("kind").asText()), TEXT, TEXT));
    return null;
  }

  private Flow globalStore(JsonNode step) {
    String store = step.get("store").asText();
    StoreBuilder<?> held = Stores.keyValueStoreBuilder(Stores.inMemoryKeyValueStore(store), Serdes.String(), Serdes.String());
    builder.addGlobalStore(
        held.withLoggingDisabled(), step.get("topic").asText(), Consumed.with(TEXT, TEXT), Processors.keeper(store));
    stores.put(store, new Held("unlogged", TEXT, TEXT));
    return null;
  }

  private static String seen(String kind) {
    return switch (kind) {
      case "lru" -> "plain";
      case "timestamped" -> "key_value";
      case "window" -> "plain_window";
      default -> kind;
    };
  }

  private static String[] connected(JsonNode step) {
    java.util.List<String> names = new java.util.ArrayList<>();
    if (step.has("store")) names.add(step.get("store").asText());
    if (step.has("reads") && !step.has("global")) names.add(step.get("reads").asText());
    return names.toArray(String[]::new);
  }

  private Flow filterOrMap(JsonNode step, Flow flow) {
    String f = step.get("f").asText();
    Predicate<Object, Object> wanted = (k, v) -> {
      Functions.check(step, v);
      return Functions.test(f, k, v);
    };
    ValueMapperWithKey<Object, Object, Object> mapper = (k, v) -> {
      Functions.check(step, v);
      return keyed(step) ? Functions.keyed(k, Functions.mapValue(f, v)) : Functions.mapValue(f, v);
    };
    if (step.has("store")) {
      return switch (step.get("op").asText()) {
        case "filter" -> flow.with(flow.table().filter(wanted, kept(step, flow.key, flow.value)));
        case "filter_not" -> flow.with(flow.table().filterNot(wanted, kept(step, flow.key, flow.value)));
        default -> new Flow(flow.table().mapValues(mapper, kept(step, flow.key, TEXT)), flow.key, TEXT);
      };
    }
    if (step.has("name")) return flow.with(flow.stream().filter(wanted, Named.as(step.get("name").asText())));
    return switch (step.get("op").asText()) {
      case "filter" -> flow.with(flow.isTable() ? flow.table().filter(wanted) : flow.stream().filter(wanted));
      case "filter_not" -> flow.with(flow.isTable() ? flow.table().filterNot(wanted) : flow.stream().filterNot(wanted));
      default -> new Flow(
          flow.isTable() ? flow.table().mapValues(mapper) : flow.stream().mapValues(mapper), flow.key, TEXT);
    };
  }

  private Flow transformValues(JsonNode step, Flow flow) {
    String f = step.get("f").asText();
    ValueTransformerWithKeySupplier<Object, Object, Object> supplier = () -> new ValueTransformerWithKey<>() {
      public void init(ProcessorContext context) {}

      public Object transform(Object key, Object value) {
        return Functions.keyed(key, Functions.mapValue(f, value));
      }

      public void close() {}
    };
    KTable<Object, Object> made = step.has("store")
        ? flow.table().transformValues(supplier, kept(step, flow.key, TEXT))
        : flow.table().transformValues(supplier);
    return new Flow(made, flow.key, TEXT);
  }

  private Flow reshape(JsonNode step, Flow flow) {
    String f = step.get("f").asText();
    return switch (step.get("op").asText()) {
      case "map" -> new Flow(
          flow.stream().map((k, v) -> (KeyValue) texts(Functions.pair(f, k, checked(step, v)))), TEXT, TEXT);
      case "flat_map" -> new Flow(
          flow.stream().flatMap((k, v) -> (Iterable) Functions.flatMap(f, k, checked(step, v)).stream().map(Program::texts).toList()),
          TEXT, TEXT);
      case "flat_map_values" -> new Flow(
          keyed(step)
              ? flow.stream().flatMapValues((k, v) -> (Iterable) Functions.flatMapValues(f, v).stream()
                  .map(each -> Functions.keyed(k, each)).collect(java.util.stream.Collectors.toList()))
              : flow.stream().flatMapValues(v -> (Iterable) Functions.flatMapValues(f, v)),
          flow.key, TEXT);
      default -> new Flow(
          flow.stream().selectKey((k, v) -> (Object) Functions.selectKey(f, k, checked(step, v))), TEXT, flow.value);
    };
  }

  private static KeyValue<String, Object> texts(KeyValue<String, Object> pair) {
    return pair == null ? null : KeyValue.pair(pair.key, pair.value == null ? null : Functions.text(pair.value));
  }

  private Flow branch(JsonNode step, Flow flow) {
    BranchedKStream<Object, Object> split = flow.stream().split(Named.as(step.get("name").asText() + "-"));
    JsonNode words = step.get("f");
    for (int i = 0; i < words.size(); i++) {
      String word = words.get(i).asText();
      split = split.branch((k, v) -> Functions.test(word, k, v), Branched.as("b" + i));
    }
    Map<String, KStream<Object, Object>> parts = split.defaultBranch(Branched.as("rest"));
    String prefix = step.get("name").asText() + "-";
    for (int i = 0; i < words.size(); i++) {
      flows.put(step.get("ids").get(i).asText(), flow.with(parts.get(prefix + "b" + i)));
    }
    flows.put(step.get("ids").get(words.size()).asText(), flow.with(parts.get(prefix + "rest")));
    return null;
  }

  private Flow repartition(JsonNode step, Flow flow) {
    return flow.with(flow.stream().repartition(
        partitioned(step, Repartitioned.with(flow.key, flow.value)
            .withName(step.get("name").asText()).withNumberOfPartitions(1))));
  }

  private static Repartitioned<Object, Object> partitioned(JsonNode step, Repartitioned<Object, Object> plain) {
    if (!step.has("partitioner")) return plain;
    String word = step.get("partitioner").asText();
    return plain.withStreamPartitioner((topic, k, v, count) -> Processors.partitioned(word, v));
  }

  private Flow to(JsonNode step, Flow flow) {
    Produced<Object, Object> produced = Produced.with(flow.key, flow.value);
    if (step.has("partitioner")) {
      String word = step.get("partitioner").asText();
      produced = produced.withStreamPartitioner((topic, k, v, count) -> Processors.partitioned(word, v));
    }
    if (step.has("topics")) {
      java.util.List<String> topics = topics(step);
      String word = step.get("f").asText();
      topics.forEach(topic -> sinks.put(topic, flow));
      flow.stream().to((k, v, context) -> topics.get(Processors.chosen(word, k, v, topics.size())), produced);
      return null;
    }
    sinks.put(step.get("topic").asText(), flow);
    flow.stream().to(step.get("topic").asText(), produced);
    return null;
  }

  private Flow groupBy(JsonNode step, Flow flow) {
    String f = step.get("f").asText();
    if (!flow.isTable()) {
      return new Flow(
          flow.stream().groupBy(
              (k, v) -> (Object) Functions.selectKey(f, k, checked(step, v)), Grouped.with(text(step, "name"), TEXT, flow.value)),
          TEXT, flow.value);
    }
    return new Flow(
        flow.table().groupBy(
            (k, v) -> (KeyValue) texts(Functions.pair(f, k, v)), Grouped.with(text(step, "name"), TEXT, TEXT)),
        TEXT, TEXT);
  }

  private Flow aggregate(JsonNode step, Flow flow) {
    if (flow.node instanceof KGroupedTable) return aggregateTable(step, flow);
    KGroupedStream<Object, Object> grouped = (KGroupedStream<Object, Object>) flow.node;
    JsonNode window = step.get("window");
    if (window != null) {
      return window.get("kind").asText().equals("session")
          ? aggregateSessions(step, flow, grouped)
          : aggregateWindows(step, flow, grouped);
    }
    Reducer<Object> reducer = (a, v) -> Functions.fold(step.get("f").asText(), a, checked(step, v));
    return switch (step.get("op").asText()) {
      case "count" -> new Flow(grouped.count(counted(kept(step, flow.key, LONG))), flow.key, LONG);
      case "reduce" -> flow.with(grouped.reduce(reducer, kept(step, flow.key, flow.value)));
      default -> new Flow(grouped.aggregate(() -> INITIAL, aggregator(step), kept(step, flow.key, TEXT)), flow.key, TEXT);
    };
  }

  private Flow aggregateTable(JsonNode step, Flow flow) {
    KGroupedTable<Object, Object> grouped = (KGroupedTable<Object, Object>) flow.node;
    if (step.get("op").asText().equals("count")) {
      return new Flow(grouped.count(counted(kept(step, flow.key, LONG))), flow.key, LONG);
    }
    String f = step.get("f").asText();
    String g = step.get("g").asText();
    if (step.get("op").asText().equals("reduce")) {
      return flow.with(grouped.reduce(
          (a, v) -> Functions.fold(f, a, v), (a, v) -> Functions.fold(g, a, v), kept(step, flow.key, flow.value)));
    }
    return new Flow(
        grouped.aggregate(
            () -> INITIAL, aggregator(step), (k, v, a) -> Functions.fold(g, a, v), kept(step, flow.key, TEXT)),
        flow.key, TEXT);
  }

  private Flow aggregateWindows(JsonNode step, Flow flow, KGroupedStream<Object, Object> grouped) {
    JsonNode window = step.get("window");
    TimeWindowedKStream<Object, Object> windowed = window.get("kind").asText().equals("sliding")
        ? grouped.windowedBy(sliding(window))
        : window.get("kind").asText().equals("unlimited")
            ? grouped.windowedBy(UnlimitedWindows.of().startOn(Instant.ofEpochMilli(window.get("start").asLong())))
            : grouped.windowedBy(timeWindows(window));
    if (closes(window)) windowed = windowed.emitStrategy(EmitStrategy.onWindowClose());
    Serde<Object> key = windowKey(window);
    Reducer<Object> reducer = (a, v) -> Functions.fold(step.get("f").asText(), a, checked(step, v));
    return switch (step.get("op").asText()) {
      case "count" -> new Flow(
          windowed.count((Materialized) this.<WindowStore<Bytes, byte[]>>kept(step, "window", key, flow.key, LONG)), key, LONG);
      case "reduce" -> new Flow(windowed.reduce(reducer, kept(step, "window", key, flow.key, flow.value)), key, flow.value);
      default -> new Flow(
          windowed.aggregate(() -> INITIAL, aggregator(step), kept(step, "window", key, flow.key, TEXT)), key, TEXT);
    };
  }

  private Flow aggregateSessions(JsonNode step, Flow flow, KGroupedStream<Object, Object> grouped) {
    JsonNode window = step.get("window");
    SessionWindowedKStream<Object, Object> windowed = grouped.windowedBy(sessions(window));
    if (closes(window)) windowed = windowed.emitStrategy(EmitStrategy.onWindowClose());
    Serde<Object> key = windowKey(window);
    Reducer<Object> reducer = (a, v) -> Functions.fold(step.get("f").asText(), a, checked(step, v));
    return switch (step.get("op").asText()) {
      case "count" -> new Flow(
          windowed.count((Materialized) this.<SessionStore<Bytes, byte[]>>kept(step, "session", key, flow.key, LONG)), key, LONG);
      case "reduce" -> new Flow(windowed.reduce(reducer, kept(step, "session", key, flow.key, flow.value)), key, flow.value);
      default -> new Flow(
          windowed.aggregate(
              () -> INITIAL, aggregator(step), (k, a, b) -> Functions.merge(a, b), kept(step, "session", key, flow.key, TEXT)),
          key, TEXT);
    };
  }

  private Flow cogroup(JsonNode step) {
    CogroupedKStream<Object, Object> grouped = null;
    for (int i = 0; i < step.get("from").size(); i++) {
      KGroupedStream<Object, Object> each = (KGroupedStream<Object, Object>) flows.get(step.get("from").get(i).asText()).node;
      String f = step.get("f").get(i).asText();
      Aggregator<Object, Object, Object> aggregator = (k, v, a) -> Functions.fold(f, a, v);
      grouped = grouped == null ? each.cogroup(aggregator) : grouped.cogroup(each, aggregator);
    }
    JsonNode window = step.get("window");
    if (window == null) {
      Serde<Object> same = flows.get(step.get("from").get(0).asText()).key;
      return new Flow(grouped.aggregate(() -> INITIAL, kept(step, same, TEXT)), same, TEXT);
    }
    Serde<Object> key = windowKey(window);
    Object table = switch (window.get("kind").asText()) {
      case "session" -> grouped.windowedBy(sessions(window)).aggregate(
          () -> INITIAL, (k, a, b) -> Functions.merge(a, b), kept(step, "session", key, TEXT, TEXT));
      case "sliding" -> grouped.windowedBy(sliding(window)).aggregate(() -> INITIAL, kept(step, "window", key, TEXT, TEXT));
      case "unlimited" -> grouped.windowedBy(UnlimitedWindows.of().startOn(Instant.ofEpochMilli(window.get("start").asLong())))
          .aggregate(() -> INITIAL, kept(step, "window", key, TEXT, TEXT));
      default -> grouped.windowedBy(timeWindows(window)).aggregate(() -> INITIAL, kept(step, "window", key, TEXT, TEXT));
    };
    return new Flow(table, key, TEXT);
  }

  private Flow join(JsonNode step, Flow left, Flow right) {
    String f = step.get("f").asText();
    String kind = step.get("kind").asText();
    ValueJoiner<Object, Object, Object> joiner = (l, r) -> Functions.join(f, checked(step, l), r);
    ValueJoinerWithKey<Object, Object, Object, Object> ofStreams = keyed(step)
        ? (k, l, r) -> Functions.keyed(k, Functions.join(f, checked(step, l), r))
        : (k, l, r) -> Functions.join(f, checked(step, l), r);
    Object node;
    if (right.node instanceof GlobalKTable) node = joinGlobal(step, kind, left, right, ofStreams);
    else if (left.isTable() && step.has("foreign_key")) node = joinForeign(step, kind, left, right, joiner);
    else if (left.isTable()) node = joinTables(step, kind, left, right, joiner);
    else if (right.isTable()) {
      Joined<Object, Object, Object> joined = Joined.with(left.key, left.value, right.value, step.get("name").asText());
      if (step.has("grace")) joined = joined.withGracePeriod(millis(step, "grace"));
      node = kind.equals("inner")
          ? left.stream().join(right.table(), ofStreams, joined)
          : left.stream().leftJoin(right.table(), ofStreams, joined);
    } else node = joinStreams(step, kind, left, right, ofStreams);
    return new Flow(node, left.key, TEXT);
  }

  private Object joinStreams(
      JsonNode step, String kind, Flow left, Flow right, ValueJoinerWithKey<Object, Object, Object, Object> joiner) {
    JsonNode window = step.get("window");
    JoinWindows windows = JoinWindows.ofTimeDifferenceAndGrace(Duration.ZERO, millis(window, "grace"));
    // The side that may be negative comes last.
    windows = window.get("before").asLong() < 0
        ? windows.after(millis(window, "after")).before(millis(window, "before"))
        : windows.before(millis(window, "before")).after(millis(window, "after"));
    String name = step.get("name").asText();
    StreamJoined<Object, Object, Object> joined =
        StreamJoined.with(left.key, left.value, right.value).withName(name).withStoreName(name);
    return switch (kind) {
      case "inner" -> left.stream().join(right.stream(), joiner, windows, joined);
      case "left" -> left.stream().leftJoin(right.stream(), joiner, windows, joined);
      default -> left.stream().outerJoin(right.stream(), joiner, windows, joined);
    };
  }

  private Object joinGlobal(
      JsonNode step, String kind, Flow left, Flow right, ValueJoinerWithKey<Object, Object, Object, Object> joiner) {
    GlobalKTable<Object, Object> table = (GlobalKTable<Object, Object>) right.node;
    String select = step.get("select").asText();
    KeyValueMapper<Object, Object, Object> selector = (k, v) -> Functions.selectKey(select, k, v);
    return kind.equals("inner")
        ? left.stream().join(table, selector, joiner)
        : left.stream().leftJoin(table, selector, joiner);
  }

  private Object joinForeign(
      JsonNode step, String kind, Flow left, Flow right, ValueJoiner<Object, Object, Object> joiner) {
    String word = step.get("foreign_key").asText();
    java.util.function.BiFunction<Object, Object, Object> extractor = keyed(step)
        ? (k, v) -> Functions.keyedForeignKey(word, k, v)
        : (k, v) -> Functions.foreignKey(word, v);
    TableJoined<Object, Object> joined = TableJoined.as(step.get("name").asText());
    Materialized<Object, Object, KeyValueStore<Bytes, byte[]>> held = kept(step, left.key, TEXT);
    return kind.equals("inner")
        ? left.table().join(right.table(), extractor, joiner, joined, held)
        : left.table().leftJoin(right.table(), extractor, joiner, joined, held);
  }

  private Object joinTables(
      JsonNode step, String kind, Flow left, Flow right, ValueJoiner<Object, Object, Object> joiner) {
    KTable<Object, Object> one = left.table();
    KTable<Object, Object> two = right.table();
    Named name = Named.as(step.get("name").asText());
    if (!step.has("store")) {
      return switch (kind) {
        case "inner" -> one.join(two, joiner, name);
        case "left" -> one.leftJoin(two, joiner, name);
        default -> one.outerJoin(two, joiner, name);
      };
    }
    Materialized<Object, Object, KeyValueStore<Bytes, byte[]>> held = kept(step, left.key, TEXT);
    return switch (kind) {
      case "inner" -> one.join(two, joiner, name, held);
      case "left" -> one.leftJoin(two, joiner, name, held);
      default -> one.outerJoin(two, joiner, name, held);
    };
  }

  private static Suppressed<? super Object> suppressed(JsonNode step) {
    Suppressed<?> rule;
    if (step.get("until").asText().equals("window_closes")) {
      rule = Suppressed.untilWindowCloses((Suppressed.StrictBufferConfig) buffer(step.get("buffer")));
    } else {
      rule = Suppressed.untilTimeLimit(millis(step, "limit"), buffer(step.get("buffer")));
    }
    return (Suppressed<? super Object>) ((Suppressed) rule).withName(step.get("name").asText());
  }

  private static Suppressed.BufferConfig buffer(JsonNode buffer) {
    if (buffer == null) return Suppressed.BufferConfig.unbounded();
    Suppressed.BufferConfig limited = buffer.has("max_records")
        ? Suppressed.BufferConfig.maxRecords(buffer.get("max_records").asLong())
        : Suppressed.BufferConfig.maxBytes(buffer.get("max_bytes").asLong());
    if (buffer.has("max_records") && buffer.has("max_bytes")) {
      limited = limited.withMaxBytes(buffer.get("max_bytes").asLong());
    }
    return buffer.get("full").asText().equals("emit") ? limited.emitEarlyWhenFull() : limited.shutDownWhenFull();
  }

  private static TimeWindows timeWindows(JsonNode window) {
    TimeWindows windows = TimeWindows.ofSizeAndGrace(millis(window, "size"), millis(window, "grace"));
    return window.has("advance") ? windows.advanceBy(millis(window, "advance")) : windows;
  }

  private static SlidingWindows sliding(JsonNode window) {
    return SlidingWindows.ofTimeDifferenceAndGrace(millis(window, "size"), millis(window, "grace"));
  }

  private static SessionWindows sessions(JsonNode window) {
    return SessionWindows.ofInactivityGapAndGrace(millis(window, "size"), millis(window, "grace"));
  }

  private static boolean closes(JsonNode window) {
    return window.has("emit") && window.get("emit").asText().equals("close");
  }

  private static Serde<Object> windowKey(JsonNode window) {
    return window.get("kind").asText().equals("session")
        ? (Serde) new WindowedSerdes.SessionWindowedSerde<>(Serdes.String())
        : (Serde) new WindowedSerdes.TimeWindowedSerde<>(Serdes.String(), window.get("size").asLong());
  }

  private static Aggregator<Object, Object, Object> aggregator(JsonNode step) {
    String f = step.get("f").asText();
    return (k, v, a) -> Functions.fold(f, a, checked(step, v));
  }

  private static Materialized<Object, Long, KeyValueStore<Bytes, byte[]>> counted(
      Materialized<Object, Object, KeyValueStore<Bytes, byte[]>> held) {
    return (Materialized) held;
  }

  private Materialized<Object, Object, KeyValueStore<Bytes, byte[]>> kept(
      JsonNode step, Serde<Object> key, Serde<Object> value) {
    return kept(step, "key_value", key, key, value);
  }

  /** The options of a step's store; `seen` is how its keys look from outside. */
  private <S extends StateStore> Materialized<Object, Object, S> kept(
      JsonNode step, String kind, Serde<Object> seen, Serde<Object> key, Serde<Object> value) {
    Materialized<Object, Object, S> held;
    if (step.has("store")) {
      String store = step.get("store").asText();
      stores.put(store, new Held(step.has("versioned") ? "versioned" : kind, seen, value));
      held = step.has("versioned")
          ? (Materialized) Materialized.as(Stores.persistentVersionedKeyValueStore(store, millis(step, "versioned")))
          : step.has("lru")
              ? (Materialized) Materialized.as(Stores.lruMap(store, step.get("lru").asInt()))
              : Materialized.as(store);
    } else {
      held = Materialized.with(key, value);
    }
    held = held.withKeySerde(key).withValueSerde(value);
    if (step.has("caching") && !step.get("caching").asBoolean()) held = held.withCachingDisabled();
    if (step.has("retention")) held = held.withRetention(millis(step, "retention"));
    return held;
  }

  private static Object checked(JsonNode step, Object value) {
    Functions.check(step, value);
    return value;
  }

  private static boolean keyed(JsonNode step) { return step.has("with_key"); }

  private Flow from(JsonNode step) { return flows.get(step.get("from").asText()); }

  private Flow with(JsonNode step) { return flows.get(step.get("with").asText()); }

  private static String text(JsonNode step, String field) {
    return step.has(field) ? step.get(field).asText() : null;
  }

  private static Duration millis(JsonNode step, String field) { return Duration.ofMillis(step.get(field).asLong()); }

  private static java.util.List<String> topics(JsonNode step) {
    java.util.List<String> topics = new java.util.ArrayList<>();
    step.get("topics").forEach(topic -> topics.add(topic.asText()));
    return topics;
  }
}
