package pgfresh.testcontainers;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.InputStream;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Nested;
import org.junit.jupiter.api.Test;
import pgfresh.PgfreshException;

/** Tests the calls that a Testcontainers suite makes. A file has the names of all methods in Testcontainers' class. */
@Testcontainers
class PostgreSQLContainerTest {

    @Container
    private static final PostgreSQLContainer<?> SHARED = new PostgreSQLContainer<>("postgres:17-alpine")
            .withDatabaseName("shared_by_class")
            .withInitScript("init.sql")
            .withReuse(true);

    @Container
    private final PostgreSQLContainer<?> own = new PostgreSQLContainer<>(DockerImageName.parse("postgres:17"))
            .withUsername("foo")
            .withPassword("secret")
            .withUrlParam("ApplicationName", "a b");

    @BeforeEach
    void use() throws SQLException {
        assertTrue(SHARED.isRunning() && own.isRunning());
        assertEquals("f", query(own, "SELECT EXISTS (SELECT FROM pg_tables WHERE tablename = 'visit')"));
        execute(own, "CREATE TABLE visit ()");
    }

    @AfterAll
    static void sharedContainerStillRuns() {
        assertTrue(SHARED.isRunning());
    }

    static String query(PostgreSQLContainer<?> container, String sql) throws SQLException {
        try (Connection connection = DriverManager.getConnection(
                        container.getJdbcUrl(), container.getUsername(), container.getPassword());
                ResultSet result = connection.createStatement().executeQuery(sql)) {
            result.next();
            return result.getString(1);
        }
    }

    static void execute(PostgreSQLContainer<?> container, String sql) throws SQLException {
        try (Connection connection = container.createConnection("")) {
            connection.createStatement().execute(sql);
        }
    }

    @Test
    void sharedContainerHasNameAndScript() throws SQLException {
        assertEquals(SHARED.getDatabaseName(), query(SHARED, "SELECT current_database()"));
        assertEquals("a;b", query(SHARED, "SELECT drink FROM menu"));
        assertEquals(
                "jdbc:postgresql://" + SHARED.getHost() + ":" + SHARED.getMappedPort(5432) + "/"
                        + SHARED.getDatabaseName(),
                SHARED.getJdbcUrl());
    }

    @Test
    void ownUserIsSuperuserAndParametersCount() throws SQLException {
        assertEquals("foo t", query(own, "SELECT usename || ' ' || usesuper::text::char FROM pg_user WHERE usename = current_user"));
        assertEquals("a b", query(own, "SELECT current_setting('application_name')"));
        assertNotEquals(SHARED.getDatabaseName(), own.getDatabaseName());
    }

    @Nested
    class Inner {
        @Test
        void containersOfOuterClassRun() throws SQLException {
            assertEquals("0", query(own, "SELECT count(*) FROM visit"));
            assertEquals("a;b", query(SHARED, "SELECT drink FROM menu"));
        }
    }

    @Test
    void startAndStopWithoutJUnit() throws SQLException {
        try (PostgreSQLContainer<?> container = new PostgreSQLContainer<>("postgres:17").withDatabaseName("twice")) {
            assertFalse(container.isRunning());
            assertThrows(IllegalStateException.class, container::getJdbcUrl);
            container.start();
            container.start();
            execute(container, "CREATE TABLE made ()");
            try (PostgreSQLContainer<?> other = new PostgreSQLContainer<>("postgres:17").withDatabaseName("twice")) {
                other.start();
                assertNotEquals(container.getDatabaseName(), other.getDatabaseName());
            }
            container.stop();
            assertFalse(container.isRunning());
            container.start();
            execute(container, "CREATE TABLE made ()");
        }
    }

    @Test
    void unsupportedCallsSayWhatToDo() {
        PostgreSQLContainer<?> container = new PostgreSQLContainer<>("postgres:17");
        assertEquals(
                "pgfresh does not support withCommand\nHINT:  Set the option in [postgres] of pgfresh.toml.",
                assertThrows(UnsupportedOperationException.class, () -> container.withCommand("postgres", "-c", "fsync=off"))
                        .getMessage());
        assertThrows(UnsupportedOperationException.class, () -> container.withEnv(Map.of("TZ", "UTC")));
        assertEquals(
                "port 80 is not mapped: there is 5432 alone",
                assertThrows(IllegalArgumentException.class, () -> container.getMappedPort(80)).getMessage());
        assertEquals(
                "could not prepare the container: there is no script \"none.sql\" in the class path",
                assertThrows(IllegalStateException.class, () -> container.withInitScript("none.sql").start())
                        .getMessage());
        assertFalse(container.isRunning());
        assertThrows(
                PgfreshException.class,
                () -> new PostgreSQLContainer<>("postgres:17").withDatabaseName("a\0b").start());
    }

    /**
     * The file has the public methods of org.testcontainers:postgresql 1.21.3, except methods with Docker's own
     * types.
     */
    @Test
    void methodsOfTestcontainersAreThere() throws IOException {
        try (InputStream file = getClass().getResourceAsStream("/testcontainers-methods.txt")) {
            List<String> wanted = new String(file.readAllBytes(), StandardCharsets.UTF_8).lines().toList();
            Set<String> found = Arrays.stream(PostgreSQLContainer.class.getMethods())
                    .map(Method::getName)
                    .collect(Collectors.toSet());
            assertEquals(List.of(), wanted.stream().filter(name -> !found.contains(name)).toList());
        }
    }
}
