package hotel;

import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Types;
import java.time.LocalDate;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;

/** Manages rooms and their bookings. */
public final class Hotel {

    private static final String EXCLUSION_VIOLATION = "23P01";

    private final Connection connection;

    public Hotel(Connection connection) {
        this.connection = connection;
    }

    /** Adds a room, or changes its number of beds and its price. */
    public void furnish(int number, int beds, int cents) throws SQLException {
        try (PreparedStatement insert = connection.prepareStatement(
                """
                INSERT INTO rooms (number, beds, cents) VALUES (?, ?, ?)
                ON CONFLICT (number) DO UPDATE SET beds = excluded.beds, cents = excluded.cents""")) {
            insert.setInt(1, number);
            insert.setInt(2, beds);
            insert.setInt(3, cents);
            insert.executeUpdate();
        }
    }

    /** Sets the price of the nights between two days, as a percentage of the usual price. */
    public void season(LocalDate from, LocalDate to, int percent) throws SQLException {
        try (PreparedStatement insert = connection.prepareStatement(
                "INSERT INTO seasons (nights, percent) VALUES (daterange(?, ?), ?)")) {
            insert.setObject(1, from);
            insert.setObject(2, to);
            insert.setInt(3, percent);
            insert.executeUpdate();
        }
    }

    /**
     * Books the cheapest free room with enough beds. If several rooms cost the same, books the smallest. Empty if
     * there is none.
     *
     * <p>If another guest has booked the room in the meantime, tries the next room.
     */
    public Optional<Booking> book(String guest, int beds, LocalDate from, LocalDate to) throws SQLException {
        while (true) {
            Optional<Integer> room = free(beds, from, to);
            if (room.isEmpty()) {
                return Optional.empty();
            }
            try {
                return Optional.of(book(room.get(), guest, from, to));
            } catch (SQLException refused) {
                if (!EXCLUSION_VIOLATION.equals(refused.getSQLState())) {
                    throw refused;
                }
            }
        }
    }

    private Optional<Integer> free(int beds, LocalDate from, LocalDate to) throws SQLException {
        try (PreparedStatement select = connection.prepareStatement(
                """
                SELECT number FROM rooms
                WHERE beds >= ?
                AND NOT EXISTS (SELECT FROM bookings WHERE room = number AND nights && daterange(?, ?))
                ORDER BY cents, beds, number LIMIT 1""")) {
            select.setInt(1, beds);
            select.setObject(2, from);
            select.setObject(3, to);
            ResultSet rooms = select.executeQuery();
            return rooms.next() ? Optional.of(rooms.getInt(1)) : Optional.empty();
        }
    }

    private Booking book(int room, String guest, LocalDate from, LocalDate to) throws SQLException {
        try (PreparedStatement insert = connection.prepareStatement(
                """
                INSERT INTO bookings (room, guest, nights, cents)
                SELECT ?, ?, nights, price(?, nights) FROM daterange(?, ?) nights
                RETURNING id, cents""")) {
            insert.setInt(1, room);
            insert.setString(2, guest);
            insert.setInt(3, room);
            insert.setObject(4, from);
            insert.setObject(5, to);
            ResultSet made = insert.executeQuery();
            made.next();
            return new Booking(made.getLong(1), room, guest, from, to, made.getInt(2));
        }
    }

    /** Cancels a booking. Returns false if the booking doesn't exist. */
    public boolean cancel(long id) throws SQLException {
        try (PreparedStatement delete = connection.prepareStatement("DELETE FROM bookings WHERE id = ?")) {
            delete.setLong(1, id);
            return delete.executeUpdate() == 1;
        }
    }

    /** Returns the guests of a night, by room. */
    public List<Booking> guests(LocalDate night) throws SQLException {
        try (PreparedStatement select = connection.prepareStatement(
                """
                SELECT id, room, guest, lower(nights), upper(nights), cents FROM bookings
                WHERE nights @> ? ORDER BY room""")) {
            select.setObject(1, night, Types.DATE);
            ResultSet found = select.executeQuery();
            List<Booking> guests = new ArrayList<>();
            while (found.next()) {
                guests.add(new Booking(
                        found.getLong(1),
                        found.getInt(2),
                        found.getString(3),
                        found.getObject(4, LocalDate.class),
                        found.getObject(5, LocalDate.class),
                        found.getInt(6)));
            }
            return guests;
        }
    }
}
