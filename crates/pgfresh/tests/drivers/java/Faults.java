import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.URI;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.util.Map;
import org.postgresql.util.PSQLException;
import org.postgresql.util.ServerErrorMessage;

/**
 * Prints how a statement fails through pgjdbc.
 *
 * <p>Each input line contains the URL, the isolation level (or "none" to run without a transaction), a first statement,
 * and the failing statement. The program prints "ready" before the failing statement and waits for another line, so
 * that the test can provoke the error.
 */
final class Faults {
    private static final BufferedReader INPUT = new BufferedReader(new InputStreamReader(System.in));
    private static final Map<String, Integer> LEVELS = Map.of(
            "read committed", Connection.TRANSACTION_READ_COMMITTED,
            "repeatable read", Connection.TRANSACTION_REPEATABLE_READ,
            "serializable", Connection.TRANSACTION_SERIALIZABLE);

    @FunctionalInterface
    private interface Action {
        void run() throws SQLException, IOException;
    }

    private static Connection connect(String url) throws SQLException {
        URI where = URI.create(url);
        String[] user = where.getUserInfo().split(":", 2);
        return DriverManager.getConnection(
                "jdbc:postgresql://" + where.getHost() + ":" + where.getPort() + where.getPath()
                        + "?sslmode=disable",
                user[0], user[1]);
    }

    private static void seen(String name, Action action) throws IOException {
        try {
            action.run();
            System.out.println(name + " ok");
        } catch (SQLException error) {
            String server = "";
            if (error instanceof PSQLException known && known.getServerErrorMessage() != null) {
                ServerErrorMessage said = known.getServerErrorMessage();
                server = said.getSeverity() + " " + said.getDetail() + " " + said.getHint() + " " + said.getRoutine();
            }
            String message = error.getMessage().replaceAll("\\s+", " ");
            System.out.println(String.join(" ", name, error.getClass().getName(), error.getSQLState(), server, message));
        }
    }

    private static void ready() throws IOException {
        System.out.println("ready");
        INPUT.readLine();
    }

    private static void execute(Connection connection, String sql) throws SQLException {
        try (PreparedStatement statement = connection.prepareStatement(sql)) {
            statement.execute();
        }
    }

    private static void play(String url, String level, String first, String failing) throws SQLException, IOException {
        Connection connection = connect(url);
        boolean alone = level.equals("none");
        if (!alone) {
            connection.setTransactionIsolation(LEVELS.get(level));
            connection.setAutoCommit(false);
        }
        if (failing.equals("CONNECT")) {
            ready();
            seen("connect", () -> connect(url).close());
        } else {
            seen("statement", () -> {
                execute(connection, first);
                ready();
                if (!failing.equals("COMMIT")) {
                    execute(connection, failing);
                }
                if (!alone) {
                    connection.commit();
                }
            });
        }
        System.out.println("closed " + connection.isClosed());
        if (!alone) {
            seen("in transaction", () -> execute(connection, "SELECT 1"));
            seen("rollback", connection::rollback);
        }
        seen("select", () -> execute(connection, "SELECT 1"));
        // Java connection pools call this before they hand out a connection again.
        System.out.println("valid " + connection.isValid(30));
        connection.close();
        try (Connection next = connect(url)) {
            seen("next", () -> execute(next, "SELECT 1"));
        }
        System.out.println("done");
    }

    public static void main(String[] arguments) throws SQLException, IOException {
        for (String line = INPUT.readLine(); line != null; line = INPUT.readLine()) {
            String[] words = line.split("\t");
            play(words[0], words[1], words[2], words[3]);
        }
    }
}
