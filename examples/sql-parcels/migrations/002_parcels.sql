CREATE TABLE parcels (
    id       integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    depot_id integer NOT NULL,
    grams    integer,
    state    text NOT NULL DEFAULT 'waiting'
);

INSERT INTO parcels (depot_id, grams) SELECT 1 + number % 40, number FROM generate_series(1, 5000) AS number;
