import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.UUID;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.streams.processor.TaskId;
import org.apache.kafka.streams.processor.assignment.AssignmentConfigs;
import org.apache.kafka.streams.processor.assignment.ProcessId;
import org.apache.kafka.streams.processor.internals.assignment.ClientState;
import org.apache.kafka.streams.processor.internals.assignment.HighAvailabilityTaskAssignor;
import org.apache.kafka.streams.processor.internals.assignment.RackAwareTaskAssignor;

/**
 * Asks Kafka Streams' high-availability assignor: a JSON line in, a JSON line out.
 *
 * <p>In: {"tasks": [[id, stateful, records of its changelogs], ...], "members": [{"name", "capacity", "tags", "active",
 * "standby", "lags": {task: records that it lacks, or -1 if it serves the task}}, ...] sorted by name, "options":
 * {"standbys", "lag", "warmups", "tags"}}. Out: {"probing", "members": {name: [[active tasks], [standby tasks]]}}.
 */
public final class Assignor {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final long RUNNING = -2; // Kafka Streams' Task.LATEST_OFFSET

  private Assignor() {}

  /** Answers until its input ends. */
  public static void main(String[] arguments) throws Exception {
    BufferedReader questions = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    for (String line = questions.readLine(); line != null; line = questions.readLine()) {
      answers.println(JSON.writeValueAsString(answer(JSON.readTree(line))));
    }
  }

  private static ObjectNode answer(JsonNode question) {
    Set<TaskId> all = new TreeSet<>();
    Map<TaskId, Long> stateful = new TreeMap<>();
    for (JsonNode task : question.get("tasks")) {
      TaskId id = TaskId.parse(task.get(0).asText());
      all.add(id);
      if (task.get(1).asBoolean()) {
        stateful.put(id, task.get(2).asLong());
      }
    }
    Map<ProcessId, ClientState> clients = new TreeMap<>();
    List<String> names = new ArrayList<>();
    for (JsonNode member : question.get("members")) {
      names.add(member.get("name").asText());
      ProcessId id = new ProcessId(new UUID(0, names.size()));
      clients.put(id, client(id, member, stateful));
    }
    AssignmentConfigs configs = configs(question.get("options"));
    boolean probing = new HighAvailabilityTaskAssignor()
        .assign(clients, all, stateful.keySet(), new NoRacks(configs), configs);
    ObjectNode result = JSON.createObjectNode().put("probing", probing);
    ObjectNode members = result.putObject("members");
    clients.forEach((id, client) -> {
      ArrayNode both = members.putArray(names.get((int) id.id().getLeastSignificantBits() - 1));
      write(both.addArray(), client.activeTasks());
      write(both.addArray(), client.standbyTasks());
    });
    return result;
  }

  private static ClientState client(ProcessId id, JsonNode member, Map<TaskId, Long> stateful) {
    Map<TaskId, Long> lags = new TreeMap<>(stateful);
    member.get("lags").fields().forEachRemaining(entry -> {
      long lag = entry.getValue().asLong();
      lags.put(TaskId.parse(entry.getKey()), lag < 0 ? RUNNING : lag);
    });
    Map<String, String> tags = new TreeMap<>();
    member.get("tags").fields().forEachRemaining(entry -> tags.put(entry.getKey(), entry.getValue().asText()));
    int capacity = member.get("capacity").asInt();
    return new ClientState(read(member.get("active")), read(member.get("standby")), lags, tags, capacity, id);
  }

  private static AssignmentConfigs configs(JsonNode options) {
    List<String> tags = new ArrayList<>();
    options.get("tags").forEach(tag -> tags.add(tag.asText()));
    return new AssignmentConfigs(
        options.get("lag").asLong(), options.get("warmups").asInt(), options.get("standbys").asInt(), 60_000L, tags);
  }

  private static Set<TaskId> read(JsonNode ids) {
    Set<TaskId> tasks = new TreeSet<>();
    ids.forEach(id -> tasks.add(TaskId.parse(id.asText())));
    return tasks;
  }

  private static void write(ArrayNode into, Collection<TaskId> tasks) {
    new TreeSet<>(tasks).forEach(task -> into.add(task.toString()));
  }

  /** Racks of brokers play no part: the tags of members do. */
  private static final class NoRacks extends RackAwareTaskAssignor {
    NoRacks(AssignmentConfigs configs) {
      super(Cluster.empty(), Map.of(), Map.of(), Map.of(), Map.of(), null, configs, Time.SYSTEM);
    }

    @Override
    public synchronized boolean canEnableRackAwareAssignor() {
      return false;
    }
  }
}
