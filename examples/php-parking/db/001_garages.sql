CREATE TABLE garages (
    name text PRIMARY KEY,
    places int NOT NULL CHECK (places > 0)
);

INSERT INTO garages VALUES ('North', 100), ('Court', 1);
