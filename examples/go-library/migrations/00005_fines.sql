-- +goose Up
CREATE TABLE fines (
    loan  bigint PRIMARY KEY REFERENCES loans,
    cents int NOT NULL CHECK (cents > 0),
    paid  boolean NOT NULL DEFAULT false
);

CREATE VIEW debts AS
    SELECT member, sum(cents)::int AS cents
    FROM fines JOIN loans ON loans.id = loan
    WHERE NOT paid
    GROUP BY member;

-- +goose Down
DROP VIEW debts;
DROP TABLE fines;
