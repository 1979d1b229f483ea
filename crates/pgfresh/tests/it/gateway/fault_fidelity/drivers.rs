//! Tests faults through drivers: the error's class, whether the connection stays usable, and whether a pool keeps it.
//!
//! The programs in `tests/drivers/` run the same script with a real error and with a fault, and
//! print what they observe.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;

use serde_json::{Value, json};

use super::SCHEMA;
use super::network::{Network, Place};
use super::provocation::Provocation;
use super::side::{Faulty, Real};
use super::tokio::Tokio;
use crate::common::gateway::Gateway;
use crate::common::{all_majors_since, depth};
use crate::gateway::drivers::{installed, source};

/// Script for a program, and the error that it receives.
pub(super) struct Scenario {
    /// Transaction isolation level, or `none` to run without a transaction.
    pub(super) level: &'static str,
    pub(super) first: &'static str,
    /// Statement that fails, `COMMIT`, or `CONNECT` for a new connection.
    pub(super) failing: &'static str,
    cause: Cause,
}

enum Cause {
    Session(Provocation),
    /// Lost connection: the moment's name in a fault, and where the network breaks.
    Lost(&'static str, Place),
    /// Refused connections: the fault, and the fields of the server's message.
    Refused(&'static str, &'static [(u8, &'static str)]),
}

const COUNT: &str = "SELECT count(*) FROM entry";
const UPDATE: &str = "UPDATE account SET balance = balance - 10 WHERE id = 1";
const SLEEP: &str = "INSERT INTO entry SELECT 7, 'struck' FROM pg_sleep(60)";

const SCENARIOS: [Scenario; 11] = [
    Scenario::new("repeatable read", COUNT, UPDATE, Cause::Session(Provocation::UpdateConflict)),
    Scenario::new(
        "serializable",
        "INSERT INTO entry SELECT count(*) + 1, 'first' FROM entry",
        "COMMIT",
        Cause::Session(Provocation::CommitConflict),
    ),
    Scenario::new(
        "read committed",
        "UPDATE account SET balance = 50 WHERE id = 1 AND set_config('deadlock_timeout', '10', true) <> ''",
        "UPDATE account SET balance = 50 WHERE id = 2",
        Cause::Session(Provocation::Deadlock),
    ),
    Scenario::new("none", "SET lock_timeout = '10ms'", UPDATE, Cause::Session(Provocation::LockTimeout)),
    Scenario::new("none", COUNT, SLEEP, Cause::Session(Provocation::Cancel)),
    Scenario::new("read committed", COUNT, SLEEP, Cause::Session(Provocation::Cancel)),
    Scenario::new("none", COUNT, SLEEP, Cause::Session(Provocation::Terminate)),
    Scenario::new("read committed", COUNT, SLEEP, Cause::Session(Provocation::Terminate)),
    Scenario::new(
        "read committed",
        "INSERT INTO entry VALUES (1, 'first')",
        "COMMIT",
        Cause::Lost("before commit", Place::Before),
    ),
    Scenario::new(
        "read committed",
        "INSERT INTO entry VALUES (1, 'first')",
        "COMMIT",
        Cause::Lost("after commit", Place::After),
    ),
    Scenario::new(
        "none",
        COUNT,
        "CONNECT",
        Cause::Refused(
            "53300",
            &[
                (b'S', "FATAL"),
                (b'V', "FATAL"),
                (b'C', "53300"),
                (b'M', "sorry, too many clients already"),
                (b'F', "proc.c"),
                (b'R', "InitProcess"),
            ],
        ),
    ),
];

impl Scenario {
    const fn new(level: &'static str, first: &'static str, failing: &'static str, cause: Cause) -> Self {
        Self { level, first, failing, cause }
    }

    /// Runs this scenario with the real error.
    fn play_really(&self, program: &mut dyn Program, real: &Real<'_>, network: &Network) -> Vec<String> {
        real.refresh();
        let url =
            format!("postgresql://postgres:none@{}/{}?sslmode=disable", network.address, Real::DATABASE);
        match &self.cause {
            Cause::Session(provocation) => {
                let mut others = real.others();
                let seen = thread::scope(|scope| {
                    let others = &mut others;
                    program.observe(
                        self,
                        &url,
                        Box::new(move || {
                            provocation.arrange(others);
                            if let Some(function) = provocation.interruption() {
                                scope.spawn(move || others.interrupt(function));
                            }
                        }),
                    )
                });
                others.close();
                seen
            }
            Cause::Lost(_, place) => {
                program.observe(self, &url, Box::new(|| network.cut("commit", *place, false)))
            }
            Cause::Refused(_, fields) => program.observe(self, &url, Box::new(|| network.refuse(fields))),
        }
    }

    /// Runs this scenario with a fault in the lease `name`.
    fn play_with_fault(&self, program: &mut dyn Program, faulty: &Faulty<'_>, name: &str) -> Vec<String> {
        faulty.lease(name);
        let (address, secret) = (faulty.gateway.serve.address(), faulty.gateway.serve.secret());
        let url = format!("postgresql://postgres:{secret}@{address}/{name}?sslmode=disable");
        let fault = self.fault();
        let seen = program.observe(self, &url, Box::new(|| faulty.request(name, &fault)));
        faulty.end(name);
        seen
    }

    fn fault(&self) -> Value {
        match &self.cause {
            Cause::Session(provocation) => provocation.fault(self.failing),
            Cause::Lost(moment, _) => json!({"connection": "reset", "at": moment}),
            Cause::Refused(sqlstate, _) => json!({"error": sqlstate, "at": "connect"}),
        }
    }
}

/// Program that uses a driver.
pub(super) trait Program {
    /// Lets the program run a scenario on the database at `url`, calls `provoke` before the statement that fails, and
    /// returns the lines that the program prints.
    fn observe<'a>(&mut self, scenario: &Scenario, url: &str, provoke: Box<dyn FnOnce() + 'a>)
    -> Vec<String>;
}

/// Program that runs in another process.
struct Process {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Process {
    fn start(words: &[OsString]) -> Self {
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { child, input, output: BufReader::new(output) }
    }

    /// Reads the program's lines up to `last`.
    fn until(&mut self, last: &str) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            let count = self.output.read_line(&mut line).unwrap();
            assert!(count > 0, "the program has ended after {lines:#?}");
            if line.trim_end() == last {
                return lines;
            }
            lines.push(line.trim_end().to_owned());
        }
    }
}

impl Program for Process {
    fn observe<'a>(
        &mut self,
        scenario: &Scenario,
        url: &str,
        provoke: Box<dyn FnOnce() + 'a>,
    ) -> Vec<String> {
        let Scenario { level, first, failing, .. } = scenario;
        writeln!(self.input, "{url}\t{level}\t{first}\t{failing}").unwrap();
        let mut lines = self.until("ready");
        provoke();
        writeln!(self.input).unwrap();
        lines.extend(self.until("done"));
        lines
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The program might already have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Compares what a program prints for real errors and for faults.
fn compare(program: &mut dyn Program) {
    let majors = depth::some_of(all_majors_since(0));
    for major in majors {
        let gateway = Gateway::start(major, SCHEMA, &[]);
        let real = Real::new(&gateway);
        let network = Network::new(gateway.socket_directory().join(".s.PGSQL.5432"));
        let faulty = Faulty { gateway: &gateway, isolation: "clone" };
        for (number, scenario) in SCENARIOS.iter().enumerate() {
            println!("scenario {number} on PostgreSQL {major}: {} in {}", scenario.failing, scenario.level);
            let expected = scenario.play_really(program, &real, &network);
            assert!(expected.iter().any(|line| !line.ends_with(" ok")), "no error: {expected:#?}");
            let seen = scenario.play_with_fault(program, &faulty, &format!("driver_{number}"));
            assert_eq!(
                comparable(&seen),
                comparable(&expected),
                "left is the fault, right is the real error"
            );
        }
    }
}

/// Returns the lines without process IDs, transaction IDs, tuple IDs and ports.
fn comparable(lines: &[String]) -> Vec<String> {
    let comparable = |line: &String| {
        let mut words = Vec::new();
        let mut last = "";
        for word in line.split(['\n', ' ']) {
            let is_number = ["Process", "process", "transaction", "port"].contains(&last);
            let is_masked = is_number && word.starts_with(|letter: char| letter.is_ascii_digit());
            let is_place = word.starts_with("(0,") || word.contains("127.0.0.1:");
            words.push(if is_masked || is_place { "#" } else { word });
            last = word;
        }
        words.join(" ")
    };
    lines.iter().map(comparable).collect()
}

fn process(words: impl IntoIterator<Item = impl Into<OsString>>) {
    let words: Vec<OsString> = words.into_iter().map(Into::into).collect();
    compare(&mut Process::start(&words));
}

#[test]
fn psycopg_cannot_tell_faults_from_errors() {
    process([installed("python/bin/python"), source("python/psycopg_faults.py")]);
}

#[test]
fn asyncpg_cannot_tell_faults_from_errors() {
    process([installed("python/bin/python"), source("python/asyncpg_faults.py")]);
}

#[test]
fn pgx_cannot_tell_faults_from_errors() {
    process([installed("go/drivers").into_os_string(), "faults".into(), "pgx".into()]);
}

#[test]
fn lib_pq_cannot_tell_faults_from_errors() {
    process([installed("go/drivers").into_os_string(), "faults".into(), "lib/pq".into()]);
}

#[test]
fn node_postgres_cannot_tell_faults_from_errors() {
    let mut modules = OsString::from("NODE_PATH=");
    modules.push(installed("node/node_modules"));
    process(["env".into(), modules, "node".into(), source("node/faults.js").into_os_string()]);
}

#[test]
fn pgjdbc_cannot_tell_faults_from_errors() {
    let library = installed("java/postgresql.jar").into_os_string();
    process(["java".into(), "-cp".into(), library, source("java/Faults.java").into_os_string()]);
}

#[test]
fn tokio_postgres_cannot_tell_faults_from_errors() {
    compare(&mut Tokio);
}
