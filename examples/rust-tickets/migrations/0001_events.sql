CREATE TABLE events (
    id    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    title text NOT NULL CHECK (title <> '')
);

CREATE TABLE seats (
    event bigint NOT NULL REFERENCES events ON DELETE CASCADE,
    row   int    NOT NULL CHECK (row > 0),
    seat  int    NOT NULL CHECK (seat > 0),
    cents int    NOT NULL CHECK (cents >= 0),
    PRIMARY KEY (event, row, seat)
);
