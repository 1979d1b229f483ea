-- +goose Up
CREATE TABLE loans (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    copy     bigint NOT NULL REFERENCES copies,
    member   bigint NOT NULL REFERENCES members,
    since    date   NOT NULL,
    due      date   NOT NULL,
    renewals int    NOT NULL DEFAULT 0,
    returned date,
    CHECK (due >= since AND returned >= since)
);
-- Only one member can borrow a copy at a time.
CREATE UNIQUE INDEX loans_open ON loans (copy) WHERE returned IS NULL;
CREATE INDEX loans_member ON loans (member) WHERE returned IS NULL;

-- +goose Down
DROP TABLE loans;
