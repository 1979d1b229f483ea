package pgfresh;

import java.time.Duration;

/**
 * A statement, and what all its runs together took.
 *
 * @param text on one line, with {@code ?} in place of values
 * @param count how often it ran
 * @param time how long that took
 * @param rows how many rows it returned or changed
 */
public record ExecutedStatement(String text, long count, Duration time, long rows) {}
