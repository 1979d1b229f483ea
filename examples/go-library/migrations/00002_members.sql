-- +goose Up
CREATE TABLE members (
    id    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name  text NOT NULL CHECK (name <> ''),
    email text NOT NULL
);
CREATE UNIQUE INDEX members_email ON members (lower(email));

-- +goose Down
DROP TABLE members;
