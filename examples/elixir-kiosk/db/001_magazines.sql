CREATE TABLE magazines (
    id int PRIMARY KEY,
    title text NOT NULL,
    copies int NOT NULL CHECK (copies >= 0)
);

INSERT INTO magazines VALUES (1, 'Chess', 20), (2, 'Knots', 1);
