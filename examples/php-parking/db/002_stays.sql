CREATE TABLE stays (
    ticket serial PRIMARY KEY,
    garage text NOT NULL REFERENCES garages (name),
    plate text NOT NULL,
    minutes int
);

CREATE UNIQUE INDEX ON stays (plate) WHERE minutes IS NULL;
