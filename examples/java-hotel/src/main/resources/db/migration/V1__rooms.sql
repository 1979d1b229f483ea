CREATE TABLE rooms (
    number int PRIMARY KEY,
    beds   int NOT NULL CHECK (beds BETWEEN 1 AND 6),
    cents  int NOT NULL CHECK (cents > 0)
);
