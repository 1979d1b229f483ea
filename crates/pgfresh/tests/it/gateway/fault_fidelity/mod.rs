//! Tests that clients can't distinguish a fault from the real error.
//!
//! Each test runs the same script twice: on the server itself, where other sessions provoke the real error,
//! and through the gateway with a fault. It compares all messages in their order, the transaction status,
//! and the rows afterwards.

mod answer;
mod busy;
mod drivers;
mod ended;
mod full_disk;
mod lost;
mod network;
mod provocation;
mod script;
mod side;
mod tokio;

use crate::common::gateway::Gateway;
use crate::common::random::Random;
use crate::common::{as_root, depth, on_every_major};
use provocation::Provocation;
use script::Script;
use side::{Faulty, Real, Requested};

/// Schema of the databases on both sides. Other sessions write to `account.other` and to `entry`, with a different
/// `word` than the client.
const SCHEMA: &str = "
    CREATE TABLE account (id int PRIMARY KEY, balance int NOT NULL, other int NOT NULL DEFAULT 0);
    CREATE TABLE entry (id int PRIMARY KEY, word text NOT NULL);
    CREATE TABLE filler (word text);
    INSERT INTO account SELECT n, 100, 0 FROM generate_series(1, 5) n;";
/// Query for the rows that depend on the client's transactions.
const ROWS: &str = "
    SELECT 'account ' || id, balance::text FROM account UNION ALL
    SELECT 'entry ' || id, word FROM entry WHERE word <> 'other' ORDER BY 1";
/// Isolation modes for leases with faults.
const ISOLATIONS: [&str; 3] = ["clone", "rollback", "server"];

on_every_major! {
    serialization_failures_equal_real_ones
    deadlocks_equal_real_ones
    lock_timeouts_equal_real_ones
    cancelled_statements_equal_real_ones
    terminated_sessions_equal_real_ones
    read_only_errors_equal_real_ones
    exceeded_temporary_files_equal_real_ones
    exhausted_lock_tables_equal_real_ones
    full_disks_equal_real_ones
}

fn serialization_failures_equal_real_ones(major: u32) {
    compare(major, &[Provocation::UpdateConflict, Provocation::CommitConflict, Provocation::ReadConflict]);
}

fn deadlocks_equal_real_ones(major: u32) {
    compare(major, &[Provocation::Deadlock]);
}

fn lock_timeouts_equal_real_ones(major: u32) {
    compare(major, &[Provocation::LockTimeout]);
}

fn cancelled_statements_equal_real_ones(major: u32) {
    compare(major, &[Provocation::Cancel, Provocation::LateCancel]);
}

fn terminated_sessions_equal_real_ones(major: u32) {
    compare(major, &[Provocation::Terminate]);
}

fn read_only_errors_equal_real_ones(major: u32) {
    compare(major, &[Provocation::ReadOnly]);
}

fn exceeded_temporary_files_equal_real_ones(major: u32) {
    compare(major, &[Provocation::TempFiles]);
}

fn exhausted_lock_tables_equal_real_ones(major: u32) {
    // The other side must not run out of locks.
    let full = Gateway::start(major, SCHEMA, &["--set", "max_locks_per_transaction=10"]);
    let gateway = Gateway::start(major, SCHEMA, &[]);
    compare_sides(&Real::new(&full), &gateway, &[Provocation::ManyLocks]);
}

fn full_disks_equal_real_ones(major: u32) {
    if !as_root("mount") {
        return;
    }
    let full = full_disk::start(major);
    let real = Real::new(&full);
    full.direct(Real::DATABASE, full_disk::MOVE).unwrap();
    compare_sides(&real, &Gateway::start(major, SCHEMA, &[]), &[Provocation::DiskFull]);
}

/// Runs some or all scripts for these errors on both sides, on one server.
fn compare(major: u32, provocations: &[Provocation]) {
    let gateway = Gateway::start(major, SCHEMA, &[]);
    compare_sides(&Real::new(&gateway), &gateway, provocations);
}

fn compare_sides(real: &Real<'_>, gateway: &Gateway, provocations: &[Provocation]) {
    let mut random = Random::new();
    let all = provocations.iter().flat_map(|provocation| Script::all(*provocation));
    for (number, script) in depth::some_of(all).into_iter().enumerate() {
        let isolation = *random.choose(script.provocation.isolations());
        let requested = *random.choose(&Requested::ALL);
        println!(
            "{script:?} in isolation {isolation}, requested {requested:?}, on PostgreSQL {}",
            gateway.major
        );
        let expected = real.play(&script);
        let error = format!(" C{} ", script.provocation.sqlstate());
        assert!(expected.answers.iter().any(|answer| answer.contains(&error)), "{expected:#?}");
        let faulty = Faulty { gateway, isolation };
        let outcome = faulty.play(&script, requested, &format!("faulty_{number}"));
        assert_eq!(outcome, expected, "left is the fault, right is the real error");
    }
}
