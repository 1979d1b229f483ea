CREATE TABLE customers (
    id bigint PRIMARY KEY, email text, name varchar(40), country text, closed_at timestamptz
);
CREATE TABLE orders (
    id bigint PRIMARY KEY, customer_id bigint REFERENCES customers, status text, total int, created timestamptz, note text,
    tags int[], data jsonb, deleted_at timestamptz, region int
);
CREATE INDEX orders_created ON orders (created);
CREATE INDEX orders_note ON orders (note);
CREATE INDEX orders_region ON orders (region);
CREATE INDEX orders_status ON orders (status);
CREATE TABLE lines (id bigint PRIMARY KEY, order_id bigint, sku text, qty int);
CREATE TABLE events (id bigint, at timestamptz, kind int, payload text) PARTITION BY RANGE (at);
CREATE TABLE events_1 PARTITION OF events FOR VALUES FROM ('2024-01-01') TO ('2024-05-01');
CREATE TABLE events_2 PARTITION OF events FOR VALUES FROM ('2024-05-01') TO ('2024-09-01');
CREATE TABLE events_3 PARTITION OF events FOR VALUES FROM ('2024-09-01') TO ('2025-01-01');
