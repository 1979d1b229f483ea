CREATE TABLE waiting (
    id    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    event bigint NOT NULL REFERENCES events ON DELETE CASCADE,
    email text   NOT NULL CHECK (email LIKE '%_@_%'),
    seats int    NOT NULL CHECK (seats > 0),
    UNIQUE (event, email)
);
