package hotel;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.sql.Connection;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.List;
import org.junit.jupiter.api.Test;
import pgfresh.Database;
import pgfresh.Fault;
import pgfresh.Fault.Moment;
import pgfresh.FaultStatus;
import pgfresh.FreshDatabase;

/** The database misbehaves while the hotel adds a room, but the hotel doesn't notice. */
class FaultsTest {

    private static long furnish(Database database) throws SQLException {
        return Retry.run(database.jdbcUrl(), connection -> {
            new Hotel(connection).furnish(1, 2, 8000);
            return rooms(connection);
        });
    }

    private static long rooms(Connection connection) throws SQLException {
        ResultSet count = connection.createStatement().executeQuery("SELECT count(*) FROM rooms");
        count.next();
        return count.getLong(1);
    }

    @Test
    void serializationFailuresAreRepeated(@FreshDatabase Database database) throws SQLException {
        database.fault(Fault.error("40001").at(Moment.COMMIT).times(2));
        assertEquals(1, furnish(database));
    }

    @Test
    void aLostConnectionIsReplaced(@FreshDatabase Database database) throws SQLException {
        database.fault(Fault.connectionLost().statement("INSERT INTO rooms"));
        assertEquals(1, furnish(database));
    }

    @Test
    void aLostCommitFurnishesOneRoom(@FreshDatabase Database database) throws SQLException {
        database.fault(Fault.connectionLost().at(Moment.AFTER_COMMIT));
        assertEquals(1, furnish(database));
    }

    @Test
    void threeDeadlocksAreTooMany(@FreshDatabase Database database) {
        database.fault(Fault.error("40P01").statement("INSERT INTO rooms").times(10));
        SQLException error = assertThrows(SQLException.class, () -> furnish(database));
        assertEquals("40P01", error.getSQLState());
        assertEquals(List.of(3L), database.faults().stream().map(FaultStatus::fired).toList());
    }
}
