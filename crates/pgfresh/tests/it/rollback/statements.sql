BEGIN
BEGIN
BEGIN
START TRANSACTION
BEGIN READ ONLY
BEGIN nonsense
COMMIT
COMMIT
COMMIT
END
ROLLBACK
ROLLBACK
ABORT
COMMIT AND CHAIN
ROLLBACK AND CHAIN
SAVEPOINT a
SAVEPOINT b
RELEASE a
RELEASE SAVEPOINT b
ROLLBACK TO a
ROLLBACK TO SAVEPOINT b
INSERT INTO item (word) VALUES ('w{n}')
INSERT INTO item (id, word) VALUES (10{n}, 'fixed')
INSERT INTO item (id, word) VALUES (10{n}, 'fixed') RETURNING id, word
UPDATE item SET word = 'changed{n}' WHERE id > {n}
DELETE FROM item WHERE id = {n}
SELECT id, word FROM item ORDER BY id
SELECT count(*) FROM item
TRUNCATE item
SELECT 1/0
SELECT 1/(count(*) - {n}) FROM item
selec
SELECT nothing FROM item
INSERT INTO parent VALUES ({n})
INSERT INTO child VALUES ({n})
INSERT INTO child VALUES ({n})
DELETE FROM parent
TABLE child
INSERT INTO later VALUES ({n}), ({n})
INSERT INTO later VALUES ({n})
UPDATE later SET n = n + 1
SET CONSTRAINTS ALL DEFERRED
SET CONSTRAINTS ALL IMMEDIATE
SET CONSTRAINTS once DEFERRED
SET work_mem = '{n}MB'
SET LOCAL work_mem = '{n}0MB'
SET SESSION work_mem TO '{n}11kB'
RESET work_mem
SHOW work_mem
SET timezone = 'Etc/GMT-{n}'
SET timezone = 'Etc/GMT-{n}'
SET LOCAL timezone = 'Etc/GMT+{n}'
SET application_name = 'test {n}'
SET datestyle = 'SQL, DMY'
SET LOCAL intervalstyle = 'iso_8601'
RESET timezone
RESET ALL
DO $$ BEGIN SET datestyle = 'German'; RAISE WARNING 'in {n}'; END $$
SET LOCAL app.name = 'n{n}'
SELECT set_config('app.name', 'c{n}', true)
SELECT coalesce(current_setting('app.name', true), '')
SET TRANSACTION READ ONLY
SET LOCAL ROLE pg_monitor
SELECT current_user
RESET ROLE
DECLARE c CURSOR FOR SELECT generate_series(1, 9)
DECLARE h CURSOR WITH HOLD FOR SELECT generate_series(1, 9)
FETCH {n} FROM c
FETCH {n} FROM h
CLOSE c
CLOSE h
CLOSE ALL
SELECT opens()
FETCH ALL FROM c
LOCK TABLE seed
PREPARE p AS SELECT {n}
EXECUTE p
DEALLOCATE p
DEALLOCATE ALL
DISCARD ALL
DISCARD TEMP
CREATE TABLE made (n int UNIQUE DEFERRABLE INITIALLY DEFERRED)
INSERT INTO made VALUES ({n}), ({n})
DROP TABLE made
ALTER TABLE seed ADD COLUMN extra int
CREATE TEMP TABLE item (id int, word text)
DO $$ BEGIN RAISE NOTICE 'note {n}'; INSERT INTO seed VALUES ({n}); EXCEPTION WHEN OTHERS THEN NULL; END $$
DO $$ BEGIN RAISE EXCEPTION 'no; COMMIT; {n}'; END $$
SELECT ';COMMIT;'
SELECT $$;ROLLBACK;$$ -- ; COMMIT
CREATE FUNCTION f{n}() RETURNS int LANGUAGE sql AS 'SELECT {n}'
SELECT nextval('unused')
SELECT pg_advisory_xact_lock_shared({n})
SELECT FROM seed WHERE false

/* nothing */
VALUES ({n}), (NULL)
COPY seed TO STDOUT
EXPLAIN (COSTS OFF) SELECT 1
