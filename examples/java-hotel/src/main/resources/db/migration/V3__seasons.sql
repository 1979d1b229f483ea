CREATE TABLE seasons (
    nights  daterange PRIMARY KEY,
    percent int NOT NULL CHECK (percent > 0),
    EXCLUDE USING gist (nights WITH &&)
);

-- What a room costs in these nights, each at the price of its season.
CREATE FUNCTION price(room int, nights daterange) RETURNS int
LANGUAGE sql STABLE
RETURN (
    SELECT sum(cents * coalesce(percent, 100) / 100)
    FROM rooms
    CROSS JOIN generate_series(lower(price.nights), upper(price.nights) - 1, interval '1 day') night
    LEFT JOIN seasons ON seasons.nights @> night::date
    WHERE number = price.room
);
