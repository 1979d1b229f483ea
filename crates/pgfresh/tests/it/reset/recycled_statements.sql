-- cheap: rows and sequences
SELECT * FROM country JOIN city ON city.country = code
INSERT INTO customer (name) VALUES ('c{n}') ON CONFLICT DO NOTHING
INSERT INTO customer (name) SELECT 'many' || n FROM generate_series(1, 200) n ON CONFLICT DO NOTHING
INSERT INTO orders (customer, amount) SELECT id, {n} FROM customer
UPDATE orders SET amount = amount + {n}
DELETE FROM customer WHERE id % {n} = 0
INSERT INTO line SELECT id, {n} FROM orders ON CONFLICT DO NOTHING
BEGIN; INSERT INTO line VALUES (999, {n}); COMMIT
BEGIN; SET CONSTRAINTS ALL IMMEDIATE; INSERT INTO line VALUES (999, {n}); COMMIT
INSERT INTO country (code, name) VALUES ('X{n}', 'Xland') ON CONFLICT DO NOTHING
UPDATE country SET name = upper(name)
DELETE FROM city; DELETE FROM country
DELETE FROM tree
UPDATE tree SET parent = NULL WHERE id = 2
INSERT INTO note SELECT {n}, string_agg(md5(n::text), '') FROM generate_series(1, 2000) n
INSERT INTO note SELECT n, 'row' FROM generate_series(1, 3000) n
UPDATE note SET body = body || 'x'
INSERT INTO scratch VALUES ({n}, 'y')
INSERT INTO event VALUES ({n}, 'e'), (4, 'l')
UPDATE event SET at = at + 1 WHERE at < 90
INSERT INTO base VALUES ({n}); INSERT INTO derived VALUES ({n}, 'd')
INSERT INTO other."Mixed Case" VALUES ({n}, 'm')
INSERT INTO audited VALUES ({n})
SELECT nextval('ticket')
SELECT setval('ticket', {n}, true)
SELECT setval('other.used', {n}, false)
SELECT currval('ticket')
BEGIN; INSERT INTO note VALUES ({n}, 'rolled back'); SELECT nextval('ticket'); ROLLBACK
BEGIN; INSERT INTO note VALUES ({n}, 'a'); SAVEPOINT s; DELETE FROM country; ROLLBACK TO s; COMMIT
BEGIN; INSERT INTO note VALUES ({n}, 'left open')
SELECT 1 / 0
INSERT INTO orders (customer) VALUES (-1)
COPY country TO STDOUT
WITH gone AS (DELETE FROM note RETURNING *) INSERT INTO scratch SELECT * FROM gone
SELECT * FROM customer FOR UPDATE
LOCK TABLE customer IN SHARE MODE
SELECT pg_advisory_lock({n})
LISTEN channel; NOTIFY channel, 'x'
SET work_mem = '1MB'; SET timezone = 'Asia/Tokyo'; SET search_path = other
SET session_replication_role = replica; DELETE FROM country
SET ROLE guest; INSERT INTO note VALUES ({n}, 'by guest')
SET SESSION AUTHORIZATION guest; INSERT INTO note VALUES ({n}, 'as guest')
PREPARE p AS SELECT {n}; EXECUTE p
BEGIN; DECLARE c CURSOR WITH HOLD FOR SELECT * FROM country; COMMIT
SET statement_timeout = '1ms'; SELECT pg_sleep(0.01)
SET lock_timeout = '1ms'; SET standard_conforming_strings = off; SET datestyle = 'SQL, DMY'
VACUUM note
BEGIN; INSERT INTO note VALUES ({n}, 'prepared'); PREPARE TRANSACTION 'p{n}'
-- cheap: what other suites clean up with
TRUNCATE note
TRUNCATE customer, orders, line RESTART IDENTITY CASCADE
TRUNCATE country RESTART IDENTITY CASCADE
TRUNCATE event
TRUNCATE scratch; INSERT INTO scratch VALUES ({n}, 'z')
INSERT INTO customer (name) VALUES ('t{n}'); TRUNCATE customer RESTART IDENTITY CASCADE; INSERT INTO customer (name) VALUES ('after')
BEGIN; TRUNCATE country CASCADE; ROLLBACK
TRUNCATE other."Mixed Case"; INSERT INTO country (code, name) VALUES ('Q{n}', 'q')
-- dear: definitions, and what cannot be undone for less than a copy
VACUUM FULL country
UPDATE large SET body = 'changed' WHERE id = {n}
TRUNCATE large
INSERT INTO watched VALUES ({n}); DELETE FROM watched
REFRESH MATERIALIZED VIEW summary
INSERT INTO city VALUES ('Rome{n}', 'IT') ON CONFLICT DO NOTHING; REFRESH MATERIALIZED VIEW CONCURRENTLY summary
CREATE TABLE made_{n} (id int); INSERT INTO made_{n} VALUES (1)
CREATE TABLE made (id int); DROP TABLE made
BEGIN; CREATE TABLE undone (id int); INSERT INTO undone VALUES (1); ROLLBACK
DROP TABLE city CASCADE
DROP TABLE note
ALTER TABLE note ADD COLUMN extra_{n} int DEFAULT 5
ALTER TABLE note RENAME TO memo
ALTER TABLE note SET (fillfactor = 5{n})
ALTER TABLE note ENABLE ROW LEVEL SECURITY
ALTER TABLE scratch SET LOGGED
ALTER TABLE customer ALTER COLUMN name DROP NOT NULL
ALTER TABLE audited DISABLE TRIGGER usual
ALTER SEQUENCE ticket RESTART WITH {n}
ALTER SEQUENCE ticket INCREMENT BY {n}
CREATE INDEX ON note (id)
DROP INDEX orders_amount_idx
REINDEX TABLE orders
CLUSTER orders USING orders_pkey
ANALYZE country
ANALYZE
CREATE FUNCTION made_{n}() RETURNS int LANGUAGE sql AS 'SELECT {n}'
CREATE OR REPLACE FUNCTION watch() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$
CREATE TYPE mood_{n} AS ENUM ('a', 'b')
CREATE VIEW seen_{n} AS SELECT {n} AS n
CREATE RULE quiet AS ON INSERT TO note DO INSTEAD NOTHING; INSERT INTO note VALUES (1, 'x')
CREATE EXTENSION IF NOT EXISTS hstore
CREATE TEMP TABLE t AS SELECT * FROM country
CREATE TEMP TABLE IF NOT EXISTS keep (id int) ON COMMIT DELETE ROWS; INSERT INTO keep VALUES ({n})
COMMENT ON TABLE note IS 'n{n}'
GRANT SELECT ON note TO PUBLIC
REVOKE ALL ON country FROM guest
ALTER TABLE note OWNER TO guest
CREATE PUBLICATION p_{n} FOR TABLE note
ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO guest
SELECT lo_create(0)
SELECT lo_from_bytea(0, 'abc')
SELECT pg_stat_reset()
INSERT INTO note VALUES ({n}, 'hidden'); SELECT pg_stat_force_next_flush(); SELECT pg_stat_reset()
INSERT INTO note VALUES ({n}, 'x'); SELECT pg_stat_force_next_flush(); SELECT 1; SELECT pg_stat_reset_single_table_counters('note'::regclass)
DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET work_mem = %L', current_database(), '{n}MB'); END $$
DO $$ BEGIN EXECUTE format('COMMENT ON DATABASE %I IS %L', current_database(), 'n{n}'); END $$
DO $$ BEGIN EXECUTE format('GRANT CONNECT ON DATABASE %I TO guest', current_database()); END $$
DO $$ BEGIN EXECUTE format('ALTER ROLE guest IN DATABASE %I SET work_mem = %L', current_database(), '{n}MB'); END $$
UPDATE pg_class SET relnatts = relnatts WHERE relname = 'note'
UPDATE pg_proc SET prosrc = prosrc || ' ' WHERE proname = 'watch'
