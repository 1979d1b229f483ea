CREATE TABLE showings (
    id serial PRIMARY KEY,
    film text NOT NULL,
    seats int NOT NULL CHECK (seats > 0)
);

INSERT INTO showings (film, seats) VALUES ('Metropolis', 40), ('Safety Last!', 2);
