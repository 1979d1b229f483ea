-- nothing
SELECT * FROM item ORDER BY name
SELECT count(*) FROM item, long, parts
SELECT * FROM item FOR UPDATE
BEGIN; SELECT * FROM item FOR SHARE; SAVEPOINT s; SELECT * FROM item WHERE id < 9 FOR UPDATE; ROLLBACK
BEGIN; SELECT * FROM item FOR KEY SHARE; SAVEPOINT s; SELECT * FROM item FOR NO KEY UPDATE; COMMIT
INSERT INTO item VALUES (1, 'conflict') ON CONFLICT DO NOTHING
UPDATE item SET n = 1 WHERE id < 0
BEGIN; LOCK TABLE item; COMMIT
LISTEN channel; NOTIFY channel, 'x'
SELECT pg_logical_emit_message(true, 'test', repeat('x', 50000))
SELECT pg_logical_emit_message(false, 'test', 'x')
SELECT pg_current_xact_id()
SELECT txid_current()
SET work_mem = '1MB'; SELECT set_config('search_path', 'public', false)
SELECT pg_advisory_lock(1)
INSERT INTO scratch SELECT generate_series(1, 100)
DELETE FROM scratch
CHECKPOINT
SELECT currval('ticket')
SELECT pg_create_restore_point('here')
-- item
INSERT INTO item VALUES (1001, 'a'), (1002, 'b')
INSERT INTO item SELECT i, repeat('wide', 50) FROM generate_series(2001, 2400) i
UPDATE item SET n = n + 1 WHERE id = 1001
UPDATE item SET id = id + 100000 WHERE id = 1002
UPDATE item SET name = name || '!'
DELETE FROM item WHERE id > 2000 AND id < 2300
INSERT INTO item VALUES (1, 'conflict') ON CONFLICT (id) DO UPDATE SET name = 'merged'
COPY item (id, name) FROM PROGRAM 'seq 3001 3300 | sed "s/$/,x/"' (FORMAT csv)
BEGIN; INSERT INTO item VALUES (4001, 's'); SAVEPOINT s; INSERT INTO item VALUES (4002, 's'); ROLLBACK TO s; COMMIT
BEGIN; SAVEPOINT s; INSERT INTO item VALUES (4003, 's'); RELEASE s; COMMIT
BEGIN; INSERT INTO item VALUES (4004, 'p'); PREPARE TRANSACTION 'kept' ;; COMMIT PREPARED 'kept'
BEGIN; SAVEPOINT s; INSERT INTO item VALUES (4005, 'p'); PREPARE TRANSACTION 'kept too' ;; COMMIT PREPARED 'kept too'
DO $$ BEGIN INSERT INTO item VALUES (4006, 'd'); BEGIN INSERT INTO item VALUES (4006, 'd'); EXCEPTION WHEN unique_violation THEN NULL; END; END $$
SELECT * FROM item WHERE id = 1 FOR UPDATE; UPDATE item SET n = 5 WHERE id = 1
DECLARE c CURSOR WITH HOLD FOR SELECT 1; DELETE FROM item WHERE id = 4006
-- item, undone
BEGIN; INSERT INTO item VALUES (5001, 'r'); ROLLBACK
BEGIN; UPDATE item SET name = 'r' WHERE id < 100; ROLLBACK
BEGIN; DELETE FROM item; ROLLBACK
BEGIN; SAVEPOINT s; INSERT INTO item VALUES (5002, 'r'); ROLLBACK TO s; COMMIT
BEGIN; INSERT INTO item VALUES (5003, 'p'); PREPARE TRANSACTION 'gone' ;; ROLLBACK PREPARED 'gone'
BEGIN; INSERT INTO item VALUES (5004, 'left open')
-- ticket, undone
SELECT nextval('ticket')
SELECT setval('ticket', 1000)
BEGIN; SELECT nextval('ticket'); ROLLBACK
-- queue, queue_id_seq
INSERT INTO queue (what) VALUES ('x')
INSERT INTO queue (what) SELECT 'many' FROM generate_series(1, 100)
-- long, long~toast
INSERT INTO long VALUES (11, repeat('toast', 2000))
UPDATE long SET body = repeat('other', 3000) WHERE id = 1
DELETE FROM long WHERE id = 2
-- long
UPDATE long SET id = 100 WHERE id = 11
-- child
INSERT INTO child VALUES (1), (2)
-- parts_low, parts_high
INSERT INTO parts VALUES (1, 'low'), (101, 'high')
UPDATE parts SET at = at + 99 WHERE at = 1
-- parts_low
UPDATE parts SET what = 'l' WHERE at < 95
-- indexed
INSERT INTO indexed SELECT i, 'word' || i, ARRAY[i, i % 7], point(i, -i) FROM generate_series(1, 3000) i
UPDATE indexed SET word = 'other' || id, tags = tags || 1 WHERE id % 3 = 0
DELETE FROM indexed WHERE id % 2 = 0
-- watched, log
INSERT INTO watched VALUES (1)
-- 15: item
MERGE INTO item USING (VALUES (1), (6001)) v (id) ON item.id = v.id WHEN MATCHED THEN UPDATE SET n = 7 WHEN NOT MATCHED THEN INSERT VALUES (v.id, 'merged')
-- anything
VACUUM item
VACUUM indexed
VACUUM (FREEZE) parts
DELETE FROM parts ;; VACUUM parts
VACUUM FULL long
ANALYZE item
ANALYZE
REINDEX TABLE item
CLUSTER item USING item_pkey
CREATE INDEX CONCURRENTLY later ON item (n)
CREATE INDEX ON item USING hash (name)
INSERT INTO item SELECT i, 'hashed ' || i FROM generate_series(10001, 13000) i
DROP INDEX later
TRUNCATE queue
TRUNCATE queue RESTART IDENTITY
BEGIN; TRUNCATE queue; INSERT INTO queue (what) VALUES ('x'); ROLLBACK
BEGIN; TRUNCATE queue; INSERT INTO queue (what) VALUES ('y'); TRUNCATE queue; INSERT INTO queue (what) VALUES ('z'); COMMIT
TRUNCATE parts, scratch
CREATE TABLE made (id int PRIMARY KEY, body text); INSERT INTO made SELECT i, 'x' FROM generate_series(1, 2000) i
BEGIN; CREATE TABLE undone (id int); INSERT INTO undone VALUES (1); ROLLBACK
ALTER TABLE made ADD COLUMN extra int DEFAULT 5
ALTER TABLE made ALTER COLUMN id TYPE bigint
ALTER TABLE made SET (fillfactor = 50)
DROP TABLE made
ALTER TABLE scratch SET LOGGED
INSERT INTO scratch VALUES (7)
ALTER TABLE scratch SET UNLOGGED
CREATE UNLOGGED TABLE unlogged (id int PRIMARY KEY)
CREATE TEMP TABLE temp AS SELECT * FROM item; INSERT INTO temp SELECT * FROM item
CREATE TABLE copied AS SELECT * FROM item
REFRESH MATERIALIZED VIEW summary
UPDATE item SET n = 99 WHERE id = 3 ;; REFRESH MATERIALIZED VIEW CONCURRENTLY summary
ALTER SEQUENCE ticket INCREMENT BY 5
ALTER SEQUENCE ticket RESTART WITH 7
COMMENT ON TABLE item IS 'commented'
GRANT SELECT ON item TO PUBLIC
CREATE VIEW seen AS SELECT * FROM item
CREATE FUNCTION made() RETURNS int LANGUAGE sql AS 'SELECT 1'
ALTER TYPE mood ADD VALUE 'mixed'
CREATE PUBLICATION p FOR TABLE item
CREATE SCHEMA extra CREATE TABLE inner_table (id int)
SELECT lo_from_bytea(0, 'large object')
SELECT lo_put(oid, 3, repeat('x', 5000)::bytea) FROM pg_largeobject_metadata
SELECT lo_unlink(oid) FROM pg_largeobject_metadata
ALTER TABLE item REPLICA IDENTITY FULL ;; UPDATE item SET n = n + 1 WHERE id < 20 ;; DELETE FROM item WHERE id = 13000
CREATE ROLE guest LOGIN
ALTER ROLE guest SET work_mem = '2MB'
GRANT ALL ON item TO guest
COMMENT ON ROLE guest IS 'commented'
DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET work_mem = %L', current_database(), '2MB'); END $$
DO $$ BEGIN EXECUTE format('COMMENT ON DATABASE %I IS %L', current_database(), 'commented'); END $$
BEGIN; CREATE ROLE nobody; ROLLBACK
BEGIN; CREATE ROLE prepared; PREPARE TRANSACTION 'role' ;; COMMIT PREPARED 'role'
CREATE SUBSCRIPTION s CONNECTION 'host=/nowhere' PUBLICATION p WITH (connect = false)
ALTER SUBSCRIPTION s SET (slot_name = NONE) ;; DROP SUBSCRIPTION s
SELECT pg_replication_origin_create('origin')
SELECT pg_replication_origin_advance('origin', '0/1234')
SELECT pg_replication_origin_drop('origin')
CREATE DATABASE sibling
DROP DATABASE sibling
UPDATE pg_class SET relnatts = relnatts WHERE relname = 'item'
SELECT pg_switch_wal() ;; INSERT INTO item VALUES (20001, 'switched')
VACUUM FULL pg_index
-- doubt
VACUUM FULL pg_class
REINDEX TABLE pg_class
