CREATE TABLE tickets (
    number serial PRIMARY KEY,
    showing int NOT NULL REFERENCES showings (id),
    seat int NOT NULL,
    UNIQUE (showing, seat)
);
