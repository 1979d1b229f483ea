-- +goose Up
CREATE TABLE books (
    isbn   text PRIMARY KEY CHECK (isbn ~ '^[0-9]{13}$'),
    title  text NOT NULL CHECK (title <> ''),
    author text NOT NULL,
    words  tsvector NOT NULL GENERATED ALWAYS AS (
        setweight(to_tsvector('simple', title), 'A') || setweight(to_tsvector('simple', author), 'B')
    ) STORED
);
CREATE INDEX books_words ON books USING gin (words);

CREATE TABLE copies (
    id   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    isbn text NOT NULL REFERENCES books ON DELETE CASCADE
);
CREATE INDEX copies_isbn ON copies (isbn);

-- +goose Down
DROP TABLE copies, books;
