import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.StringJoiner;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.Suppressed.BufferConfig;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.WindowedSerdes;
import org.apache.kafka.streams.processor.StateRestoreListener;

/** The rows' topologies over RocksDB stores, one of them until SIGTERM. */
public class KafkaStreamsRows {

    private static final Consumed<Bytes, byte[]> BYTES =
        Consumed.with(Serdes.Bytes(), Serdes.ByteArray());
    private static final Consumed<String, String> TEXT =
        Consumed.with(Serdes.String(), Serdes.String());

    public static void main(String[] arguments) throws InterruptedException {
        Map<String, String> options = options(arguments);
        KafkaStreams streams = new KafkaStreams(topology(options).build(), properties(options));
        CountDownLatch ended = new CountDownLatch(1);
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.setStateListener((now, before) -> {
            if (now == KafkaStreams.State.ERROR) {
                ended.countDown();
            }
        });
        streams.setGlobalStateRestoreListener(new RestorePrinter());
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(60))));
        streams.start();
        if (options.containsKey("standbys")) {
            printLags(streams);
        }
        ended.await();
        System.exit(1);
    }

    private static StreamsBuilder topology(Map<String, String> options) {
        StreamsBuilder builder = new StreamsBuilder();
        switch (options.get("topology")) {
            case "count" -> count(builder, options);
            case "latest" -> latest(builder, options);
            case "windowed_count" -> windowedCount(builder, options);
            case "lambda_reduce" -> lambdaReduce(builder, options);
            case "stream_table_join" -> streamTableJoin(builder, options);
            case "stream_stream_join" -> streamStreamJoin(builder, options);
            case "join_count" -> joinCount(builder, options);
            default -> throw new IllegalArgumentException(options.get("topology"));
        }
        return builder;
    }

    private static void count(StreamsBuilder builder, Map<String, String> options) {
        builder.stream(options.get("input"), BYTES)
            .groupByKey(Grouped.with(Serdes.Bytes(), Serdes.ByteArray()))
            .count(Materialized.as("counts"))
            .toStream()
            .to(options.get("output"), Produced.with(Serdes.Bytes(), Serdes.Long()));
    }

    private static void latest(StreamsBuilder builder, Map<String, String> options) {
        builder.stream(options.get("input"), BYTES)
            .groupByKey(Grouped.with(Serdes.Bytes(), Serdes.ByteArray()))
            .reduce((before, value) -> value, Materialized.as("values"))
            .toStream()
            .to(options.get("output"), Produced.with(Serdes.Bytes(), Serdes.ByteArray()));
    }

    private static void windowedCount(StreamsBuilder builder, Map<String, String> options) {
        Duration size = Duration.ofMinutes(1);
        builder.stream(options.get("input"), BYTES)
            .groupByKey(Grouped.with(Serdes.Bytes(), Serdes.ByteArray()))
            .windowedBy(TimeWindows.ofSizeAndGrace(size, Duration.ofSeconds(5)))
            .count(Materialized.as("counts"))
            .suppress(Suppressed.untilWindowCloses(BufferConfig.unbounded()).withName("final"))
            .toStream()
            .to(options.get("output"), Produced.with(
                new WindowedSerdes.TimeWindowedSerde<>(Serdes.Bytes(), size.toMillis()),
                Serdes.Long()));
    }

    private static void lambdaReduce(StreamsBuilder builder, Map<String, String> options) {
        builder.stream(options.get("input"), Consumed.with(Serdes.String(), Serdes.Long()))
            .groupByKey(Grouped.with(Serdes.String(), Serdes.Long()))
            .reduce((largest, value) -> value > largest ? value : largest, Materialized.as("largest"))
            .toStream()
            .to(options.get("output"), Produced.with(Serdes.String(), Serdes.Long()));
    }

    private static void streamTableJoin(StreamsBuilder builder, Map<String, String> options) {
        KTable<String, String> rows = builder.table(options.get("other"), TEXT, Materialized.as("rows"));
        builder.stream(options.get("input"), TEXT)
            .join(rows, (value, row) -> value + "+" + row)
            .to(options.get("output"), Produced.with(Serdes.String(), Serdes.String()));
    }

    private static void streamStreamJoin(StreamsBuilder builder, Map<String, String> options) {
        KStream<String, String> right = builder.stream(options.get("other"), TEXT);
        builder.stream(options.get("input"), TEXT)
            .join(
                right,
                (a, b) -> a + "+" + b,
                JoinWindows.ofTimeDifferenceAndGrace(Duration.ofSeconds(10), Duration.ofSeconds(5)),
                StreamJoined.with(Serdes.String(), Serdes.String(), Serdes.String()).withName("pairs"))
            .to(options.get("output"), Produced.with(Serdes.String(), Serdes.String()));
    }

    private static void joinCount(StreamsBuilder builder, Map<String, String> options) {
        KTable<Bytes, byte[]> rows = builder.table(options.get("other"), BYTES, Materialized.as("rows"));
        builder.stream(options.get("input"), BYTES)
            .join(rows, (value, row) -> value)
            .groupByKey(Grouped.with(Serdes.Bytes(), Serdes.ByteArray()))
            .count(Materialized.as("counts"))
            .toStream()
            .to(options.get("output"), Produced.with(Serdes.Bytes(), Serdes.Long()));
    }

    /** Prints every second how many changelog records the stores of this process lack. */
    private static void printLags(KafkaStreams streams) {
        Thread printer = new Thread(() -> {
            while (true) {
                StringJoiner lags = new StringJoiner(", ", "[", "]");
                if (streams.state() == KafkaStreams.State.RUNNING) {
                    streams.allLocalStorePartitionLags().values().forEach(partitions ->
                        partitions.values().forEach(lag -> lags.add(Long.toString(lag.offsetLag()))));
                }
                System.out.println("lags " + System.currentTimeMillis() / 1000.0 + " " + lags);
                try {
                    Thread.sleep(1000);
                } catch (InterruptedException error) {
                    return;
                }
            }
        });
        printer.setDaemon(true);
        printer.start();
    }

    private static Properties properties(Map<String, String> options) {
        Properties properties = new Properties();
        properties.put("application.id", options.get("application-id"));
        properties.put("bootstrap.servers", options.get("bootstrap-servers"));
        properties.put("state.dir", options.get("state-dir"));
        properties.put("num.stream.threads", options.get("threads"));
        properties.put("commit.interval.ms", options.get("commit-interval-ms"));
        properties.put("processing.guarantee",
            options.get("guarantee").equals("exactly_once") ? "exactly_once_v2" : "at_least_once");
        properties.put("auto.offset.reset", "earliest");
        properties.put("replication.factor", "1");
        if (options.containsKey("standbys")) {
            properties.put("num.standby.replicas", options.get("standbys"));
            properties.put("session.timeout.ms", options.get("session-timeout-ms"));
        }
        return properties;
    }

    /** Prints what restores tell, as bench/restores.py reads it. */
    private static class RestorePrinter implements StateRestoreListener {

        @Override
        public void onRestoreStart(TopicPartition partition, String store, long start, long end) {
            print("start", partition, 0);
        }

        @Override
        public void onBatchRestored(TopicPartition partition, String store, long end, long count) {
        }

        @Override
        public void onRestoreEnd(TopicPartition partition, String store, long total) {
            print("end", partition, total);
        }

        @Override
        public void onRestoreSuspended(TopicPartition partition, String store, long total) {
            print("suspended", partition, total);
        }

        private static void print(String what, TopicPartition partition, long records) {
            System.out.println("restore " + what + " " + partition.partition() + " " + records + " "
                + System.currentTimeMillis());
        }
    }

    private static Map<String, String> options(String[] arguments) {
        Map<String, String> options = new HashMap<>();
        for (int index = 0; index < arguments.length; index += 2) {
            options.put(arguments[index].substring(2), arguments[index + 1]);
        }
        return options;
    }
}
