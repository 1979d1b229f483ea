package hotel;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;
import java.time.LocalDate;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.junit.jupiter.api.Test;
import pgfresh.FreshDatabase;

class RushTest {

    private static final LocalDate NIGHT = LocalDate.of(2026, 12, 31);

    @Test
    void noRoomIsGivenToTwo(@FreshDatabase String url) throws Exception {
        try (Connection connection = DriverManager.getConnection(url)) {
            Hotel hotel = new Hotel(connection);
            for (int number = 1; number <= 5; number++) {
                hotel.furnish(number, 2, 9000);
            }
            assertEquals(5, successes(url, 12));
            assertEquals(5, hotel.guests(NIGHT).size());
        }
    }

    /** Returns how many of these guests, who book concurrently, get a room. */
    private static int successes(String url, int guests) throws Exception {
        ExecutorService crowd = Executors.newFixedThreadPool(guests);
        try {
            List<Callable<Optional<Booking>>> wishes = new ArrayList<>();
            for (int i = 0; i < guests; i++) {
                String guest = "guest " + i;
                wishes.add(() -> book(url, guest));
            }
            int booked = 0;
            for (Future<Optional<Booking>> answer : crowd.invokeAll(wishes)) {
                booked += answer.get().isPresent() ? 1 : 0;
            }
            return booked;
        } finally {
            crowd.shutdown();
        }
    }

    private static Optional<Booking> book(String url, String guest) throws SQLException {
        try (Connection connection = DriverManager.getConnection(url)) {
            return new Hotel(connection).book(guest, 1, NIGHT, NIGHT.plusDays(1));
        }
    }
}
