import java.util.Map;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.state.BuiltInDslStoreSuppliers.InMemoryDslStoreSuppliers;
import org.apache.kafka.streams.state.BuiltInDslStoreSuppliers.RocksDBDslStoreSuppliers;
import org.apache.kafka.streams.state.DslKeyValueParams;
import org.apache.kafka.streams.state.DslSessionParams;
import org.apache.kafka.streams.state.DslStoreSuppliers;
import org.apache.kafka.streams.state.DslWindowParams;
import org.apache.kafka.streams.state.KeyValueBytesStoreSupplier;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.SessionBytesStoreSupplier;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.TimestampedBytesStore;
import org.apache.kafka.streams.state.WindowBytesStoreSupplier;
import org.apache.kafka.streams.state.WindowStore;
import org.apache.kafka.streams.state.WindowStoreIterator;
import org.apache.kafka.streams.state.internals.WrappedStateStore;

/**
 * Stores that answer as the default ones do, without their waiting.
 *
 * <p>Keys and values are held in memory. Windows and sessions stay in RocksDB, because what it keeps and forgets is not
 * what the stores in memory do; but it need not write files after every record, as the driver asks it to.
 */
public final class QuickStores implements DslStoreSuppliers {
  private final DslStoreSuppliers memory = new InMemoryDslStoreSuppliers();
  private final DslStoreSuppliers disk = new RocksDBDslStoreSuppliers();

  @Override public void configure(Map<String, ?> options) {}

  @Override public KeyValueBytesStoreSupplier keyValueStore(DslKeyValueParams wanted) {
    return memory.keyValueStore(wanted);
  }

  @Override public WindowBytesStoreSupplier windowStore(DslWindowParams wanted) {
    WindowBytesStoreSupplier supplier = disk.windowStore(wanted);
    return new WindowBytesStoreSupplier() {
      @Override public long segmentIntervalMs() { return supplier.segmentIntervalMs(); }
      @Override public long windowSize() { return supplier.windowSize(); }
      @Override public boolean retainDuplicates() { return supplier.retainDuplicates(); }
      @Override public long retentionPeriod() { return supplier.retentionPeriod(); }
      @Override public String name() { return supplier.name(); }
      @Override public String metricsScope() { return supplier.metricsScope(); }
      @Override public WindowStore<Bytes, byte[]> get() {
        WindowStore<Bytes, byte[]> store = supplier.get();
        return WrappedStateStore.isTimestamped(store) ? new TimestampedWindows(store) : new Windows(store);
      }
    };
  }

  @Override public SessionBytesStoreSupplier sessionStore(DslSessionParams wanted) {
    SessionBytesStoreSupplier supplier = disk.sessionStore(wanted);
    return new SessionBytesStoreSupplier() {
      @Override public long segmentIntervalMs() { return supplier.segmentIntervalMs(); }
      @Override public long retentionPeriod() { return supplier.retentionPeriod(); }
      @Override public String name() { return supplier.name(); }
      @Override public String metricsScope() { return supplier.metricsScope(); }
      @Override public SessionStore<Bytes, byte[]> get() { return new Sessions(supplier.get()); }
    };
  }

  private static class Windows extends WrappedStateStore<WindowStore<Bytes, byte[]>, Bytes, byte[]>
      implements WindowStore<Bytes, byte[]> {
    Windows(WindowStore<Bytes, byte[]> store) { super(store); }

    @Override public void flush() {}

    @Override public boolean persistent() { return false; }

    @Override public void put(Bytes key, byte[] value, long start) { wrapped().put(key, value, start); }

    @Override public byte[] fetch(Bytes key, long time) { return wrapped().fetch(key, time); }

    @Override public WindowStoreIterator<byte[]> fetch(Bytes key, long from, long to) {
      return wrapped().fetch(key, from, to);
    }

    @Override public WindowStoreIterator<byte[]> backwardFetch(Bytes key, long from, long to) {
      return wrapped().backwardFetch(key, from, to);
    }

    @Override public KeyValueIterator<Windowed<Bytes>, byte[]> fetch(Bytes first, Bytes last, long from, long to) {
      return wrapped().fetch(first, last, from, to);
    }

    @Override public KeyValueIterator<Windowed<Bytes>, byte[]> backwardFetch(Bytes first, Bytes last, long from, long to) {
      return wrapped().backwardFetch(first, last, from, to);
    }

    @Override public KeyValueIterator<Windowed<Bytes>, byte[]> fetchAll(long from, long to) {
      return wrapped().fetchAll(from, to);
    }

    @Override public KeyValueIterator<Windowed<Bytes>, byte[]> backwardFetchAll(long from, long to) {
      return wrapped().backwardFetchAll(from, to);
    }

    @Override public KeyValueIterator<Windowed<Bytes>, byte[]> all() { return wrapped().all(); }

    @Override public KeyValueIterator<Windowed<Bytes>, byte[]> backwardAll() { return wrapped().backwardAll(); }
  }

  private static final class TimestampedWindows extends Windows implements TimestampedBytesStore {
    TimestampedWindows(WindowStore<Bytes, byte[]> store) { super(store); }
  }

  private static final class Sessions extends WrappedStateStore<SessionStore<Bytes, byte[]>, Bytes, byte[]>
      implements SessionStore<Bytes, byte[]> {
    Sessions(SessionStore<Bytes, byte[]> store) { super(store); }

    @Override public void flush() {}

    @Override public boolean persistent() { return false; }

    @Override public void put(Windowed<Bytes> session, byte[] value) { wrapped().put(session, value); }

    @Override public void remove(Windowed<Bytes> session) { wrapped().remove(session); }

    @Override public byte[] fetchSession(Bytes key, long start, long end) {
      return wrapped().fetchSession(key, start, end);
    }

    @Override public KeyValueIterator<Windowed<Bytes>, byte[]> findSessions(long from, long to) {
      return wrapped().findSessions(from, to);
    }

    @Override public KeyValueIterator<Windowed<Bytes>, byte[]> findSessions(Bytes key, long end, long start) {
      return wrapped().findSessions(key, end, start);
    }

    @Override public KeyValueIterator<Windowed<Bytes>, byte[]> backwardFindSessions(Bytes key, long end, long start) {
      return wrapped().backwardFindSessions(key, end, start);
    }

    @Override public KeyValueIterator<Windowed<Bytes>, byte[]> findSessions(Bytes first, Bytes last, long end, long start) {
      return wrapped().findSessions(first, last, end, start);
    }

    @Override public KeyValueIterator<Windowed<Bytes>, byte[]> backwardFindSessions(
        Bytes first, Bytes last, long end, long start) {
      return wrapped().backwardFindSessions(first, last, end, start);
    }

    @Override public KeyValueIterator<Windowed<Bytes>, byte[]> fetch(Bytes key) { return wrapped().fetch(key); }

    @Override public KeyValueIterator<Windowed<Bytes>, byte[]> backwardFetch(Bytes key) {
      return wrapped().backwardFetch(key);
    }

    @Override public KeyValueIterator<Windowed<Bytes>, byte[]> fetch(Bytes first, Bytes last) {
      return wrapped().fetch(first, last);
    }

    @Override public KeyValueIterator<Windowed<Bytes>, byte[]> backwardFetch(Bytes first, Bytes last) {
      return wrapped().backwardFetch(first, last);
    }
  }
}
