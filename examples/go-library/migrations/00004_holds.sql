-- +goose Up
CREATE TABLE holds (
    id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    isbn   text   NOT NULL REFERENCES books ON DELETE CASCADE,
    member bigint NOT NULL REFERENCES members ON DELETE CASCADE,
    UNIQUE (isbn, member)
);

-- +goose Down
DROP TABLE holds;
