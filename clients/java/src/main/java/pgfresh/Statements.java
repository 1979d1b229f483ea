package pgfresh;

import java.time.Duration;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;

/**
 * The statements that ran within a block: see {@link Database#statements}.
 *
 * @param count how many ran, BEGIN and COMMIT included
 * @param mostFrequent each statement once, those that ran most often first
 * @param time how long all took together
 * @param complete whether all statements are counted and listed: very many different ones are not listed, and those before
 *     a reset within the block are not counted
 */
public record Statements(long count, List<ExecutedStatement> mostFrequent, Duration time, boolean complete) {

    /** Lines of code whose statements are counted, and what they may throw. */
    @FunctionalInterface
    public interface Block<E extends Exception> {
        void run() throws E;
    }

    /** What has run between two answers. If the database was reset in between, since then. */
    static Statements between(Json before, Json after, boolean reset) {
        Map<String, Json> earlier = byText(before);
        Map<String, Json> later = byText(after);
        // Not only this client can reset the database.
        boolean wasReset = reset
                || earlier.entrySet().stream().anyMatch(line -> ran(line.getValue(), later.getOrDefault(line.getKey(), Json.EMPTY)) < 0);
        Map<String, Json> known = wasReset ? Map.of() : earlier;
        List<ExecutedStatement> statements = later.entrySet().stream()
                .map(line -> between(line.getKey(), known.getOrDefault(line.getKey(), Json.EMPTY), line.getValue()))
                .filter(statement -> statement.count() > 0)
                .sorted(Comparator.comparing(ExecutedStatement::count).reversed().thenComparing(ExecutedStatement::text))
                .toList();
        Json start = wasReset ? Json.EMPTY : before;
        return new Statements(ran(start, after), statements, time(start, after), after.flag("complete") && !wasReset);
    }

    private static ExecutedStatement between(String text, Json before, Json after) {
        long rows = (long) (after.number("rows") - before.number("rows"));
        return new ExecutedStatement(text, ran(before, after), time(before, after), rows);
    }

    private static Map<String, Json> byText(Json answer) {
        Map<String, Json> lines = new HashMap<>();
        answer.objects("statements").forEach(line -> lines.put(line.text("statement"), line));
        return lines;
    }

    private static long ran(Json before, Json after) {
        return (long) (after.number("count") - before.number("count"));
    }

    private static Duration time(Json before, Json after) {
        // Differences of rounded numbers can be a little less than nothing.
        double seconds = Math.max(0, after.number("seconds") - before.number("seconds"));
        return Duration.ofNanos(Math.round(seconds * 1e9));
    }

    /** For messages of assertions: {@code 3 statements: 2x VALUES (?), …, 1x SELECT ?}. */
    @Override
    public String toString() {
        String lines = mostFrequent.stream()
                .map(statement -> statement.count() + "x " + statement.text())
                .collect(Collectors.joining(", "));
        return count + " statements" + (lines.isEmpty() ? "" : ": " + lines);
    }
}
