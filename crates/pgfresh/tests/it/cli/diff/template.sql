CREATE TABLE orders (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    status text NOT NULL DEFAULT 'open',
    total numeric(10, 2),
    note text,
    picture bytea,
    doc json,
    twice numeric GENERATED ALWAYS AS (total * 2) STORED,
    at timestamptz DEFAULT '2026-01-01 00:00:00+00'
);
INSERT INTO orders (status, total, note, picture, doc)
SELECT 'open', i, 'note ' || i, '\x0102', '{"a": 1}' FROM generate_series(1, 20) i;
CREATE TABLE log (line text, place point, markup xml);
INSERT INTO log SELECT 'line ' || (i % 3), point(i % 3, 0), '<a/>' FROM generate_series(1, 9) i;
CREATE TABLE part (id int, region text, v int, PRIMARY KEY (region, id)) PARTITION BY LIST (region);
CREATE TABLE part_eu PARTITION OF part FOR VALUES IN ('eu');
CREATE TABLE part_us PARTITION OF part FOR VALUES IN ('us');
INSERT INTO part VALUES (1, 'eu', 1), (2, 'us', 2);
CREATE TABLE far (id int) PARTITION BY LIST (id);
CREATE TABLE old (a int);
INSERT INTO old VALUES (1), (2);
CREATE MATERIALIZED VIEW total AS SELECT count(*) FROM orders;
CREATE VIEW ids AS SELECT id FROM orders;
CREATE TABLE "My ""T'able
x" ("Co l" uuid PRIMARY KEY, "sel;ect" text);
INSERT INTO "My ""T'able
x" VALUES ('00000000-0000-0000-0000-000000000001', E'a\nb');
CREATE TABLE secret (id int PRIMARY KEY, v text);
ALTER TABLE secret ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY hidden ON secret USING (false);
CREATE UNLOGGED TABLE cached (id int PRIMARY KEY, v text);
INSERT INTO cached VALUES (1, 'one');
CREATE TABLE empty ();
CREATE TYPE mood AS ENUM ('a', 'b');
CREATE FUNCTION f(int) RETURNS int LANGUAGE sql AS 'SELECT 1';
