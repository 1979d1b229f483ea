CREATE TABLE berths (
    name text PRIMARY KEY,
    metres int NOT NULL
);

INSERT INTO berths VALUES ('A', 40), ('B', 12);
