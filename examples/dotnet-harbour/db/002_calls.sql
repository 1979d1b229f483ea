CREATE TABLE calls (
    number int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    berth text NOT NULL UNIQUE REFERENCES berths (name),
    ship text NOT NULL
);
