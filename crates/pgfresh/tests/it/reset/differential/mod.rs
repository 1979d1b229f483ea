//! Differential test. After any sessions, however they end, the next client's database equals one that plain CREATE
//! DATABASE makes from the template. The next client's session equals a new connection to the server.
//!
//! The tests are clients of `pgfresh serve`, over PostgreSQL's protocol and HTTP. `PGFRESH_DIFFERENTIAL_SEED` repeats
//! a run's cases. `PGFRESH_DIFFERENTIAL_ONLY` runs only one of them.

mod content;
mod generate;
mod harness;
mod load;
mod parameters;
mod play;
mod runner;
mod session;

use std::sync::mpsc::sync_channel;
use std::thread;

use crate::common::gateway::Gateway;
use crate::common::random::Random;
use crate::common::{depth, on_every_major};
use generate::{Case, End, Generator, Handover, SessionPlan};
use parameters::{Parameter, WITHOUT_ANOTHER_VALUE};
use runner::Runner;

/// Template with all kinds of objects that a reset must handle.
const TEMPLATE: &str = include_str!("template.sql");
/// Objects of a database that CREATE DATABASE doesn't copy.
const DATABASE: &str = include_str!("database.sql");

/// Options for a lease that ends with its last session.
const BRIEF: &str = "-c pgfresh.linger=0";
/// Options for a lease that outlives its sessions.
const LASTING: &str = "-c pgfresh.linger=60s";

/// Statements that change each template table with rows, some tables without rows, and sequences.
const TOUCH: [&str; 16] = [
    "UPDATE public.country SET dial = 7",
    "DELETE FROM public.tree",
    "UPDATE public.audited SET id = 7",
    "UPDATE public.secret SET id = 7",
    "UPDATE public.event SET what = 'x'",
    "UPDATE public.base SET id = 7",
    "UPDATE public.member SET team = 1",
    "INSERT INTO public.note VALUES (7, 'x')",
    "SELECT nextval('public.ticket'), nextval('other.used'), nextval('public.cycling')",
    "INSERT INTO public.customer (name) VALUES ('x')",
    "UPDATE public.scratch_seed SET body = 'x'",
    "UPDATE public.every_type SET i2 = 7",
    "UPDATE public.priced SET amount = 7",
    "UPDATE public.toasted SET packed = packed || 'x'",
    "UPDATE public.dropped_column SET a = 7",
    "INSERT INTO information_schema.extra VALUES (7)",
];

/// The tables in this many first statements of [`TOUCH`] can be restored by every reset. Because of the other
/// statements, pgfresh might drop the database.
const EASY: usize = 10;

/// Starts a gateway with this module's template. For logical slots, `options` must contain `--set wal_level=logical`.
fn start(major: u32, options: &[&str]) -> Gateway {
    let words = [&["--set", "max_prepared_transactions=8"], options].concat();
    Gateway::start(major, &format!("{TEMPLATE};\n{DATABASE}"), &words)
}

fn number(variable: &str) -> Option<u64> {
    let value = std::env::var(variable).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{variable} is no number: {value}")))
}

/// Returns the number of generated cases for each major.
fn cases() -> u32 {
    depth::rounds(50)
}

/// Fails if there are findings. Prints the number of findings, and the first finding in full.
fn assert_none(findings: &[String], seed: u64) {
    let shown: Vec<_> = findings.iter().take(12).map(String::as_str).collect();
    assert!(
        findings.is_empty(),
        "{} differences, seed {seed}; play one case with PGFRESH_DIFFERENTIAL_SEED={seed} \
         PGFRESH_DIFFERENTIAL_ONLY=CASE:\n{}",
        findings.len(),
        shown.join("\n")
    );
}

fn leases_equal_unused_databases(major: u32, options: &[&str]) {
    let gateway = start(major, options);
    let seed = number("PGFRESH_DIFFERENTIAL_SEED").unwrap_or_else(|| Random::new().number());
    println!("PostgreSQL {major}: seed {seed}");
    let (parameters, _) = Parameter::all(&gateway.server());
    // A crash recovery takes as long as many cases.
    let parameters = parameters.into_iter().filter(|parameter| parameter.name != "post_auth_delay").collect();
    let generator = Generator { seed, parameters, crash_every: (cases() / 3).clamp(10, 500) };
    let numbers = match number("PGFRESH_DIFFERENTIAL_ONLY") {
        Some(only) => u32::try_from(only).unwrap()..=u32::try_from(only).unwrap(),
        None => 1..=cases(),
    };
    let address = gateway.address();
    let mut runner = Runner::new(gateway);
    thread::scope(|scope| {
        let (others, cases) = sync_channel(1);
        scope.spawn(move || load::play_others(&address, seed, &cases));
        for number in numbers {
            // If an earlier case's load is still running, that is enough.
            let _ = others.try_send(number);
            runner.run(&generator.case(number));
        }
    });
    runner.settle(&generator);
    runner.report(seed);
    assert_none(&runner.findings, seed);
    let (recycled, played) = (runner.recycled, runner.played);
    assert!(recycled * 10 >= played * 6, "only {recycled} of {played} databases were recycled");
}

#[test]
fn leases_equal_unused_databases_on_postgres_15() {
    leases_equal_unused_databases(15, &[]);
}

#[test]
fn leases_equal_unused_databases_on_postgres_18() {
    leases_equal_unused_databases(18, &["--set", "wal_level=logical"]);
}

/// With `--paranoid`, pgfresh itself compares each database. If a database differs, pgfresh drops and reports it,
/// and no client gets it.
#[test]
fn paranoid_finds_all_differences() {
    let gateway = start(15, &["--paranoid"]);
    let seed = number("PGFRESH_DIFFERENTIAL_SEED").unwrap_or_else(|| Random::new().number());
    let (parameters, _) = Parameter::all(&gateway.server());
    let parameters = parameters.into_iter().filter(|parameter| parameter.name != "post_auth_delay").collect();
    let generator = Generator { seed, parameters, crash_every: 0 };
    let mut runner = Runner::new(gateway);
    for number in 1..=cases() / 3 {
        runner.run(&generator.case(number));
    }
    runner.report(seed);
    assert_none(&runner.dirty, seed);
    assert_eq!(
        runner.gateway.status()["differences"],
        serde_json::json!([]),
        "pgfresh itself has found some"
    );
}

/// For each parameter, a session with it changes every table, pgfresh resets the database, and the test compares the
/// database and its next session, with and without the parameter.
fn startup_parameters_do_not_change_later_leases(major: u32) {
    let gateway = start(major, &[]);
    let (parameters, without) = Parameter::all(&gateway.server());
    let unknown: Vec<_> =
        without.iter().filter(|name| !WITHOUT_ANOTHER_VALUE.contains(&name.as_str())).collect();
    assert!(unknown.is_empty(), "PostgreSQL {major}: no value is known for {unknown:?}");
    let parameters = depth::some_of(parameters);
    let mut runner = Runner::new(gateway);
    let plan = |parameters: &[Parameter], statements: &[&str]| SessionPlan {
        guest: false,
        parameters: parameters.to_vec(),
        statements: statements.iter().map(|statement| (*statement).to_owned()).collect(),
        end: End::Terminate,
    };
    for (number, parameter) in (0..).zip(&parameters) {
        let rounds = [(Handover::Http, false, &TOUCH[..]), (Handover::Connection, true, &TOUCH[..EASY])];
        for (handover, same_parameters, statements) in rounds {
            let own = std::slice::from_ref(parameter);
            // Statements can fail because of the parameter. A session without it then ensures
            // that every table changes.
            let mut sessions = vec![plan(own, statements)];
            if handover == Handover::Http {
                sessions.push(plan(&[], statements));
            }
            runner.run(&Case { number, handover, at_once: true, sessions, same_parameters });
        }
    }
    runner.print_tally();
    println!(
        "differential: {} parameters on PostgreSQL {major}, {} differences",
        parameters.len(),
        runner.findings.len()
    );
    assert_none(&runner.findings, 0);
    // A dropped database doesn't prove anything.
    let share = 10 * runner.recycled as usize / parameters.len();
    assert!(
        share >= 8,
        "only {} databases were recycled for {} parameters",
        runner.recycled,
        parameters.len()
    );
}

on_every_major!(startup_parameters_do_not_change_later_leases);
