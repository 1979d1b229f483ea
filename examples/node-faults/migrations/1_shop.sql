CREATE TABLE prices (
    item text PRIMARY KEY,
    cents int NOT NULL
);

CREATE TABLE orders (
    customer text PRIMARY KEY,
    item text NOT NULL REFERENCES prices,
    state text NOT NULL DEFAULT 'new'
);

CREATE TABLE payments (
    id uuid PRIMARY KEY,
    customer text NOT NULL REFERENCES orders,
    cents int NOT NULL
);

-- Another program sends these messages to the warehouse.
CREATE TABLE outbox (
    message text NOT NULL
);

INSERT INTO prices VALUES ('lamp', 4200), ('chair', 9900);
INSERT INTO orders VALUES ('Ann', 'lamp'), ('Bob', 'chair');
INSERT INTO payments VALUES ('00000000-0000-0000-0000-000000000002', 'Bob', 9900);
