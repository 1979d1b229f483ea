CREATE TABLE harvests (
    tree integer NOT NULL REFERENCES trees ON DELETE CASCADE,
    day date NOT NULL,
    kilograms numeric NOT NULL CHECK (kilograms > 0),
    PRIMARY KEY (tree, day)
);
