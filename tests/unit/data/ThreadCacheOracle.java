// Wrote thread_cache.txt: what Kafka Streams' own ThreadCache flushes, and when.
// In and out, a line per case: "<max bytes>|<key> <stored value's bytes, -1 to delete>|..." and
// "<row>:<number of the flushed write> ..." (row -1: the flush at the end).
// Needs the package for its package-private classes:
//   javac -cp '<jars of kafka-streams 4.1.1>/*' -d <out> ThreadCacheOracle.java
//   java -cp '<out>:<jars>/*' org.apache.kafka.streams.state.internals.ThreadCacheOracle
package org.apache.kafka.streams.state.internals;

import java.util.HashMap;
import java.util.Map;
import java.util.Scanner;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.utils.*;
import org.apache.kafka.streams.processor.internals.metrics.StreamsMetricsImpl;

public class ThreadCacheOracle {
  static final String NAMESPACE = "0_0-store";

  public static void main(String[] arguments) {
    Scanner lines = new Scanner(System.in);
    while (lines.hasNextLine()) System.out.println(run(lines.nextLine().split("\\|")));
  }

  static String run(String[] parts) {
    StreamsMetricsImpl metrics = new StreamsMetricsImpl(new Metrics(), "client", "process", Time.SYSTEM);
    ThreadCache cache = new ThreadCache(new LogContext(), Long.parseLong(parts[0]), metrics);
    Map<Bytes, byte[]> store = new HashMap<>();
    StringBuilder flushed = new StringBuilder();
    int[] row = {0};
    cache.addDirtyEntryFlushListener(NAMESPACE, entries -> {
      for (ThreadCache.DirtyEntry entry : entries) {
        if (entry.newValue() == null && store.get(entry.key()) == null) continue;
        if (entry.newValue() == null) store.remove(entry.key());
        else store.put(entry.key(), entry.newValue());
        flushed.append(row[0]).append(':').append(entry.entry().context().offset()).append(' ');
      }
    });
    for (int i = 1; i < parts.length; i++) {
      row[0] = i - 1;
      String[] write = parts[i].split(" ");
      Bytes key = Bytes.wrap(write[0].getBytes());
      int size = Integer.parseInt(write[1]);
      byte[] below = store.get(key);
      if (cache.get(NAMESPACE, key) == null && below != null) cache.put(NAMESPACE, key, new LRUCacheEntry(below));
      byte[] value = size < 0 ? null : new byte[size];
      cache.put(NAMESPACE, key, new LRUCacheEntry(value, new RecordHeaders(), true, i - 1, 5, 0, "in", null, null));
    }
    row[0] = -1;
    cache.flush(NAMESPACE);
    return flushed.toString().trim();
  }
}
