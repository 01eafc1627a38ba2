// Writes Kafka Streams' own Topology.describe() of the topologies in test_topology_describe.py.
// From this directory: java -cp '<jars of kafka-streams 4.1.1>/*' Descriptions.java describe
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.regex.Pattern;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.*;
import org.apache.kafka.streams.processor.ProcessorContext;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.api.ContextualFixedKeyProcessor;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyProcessorSupplier;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;
import org.apache.kafka.streams.processor.api.ProcessorSupplier;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

public class Descriptions {
  static final Consumed<String, String> C = Consumed.with(Serdes.String(), Serdes.String());
  static final Duration MINUTE = Duration.ofMinutes(1);
  static final JoinWindows WITHIN = JoinWindows.ofTimeDifferenceAndGrace(MINUTE, MINUTE);
  static final StreamJoined<String, String, String> SJ =
      StreamJoined.with(Serdes.String(), Serdes.String(), Serdes.String());
  static final Joined<String, String, String> J = Joined.with(Serdes.String(), Serdes.String(), Serdes.String());
  static final TimeWindows MINUTES = TimeWindows.ofSizeAndGrace(MINUTE, MINUTE);
  static Path directory;

  static ProcessorSupplier<String, String, String, String> pass() {
    return () -> new ContextualProcessor<String, String, String, String>() {
      public void process(Record<String, String> record) { context().forward(record); }
    };
  }

  static FixedKeyProcessorSupplier<String, String, String> passValues() {
    return () -> new ContextualFixedKeyProcessor<String, String, String>() {
      public void process(FixedKeyRecord<String, String> record) { context().forward(record); }
    };
  }

  static <V> Materialized<String, V, KeyValueStore<Bytes, byte[]>> versions(String store) {
    return Materialized.as(Stores.persistentVersionedKeyValueStore(store, Duration.ofMinutes(10)));
  }

  interface Program { void write(StreamsBuilder builder); }

  static void describe(String name, Program program) throws Exception {
    StreamsBuilder builder = new StreamsBuilder();
    program.write(builder);
    Files.writeString(directory.resolve(name + ".txt"), builder.build().describe().toString());
  }

  public static void main(String[] arguments) throws Exception {
    directory = Path.of(arguments[0]);
    describe("count", b -> b.stream("in", C).groupByKey().count(Materialized.as("counts")).toStream().to("out"));
    describe("count_unnamed", b -> b.stream("in", C).groupByKey().count().toStream().to("out"));
    describe("select_key", b -> b.stream("in", C).filter((k, v) -> true).mapValues(v -> v)
        .selectKey((k, v) -> v).groupByKey().count(Materialized.as("counts")).toStream()
        .filter((k, v) -> true).to("out"));
    describe("group_by_reduce", b -> b.stream("in", C).groupBy((k, v) -> v)
        .reduce((x, y) -> x + y, Materialized.as("sums")).toStream().mapValues(v -> v).to("out"));
    describe("grouped_named", b -> b.stream("in", C).groupBy((k, v) -> v, Grouped.as("by-word"))
        .aggregate(() -> "", (k, v, g) -> g + v, Materialized.as("agg")).toStream()
        .map((k, v) -> KeyValue.pair(k, v)).to("out"));
    describe("group_by_unnamed", b -> b.stream("in", C).groupBy((k, v) -> v).count().toStream().to("out"));
    describe("group_by_key_named_unnamed_store", b -> b.stream("in", C).selectKey((k, v) -> v)
        .groupByKey(Grouped.as("grouped")).count().toStream().to("out"));
    describe("reduce_unnamed", b -> b.stream("in", C).groupBy((k, v) -> v).reduce((x, y) -> y).toStream().to("out"));
    describe("two_stores", b -> {
      KStream<String, String> s = b.stream("in", C);
      s.to("copy");
      KGroupedStream<String, String> g = s.groupByKey();
      g.count(Materialized.as("counts")).toStream().to("out");
      g.reduce((x, y) -> y, Materialized.as("latest")).toStream().to("latest-out");
    });
    describe("two_stores_repartitioned", b -> {
      KGroupedStream<String, String> g = b.stream("in", C).groupBy((k, v) -> v, Grouped.as("by-word"));
      g.count(Materialized.as("counts")).toStream().to("out");
      g.reduce((x, y) -> y, Materialized.as("latest")).toStream().to("latest-out");
    });
    describe("two_stores_two_repartitions", b -> {
      KGroupedStream<String, String> g = b.stream("in", C).groupBy((k, v) -> v);
      g.count(Materialized.as("counts")).toStream().to("out");
      g.reduce((x, y) -> y, Materialized.as("latest")).toStream().to("latest-out");
    });
    describe("chained", b -> {
      b.stream("in", C).groupBy((k, v) -> v).count(Materialized.as("first")).toStream()
          .groupBy((k, v) -> v.toString(), Grouped.with(Serdes.String(), Serdes.Long()))
          .count(Materialized.as("second")).toStream().to("out");
      b.stream("other", C).filterNot((k, v) -> true).peek((k, v) -> { }).to("other-out");
    });
    describe("named", b -> b.stream("in", C.withName("source")).filter((k, v) -> true, Named.as("keep"))
        .mapValues(v -> v, Named.as("shape")).selectKey((k, v) -> v, Named.as("rekey"))
        .groupByKey(Grouped.as("grouped")).count(Materialized.as("counts"))
        .toStream(Named.as("stream")).to("out", Produced.as("sink")));
    describe("two_groupings", b -> {
      KStream<String, String> m = b.stream("in", C).selectKey((k, v) -> v).mapValues(v -> v);
      m.groupByKey().count(Materialized.as("counts")).toStream().to("out");
      m.groupByKey().reduce((x, y) -> y, Materialized.as("latest")).toStream().to("out2");
    });
    describe("store_after_store", b -> b.stream("in", C).groupByKey().count(Materialized.as("counts")).toStream()
        .groupByKey().count(Materialized.as("twice")).toStream().to("out"));
    describe("two_topics", b -> b.stream(List.of("b", "a"), C).to("out"));
    describe("many_branches", b -> {
      KStream<String, String> s = b.stream("in", C);
      for (int i = 0; i < 9; i++) {
        KStream<String, String> each = s.filter((k, v) -> true);
        for (int j = 0; j < i % 4; j++) each = each.mapValues(v -> v);
        each.to("out-" + i);
      }
    });
    describe("flat_map", b -> b.stream("in", C).flatMapValues(v -> List.of(v))
        .flatMap((k, v) -> List.of(KeyValue.pair(k, v))).groupByKey().count(Materialized.as("counts"))
        .toStream().foreach((k, v) -> { }));
    describe("split", b -> {
      Map<String, KStream<String, String>> m = b.stream("in", C).split().branch((k, v) -> true)
          .branch((k, v) -> true, Branched.as("-second")).defaultBranch();
      m.get("KSTREAM-BRANCH-00000000011").to("out-1");
      m.get("KSTREAM-BRANCH-0000000001-second").mapValues(v -> v).to("out-2");
      m.get("KSTREAM-BRANCH-00000000010").groupByKey().count(Materialized.as("counts")).toStream().to("out-0");
    });
    describe("split_named", b -> {
      KStream<String, String> s = b.stream("in", C);
      Map<String, KStream<String, String>> m = s.split(Named.as("size-"))
          .branch((k, v) -> true, Branched.as("large")).branch((k, v) -> true).noDefaultBranch();
      m.get("size-large").to("large");
      m.get("size-2").foreach((k, v) -> { }, Named.as("look"));
      s.to("all");
    });
    describe("tables", b -> {
      KTable<String, Long> t = b.stream("in", C).groupByKey().count(Materialized.as("counts"));
      t.filter((k, v) -> true).mapValues(v -> v).toStream().to("out");
      t.filterNot((k, v) -> true, Named.as("keep")).toStream().to("out2");
    });
    describe("to_table", b -> {
      KStream<String, String> s = b.stream("in", C);
      s.toTable(Materialized.as("latest")).toStream().to("out");
      s.selectKey((k, v) -> v).toTable(Materialized.as("moved")).filter((k, v) -> true).toStream().to("out2");
    });
    describe("table", b -> b.table("in", C, Materialized.as("latest")).toStream().to("out"));
    describe("table_named", b -> b.table("in", C.withName("patients"), Materialized.as("latest")).toStream().to("out"));
    describe("read_twice", b -> {
      b.stream(List.of("in", "more"), C).filter((k, v) -> true).to("out");
      b.stream(List.of("more", "in"), C.withName("again")).mapValues(v -> v.length()).to("out2");
    });
    describe("windowed", b -> b.stream("in", C).groupByKey().windowedBy(MINUTES)
        .count(Materialized.as("rates")).toStream().to("out"));
    describe("windowed_unnamed", b -> b.stream("in", C).groupBy((k, v) -> v).windowedBy(MINUTES)
        .count().toStream().to("out"));
    describe("windowed_grouped_named", b -> b.stream("in", C).groupBy((k, v) -> v, Grouped.as("by-word"))
        .windowedBy(MINUTES).reduce((x, y) -> y).toStream().to("out"));
    describe("sliding", b -> b.stream("in", C).groupByKey()
        .windowedBy(SlidingWindows.ofTimeDifferenceAndGrace(MINUTE, MINUTE)).count().toStream().to("out"));
    describe("sessions", b -> b.stream("in", C).groupBy((k, v) -> v)
        .windowedBy(SessionWindows.ofInactivityGapAndGrace(MINUTE, MINUTE)).count().toStream().to("out"));
    describe("emit_on_close", b -> b.stream("in", C).groupByKey().windowedBy(MINUTES)
        .emitStrategy(EmitStrategy.onWindowClose()).count(Materialized.as("rates")).toStream().to("out"));
    describe("suppressed", b -> b.stream("in", C).groupByKey().windowedBy(MINUTES)
        .count(Materialized.as("rates"))
        .suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded())).toStream().to("out"));
    describe("suppressed_named", b -> b.stream("in", C).groupByKey().windowedBy(MINUTES)
        .count(Materialized.as("rates"))
        .suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded()).withName("final"))
        .toStream().to("out"));
    describe("suppressed_time_limit", b -> b.stream("in", C).groupBy((k, v) -> v).count()
        .suppress(Suppressed.untilTimeLimit(MINUTE, Suppressed.BufferConfig.maxRecords(10)))
        .filter((k, v) -> true).toStream().to("out"));
    describe("join_streams", b -> b.stream("in", C).join(b.stream("other", C), (x, y) -> x, WITHIN, SJ).to("out"));
    describe("left_join_streams",
        b -> b.stream("in", C).leftJoin(b.stream("other", C), (x, y) -> x, WITHIN, SJ).to("out"));
    describe("outer_join_streams",
        b -> b.stream("in", C).outerJoin(b.stream("other", C), (x, y) -> x, WITHIN, SJ).to("out"));
    describe("join_streams_named", b -> b.stream("in", C)
        .join(b.stream("other", C), (x, y) -> x, WITHIN, SJ.withName("pair").withStoreName("pair")).to("out"));
    describe("left_join_streams_named", b -> b.stream("in", C)
        .leftJoin(b.stream("other", C), (x, y) -> x, WITHIN, SJ.withName("pair").withStoreName("pair")).to("out"));
    describe("outer_join_streams_named", b -> b.stream("in", C)
        .outerJoin(b.stream("other", C), (x, y) -> x, WITHIN, SJ.withName("pair").withStoreName("pair")).to("out"));
    describe("join_streams_repartitioned", b -> b.stream("in", C).selectKey((k, v) -> v)
        .join(b.stream("other", C).selectKey((k, v) -> v), (x, y) -> x, WITHIN, SJ).to("out"));
    describe("join_streams_repartitioned_left", b -> b.stream("in", C).selectKey((k, v) -> v)
        .outerJoin(b.stream("other", C), (x, y) -> x, WITHIN, SJ).to("out"));
    describe("join_streams_repartitioned_right", b -> b.stream("in", C)
        .leftJoin(b.stream("other", C).map((k, v) -> KeyValue.pair(k, v)), (x, y) -> x, WITHIN, SJ).to("out"));
    describe("join_streams_repartitioned_named", b -> b.stream("in", C).selectKey((k, v) -> v)
        .join(b.stream("other", C).selectKey((k, v) -> v), (x, y) -> x, WITHIN,
            SJ.withName("pair").withStoreName("pair")).to("out"));
    describe("join_self", b -> {
      KStream<String, String> s = b.stream("in", C);
      s.join(s, (x, y) -> x, WITHIN, SJ).to("out");
    });
    describe("join_twice", b -> {
      KStream<String, String> s = b.stream("in", C).selectKey((k, v) -> v);
      s.join(b.stream("other", C), (x, y) -> x, WITHIN, SJ)
          .join(b.stream("third", C), (x, y) -> x, WITHIN, SJ).to("out");
      s.leftJoin(b.stream("fourth", C), (x, y) -> x, WITHIN, SJ).to("out-2");
    });
    describe("join_table", b -> {
      KTable<String, String> t = b.table("names", C, Materialized.as("names"));
      b.stream("in", C).join(t, (x, y) -> x, J).to("out");
      b.stream("more", C).leftJoin(t, (x, y) -> x, J).to("out-2");
    });
    describe("join_table_named", b -> b.stream("in", C)
        .join(b.table("names", C, Materialized.as("names")), (x, y) -> x, J.withName("named")).to("out"));
    describe("join_table_repartitioned", b -> b.stream("in", C).selectKey((k, v) -> v)
        .join(b.table("names", C), (x, y) -> x, J).to("out"));
    describe("join_table_repartitioned_named", b -> b.stream("in", C).selectKey((k, v) -> v)
        .leftJoin(b.table("names", C), (x, y) -> x, J.withName("named")).to("out"));
    describe("join_table_view", b -> {
      KTable<String, String> t = b.table("names", C, Materialized.as("names"));
      b.stream("in", C).join(t.filter((k, v) -> true).mapValues(v -> v), (x, y) -> x, J).to("out");
    });
    describe("join_own_count", b -> {
      KStream<String, String> s = b.stream("in", C);
      s.join(s.groupByKey().count(), (x, y) -> x, Joined.with(Serdes.String(), Serdes.String(), Serdes.Long()))
          .to("out");
    });
    describe("join_tables", b -> b.table("a", C, Materialized.as("as"))
        .join(b.table("b", C, Materialized.as("bs")), (x, y) -> x).toStream().to("out"));
    describe("left_join_tables", b -> b.table("a", C).leftJoin(b.table("b", C), (x, y) -> x).toStream().to("out"));
    describe("outer_join_tables", b -> b.table("a", C).outerJoin(b.table("b", C), (x, y) -> x).toStream().to("out"));
    describe("join_tables_stored", b -> b.table("a", C)
        .join(b.table("b", C), (x, y) -> x, Materialized.as("both")).toStream().to("out"));
    describe("join_tables_named", b -> b.table("a", C)
        .outerJoin(b.table("b", C), (x, y) -> x, Named.as("pair")).toStream().to("out"));
    describe("join_tables_named_stored", b -> b.table("a", C)
        .leftJoin(b.table("b", C), (x, y) -> x, Named.as("pair"), Materialized.as("both")).toStream().to("out"));
    describe("join_tables_views", b -> b.table("a", C).filter((k, v) -> true)
        .join(b.table("b", C).mapValues(v -> v), (x, y) -> x).join(b.table("c", C), (x, y) -> x)
        .toStream().to("out"));
    describe("table_filter_stored", b -> b.table("a", C)
        .filter((k, v) -> true, Materialized.as("kept")).mapValues(v -> v, Materialized.as("mapped"))
        .toStream().to("out"));
    describe("foreign_key", b -> b.table("a", C).join(b.table("b", C), v -> v, (x, y) -> x).toStream().to("out"));
    describe("foreign_key_left", b -> b.table("a", C, Materialized.as("as"))
        .leftJoin(b.table("b", C, Materialized.as("bs")), v -> v, (x, y) -> x).toStream().to("out"));
    describe("foreign_key_stored", b -> b.table("a", C)
        .join(b.table("b", C), v -> v, (x, y) -> x, Materialized.as("joined")).toStream().to("out"));
    describe("foreign_key_named", b -> b.table("a", C)
        .join(b.table("b", C), v -> v, (x, y) -> x, TableJoined.as("refer"), Materialized.as("joined"))
        .toStream().to("out"));
    describe("foreign_key_named_unstored", b -> b.table("a", C)
        .leftJoin(b.table("b", C), v -> v, (x, y) -> x, TableJoined.as("refer")).toStream().to("out"));
    describe("foreign_key_of_views", b -> b.table("a", C).filter((k, v) -> true)
        .join(b.table("b", C).mapValues(v -> v), v -> v, (x, y) -> x).filter((k, v) -> true).toStream().to("out"));
    describe("cogroup", b -> b.stream("in", C).groupByKey().cogroup((String k, String v, String g) -> g)
        .cogroup(b.stream("other", C).groupByKey(), (k, v, g) -> g)
        .aggregate(() -> "", Materialized.as("both")).toStream().to("out"));
    describe("cogroup_unnamed", b -> b.stream("in", C).groupByKey().cogroup((String k, String v, String g) -> g)
        .cogroup(b.stream("other", C).groupByKey(), (k, v, g) -> g).aggregate(() -> "").toStream().to("out"));
    describe("cogroup_one", b -> b.stream("in", C).groupByKey().cogroup((String k, String v, String g) -> g)
        .aggregate(() -> "", Materialized.as("one")).toStream().to("out"));
    describe("cogroup_repartitioned", b -> b.stream("in", C).groupBy((k, v) -> v)
        .cogroup((String k, String v, String g) -> g)
        .cogroup(b.stream("other", C).groupByKey(), (k, v, g) -> g)
        .cogroup(b.stream("third", C).groupByKey(), (k, v, g) -> g)
        .aggregate(() -> "", Materialized.as("all")).toStream().to("out"));
    describe("cogroup_repartitioned_unnamed", b -> b.stream("in", C).groupByKey()
        .cogroup((String k, String v, String g) -> g)
        .cogroup(b.stream("other", C).groupBy((k, v) -> v), (k, v, g) -> g)
        .aggregate(() -> "").toStream().to("out"));
    describe("cogroup_grouped_named", b -> b.stream("in", C).groupBy((k, v) -> v, Grouped.as("first"))
        .cogroup((String k, String v, String g) -> g)
        .cogroup(b.stream("other", C).groupBy((k, v) -> v, Grouped.as("second")), (k, v, g) -> g)
        .aggregate(() -> "", Materialized.as("both")).toStream().to("out"));
    describe("cogroup_windowed", b -> b.stream("in", C).groupByKey().cogroup((String k, String v, String g) -> g)
        .cogroup(b.stream("other", C).groupBy((k, v) -> v), (k, v, g) -> g).windowedBy(MINUTES)
        .aggregate(() -> "", Materialized.as("both")).toStream().to("out"));
    describe("cogroup_sessions", b -> b.stream("in", C).groupByKey().cogroup((String k, String v, String g) -> g)
        .cogroup(b.stream("other", C).groupByKey(), (k, v, g) -> g)
        .windowedBy(SessionWindows.ofInactivityGapAndGrace(MINUTE, MINUTE))
        .aggregate(() -> "", (k, x, y) -> x).toStream().to("out"));
    describe("grouped_table", b -> b.table("a", C).groupBy((k, v) -> KeyValue.pair(v, k))
        .count(Materialized.as("sizes")).toStream().to("out"));
    describe("grouped_table_unnamed", b -> b.table("a", C).groupBy((k, v) -> KeyValue.pair(v, k))
        .reduce((x, y) -> y, (x, y) -> x).toStream().to("out"));
    describe("grouped_table_named", b -> {
      KGroupedTable<String, String> g = b.table("a", C).groupBy((k, v) -> KeyValue.pair(v, k), Grouped.as("by-value"));
      g.aggregate(() -> "", (k, v, x) -> x, (k, v, x) -> x).toStream().to("out");
    });
    describe("merged", b -> b.stream("in", C).filter((k, v) -> true).merge(b.stream("other", C))
        .groupByKey().count(Materialized.as("counts")).toStream().to("out"));
    describe("merged_named", b -> b.stream("in", C).merge(b.stream("other", C), Named.as("all"))
        .merge(b.stream("third", C)).to("out"));
    describe("merged_rekeyed", b -> b.stream("in", C).selectKey((k, v) -> v).merge(b.stream("other", C))
        .groupByKey().count(Materialized.as("counts")).toStream().to("out"));
    describe("repartitioned", b -> b.stream("in", C).repartition().groupByKey().count().toStream().to("out"));
    describe("repartitioned_named", b -> b.stream("in", C).selectKey((k, v) -> v)
        .repartition(Repartitioned.as("moved")).groupByKey().count().toStream().to("out"));
    describe("repartitioned_twice", b -> b.stream("in", C)
        .repartition(Repartitioned.with(Serdes.String(), Serdes.String())).mapValues(v -> v)
        .repartition(Repartitioned.with(Serdes.String(), Serdes.String())).to("out"));
    describe("versioned_table", b -> {
      KTable<String, String> t = b.table("names", C, versions("names"));
      t.filter((k, v) -> true).mapValues(v -> v, Descriptions.<String>versions("mapped")).toStream().to("out");
      b.stream("in", C).join(t, (x, y) -> x, J).to("joined");
    });
    describe("versioned_join_waiting", b -> {
      KTable<String, String> t = b.table("names", C, versions("names"));
      KStream<String, String> s = b.stream("in", C);
      s.join(t, (x, y) -> x, J.withGracePeriod(MINUTE)).to("out");
      s.leftJoin(t.filter((k, v) -> true), (x, y) -> x, J.withGracePeriod(MINUTE).withName("named")).to("named-out");
    });
    describe("versioned_join_waiting_rekeyed", b -> b.stream("in", C).selectKey((k, v) -> v)
        .leftJoin(b.table("names", C, versions("names")), (x, y) -> x, J.withGracePeriod(MINUTE)).to("out"));
    describe("versioned_aggregates", b -> {
      b.stream("in", C).groupByKey().count(versions("counts"))
          .groupBy((k, v) -> KeyValue.pair(k, v), Grouped.with(Serdes.String(), Serdes.Long()))
          .count(versions("again")).toStream().to("out");
      KTable<String, String> t = b.stream("other", C).toTable(versions("latest"));
      t.join(t.mapValues(v -> v), (x, y) -> x, versions("pairs")).toStream().to("pairs");
    });
    describe("joined_global", b -> {
      GlobalKTable<String, String> g = b.globalTable("names", C, Materialized.as("names"));
      b.stream("in", C).join(g, (k, v) -> v, (x, y) -> x).leftJoin(g, (k, v) -> v, (x, y) -> x).to("out");
    });
    describe("joined_global_unnamed", b -> b.stream("in", C)
        .join(b.globalTable("names", C), (k, v) -> v, (x, y) -> x, Named.as("named")).to("out"));
    describe("processed", b -> {
      b.addStateStore(Stores.keyValueStoreBuilder(
          Stores.persistentKeyValueStore("seen"), Serdes.String(), Serdes.String()));
      b.addStateStore(Stores.keyValueStoreBuilder(
          Stores.persistentKeyValueStore("also"), Serdes.String(), Serdes.String()));
      KStream<String, String> s = b.stream("in", C);
      s.process(pass(), "seen").processValues(passValues(), "also", "seen").to("out");
      s.process(pass(), Named.as("watch")).foreach((k, v) -> { });
    });
    describe("processed_two_sources", b -> {
      b.addStateStore(Stores.keyValueStoreBuilder(
          Stores.persistentKeyValueStore("shared"), Serdes.String(), Serdes.String()));
      b.stream("in", C).process(pass(), "shared").to("out");
      b.stream("other", C).processValues(passValues(), Named.as("values"), "shared")
          .groupByKey().count().toStream().to("out-2");
    });
    describe("processed_then_counted", b -> b.stream("in", C).process(pass())
        .groupByKey(Grouped.with(Serdes.String(), Serdes.String())).count().toStream().to("out"));
    describe("global_stores", b -> {
      b.stream("in", C).to("out");
      keep(b, "first", C);
      keep(b, "second", Consumed.with(Serdes.String(), Serdes.String()).withName("keep"));
      b.globalTable("names", Consumed.with(Serdes.String(), Serdes.String()).withName("names-table"));
      b.stream("other", C).process(pass()).to("out-2");
    });
    describe("by_pattern", b -> {
      b.stream(Pattern.compile("orders-.*"), C).groupByKey().count().toStream().to("out");
      b.stream("other", C).selectKey((k, v) -> v)
          .join(b.stream(Pattern.compile("pages-[0-9]+"), C), (x, y) -> x, WITHIN, SJ).to("out-2");
    });
    unstored();
    options();
    orders();
  }

  static <V, S extends StateStore> Materialized<String, V, S> uncached() {
    return Materialized.<String, V, S>with(Serdes.String(), null).withCachingDisabled();
  }

  // Materialized without a store's name.
  static void options() throws Exception {
    describe("options_of_aggregates", b -> {
      KGroupedStream<String, String> g = b.stream("in", C).groupByKey();
      g.count(uncached()).toStream().to("out");
      g.reduce((x, y) -> y, uncached()).toStream().to("out");
      g.aggregate(() -> "", (k, v, x) -> v, uncached()).toStream().to("out");
      g.count(Materialized.<String, Long, KeyValueStore<Bytes, byte[]>>as("counts")
          .withCachingDisabled()).toStream().to("out");
      g.count(Materialized.with(Serdes.String(), Serdes.Long())).toStream().to("out");
      g.count().toStream().to("out");
    });
    describe("options_of_windows", b -> {
      KGroupedStream<String, String> g = b.stream("in", C).groupByKey();
      var windows = g.windowedBy(MINUTES);
      windows.count(uncached()).toStream().foreach((k, v) -> { });
      windows.reduce((x, y) -> y, uncached()).toStream().foreach((k, v) -> { });
      windows.aggregate(() -> "", (k, v, x) -> v, uncached()).toStream().foreach((k, v) -> { });
      var sliding = g.windowedBy(SlidingWindows.ofTimeDifferenceAndGrace(MINUTE, MINUTE));
      sliding.count(uncached()).toStream().foreach((k, v) -> { });
      sliding.reduce((x, y) -> y, uncached()).toStream().foreach((k, v) -> { });
      var sessions = g.windowedBy(SessionWindows.ofInactivityGapAndGrace(MINUTE, MINUTE));
      sessions.count(uncached()).toStream().foreach((k, v) -> { });
      sessions.reduce((x, y) -> y, uncached()).toStream().foreach((k, v) -> { });
      sessions.aggregate(() -> "", (k, v, x) -> v, (k, x, y) -> y, uncached()).toStream().foreach((k, v) -> { });
      windows.count().toStream().foreach((k, v) -> { });
    });
    describe("options_of_cogroups", b -> {
      var c = b.stream("in", C).groupByKey().cogroup((String k, String v, String g) -> g);
      c.aggregate(() -> "", uncached()).toStream().to("out");
      c.windowedBy(MINUTES).aggregate(() -> "", uncached()).toStream().foreach((k, v) -> { });
      c.windowedBy(SlidingWindows.ofTimeDifferenceAndGrace(MINUTE, MINUTE))
          .aggregate(() -> "", uncached()).toStream().foreach((k, v) -> { });
      c.windowedBy(SessionWindows.ofInactivityGapAndGrace(MINUTE, MINUTE))
          .aggregate(() -> "", (k, x, y) -> y, uncached()).toStream().foreach((k, v) -> { });
    });
    describe("options_of_tables", b -> {
      KTable<String, String> t = b.table("a", C, uncached());
      t.filter((k, v) -> true, uncached()).toStream().to("out");
      t.filterNot((k, v) -> true, Named.as("kept"), uncached()).toStream().to("out");
      t.mapValues(v -> v, uncached()).toStream().to("out");
      t.transformValues(same(), uncached()).toStream().to("out");
      b.stream("in", C).toTable(uncached()).groupBy((k, v) -> KeyValue.pair(v, k)).count(uncached()).toStream().to("out");
      var grouped = t.groupBy((k, v) -> KeyValue.pair(v, k));
      grouped.reduce((x, y) -> y, (x, y) -> y, uncached()).toStream().to("out");
      grouped.aggregate(() -> "", (k, v, x) -> v, (k, v, x) -> v, uncached()).toStream().to("out");
    });
    describe("options_of_joins", b -> {
      KTable<String, String> t = b.table("a", C), u = b.table("b", C);
      t.join(u, (x, y) -> x, uncached()).toStream().to("out");
      t.leftJoin(u, (x, y) -> x, Named.as("joined"), uncached()).toStream().to("out");
      t.outerJoin(u, (x, y) -> x, uncached()).toStream().to("out");
      t.join(u, v -> v, (x, y) -> x, Materialized.<String, String, KeyValueStore<Bytes, byte[]>>with(
          Serdes.String(), Serdes.String()).withCachingDisabled()).toStream().to("out");
      b.stream("in", C).groupByKey().count().toStream().to("out");
    });
  }

  static void unstored() throws Exception {
    describe("foreign_key_named_held", b -> b.table("a", C)
        .leftJoin(b.table("b", C), v -> v, (x, y) -> x, TableJoined.as("refer"))
        .groupBy((k, v) -> KeyValue.pair(v, k)).count().toStream().to("out"));
  }

  static ValueTransformerWithKeySupplier<String, String, String> same() {
    return () -> new ValueTransformerWithKey<String, String, String>() {
      public void init(ProcessorContext context) { }
      public String transform(String key, String value) { return value; }
      public void close() { }
    };
  }

  // What stands in one line comes as Java's hash sets and trees give it.
  static void orders() throws Exception {
    describe("order_of_topics", b -> {
      b.stream(List.of("orders", "payments", "refunds"), C).to("out");
      b.stream(List.of("in1", "in2"), C).to("out");
      b.stream(List.of("BB", "Aa"), C).to("out");
      b.stream(List.of("AaBB", "BBAa"), C).to("out");
      b.stream(java.util.stream.IntStream.range(0, 12).mapToObj(i -> "shard-" + i).toList(), C).to("out");
      b.stream(java.util.stream.IntStream.range(0, 13).mapToObj(i -> "piece-" + i * 7).toList(), C).to("out");
    });
    describe("order_of_stores", b -> {
      for (String each : List.of("BB", "Aa", "BBBB", "AaBB", "BBAa", "AaAa"))
        b.addStateStore(Stores.keyValueStoreBuilder(
            Stores.persistentKeyValueStore(each), Serdes.String(), Serdes.String()));
      KStream<String, String> s = b.stream("in", C);
      s.process(pass(), "BB", "Aa").to("out");
      s.process(pass(), "Aa", "BB").to("out");
      s.processValues(passValues(), "BBAa", "AaAa", "BB", "BBBB", "Aa", "AaBB").to("out");
    });
    describe("order_of_transforming_stores", b -> {
      for (String each : List.of("BB", "Aa"))
        b.addStateStore(Stores.keyValueStoreBuilder(
            Stores.persistentKeyValueStore(each), Serdes.String(), Serdes.String()));
      KTable<String, String> t = b.table("t", C);
      t.transformValues(same(), Materialized.as("kept-9"), "BB", "Aa").toStream().to("out");
      t.transformValues(same(), Materialized.as("kept-15"), "Aa", "BB").toStream().to("out");
      t.transformValues(same(), Materialized.as("Bb"), "BB").toStream().to("out");
      t.transformValues(same(), "Aa", "BB").toStream().to("out");
    });
    describe("order_of_joined_stores", b -> {
      KTable<String, String> t = b.table("t", C, Materialized.as("BB")), u = b.table("u", C, Materialized.as("Aa"));
      KTable<String, String> both = t.join(u, (x, y) -> x), swapped = u.join(t, (x, y) -> x);
      KTable<String, String> v = b.table("v", C, Materialized.as("vs"));
      both.join(v, (x, y) -> x).toStream().to("out");
      swapped.join(v, (x, y) -> x).toStream().to("out");
      both.filter((k, x) -> true).join(swapped, (x, y) -> x).toStream().to("out");
      KStream<String, String> s = b.stream("in", C);
      s.join(both, (x, y) -> x).to("out");
      s.join(swapped, (x, y) -> x).to("out");
      s.join(v.join(both, (x, y) -> x), (x, y) -> x).to("out");
    });
    describe("order_of_suppressed_stores", b -> {
      KTable<String, String> t = b.table("t", C, Materialized.as("BB"));
      KTable<String, String> calm = t.suppress(Suppressed.<String>untilTimeLimit(
          MINUTE, Suppressed.BufferConfig.unbounded()).withName("kept-15"));
      calm.join(b.table("u", C, Materialized.as("Aa")), (x, y) -> x).toStream().to("out");
      calm.filter((k, v) -> true).join(calm, (x, y) -> x).toStream().to("out");
    });
    describe("order_of_buffer", b -> b.stream("in", C)
        .leftJoin(b.table("names", C, versions("store3")), (x, y) -> x, J.withGracePeriod(MINUTE).withName("join8"))
        .to("out"));
    describe("order_of_merged", b -> {
      KStream<String, String> s = b.stream("in", C);
      s.filter((k, v) -> true).merge(s).to("out");
      s.merge(s.filter((k, v) -> true)).to("out");
      var branches = s.split(Named.as("split-")).branch((k, v) -> true, Branched.as("a"))
          .branch((k, v) -> true, Branched.as("b")).defaultBranch(Branched.as("rest"));
      var a = branches.get("split-a");
      var z = branches.get("split-b");
      var rest = branches.get("split-rest");
      rest.merge(a).merge(z).to("out");
      z.merge(a).mapValues(v -> v).merge(rest).to("out");
      rest.mapValues(v -> v).to("out");
    });
    describe("order_of_children", b -> {
      KStream<String, String> s = b.stream("in", C);
      for (int i = 0; i < 14; i++) {
        KStream<String, String> each = s.filter((k, v) -> true);
        for (int j = 0; j < i * 5 % 4; j++) each = each.mapValues(v -> v);
        for (int j = 0; j < i * 3 % 5; j++) each.peek((k, v) -> { }).merge(each).to("out-" + j);
        each.to("out");
      }
    });
  }

  static void keep(StreamsBuilder b, String name, Consumed<String, String> consumed) {
    b.addGlobalStore(
        Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore(name), Serdes.String(), Serdes.String()),
        name + "-topic", consumed, () -> new ContextualProcessor<String, String, Void, Void>() {
          public void process(Record<String, String> record) { }
        });
  }
}
