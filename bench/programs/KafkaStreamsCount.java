import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;

/** Count per key in a RocksDB store, until SIGTERM. */
public class KafkaStreamsCount {

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
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(60))));
        streams.start();
        ended.await();
        System.exit(1);
    }

    private static StreamsBuilder topology(Map<String, String> options) {
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(options.get("input"), Consumed.with(Serdes.Bytes(), Serdes.ByteArray()))
            .groupByKey(Grouped.with(Serdes.Bytes(), Serdes.ByteArray()))
            .count(Materialized.as("counts"))
            .toStream()
            .to(options.get("output"), Produced.with(Serdes.Bytes(), Serdes.Long()));
        return builder;
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
        return properties;
    }

    private static Map<String, String> options(String[] arguments) {
        Map<String, String> options = new HashMap<>();
        for (int index = 0; index < arguments.length; index += 2) {
            options.put(arguments[index].substring(2), arguments[index + 1]);
        }
        return options;
    }
}
