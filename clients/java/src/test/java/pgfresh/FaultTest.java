package pgfresh;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assertions.fail;

import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.MethodOrderer;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestMethodOrder;

/** Tests faults on a real server. The nested classes are input that the tests in this class run. */
class FaultTest {

    static void commit(Database database) throws SQLException {
        try (Connection connection = DriverManager.getConnection(database.jdbcUrl())) {
            connection.setAutoCommit(false);
            connection.createStatement().execute("SELECT 1");
            connection.commit();
        }
    }

    static String sqlState(Database database) {
        return assertThrows(SQLException.class, () -> commit(database)).getSQLState();
    }

    @Test
    void eachFaultFiresAndIsListed(@FreshDatabase Database database) throws SQLException {
        database.fault(Fault.error("40001").at(Fault.Moment.COMMIT));
        database.fault(Fault.connectionLost().at(Fault.Moment.AFTER_COMMIT));
        database.fault(Fault.delay(Duration.ofNanos(1)).statement("SELECT … 1").nth(3));
        assertEquals("40001", sqlState(database));
        assertEquals("08006", sqlState(database));
        commit(database);
        assertEquals(
                List.of(
                        new FaultStatus("40001 at commit", 1, 1, 3, List.of("COMMIT")),
                        new FaultStatus("connection lost after commit", 1, 1, 2, List.of("COMMIT")),
                        new FaultStatus(
                                "delay of 1 ms before statement \"SELECT … 1\", number 3", 1, 1, 3, List.of("SELECT 1"))),
                database.faults());
    }

    @Test
    void wrongFaultIsError(@FreshDatabase Database database) {
        Fault fault = Fault.error("4001");
        PgfreshException error = assertThrows(PgfreshException.class, () -> database.fault(fault));
        assertEquals("correct_value", error.remedy().orElseThrow());
    }

    @Test
    void closeThrowsForUnfiredFault() {
        Database database = Database.fresh();
        database.fault(Fault.bandwidth("10kB").at(Fault.Moment.CONNECT));
        PgfreshException error = assertThrows(PgfreshException.class, database::close);
        assertTrue(error.getMessage().startsWith("fault did not fire: 10000 bytes per second at connect"), error.getMessage());
        database.close();
    }

    @Test
    void unfiredFaultFailsTest() {
        Map<String, String> outcomes = new TreeMap<>(BudgetTest.run(Tests.class));
        outcomes.replaceAll((name, message) -> message.replaceFirst(" \\(no matching .*", ""));
        assertEquals(
                new TreeMap<>(Map.of(
                        "never", "fault did not fire: 57014 before statement \"UPDATE\"",
                        "neverBySql", "fault did not fire: 57014 before statement \"never\"",
                        "failsAnyway", "its own reason",
                        "isSkipped", "Assumption failed: not here",
                        "beforeReset", "fault did not fire: 57P03 at connect",
                        "fires", "")),
                outcomes);
    }

    static class Tests {
        @Test
        void never(@FreshDatabase Database database) {
            database.fault(Fault.error("57014").statement("UPDATE"));
        }

        @Test
        void neverBySql(@FreshDatabase Database database) throws SQLException {
            try (Connection connection = DriverManager.getConnection(database.jdbcUrl())) {
                connection
                        .createStatement()
                        .execute("SET pgfresh.fault = '{\"error\": \"57014\", \"statement\": \"never\"}'");
            }
        }

        @Test
        void failsAnyway(@FreshDatabase Database database) {
            never(database);
            fail("its own reason");
        }

        @Test
        void isSkipped(@FreshDatabase Database database) {
            never(database);
            Assumptions.abort("Assumption failed: not here");
        }

        @Test
        void beforeReset(@FreshDatabase Database database) {
            database.fault(Fault.error("57P03").at(Fault.Moment.CONNECT).duration(Duration.ofSeconds(1)));
            database.reset();
        }

        @Test
        void fires(@FreshDatabase Database database) {
            database.fault(Fault.error("40001").at(Fault.Moment.COMMIT).times(2));
            assertEquals("40001", sqlState(database));
        }
    }

    @Test
    void sharedDatabaseFailsTestOfFault() {
        Map<String, String> outcomes = BudgetTest.run(Shared.class);
        String unfired = "fault did not fire: 40001 at commit (no matching commit)";
        assertEquals(Map.of("first", "", "second", unfired, "third", ""), outcomes);
    }

    @TestMethodOrder(MethodOrderer.MethodName.class)
    static class Shared {
        static Database database;

        @BeforeAll
        static void lease(@FreshDatabase Database leased) {
            database = leased;
        }

        @Test
        void first() {}

        @Test
        void second() {
            database.fault(Fault.error("40001").at(Fault.Moment.COMMIT));
        }

        @Test
        void third() {}
    }
}
