CREATE TABLE orders (
    id    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    event bigint NOT NULL REFERENCES events,
    email text   NOT NULL CHECK (email LIKE '%_@_%'),
    UNIQUE (id, event)
);

ALTER TABLE seats
    ADD COLUMN sold_to bigint,
    ADD FOREIGN KEY (sold_to, event) REFERENCES orders (id, event);
CREATE INDEX seats_free ON seats (event, row, seat) WHERE sold_to IS NULL;
