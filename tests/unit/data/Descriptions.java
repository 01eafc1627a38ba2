// Writes Kafka Streams' own Topology.describe() of the topologies in test_topology_describe.py.
// From this directory: java -cp '<jars of kafka-streams 4.1.1>/*' Descriptions.java describe
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.*;

public class Descriptions {
  static final Consumed<String, String> C = Consumed.with(Serdes.String(), Serdes.String());
  static Path directory;

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
  }
}
