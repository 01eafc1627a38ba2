import com.fasterxml.jackson.databind.JsonNode;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.zip.CRC32;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.kstream.Windowed;

/**
 * The words that a case may use for user functions. functions.py has the same words in Python.
 *
 * <p>Results are built so that order shows: a different order gives a different text.
 */
final class Functions {
  // Texts that grow with every step are cut here, and what was cut still shows in the checksum.
  private static final int TEXT_MAX = 80;
  private static final int TAIL = 40;
  // Keys that the functions make of values.
  static final List<String> GUESSED_KEYS = List.of("a", "b", "c", "d", "e", "é", "𝄞", "1", "x", "n0", "n1", "n2");

  private Functions() {}

  static String text(Object value) {
    if (value instanceof Windowed<?> window) {
      return text(window.key()) + "@" + window.window().start() + "/" + window.window().end();
    }
    return value == null ? "null" : value.toString();
  }

  static boolean test(String word, Object key, Object value) {
    return switch (word) {
      case "has_a" -> has(value, "a");
      case "has_b_or_none" -> value == null || has(value, "b");
      case "even_end" -> text(value).isEmpty() || last(text(value)).codePointAt(0) % 2 == 0;
      case "short_key" -> key != null && length(inner(key)) < 2;
      case "has_value" -> value != null;
      case "has_key" -> key != null;
      default -> throw new IllegalArgumentException(word);
    };
  }

  /** Fail on some values, if the step does so. */
  static void check(JsonNode step, Object value) {
    if (step.has("fails") && has(value, "1")) throw new IllegalStateException("fails");
  }

  static Object mapValue(String word, Object value) {
    return switch (word) {
      case "text" -> value == null ? null : text(value);
      case "suffix" -> value == null ? null : text(value) + "!";
      case "bracket" -> shorten("<" + text(value) + ">");
      case "drop_b" -> value == null || has(value, "b") ? null : text(value);
      case "first" -> value == null ? null : first(text(value));
      default -> throw new IllegalArgumentException(word);
    };
  }

  /** What a function that is given the key, too, makes of the result of one that is not. */
  static Object keyed(Object key, Object made) {
    return made == null ? null : shorten(text(made) + "%" + text(key));
  }

  static List<Object> flatMapValues(String word, Object value) {
    List<Object> values = new ArrayList<>();
    switch (word) {
      case "letters" -> {
        if (value != null) text(value).codePoints().limit(3).forEach(c -> values.add(Character.toString(c)));
      }
      case "twice" -> values.addAll(value == null ? Arrays.asList(null, null) : List.of(text(value), text(value) + "'"));
      default -> throw new IllegalArgumentException(word);
    }
    return values;
  }

  static String selectKey(String word, Object key, Object value) {
    return switch (word) {
      case "same" -> key == null ? null : text(key);
      case "inner" -> inner(key);
      case "first_of_value" -> value == null || text(value).isEmpty() ? null : first(text(value));
      case "whole_value" -> value == null ? null : text(value);
      case "length_of_value" -> "n" + length(text(value)) % 3;
      case "none_if_x" -> has(value, "x") ? null : inner(key);
      default -> throw new IllegalArgumentException(word);
    };
  }

  /** Pairs for map, and for the group_by of a table (where a null pair means: skip). */
  static KeyValue<String, Object> pair(String word, Object key, Object value) {
    return switch (word) {
      case "first_of_value", "whole_value", "same", "inner", "length_of_value" -> KeyValue.pair(selectKey(word, key, value), value);
      case "swap" -> KeyValue.pair(selectKey("first_of_value", key, value), shorten(text(key)));
      case "skip_x" -> has(value, "x") ? null : KeyValue.pair(inner(key), value);
      default -> throw new IllegalArgumentException(word);
    };
  }

  static List<KeyValue<String, Object>> flatMap(String word, Object key, Object value) {
    return switch (word) {
      case "both" -> List.of(
          KeyValue.pair(selectKey("inner", key, value), value),
          KeyValue.pair(selectKey("first_of_value", key, value), value));
      default -> throw new IllegalArgumentException(word);
    };
  }

  static String fold(String word, Object aggregate, Object value) {
    return switch (word) {
      case "add" -> shorten(text(aggregate) + "+" + text(value));
      case "add_or_delete" -> has(value, "x") ? null : shorten(text(aggregate) + "+" + text(value));
      case "subtract" -> shorten(text(aggregate) + "-" + text(value));
      case "subtract_or_delete" -> has(value, "x") ? null : shorten(text(aggregate) + "-" + text(value));
      case "times" -> shorten(text(aggregate) + "*" + text(value));
      default -> throw new IllegalArgumentException(word);
    };
  }

  static String merge(Object left, Object right) {
    return shorten("[" + text(left) + "|" + text(right) + "]");
  }

  static String join(String word, Object left, Object right) {
    return switch (word) {
      case "pair" -> shorten("(" + text(left) + "," + text(right) + ")");
      case "pair_or_none" -> has(left, "x") ? null : shorten("(" + text(left) + "," + text(right) + ")");
      default -> throw new IllegalArgumentException(word);
    };
  }

  static String foreignKey(String word, Object value) {
    return switch (word) {
      case "first" -> value == null || text(value).isEmpty() ? null : first(text(value));
      case "first_or_none" -> value == null || text(value).isEmpty() || has(value, "x") ? null : first(text(value));
      case "last" -> value == null || text(value).isEmpty() ? null : last(text(value));
      case "behind_hash" -> text(value).substring(text(value).indexOf('#') + 1);
      default -> throw new IllegalArgumentException(word);
    };
  }

  static String keyedForeignKey(String word, Object key, Object value) {
    return text(key).equals("b") ? text(key) : foreignKey(word, value);
  }

  static boolean has(Object value, String part) {
    return value != null && text(value).contains(part);
  }

  static int length(String text) {
    return text.codePointCount(0, text.length());
  }

  private static String first(String text) {
    int start = 0;
    // Behind what folds, joins and merges put in front, so that keys keep meeting keys.
    if (text.isEmpty()) return text;
    while (start < text.length() - 1 && "(<[|+0".indexOf(text.charAt(start)) >= 0) start++;
    return Character.toString(text.codePointAt(start));
  }

  private static String last(String text) {
    return Character.toString(text.codePointBefore(text.length()));
  }

  static String inner(Object key) {
    return key instanceof Windowed<?> window ? text(window.key()) : key == null ? null : text(key);
  }

  static String shorten(String text) {
    int[] points = text.codePoints().toArray();
    if (points.length <= TEXT_MAX) return text;
    CRC32 sum = new CRC32();
    sum.update(text.getBytes(StandardCharsets.UTF_8));
    String tail = new String(points, points.length - TAIL, TAIL);
    return String.format("~%08x~%s", sum.getValue(), tail);
  }
}
