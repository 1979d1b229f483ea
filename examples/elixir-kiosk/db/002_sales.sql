CREATE TABLE sales (
    number serial PRIMARY KEY,
    magazine int NOT NULL REFERENCES magazines (id)
);
