CREATE TABLE trip (
    id    int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    bike  int NOT NULL REFERENCES bike,
    ended boolean NOT NULL DEFAULT false
);

CREATE UNIQUE INDEX one_trip_at_a_time ON trip (bike) WHERE NOT ended;
