CREATE TABLE depots (
    id   integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    town text NOT NULL UNIQUE
);

INSERT INTO depots (town) SELECT 'Town ' || number FROM generate_series(1, 40) AS number;
