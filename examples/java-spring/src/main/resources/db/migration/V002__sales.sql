CREATE TABLE sales (
    number   int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    customer text NOT NULL,
    bread    text NOT NULL REFERENCES shelves,
    loaves   int NOT NULL CHECK (loaves > 0)
);
