package hotel;

import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;

/** Retries transactions after temporary errors. */
public final class Retry {

    /** Maximum number of times that a transaction runs. */
    private static final int MAX_ATTEMPTS = 3;

    private Retry() {}

    /** Work in a transaction. */
    @FunctionalInterface
    public interface Work<T> {
        T run(Connection connection) throws SQLException;
    }

    /**
     * Runs work in a transaction on a new connection, at most three times. If the connection was lost, the
     * transaction may have been committed, so the work must not change anything the second time.
     */
    public static <T> T run(String url, Work<T> work) throws SQLException {
        for (int attempt = 1; ; attempt++) {
            try (Connection connection = DriverManager.getConnection(url)) {
                connection.setAutoCommit(false);
                T result = work.run(connection);
                connection.commit();
                return result;
            } catch (SQLException error) {
                if (attempt == MAX_ATTEMPTS || !passes(error.getSQLState())) {
                    throw error;
                }
            }
        }
    }

    /** Returns whether a retry may succeed: after a serialization failure, a deadlock, or a lost connection. */
    private static boolean passes(String state) {
        return "40001".equals(state) || "40P01".equals(state) || "57P01".equals(state) || (state != null && state.startsWith("08"));
    }
}
