CREATE TABLE shelves (
    bread  text PRIMARY KEY,
    loaves int NOT NULL CHECK (loaves >= 0)
);
