CREATE TABLE locker (
    id   int PRIMARY KEY,
    size int NOT NULL CHECK (size BETWEEN 1 AND 3)
);

CREATE TABLE parcel (
    id     int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    size   int NOT NULL CHECK (size BETWEEN 1 AND 3),
    locker int NOT NULL UNIQUE REFERENCES locker
);

INSERT INTO locker VALUES (1, 1), (2, 1), (3, 2), (4, 3);
