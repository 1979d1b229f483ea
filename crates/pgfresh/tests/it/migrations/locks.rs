//! Tests that the laboratory reports the locks in `PostgreSQL`'s manual, which are also the locks that make a second
//! session fail. Rewrites and scans must agree with the files and counters.
//!
//! `locks.txt` has a statement in each line, and `locks.sql` is the template.

use std::collections::{BTreeMap, BTreeSet};

use migrations::{LockMode, ObservedStatement};
use server::AdminConnection;

use super::script::Script;
use super::summary::{Bench, facts};
use crate::common::on_every_major;

const SCHEMA: &str = include_str!("locks.sql");
const STATEMENTS: &str = include_str!("locks.txt");

/// Query for the tables that another session can't lock, each with the modes that would wait. `LOCK TABLE` on a view
/// also locks the view's tables.
const BLOCKED: &str = "
    CREATE FUNCTION pg_temp.blocked() RETURNS TABLE (name text, modes text) LANGUAGE plpgsql AS $$
    DECLARE mode text;
    BEGIN
        FOR name IN SELECT c.oid::regclass FROM pg_class c
            WHERE c.oid >= 16384 AND c.relkind IN ('r', 'p') ORDER BY c.oid LOOP
            modes := '';
            FOREACH mode IN ARRAY string_to_array('ACCESS SHARE,ROW SHARE,ROW EXCLUSIVE,SHARE UPDATE EXCLUSIVE,SHARE,'
                'SHARE ROW EXCLUSIVE,EXCLUSIVE,ACCESS EXCLUSIVE', ',') LOOP
                BEGIN
                    EXECUTE format('LOCK TABLE ONLY %s IN %s MODE NOWAIT', name, mode);
                EXCEPTION WHEN lock_not_available THEN modes := modes || mode || ',';
                END;
            END LOOP;
            IF modes <> '' THEN RETURN NEXT; END IF;
        END LOOP;
    END $$";
/// Query for each relation and its file.
const FILES: &str = "SELECT oid::regclass, coalesce(pg_relation_filepath(oid), '') FROM pg_class
    WHERE oid >= 16384 AND relkind IN ('r', 'm', 'i') AND relnamespace <> 'pg_toast'::regnamespace";
/// Query for each table and its sequential scans in this transaction.
const SCANS: &str = "SELECT relid::regclass, seq_scan || ', ' || seq_tup_read FROM pg_stat_xact_user_tables
    WHERE seq_scan > 0";

/// Line in `locks.txt`.
struct Case {
    sql: &'static str,
    is_outside: bool,
    facts: &'static str,
}

/// Returns the statements that `major` supports.
fn cases(major: u32) -> Vec<Case> {
    let lines = STATEMENTS.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let cases = lines.map(|line| {
        let (majors, rest) = line.split_once(' ').unwrap();
        let (since, until) = majors.split_once('-').unwrap_or((majors, "99"));
        let (sql, facts) = rest.split_once('|').unwrap();
        let outside = sql.trim().strip_prefix('(').and_then(|sql| sql.strip_suffix(')'));
        let case =
            Case { sql: outside.unwrap_or(sql).trim(), is_outside: outside.is_some(), facts: facts.trim() };
        (since.parse().unwrap()..=until.parse::<u32>().unwrap(), case)
    });
    cases.filter(|(majors, _)| majors.contains(&major)).map(|(_, case)| case).collect()
}

on_every_major! {
    locks_are_those_of_the_manual
    locks_are_those_that_others_meet
}

/// Repeats all statements, each in a transaction that is rolled back.
fn observed(bench: &mut Bench, cases: &[Case]) -> Vec<ObservedStatement> {
    let mut script = Script::new(&["app"]);
    for case in cases {
        let tag = migrations::testing::tag_of(case.sql);
        if case.is_outside {
            script.query(0, case.sql, (&[&tag], "", b'I'));
        } else {
            script.query(
                0,
                &format!("BEGIN; {}; ROLLBACK", case.sql),
                (&["BEGIN", &tag, "ROLLBACK"], "", b'I'),
            );
        }
    }
    let observations = bench.laboratory.observe(&script.sessions).unwrap();
    assert_eq!(observations.unseen, Vec::<String>::new());
    let is_case = |one: &ObservedStatement| !matches!(one.sql.as_str(), "BEGIN" | "ROLLBACK");
    let statements: Vec<_> = observations.statements.into_iter().filter(is_case).collect();
    assert_eq!(statements.len(), cases.len());
    statements
}

fn locks_are_those_of_the_manual(major: u32) {
    let mut bench = Bench::new(major, SCHEMA);
    let cases = cases(major);
    let statements = observed(&mut bench, &cases);
    bench.laboratory.stop().unwrap();
    let mut wrong = String::new();
    for (case, statement) in cases.iter().zip(&statements) {
        let facts = facts(statement);
        assert_eq!(statement.is_outside_transactions, case.is_outside, "{}", case.sql);
        if facts != case.facts {
            wrong += &format!("{}\n  expected {}\n  observed {facts}\n", case.sql, case.facts);
        }
    }
    assert!(wrong.is_empty(), "on PostgreSQL {major}:\n{wrong}");
}

fn locks_are_those_that_others_meet(major: u32) {
    let mut bench = Bench::new(major, SCHEMA);
    let cases: Vec<_> = cases(major).into_iter().filter(|case| !case.is_outside).collect();
    let database = bench.laboratory.fresh_database().unwrap();
    let [mut session, mut other] = [(); 2].map(|()| bench.laboratory.session(&database).unwrap());
    other.query(BLOCKED).unwrap();
    let mut wrong = String::new();
    for (case, statement) in cases.iter().zip(&observed(&mut bench, &cases)) {
        session.query("BEGIN").unwrap();
        let files = map(&mut session, FILES);
        let scans = map(&mut session, SCANS);
        session.query(case.sql).unwrap_or_else(|error| panic!("{}: {error}", case.sql));
        let mut now = map(&mut session, SCANS);
        now.retain(|name, count| files.contains_key(name) && scans.get(name) != Some(count));
        let scans: BTreeSet<_> = now.into_keys().collect();
        let files = changes(&files, &map(&mut session, FILES));
        let blocked = map(&mut other, "SELECT * FROM pg_temp.blocked()");
        session.query("ROLLBACK").unwrap();
        for difference in differences(statement, &files, &scans, &blocked) {
            wrong += &format!("{}: {difference}\n", case.sql);
        }
    }
    bench.laboratory.stop().unwrap();
    assert!(wrong.is_empty(), "on PostgreSQL {major}:\n{wrong}");
}

/// Returns a query's two columns as keys and values.
fn map(session: &mut AdminConnection, sql: &str) -> BTreeMap<String, String> {
    let cell = |cell: Option<String>| cell.unwrap_or_default();
    let rows = session.query(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    rows.into_iter().map(|mut row| (cell(row[0].take()), cell(row[1].take()))).collect()
}

/// Returns the names that exist before and after, and whose values changed.
fn changes(before: &BTreeMap<String, String>, after: &BTreeMap<String, String>) -> BTreeSet<String> {
    let is_changed = |(name, value): &(&String, &String)| after.get(*name).is_some_and(|now| now != *value);
    before.iter().filter(is_changed).map(|(name, _)| name.clone()).collect()
}

/// Compares what the laboratory observed with what the two sessions observed.
fn differences(
    statement: &ObservedStatement,
    files: &BTreeSet<String>,
    scans: &BTreeSet<String>,
    blocked: &BTreeMap<String, String>,
) -> Vec<String> {
    let mut differences = Vec::new();
    let rewrites: BTreeSet<_> = statement.rewrites.iter().map(|one| one.relation.name.clone()).collect();
    if rewrites != *files {
        differences.push(format!("rewrites {rewrites:?}, but the files of {files:?} are new"));
    }
    let is_emptied =
        |name: &&String| statement.rewrites.iter().any(|one| one.is_emptied && one.relation.name == **name);
    let counted: BTreeSet<_> = scans.iter().filter(|name| !is_emptied(name)).cloned().collect();
    let scanned: BTreeSet<_> = statement.scans.iter().map(|one| one.relation.name.clone()).collect();
    if scanned != counted {
        differences.push(format!("scans {scanned:?}, but the counters of {counted:?} change"));
    }
    for lock in &statement.locks {
        let modes = blocked.get(&lock.relation.name).map_or("", String::as_str);
        let waits = |mode: LockMode| modes.split(',').any(|one| one == mode.as_sql());
        let explains =
            |held: LockMode| LockMode::ALL.into_iter().all(|mode| !mode.conflicts_with(held) || waits(mode));
        let strongest = LockMode::ALL.into_iter().rev().find(|held| explains(*held));
        if lock.kind == plans::RelationKind::Table && strongest != Some(lock.mode) {
            differences.push(format!("{} on {}, but others wait for {modes}", lock.mode, lock.relation.name));
        }
    }
    for name in blocked.keys() {
        if !statement.locks.iter().any(|lock| lock.relation.name == *name) {
            differences.push(format!("no lock on {name}, but others wait for it"));
        }
    }
    differences
}
