package pgfresh;

import java.time.Duration;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;

/**
 * Statements that ran within the block passed to {@link Database#statements}.
 *
 * @param count number of statements, including BEGIN and COMMIT
 * @param mostFrequent distinct statements, sorted by count in descending order
 * @param time total time in the database
 * @param complete whether the counts and the list are complete. If the block resets the database, the statements
 *     before the reset are missing. pgfresh also lists only a limited number of distinct statements
 */
public record Statements(long count, List<ExecutedStatement> mostFrequent, Duration time, boolean complete) {

    /** Block of code whose statements {@link Database#statements} counts. */
    @FunctionalInterface
    public interface Block<E extends Exception> {
        void run() throws E;
    }

    /**
     * Returns the statements that ran between two responses. If a reset happened in between, counts from the reset
     * on.
     */
    static Statements between(Json before, Json after, boolean reset) {
        Map<String, Json> earlier = byText(before);
        Map<String, Json> later = byText(after);
        // Lower counts indicate a reset by another client.
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
        // The difference between two rounded numbers can be slightly negative.
        double seconds = Math.max(0, after.number("seconds") - before.number("seconds"));
        return Duration.ofNanos(Math.round(seconds * 1e9));
    }

    /** Returns a list for assertion messages: {@code 3 statements: 2x VALUES (?), …, 1x SELECT ?}. */
    @Override
    public String toString() {
        String lines = mostFrequent.stream()
                .map(statement -> statement.count() + "x " + statement.text())
                .collect(Collectors.joining(", "));
        return count + " statements" + (lines.isEmpty() ? "" : ": " + lines);
    }
}
