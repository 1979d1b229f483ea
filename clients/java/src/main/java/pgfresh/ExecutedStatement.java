package pgfresh;

import java.time.Duration;

/**
 * Statement with the totals of its runs.
 *
 * @param text text in one line, with {@code ?} in place of values
 * @param count number of runs
 * @param time total time in the database
 * @param rows number of rows that the runs returned or changed
 */
public record ExecutedStatement(String text, long count, Duration time, long rows) {}
