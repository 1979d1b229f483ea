//! Tests `migrate check` with tools that wait for themselves, fail, die, leave processes behind or use other
//! databases. In each case, the report contains what the tool has done until then.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::process::Stdio;
use std::thread;

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;

use super::Project;
use crate::common::{collect, ground};

/// First part of each tool, which is a shell script. It defines `sql`, a function that runs
/// statements in another session.
const SQL: &str = "set -e; sql() { \"$PSQL\" -XAtqv ON_ERROR_STOP=1 \"$@\"; }; ";

/// Checks the shell script `script`. The check must end with `code`. Returns the JSON report.
#[track_caller]
fn check(script: &str, code: i32) -> Value {
    let script = format!("PSQL='{}'; {SQL}{script}", ground::psql());
    let project = Project::new();
    let outcome = project.ends(&["check", "--json", "--", "sh", "-c", &script], code);
    serde_json::from_str(&outcome.stdout).unwrap_or_else(|error| panic!("{error}: {outcome}"))
}

/// Returns each statement's text, database, tag and SQLSTATE.
fn statements(report: &Value) -> Vec<String> {
    let all = report["statements"].as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap_or("none").to_owned();
    all.map(|one| [&one["database"], &one["sql"], &one["tag"], &one["error"]["code"]].map(text).join(" | "))
        .collect()
}

#[test]
fn failing_tool_gets_a_report_until_then() {
    let report = check(
        "sql -c 'ALTER TABLE orders ADD COLUMN a int'; sql -c 'ALTER TABLE orders ADD COLUMN a int'; sql -c 'DROP TABLE orders'",
        1,
    );
    assert_eq!(
        statements(&report),
        [
            "app | ALTER TABLE orders ADD COLUMN a int | ALTER TABLE | none",
            "app | ALTER TABLE orders ADD COLUMN a int | none | 42701",
        ]
    );
    assert_eq!(report["exit_code"], 1);
}

#[test]
fn killed_tool_gets_a_report_until_then() {
    let report = check("sql -c 'CREATE INDEX ON orders (status)'; kill -9 $$", 137);
    assert_eq!(statements(&report), ["app | CREATE INDEX ON orders (status) | CREATE INDEX | none"]);
    assert_eq!(report["statements"][0]["locks"][0]["mode"], "SHARE");
}

#[test]
fn tool_that_makes_databases_is_observed_in_each() {
    let report = check(
        "sql -d postgres -c 'CREATE DATABASE other'; sql -d other -c 'CREATE TABLE here (id int)' \
         -c 'ALTER TABLE here ADD COLUMN b int'; sql -c 'ALTER TABLE orders ADD COLUMN a int'; \
         sql -d postgres -c 'DROP DATABASE other'",
        0,
    );
    assert_eq!(
        statements(&report),
        [
            "postgres | CREATE DATABASE other | CREATE DATABASE | none",
            "other | CREATE TABLE here (id int) | CREATE TABLE | none",
            "other | ALTER TABLE here ADD COLUMN b int | ALTER TABLE | none",
            "app | ALTER TABLE orders ADD COLUMN a int | ALTER TABLE | none",
            "postgres | DROP DATABASE other | DROP DATABASE | none",
        ]
    );
    assert_eq!(report["statements"][3]["locks"][0]["mode"], "ACCESS EXCLUSIVE");
}

#[test]
fn tool_may_replace_its_own_database() {
    let report = check(
        "sql -c 'TABLE orders LIMIT 0'; sql -d postgres -c 'DROP DATABASE app' -c 'CREATE DATABASE app'; \
         sql -c 'CREATE TABLE fresh (id int)'",
        0,
    );
    assert_eq!(
        statements(&report),
        [
            "app | TABLE orders LIMIT 0 | SELECT 0 | none",
            "postgres | DROP DATABASE app | DROP DATABASE | none",
            "postgres | CREATE DATABASE app | CREATE DATABASE | none",
            "app | CREATE TABLE fresh (id int) | CREATE TABLE | none",
        ]
    );
}

#[test]
fn statements_in_the_background_are_waited_for() {
    let report = check(
        "sql -c 'ALTER TABLE orders ADD COLUMN a int'; \
         setsid \"$PSQL\" -XAtq -c 'ALTER TABLE orders ADD COLUMN b int' -c 'SELECT pg_sleep(10)' >/dev/null 2>&1 & \
         asleep=\"SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'\"; \
         until [ \"$(sql -c \"$asleep\")\" = 1 ]; do sleep 0.2; done",
        0,
    );
    let all = statements(&report);
    for sql in ["ADD COLUMN a int", "ADD COLUMN b int"] {
        let found = format!("app | ALTER TABLE orders {sql} | ALTER TABLE | none");
        assert!(all.contains(&found), "{sql} in {all:#?}");
    }
    let last = report["statements"].as_array().unwrap().last().unwrap();
    assert_eq!((&last["sql"], &last["unfinished"]), (&"SELECT pg_sleep(10)".into(), &false.into()));
}

#[test]
fn tool_that_waits_for_itself_is_named() {
    for signal in [Signal::INT, Signal::TERM] {
        let project = Project::new();
        let script = format!(
            "PSQL='{}'; {SQL}sql -c BEGIN -c 'LOCK TABLE orders' -c \"\\! $PSQL -Xqc 'ALTER TABLE orders ADD COLUMN a int'\"",
            ground::psql()
        );
        let mut command = project.command(&["check", "--json", "--", "sh", "-c", &script]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let waits = "waits for a lock of another session: LOCK TABLE orders (idle in transaction)";
        let found = lines.by_ref().map_while(Result::ok).find(|line| line.contains(waits));
        assert!(found.unwrap().contains("ALTER TABLE orders ADD COLUMN a int"));
        let rest = thread::spawn(move || lines.map_while(Result::ok).collect::<Vec<_>>());
        kill_process_group(Pid::from_child(&child), signal).unwrap();
        let outcome = collect(child);
        let stderr = rest.join().unwrap();
        let report: Value = serde_json::from_str(&outcome.stdout)
            .unwrap_or_else(|error| panic!("{error}: {outcome} {stderr:#?}"));
        assert_ne!(outcome.code, Some(0), "{outcome}");
        let all = report["statements"].as_array().unwrap();
        assert!(all.iter().any(|one| one["sql"] == "ALTER TABLE orders ADD COLUMN a int"), "{report}");
        assert!(report["waits"][0].as_str().unwrap().contains(waits), "{report}");
    }
}

#[test]
fn tool_may_drop_its_unused_database() {
    let report = check(
        "sql -d postgres -c 'DROP DATABASE app' -c 'CREATE DATABASE app'; sql -c 'CREATE TABLE fresh (id int)'",
        0,
    );
    assert_eq!(
        statements(&report),
        [
            "postgres | DROP DATABASE app | DROP DATABASE | none",
            "postgres | CREATE DATABASE app | CREATE DATABASE | none",
            "app | CREATE TABLE fresh (id int) | CREATE TABLE | none",
        ]
    );
}
