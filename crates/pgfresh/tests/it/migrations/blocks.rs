//! Tests that the laboratory sees what DO blocks and functions do inside.

use migrations::Observations;
use migrations::testing::transcript_of;

use super::summary::{Bench, facts};
use crate::common::on_every_major;

const SCHEMA: &str = "
    CREATE TABLE parents (id int PRIMARY KEY, v int);
    CREATE TABLE items (id int PRIMARY KEY, parent_id int CONSTRAINT items_parent REFERENCES parents, x int);
    INSERT INTO parents SELECT n, n FROM generate_series(1, 1000) n;
    INSERT INTO items SELECT n, n, n FROM generate_series(1, 1000) n;
    CREATE FUNCTION retyped() RETURNS void LANGUAGE plpgsql AS $$ BEGIN
        ALTER TABLE items ALTER x TYPE bigint; RAISE unique_violation; EXCEPTION WHEN unique_violation THEN NULL; END $$;
    CREATE FUNCTION outer_call() RETURNS void LANGUAGE sql AS 'SELECT retyped()';
    CREATE FUNCTION hasty() RETURNS void LANGUAGE plpgsql SET lock_timeout = '1s' AS
        $$ BEGIN LOCK TABLE items; END $$;
    CREATE FUNCTION endless() RETURNS void LANGUAGE plpgsql SET lock_timeout = '0' AS
        $$ BEGIN LOCK TABLE items; END $$;
    CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        BEGIN ALTER TABLE items ADD y int; RAISE unique_violation; EXCEPTION WHEN unique_violation THEN NULL; END;
        RETURN NEW; END $$;
    CREATE TRIGGER touch BEFORE UPDATE ON parents FOR EACH ROW EXECUTE FUNCTION touch();";

on_every_major! {
    parts_that_roll_back_have_facts
    blocks_have_their_own_timeout
}

fn observe(major: u32, statements: &[&str]) -> Observations {
    let mut bench = Bench::new(major, SCHEMA);
    let observations = bench.laboratory.observe(&transcript_of(statements)).unwrap();
    bench.laboratory.stop().unwrap();
    observations
}

fn parts_that_roll_back_have_facts(major: u32) {
    let observations = observe(
        major,
        &[
            "DO $$ BEGIN ALTER TABLE parents ALTER v TYPE bigint; RAISE duplicate_object; \
             EXCEPTION WHEN duplicate_object THEN NULL; END $$",
            "DO $$ BEGIN ALTER TABLE items ADD CONSTRAINT items_parent FOREIGN KEY (parent_id) REFERENCES parents; \
             EXCEPTION WHEN duplicate_object THEN NULL; END $$",
            "DO $$ BEGIN ALTER TABLE items ADD z int; EXCEPTION WHEN duplicate_column THEN NULL; END $$",
            "SELECT outer_call()",
            "BEGIN",
            "SET LOCAL lock_timeout = '3s'",
            "DO $$ BEGIN EXECUTE 'ALTER TABLE items ADD z int'; EXCEPTION WHEN duplicate_column THEN NULL; END $$",
            "LOCK TABLE parents",
            "COMMIT",
            "UPDATE parents SET v = 1 WHERE id = 1",
        ],
    );
    let lines: Vec<_> = observations.statements.iter().map(facts).collect();
    assert_eq!(lines[0], "ACCESS EXCLUSIVE parents; scans parents: 2, 2000");
    assert!(lines[1].starts_with("SHARE ROW EXCLUSIVE items"), "{lines:?}");
    assert_eq!(lines[2], "ACCESS EXCLUSIVE items");
    assert_eq!(lines[3], "ACCESS EXCLUSIVE items; scans items: 2, 2000");
    assert_eq!(lines[6..8], ["ACCESS EXCLUSIVE items", "ACCESS EXCLUSIVE parents"]);
    assert_eq!(observations.statements[7].lock_timeout.map(|time| time.as_secs()), Some(3));
    assert_eq!(
        observations.unseen,
        [
            "locks of \"UPDATE parents SET v = 1 WHERE id = 1\" that it released, because it rolled a part back"
        ]
    );
}

fn blocks_have_their_own_timeout(major: u32) {
    let observations = observe(
        major,
        &[
            "SET lock_timeout = '2s'",
            "DO $$ BEGIN SET LOCAL lock_timeout = 0; ALTER TABLE items ADD q int; END $$",
            "DO $$ BEGIN SET LOCAL lock_timeout = '1s'; ALTER TABLE items ADD r int; END $$",
            "SELECT hasty()",
            "SELECT endless()",
            "RESET lock_timeout",
            "SELECT hasty()",
            "BEGIN",
            "LOCK TABLE items NOWAIT",
            "COMMIT",
            "LOCK TABLE items; SELECT 1",
        ],
    );
    let timeouts = observations.statements.iter().map(|one| one.lock_timeout.map(|time| time.as_secs()));
    let timeouts: Vec<_> = timeouts.collect();
    assert_eq!(timeouts[1..5], [None, Some(1), Some(1), None]);
    assert_eq!((timeouts[6], timeouts[8], timeouts[10]), (Some(1), Some(0), None));
}
