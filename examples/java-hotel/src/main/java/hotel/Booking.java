package hotel;

import java.time.LocalDate;

/** A room for a guest, from a day to another, on which they leave. */
public record Booking(long id, int room, String guest, LocalDate from, LocalDate to, int cents) {}
