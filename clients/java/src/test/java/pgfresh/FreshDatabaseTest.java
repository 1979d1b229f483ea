package pgfresh;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.net.URI;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Nested;
import org.junit.jupiter.api.RepeatedTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInstance;
import org.junit.jupiter.api.TestInstance.Lifecycle;
import org.junit.jupiter.api.parallel.Execution;
import org.junit.jupiter.api.parallel.ExecutionMode;

/** Tests databases on a real server in parallel tests, with PostgreSQL's JDBC driver. */
@Execution(ExecutionMode.CONCURRENT)
class FreshDatabaseTest {

    private static final Set<String> SEEN = ConcurrentHashMap.newKeySet();

    private Database prepared;

    static void execute(String url, String statement) throws SQLException {
        try (Connection connection = DriverManager.getConnection(url)) {
            connection.createStatement().execute(statement);
        }
    }

    static int count(String url) throws SQLException {
        try (Connection connection = DriverManager.getConnection(url)) {
            ResultSet result = connection.createStatement().executeQuery("SELECT count(*) FROM fruit");
            result.next();
            return result.getInt(1);
        }
    }

    @BeforeEach
    void prepare(@FreshDatabase Database database) throws SQLException {
        assertTrue(SEEN.add(database.name()), "another test had " + database);
        prepared = database;
        execute(database.jdbcUrl(), "INSERT INTO fruit VALUES ('apple')");
    }

    @RepeatedTest(20)
    void eachTestHasAnotherDatabase(@FreshDatabase String url) throws SQLException {
        execute(url, "INSERT INTO fruit VALUES ('mine')");
        assertEquals(2, count(url));
    }

    @Test
    void parametersOfTestShareDatabase(
            @FreshDatabase Database database, @FreshDatabase String jdbc, @FreshDatabase URI url) {
        assertSame(prepared, database);
        assertEquals(database.jdbcUrl(), jdbc);
        assertEquals(database.url(), url.toString());
    }

    @Test
    void anotherKeySelectsAnotherDatabase(@FreshDatabase("other") String other) throws SQLException {
        assertEquals(0, count(other));
        assertEquals(1, count(prepared.jdbcUrl()));
    }

    @Test
    void templateSelectsAnotherTemplate(@FreshDatabase(value = "bare", template = "template1") Database bare) {
        assertEquals("template1", bare.template());
        assertThrows(SQLException.class, () -> count(bare.jdbcUrl()));
    }

    @Test
    void resetRestoresTemplate() throws SQLException {
        try (Connection open = DriverManager.getConnection(prepared.jdbcUrl())) {
            assertEquals("55006", assertThrows(PgfreshException.class, prepared::reset).code().orElseThrow());
            prepared.resetClosingSessions();
            assertThrows(SQLException.class, () -> open.createStatement().execute("SELECT 1"));
        }
        assertEquals(0, count(prepared.jdbcUrl()));
    }

    @Test
    void closeReleasesDatabase() throws SQLException {
        String url;
        Database database = Database.fresh(Options.NONE.name("Größe +/%"));
        try (database) {
            url = database.jdbcUrl();
            execute(url, "INSERT INTO fruit VALUES ('pear')");
            assertEquals("Größe +/%", database.name());
        }
        database.close();
        assertEquals(0, count(url), "a fresh one of that name");
    }

    @Nested
    class ConstructorParameter {
        private final Database own;

        ConstructorParameter(@FreshDatabase Database own) {
            this.own = own;
        }

        @RepeatedTest(2)
        void constructorSharesDatabaseOfTest(@FreshDatabase Database same) {
            assertSame(own, same);
            assertSame(prepared, same);
        }
    }

    @Nested
    @TestInstance(Lifecycle.PER_CLASS)
    class ClassParameter {
        private Database shared;

        @BeforeAll
        void share(@FreshDatabase("shared") Database shared) {
            this.shared = shared;
        }

        @RepeatedTest(2)
        void testsShareDatabaseOfClass(@FreshDatabase("shared") Database shared, @FreshDatabase Database own) {
            assertSame(this.shared, shared);
            assertSame(prepared, own);
        }

        @Nested
        class NestedClass {
            @Test
            void nestedTestsShareDatabaseOfClass(@FreshDatabase("shared") Database shared) {
                assertSame(ClassParameter.this.shared, shared);
            }
        }
    }
}
