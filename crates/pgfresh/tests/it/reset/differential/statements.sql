-- common: rows and sequences
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
BEGIN; INSERT INTO team VALUES (10{n}, 10{n}); INSERT INTO member VALUES (10{n}, 10{n}); COMMIT
UPDATE team SET lead = 2 WHERE id = 1
DELETE FROM member WHERE id = 2
INSERT INTO note SELECT {n}, string_agg(md5(n::text), '') FROM generate_series(1, 2000) n
INSERT INTO note SELECT n, 'row' FROM generate_series(1, 300) n
UPDATE note SET body = body || 'x'
INSERT INTO scratch VALUES ({n}, 'y')
INSERT INTO scratch_seed (body) VALUES ('more {n}')
UPDATE scratch_seed SET body = 'changed'
DELETE FROM scratch_seed
INSERT INTO event VALUES ({n}, 'e'), (4, 'l')
UPDATE event SET at = at + 1 WHERE at < 90
INSERT INTO base VALUES ({n}); INSERT INTO derived VALUES ({n}, 'd')
DELETE FROM base
INSERT INTO other."Mixed Case" VALUES ({n}, 'm')
INSERT INTO audited VALUES ({n})
INSERT INTO ruled VALUES ({n})
INSERT INTO secret VALUES ({n})
DELETE FROM secret
UPDATE dropped_column SET b = 'changed'
INSERT INTO dropped_column VALUES ({n}, 'b')
SELECT nextval('ticket')
SELECT nextval('ticket') FROM generate_series(1, 40)
SELECT setval('ticket', {n}, true)
SELECT setval('other.used', {n}, false)
SELECT nextval('descending'), nextval('cycling'), nextval('cycling'), nextval('small_one')
SELECT nextval('unlogged_one')
SELECT currval('ticket')
BEGIN; INSERT INTO note VALUES ({n}, 'rolled back'); SELECT nextval('ticket'); ROLLBACK
BEGIN; INSERT INTO note VALUES ({n}, 'a'); SAVEPOINT s; DELETE FROM city; ROLLBACK TO s; COMMIT
BEGIN; INSERT INTO note VALUES ({n}, 'left open')
BEGIN ISOLATION LEVEL SERIALIZABLE; UPDATE country SET dial = {n}; COMMIT
SELECT 1 / 0
INSERT INTO orders (customer) VALUES (-1)
COPY country TO STDOUT
COPY (SELECT '{n}', 'copied') TO PROGRAM 'cat >/dev/null'
COPY note FROM PROGRAM 'printf "{n}\\tcopied\\n"'
WITH gone AS (DELETE FROM note RETURNING *) INSERT INTO scratch SELECT * FROM gone
SELECT * FROM customer FOR UPDATE
BEGIN; LOCK TABLE customer IN SHARE MODE; COMMIT
SELECT pg_advisory_lock({n})
LISTEN channel; NOTIFY channel, 'x'
SET work_mem = '1MB'; SET timezone = 'Asia/Tokyo'; SET search_path = other, public
SET app.tester = 'someone'
SET session_replication_role = replica; DELETE FROM country
SET ROLE guest; INSERT INTO note VALUES ({n}, 'by guest')
SET SESSION AUTHORIZATION guest; INSERT INTO note VALUES ({n}, 'as guest')
SET client_encoding = 'LATIN1'; UPDATE country SET dial = {n}
SET xmloption = document; SET bytea_output = escape; SET extra_float_digits = -15
PREPARE p AS SELECT {n}; EXECUTE p
BEGIN; DECLARE c CURSOR WITH HOLD FOR SELECT * FROM country; COMMIT
SET statement_timeout = '1ms'; SELECT pg_sleep(0.01)
SET lock_timeout = '1ms'; SET standard_conforming_strings = off; SET datestyle = 'SQL, DMY'
SET default_transaction_read_only = on
SET default_transaction_isolation = 'serializable'
-- common: what suites clean up with
TRUNCATE note
TRUNCATE customer, orders, line RESTART IDENTITY CASCADE
TRUNCATE country RESTART IDENTITY CASCADE
TRUNCATE event
TRUNCATE scratch; INSERT INTO scratch VALUES ({n}, 'z')
TRUNCATE scratch_seed RESTART IDENTITY
INSERT INTO customer (name) VALUES ('t{n}'); TRUNCATE customer RESTART IDENTITY CASCADE; INSERT INTO customer (name) VALUES ('after')
BEGIN; TRUNCATE country CASCADE; ROLLBACK
TRUNCATE other."Mixed Case"; INSERT INTO country (code, name) VALUES ('Q{n}', 'q')
TRUNCATE team, member
-- rare: sessions
SET track_counts = off; INSERT INTO note VALUES ({n}, 'uncounted'); UPDATE country SET name = 'uncounted'
BEGIN; SET LOCAL track_counts = off; DELETE FROM city; COMMIT
SELECT setseed(0.{n})
SET seed = 0.{n}
LOAD 'auto_explain'
SELECT dblink_connect('c{n}', 'dbname=postgres host=' || trim(both '"' from current_setting('unix_socket_directories')) || ' port=' || current_setting('port') || ' user=postgres')
SELECT pg_replication_origin_session_setup('origin')
SELECT set_config('app.a_{n}', 'x', false)
BEGIN; SET LOCAL app.b_{n} = 'x'; COMMIT
SELECT pg_stat_reset()
INSERT INTO note VALUES ({n}, 'hidden'); SELECT pg_stat_force_next_flush();; SELECT pg_stat_reset()
INSERT INTO note VALUES ({n}, 'x'); SELECT pg_stat_force_next_flush();; SELECT 1;; SELECT pg_stat_reset_single_table_counters('note'::regclass)
SELECT pg_stat_reset_shared('bgwriter')
BEGIN; INSERT INTO note VALUES ({n}, 'prepared'); PREPARE TRANSACTION 'p{n}'
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
SELECT pg_notify('channel', 'x'); UNLISTEN *
DO $$ BEGIN PERFORM 1; END $$
-- rare: maintenance
VACUUM note
VACUUM
VACUUM FULL country
VACUUM ANALYZE country
ANALYZE country
ANALYZE
INSERT INTO country (code, name) SELECT 'N' || n, 'n' FROM generate_series(1, 50) n ON CONFLICT DO NOTHING; ANALYZE country; DELETE FROM country WHERE code LIKE 'N%'
REINDEX TABLE orders
CLUSTER orders USING orders_pkey
CHECKPOINT
-- rare: definitions, and what is dear to undo
UPDATE every_type SET i2 = {n}, arr = '{7}', tstz = now()
DELETE FROM every_type WHERE id = 1
INSERT INTO every_type (id, x, m, pr) VALUES (100{n}, '<a/>', 'low', ROW({n}, 'p')) ON CONFLICT DO NOTHING
UPDATE priced SET amount = {n}
INSERT INTO priced VALUES (3, {n})
UPDATE toasted SET packed = packed || 'x' WHERE id = 1
DELETE FROM toasted
TRUNCATE every_type
TRUNCATE toasted
UPDATE large SET body = 'changed' WHERE id = {n}
TRUNCATE large
UPDATE query SET q = 'fat'
INSERT INTO watched VALUES ({n}); DELETE FROM watched
REFRESH MATERIALIZED VIEW summary
INSERT INTO city VALUES ('Rome{n}', 'DE') ON CONFLICT DO NOTHING; REFRESH MATERIALIZED VIEW CONCURRENTLY summary
CREATE TABLE made_{n} (id int); INSERT INTO made_{n} VALUES (1)
CREATE TABLE made (id int); DROP TABLE made
BEGIN; CREATE TABLE undone (id int); INSERT INTO undone VALUES (1); ROLLBACK
DROP TABLE city CASCADE
BEGIN; DROP TABLE city CASCADE; ROLLBACK
DROP TABLE note
ALTER TABLE note ADD COLUMN extra_{n} int DEFAULT 5
ALTER TABLE note RENAME TO memo
ALTER TABLE note SET (fillfactor = 5{n})
ALTER TABLE note ENABLE ROW LEVEL SECURITY
ALTER TABLE scratch SET LOGGED
ALTER TABLE customer ALTER COLUMN name DROP NOT NULL
ALTER TABLE country ALTER COLUMN name SET STATISTICS 7
ALTER TABLE toasted ALTER COLUMN plain SET STORAGE MAIN
ALTER TABLE audited DISABLE TRIGGER usual; INSERT INTO audited VALUES (1); ALTER TABLE audited ENABLE TRIGGER usual
ALTER SEQUENCE ticket RESTART WITH {n}
ALTER SEQUENCE ticket INCREMENT BY {n}
ALTER SEQUENCE cycling RESTART
CREATE INDEX ON note (id)
DROP INDEX orders_amount_idx
CREATE FUNCTION made_{n}() RETURNS int LANGUAGE sql AS 'SELECT {n}'
CREATE OR REPLACE FUNCTION watch() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$
CREATE TYPE mood_{n} AS ENUM ('a', 'b')
ALTER TYPE mood ADD VALUE IF NOT EXISTS 'new{n}'
CREATE VIEW seen_{n} AS SELECT {n} AS n
CREATE RULE quiet AS ON INSERT TO note DO INSTEAD NOTHING; INSERT INTO note VALUES (1, 'x')
CREATE EXTENSION IF NOT EXISTS hstore
CREATE TEMP TABLE t AS SELECT * FROM country
CREATE TEMP TABLE IF NOT EXISTS keep (id int) ON COMMIT DELETE ROWS; INSERT INTO keep VALUES ({n})
CREATE TEMP SEQUENCE counted; SELECT nextval('counted')
COMMENT ON TABLE note IS 'n{n}'
GRANT SELECT ON note TO PUBLIC
REVOKE ALL ON country FROM guest
ALTER TABLE note OWNER TO guest
CREATE PUBLICATION p_{n} FOR TABLE note
CREATE SUBSCRIPTION s_{n} CONNECTION 'dbname=nowhere' PUBLICATION p WITH (connect = false)
SELECT pg_create_logical_replication_slot('slot_' || md5(current_database()), 'pgoutput')
ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO guest
SELECT lo_create(0)
SELECT lo_from_bytea(0, 'abc')
SELECT lo_put(4711, 0, 'changed')
SELECT lo_unlink(4711)
DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET work_mem = %L', current_database(), '{n}MB'); END $$
DO $$ BEGIN EXECUTE format('ALTER DATABASE %I RESET ALL', current_database()); END $$
DO $$ BEGIN EXECUTE format('COMMENT ON DATABASE %I IS %L', current_database(), 'n{n}'); END $$
DO $$ BEGIN EXECUTE format('GRANT CONNECT ON DATABASE %I TO guest', current_database()); END $$
DO $$ BEGIN EXECUTE format('ALTER ROLE guest IN DATABASE %I SET work_mem = %L', current_database(), '{n}MB'); END $$
DO $$ BEGIN EXECUTE format('ALTER DATABASE %I CONNECTION LIMIT {n}00', current_database()); END $$
ALTER ROLE guest SET work_mem = '{n}MB'
ALTER ROLE ALL SET temp_buffers = '1{n}MB'
ALTER ROLE postgres SET geqo = off
ALTER SYSTEM SET work_mem = '1{n}MB'
ALTER SYSTEM SET work_mem = '1{n}MB';; SELECT pg_reload_conf()
UPDATE pg_class SET relnatts = relnatts WHERE relname = 'note'
UPDATE pg_proc SET prosrc = prosrc || ' ' WHERE proname = 'watch'
CREATE STATISTICS made_{n} ON id, body FROM note; ANALYZE note
CREATE TABLE information_schema.more_{n} (id int)
INSERT INTO information_schema.extra VALUES ({n})
