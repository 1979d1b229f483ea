import java.io.ByteArrayOutputStream;
import java.io.StringReader;
import java.net.URI;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.Arrays;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CompletableFuture;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.postgresql.PGConnection;
import org.postgresql.PGNotification;

/** Tests pgjdbc through the gateway at DATABASE_URL. Each method checks one guarantee. */
final class Drivers {
    private static final int LARGE = 64 << 20;

    @FunctionalInterface
    private interface Promise {
        void keep(Connection connection) throws Exception;
    }

    private static Connection connect(String... options) throws SQLException {
        URI where = URI.create(System.getenv("DATABASE_URL"));
        Properties properties = new Properties();
        String[] user = where.getUserInfo().split(":", 2);
        properties.setProperty("user", user[0]);
        properties.setProperty("password", user[1]);
        if (System.getenv("PGSSLMODE") != null) {
            properties.setProperty("sslmode", System.getenv("PGSSLMODE"));
            properties.setProperty("sslrootcert", System.getenv("PGSSLROOTCERT"));
        }
        for (int at = 0; at < options.length; at += 2) {
            properties.setProperty(options[at], options[at + 1]);
        }
        return DriverManager.getConnection(
                "jdbc:postgresql://" + where.getHost() + ":" + where.getPort() + "/pgjdbc", properties);
    }

    private static void check(boolean condition, Object what) {
        if (!condition) {
            throw new AssertionError(what);
        }
    }

    private static String value(Connection connection, String sql) throws SQLException {
        try (Statement statement = connection.createStatement(); ResultSet rows = statement.executeQuery(sql)) {
            rows.next();
            return rows.getString(1);
        }
    }

    private static String stateOf(Connection connection, String sql) {
        try (Statement statement = connection.createStatement()) {
            statement.execute(sql);
            return "none";
        } catch (SQLException error) {
            return error.getSQLState();
        }
    }

    private static void anyNameIsADatabase(Connection connection) throws Exception {
        check(value(connection, "SELECT current_database()").equals("pgjdbc"), "another database");
        try (Connection other = connect("options", "-c work_mem=123kB", "preferQueryMode", "simple")) {
            check(value(other, "SHOW work_mem").equals("123kB"), "other settings");
        }
    }

    private static void statementsArePrepared(Connection connection) throws Exception {
        // From the fifth execution on, the driver uses a named statement, and receives values in binary format.
        try (PreparedStatement statement = connection.prepareStatement("SELECT ?::int + 1")) {
            for (int number = 0; number < 100; number++) {
                statement.setInt(1, number);
                try (ResultSet rows = statement.executeQuery()) {
                    check(rows.next() && rows.getInt(1) == number + 1, number);
                }
            }
            check(value(connection, "SELECT count(*) FROM pg_prepared_statements").equals("1"), "not prepared");
        }
    }

    private static void rowsAreCopiedBothWays(Connection connection) throws Exception {
        connection.createStatement().execute("CREATE TEMP TABLE t (n int)");
        var copy = connection.unwrap(PGConnection.class).getCopyAPI();
        String rows = IntStream.range(0, 100_000).mapToObj(number -> number + "\n").collect(Collectors.joining());
        check(copy.copyIn("COPY t FROM STDIN", new StringReader(rows)) == 100_000, "copied in");
        var out = new ByteArrayOutputStream();
        copy.copyOut("COPY (SELECT n FROM t ORDER BY n) TO STDOUT", out);
        check(out.toString().equals(rows), "copied out");
    }

    private static void aStatementIsCancelled(Connection connection) throws Exception {
        try (Statement statement = connection.createStatement(); Connection other = connect()) {
            int backend = connection.unwrap(PGConnection.class).getBackendPID();
            var state = CompletableFuture.supplyAsync(() -> {
                try {
                    statement.execute("SELECT pg_sleep(60)");
                    return "none";
                } catch (SQLException error) {
                    return error.getSQLState();
                }
            });
            String running = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND pid = " + backend;
            while (value(other, running).equals("0")) {
                Thread.onSpinWait();
            }
            statement.cancel();
            check(state.get().equals("57014"), state.get());
        }
        check(value(connection, "SELECT 1").equals("1"), "not usable any more");
        try (Statement statement = connection.createStatement()) {
            statement.setQueryTimeout(1);
            statement.execute("SELECT pg_sleep(60)");
            throw new AssertionError("no timeout");
        } catch (SQLException error) {
            check(error.getSQLState().equals("57014"), error);
        }
    }

    private static void aBatchNeedsNoTurns(Connection connection) throws Exception {
        connection.createStatement().execute("CREATE TEMP TABLE batch (n int UNIQUE)");
        connection.setAutoCommit(false);
        try (PreparedStatement statement = connection.prepareStatement("INSERT INTO batch VALUES (?)")) {
            for (int number = 0; number < 5000; number++) {
                statement.setInt(1, number);
                statement.addBatch();
            }
            check(Arrays.stream(statement.executeBatch()).sum() == 5000, "inserted");
            connection.commit();
            statement.setInt(1, 7);
            statement.addBatch();
            statement.executeBatch();
            throw new AssertionError("no error");
        } catch (SQLException error) {
            check(error.getSQLState().equals("23505"), error);
        }
        connection.rollback();
        check(value(connection, "SELECT count(*) FROM batch").equals("5000"), "rolled back");
    }

    private static void newsComesUnasked(Connection connection) throws Exception {
        connection.createStatement().execute("LISTEN news");
        try (Connection speaker = connect()) {
            speaker.createStatement().execute("NOTIFY news, 'X'");
            PGNotification[] news = connection.unwrap(PGConnection.class).getNotifications(30_000);
            check(news.length == 1 && news[0].getParameter().equals("X"), Arrays.toString(news));
            check(news[0].getPID() == speaker.unwrap(PGConnection.class).getBackendPID(), news[0].getPID());
        }
    }

    private static void errorsAreRecoveredFrom(Connection connection) throws Exception {
        connection.setAutoCommit(false);
        for (var wanted : Map.of("SELECT 1/0", "22012", "SELECT FROM nowhere", "42P01", "SELEC", "42601").entrySet()) {
            check(stateOf(connection, wanted.getKey()).equals(wanted.getValue()), wanted);
            check(stateOf(connection, "SELECT 1").equals("25P02"), wanted);
            connection.rollback();
        }
        var before = connection.setSavepoint();
        check(stateOf(connection, "SELECT 1/0").equals("22012"), "no error");
        connection.rollback(before);
        check(value(connection, "SELECT 1").equals("1"), "not usable any more");
    }

    private static void valuesMayBeLarge(Connection connection) throws Exception {
        byte[] given = new byte[LARGE];
        Arrays.fill(given, (byte) 0xA7);
        try (PreparedStatement statement = connection.prepareStatement("SELECT ?::bytea")) {
            statement.setBytes(1, given);
            try (ResultSet rows = statement.executeQuery()) {
                check(rows.next() && Arrays.equals(rows.getBytes(1), given), "another value");
            }
        }
    }

    private static void rowsComeInPortions(Connection connection) throws Exception {
        connection.setAutoCommit(false);
        try (Statement statement = connection.createStatement()) {
            statement.setFetchSize(100);
            int count = 0;
            try (ResultSet rows = statement.executeQuery("SELECT generate_series(1, 10000)")) {
                while (rows.next()) {
                    count++;
                }
            }
            check(count == 10_000, count);
        }
    }

    private static void keep(String name, Promise promise) throws Exception {
        try (Connection connection = connect()) {
            promise.keep(connection);
        }
        System.out.println(name);
    }

    public static void main(String[] arguments) throws Exception {
        keep("any name is a database", Drivers::anyNameIsADatabase);
        keep("statements are prepared", Drivers::statementsArePrepared);
        keep("rows are copied both ways", Drivers::rowsAreCopiedBothWays);
        keep("a statement is cancelled", Drivers::aStatementIsCancelled);
        keep("a batch needs no turns", Drivers::aBatchNeedsNoTurns);
        keep("news comes unasked", Drivers::newsComesUnasked);
        keep("errors are recovered from", Drivers::errorsAreRecoveredFrom);
        keep("values may be large", Drivers::valuesMayBeLarge);
        keep("rows come in portions", Drivers::rowsComeInPortions);
    }
}
