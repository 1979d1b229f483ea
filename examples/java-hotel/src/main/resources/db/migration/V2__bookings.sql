CREATE EXTENSION btree_gist;

CREATE TABLE bookings (
    id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    room   int       NOT NULL REFERENCES rooms,
    guest  text      NOT NULL CHECK (guest <> ''),
    nights daterange NOT NULL CHECK (NOT isempty(nights) AND NOT lower_inf(nights) AND NOT upper_inf(nights)),
    cents  int       NOT NULL,
    -- Nobody sleeps in a room of somebody else.
    CONSTRAINT bookings_overlap EXCLUDE USING gist (room WITH =, nights WITH &&)
);
