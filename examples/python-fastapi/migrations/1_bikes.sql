CREATE TABLE station (
    id    int PRIMARY KEY,
    name  text NOT NULL UNIQUE,
    docks int NOT NULL CHECK (docks > 0)
);

-- A bike without a station is on a trip.
CREATE TABLE bike (
    id      int PRIMARY KEY,
    station int REFERENCES station
);

INSERT INTO station VALUES (1, 'Harbour', 3), (2, 'Market', 2);
INSERT INTO bike VALUES (1, 1), (2, 1), (3, 2);
