package hotel;

import java.time.LocalDate;

/** A room for a guest, from the day of arrival to the day of departure. */
public record Booking(long id, int room, String guest, LocalDate from, LocalDate to, int cents) {}
