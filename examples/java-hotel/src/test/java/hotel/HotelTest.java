package hotel;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;
import java.time.LocalDate;
import java.util.List;
import java.util.Optional;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import pgfresh.FreshDatabase;

/** Each test has a hotel with two rooms. */
class HotelTest {

    private static final LocalDate MONDAY = LocalDate.of(2026, 3, 2);

    private Connection connection;
    private Hotel hotel;

    @BeforeEach
    void open(@FreshDatabase String url) throws SQLException {
        connection = DriverManager.getConnection(url);
        hotel = new Hotel(connection);
        hotel.furnish(1, 1, 5000);
        hotel.furnish(2, 2, 8000);
    }

    @AfterEach
    void close() throws SQLException {
        connection.close();
    }

    private Optional<Integer> room(String guest, int beds, int from, int to) throws SQLException {
        return hotel.book(guest, beds, MONDAY.plusDays(from), MONDAY.plusDays(to)).map(Booking::room);
    }

    @Test
    void theCheapestRoomThatIsLargeEnough() throws SQLException {
        assertEquals(Optional.of(2), room("Ann", 2, 0, 1));
        assertEquals(Optional.of(1), room("Bob", 1, 0, 1));
        assertEquals(Optional.empty(), room("Eve", 1, 0, 1));
        assertEquals(Optional.empty(), room("Joe", 3, 5, 6));
    }

    @Test
    void bookingsAreNumberedFromOne() throws SQLException {
        assertEquals(1, hotel.book("Ann", 1, MONDAY, MONDAY.plusDays(1)).orElseThrow().id());
    }

    @ParameterizedTest
    @CsvSource({"0, 2, false", "2, 4, true", "3, 9, true", "4, 6, true", "1, 9, true", "5, 6, false", "0, 9, true"})
    void nightsOverlapIfOneIsTheSame(int from, int to, boolean overlap) throws SQLException {
        room("Ann", 2, 2, 5);
        assertEquals(overlap ? Optional.empty() : Optional.of(2), room("Bob", 2, from, to));
    }

    @Test
    void whoLeavesMakesRoomForWhoComes() throws SQLException {
        assertEquals(Optional.of(2), room("Ann", 2, 0, 2));
        assertEquals(Optional.of(2), room("Bob", 2, 2, 3));
    }

    @Test
    void aCancelledRoomIsFree() throws SQLException {
        Booking booking = hotel.book("Ann", 2, MONDAY, MONDAY.plusDays(2)).orElseThrow();
        assertTrue(hotel.cancel(booking.id()));
        assertFalse(hotel.cancel(booking.id()));
        assertEquals(Optional.of(2), room("Bob", 2, 0, 2));
    }

    @Test
    void eachNightCostsWhatItsSeasonSays() throws SQLException {
        hotel.season(MONDAY.plusDays(1), MONDAY.plusDays(3), 150);
        hotel.season(MONDAY.plusDays(3), MONDAY.plusDays(4), 80);
        Booking booking = hotel.book("Ann", 1, MONDAY, MONDAY.plusDays(5)).orElseThrow();
        assertEquals(5000 + 2 * 7500 + 4000 + 5000, booking.cents());
    }

    @Test
    void seasonsDoNotOverlap() throws SQLException {
        hotel.season(MONDAY, MONDAY.plusDays(7), 150);
        assertThrows(SQLException.class, () -> hotel.season(MONDAY.plusDays(6), MONDAY.plusDays(8), 80));
    }

    @Test
    void theListOfGuestsIsThatOfANight() throws SQLException {
        Booking ann = hotel.book("Ann", 2, MONDAY, MONDAY.plusDays(2)).orElseThrow();
        Booking bob = hotel.book("Bob", 1, MONDAY.plusDays(1), MONDAY.plusDays(2)).orElseThrow();
        assertEquals(List.of(ann), hotel.guests(MONDAY));
        assertEquals(List.of(bob, ann), hotel.guests(MONDAY.plusDays(1)));
        assertEquals(List.of(), hotel.guests(MONDAY.plusDays(2)));
    }

    @Test
    void aStayHasANight() {
        assertThrows(SQLException.class, () -> room("Ann", 1, 1, 1));
    }
}
