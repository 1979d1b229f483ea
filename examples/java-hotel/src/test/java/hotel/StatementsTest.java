package hotel;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;
import java.time.LocalDate;
import org.junit.jupiter.api.Test;
import pgfresh.Budget;
import pgfresh.Database;
import pgfresh.FreshDatabase;
import pgfresh.Statements;

/** Limits how many statements the hotel runs. pgfresh counts the statements. */
class StatementsTest {

    private static final LocalDate MONDAY = LocalDate.of(2026, 3, 2);

    @Test
    @Budget(statements = 4, nPlusOne = 0)
    void aRoomIsBookedWithTwoStatements(@FreshDatabase String url) throws SQLException {
        try (Connection connection = DriverManager.getConnection(url)) {
            Hotel hotel = new Hotel(connection);
            hotel.furnish(1, 1, 5000);
            assertTrue(hotel.book("Ann", 1, MONDAY, MONDAY.plusDays(1)).isPresent());
        }
    }

    @Test
    void theListOfGuestsIsOneQuery(@FreshDatabase(record = true) Database database) throws SQLException {
        try (Connection connection = DriverManager.getConnection(database.jdbcUrl())) {
            Hotel hotel = new Hotel(connection);
            Statements ran = database.statements(() -> hotel.guests(MONDAY));
            assertEquals(1, ran.count(), ran::toString);
        }
    }

    /** Slow on purpose: one query for each night. {@code pgfresh run --profile} finds it. */
    @Test
    void guestsOneNightAfterTheOther(@FreshDatabase String url) throws SQLException {
        try (Connection connection = DriverManager.getConnection(url)) {
            Hotel hotel = new Hotel(connection);
            for (int night = 0; night < 12; night++) {
                assertTrue(hotel.guests(MONDAY.plusDays(night)).isEmpty());
            }
        }
    }
}
