//! Runs cases on one gateway, and compares each leased database with an unused database, and each session with a new
//! connection to the server.

use std::collections::{BTreeMap, HashMap};
use std::process::Command;

use super::content::Content;
use super::generate::{Case, Generator, Handover};
use super::parameters::Parameter;
use super::play::play;
use super::session::{SeededNumbers, SessionState};
use super::{BRIEF, DATABASE, LASTING};
use crate::common::connection::{Connection, SqlError};
use crate::common::gateway::Gateway;
use crate::common::{ground, wait_until};

/// Reverts the cases' changes that affect all databases, because this test doesn't cover them.
const UNDO_SHARED: &str =
    "ALTER ROLE guest RESET ALL; ALTER ROLE postgres RESET ALL; ALTER ROLE ALL RESET ALL";
/// Text in a finding about a new session that stops responding.
const BROKE: &str = "the session broke";
/// `pg_dump` also compares one of this many leased databases.
const DUMP_EVERY: u32 = 10;
/// Last major whose databases the system's `pg_dump` can read.
const DUMPED_MAJOR: u32 = 15;

/// Gateway, expected content and session state, and findings.
pub(crate) struct Runner {
    pub(crate) gateway: Gateway,
    reference: Content,
    /// Reference database after a crash, which has emptied its unlogged tables.
    crashed: Option<Content>,
    dump: String,
    seeded: SeededNumbers,
    /// Last case that used each database, by the database's OID.
    used: HashMap<String, Case>,
    /// Number of cases whose sessions had a database.
    pub(crate) played: u32,
    /// Number of leased databases that were compared.
    pub(crate) compared: u32,
    pub(crate) recycled: u32,
    pub(crate) dropped: u32,
    /// Number of databases that, at the end, no client had received and pgfresh hadn't dropped.
    pub(crate) unsettled: u32,
    restored: usize,
    pub(crate) findings: Vec<String>,
    /// Findings about a database's content.
    pub(crate) dirty: Vec<String>,
    /// Number of differences for each probe and relation, with the first difference.
    tally: BTreeMap<String, (u32, String)>,
}

impl Runner {
    pub(crate) fn new(gateway: Gateway) -> Self {
        make_copy(&gateway, "reference");
        let server = gateway.server();
        let reference = Content::read(&server, "reference").unwrap();
        gateway.direct("postgres", "SELECT pg_replication_origin_create('origin')").unwrap();
        let mut session = Connection::open(&server, "reference", &[]).unwrap();
        let seeded = SeededNumbers::read(&mut session).unwrap();
        session.close();
        // A server crash must not lose the reference database.
        gateway.direct("postgres", "CHECKPOINT").unwrap();
        let mut runner = Self {
            gateway,
            reference,
            crashed: None,
            dump: String::new(),
            seeded,
            used: HashMap::new(),
            played: 0,
            compared: 0,
            recycled: 0,
            dropped: 0,
            unsettled: 0,
            restored: 0,
            findings: Vec::new(),
            dirty: Vec::new(),
            tally: BTreeMap::new(),
        };
        runner.dump = runner.pg_dump("reference");
        runner
    }

    /// Runs a case, lets the next client lease its database, and compares what that client gets.
    pub(crate) fn run(&mut self, case: &Case) {
        let (name, lease) = match case.handover {
            Handover::NewName => (format!("new_{}", case.number), BRIEF),
            Handover::SameName => ("same".to_owned(), BRIEF),
            Handover::Http | Handover::Connection => ("kept".to_owned(), LASTING),
        };
        // A new lease can get any database, so this compares the database first. The database named "kept" was
        // compared after its last reset. It doesn't have other sessions than those of cases, so that a reset
        // can use their backends.
        let first = match case.handover {
            Handover::NewName | Handover::SameName => match self.check_out(&name, lease, &[], case) {
                Some(first) => Some(first),
                None => return,
            },
            Handover::Http | Handover::Connection => None,
        };
        self.played += 1;
        let left = play(&self.gateway, case, &name, lease);
        let oid = self.oid_of(&name);
        if let Some(first) = first {
            first.close();
        }
        self.undo_shared();
        if case.crashes() {
            self.crashed = Some(Content::read(&self.gateway.server(), "reference").unwrap());
        }
        if let Some(oid) = oid {
            self.used.insert(oid, case.clone());
        }
        let left = match left {
            Ok(left) => left,
            Err(error) => {
                if !self.is_refused_by_the_server(case, &error) {
                    self.findings.push(format!("no session: {error}\nin {case}"));
                }
                Vec::new()
            }
        };
        match case.handover {
            Handover::NewName => {}
            Handover::SameName => drop(self.check_out(&name, lease, &case.next_parameters(), case)),
            Handover::Http => {
                let (status, answer) = self.gateway.reset(&name);
                if status != 204 {
                    self.findings.push(format!("HTTP reset: {status} {answer}\nafter {case}"));
                }
                drop(self.check_out(&name, lease, &case.next_parameters(), case));
            }
            Handover::Connection => {
                let reset = format!("{lease} -c pgfresh.reset=on");
                drop(self.check_out(&name, &reset, &case.next_parameters(), case));
            }
        }
        drop(left);
    }

    /// Whether the server itself rejects the parameters in one of the case's sessions, because some
    /// values exclude each other.
    fn is_refused_by_the_server(&self, case: &Case, error: &SqlError) -> bool {
        case.sessions.iter().any(|plan| {
            let words: Vec<String> = plan.parameters.iter().map(Parameter::option).collect();
            let direct =
                Connection::open(&self.gateway.server(), "reference", &[("options", &words.join(" "))]);
            direct.is_err_and(|refusal| refusal.sqlstate == error.sqlstate)
        })
    }

    /// Opens a session, and compares it and its database with a new session and database.
    fn check_out(
        &mut self,
        name: &str,
        options: &str,
        parameters: &[Parameter],
        case: &Case,
    ) -> Option<Connection> {
        self.compared += 1;
        let mut session = match self.connect(name, options, parameters) {
            Ok(session) => session,
            Err(error) => {
                self.findings.push(format!("no session with {name}: {error}\nin or after {case}"));
                return None;
            }
        };
        let mut found = self.state_differences(&mut session, parameters);
        let used = oid(&mut session).ok().and_then(|oid| self.used.remove(&oid));
        self.recycled += u32::from(used.is_some());
        // The lease of a broken session might have ended.
        let broke = found.iter().any(|line| line.starts_with(BROKE));
        let content = if broke { Vec::new() } else { self.content_differences(name) };
        if !content.is_empty() {
            // A faulty database must not affect later cases.
            let _ = self.gateway.direct("postgres", &format!("DROP DATABASE \"{name}\" WITH (FORCE)"));
        }
        let dirty = !content.is_empty();
        self.dirty.extend(content.iter().cloned());
        found.extend(content);
        for line in &found {
            let what = line.split(':').next().unwrap_or_default().to_owned();
            self.tally.entry(what).or_insert_with(|| (0, line.chars().take(300).collect())).0 += 1;
        }
        if !found.is_empty() {
            let after = used.map_or_else(|| format!("unknown; at {case}"), |used| used.to_string());
            let parameters: Vec<_> = parameters.iter().map(Parameter::option).collect();
            let parameters = parameters.join(" ");
            self.findings.push(format!("{name} {parameters}:\n  {}\nafter {after}", found.join("\n  ")));
        }
        if dirty { self.connect(name, options, parameters).ok() } else { Some(session) }
    }

    /// Returns the OID of the database that has this name now.
    fn oid_of(&self, name: &str) -> Option<String> {
        let sql = format!("SELECT oid FROM pg_database WHERE datname = '{name}'");
        self.gateway.direct("postgres", &sql).ok()?.into_iter().flatten().next().flatten()
    }

    fn connect(&self, name: &str, options: &str, parameters: &[Parameter]) -> Result<Connection, SqlError> {
        let words: Vec<String> = parameters.iter().map(Parameter::option).collect();
        self.gateway.connect(name, format!("{options} {}", words.join(" ")).trim())
    }

    /// Returns the differences between a session and a session with the same parameters that bypasses the gateway.
    fn state_differences(&self, session: &mut Connection, parameters: &[Parameter]) -> Vec<String> {
        let words: Vec<String> = parameters.iter().map(Parameter::option).collect();
        let options = words.join(" ");
        let options = [("options", options.as_str())];
        let options = if parameters.is_empty() { &options[..0] } else { &options[..] };
        let state = SessionState::read(session, &self.seeded);
        let expected =
            Connection::open(&self.gateway.server(), "reference", options).and_then(|mut direct| {
                let expected = SessionState::read(&mut direct, &self.seeded);
                direct.close();
                expected
            });
        match (expected, state) {
            (Ok(expected), Ok(state)) => expected.differences(&state),
            (Err(error), _) => vec![format!("no direct session with {options:?}: {error}")],
            (_, Err(error)) => vec![format!("{BROKE}: {error}")],
        }
    }

    fn content_differences(&mut self, name: &str) -> Vec<String> {
        let content = match Content::read(&self.gateway.server(), name) {
            Ok(content) => content,
            Err(error) => return vec![format!("its content could not be read: {error}")],
        };
        self.restored += self.reference.restored(&content);
        let mut found = self.reference.differences(&content, self.crashed.as_ref());
        if self.compared.is_multiple_of(DUMP_EVERY) && self.pg_dump(name) != self.dump {
            found.push("pg_dump writes something else".to_owned());
        }
        found
    }

    /// Returns the output of `pg_dump` with each table's rows sorted, or an empty string if it can't read the major.
    pub(crate) fn pg_dump(&self, name: &str) -> String {
        if self.gateway.major > DUMPED_MAJOR {
            return String::new();
        }
        let program = ground::psql().replace("/psql", "/pg_dump");
        let output = Command::new(program)
            .args(["--no-unlogged-table-data", "-U", "postgres", name, "-h"])
            .arg(self.gateway.socket_directory())
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        sort_rows(&String::from_utf8_lossy(&output.stdout))
    }

    /// Reverts changes to roles and server settings.
    fn undo_shared(&self) {
        // The postmaster might notice a crash only now, and then closes all sessions.
        wait_until("a session that undoes the changes", || {
            self.gateway.wait_for_server();
            self.gateway.direct("postgres", UNDO_SHARED).is_ok()
        });
        let changed = "SELECT count(*) FROM pg_file_settings WHERE sourcefile LIKE '%auto.conf'";
        let read = |sql| self.gateway.direct("postgres", sql).unwrap()[0][0].clone().unwrap_or_default();
        if read(changed) != "0" {
            self.gateway.direct("postgres", "ALTER SYSTEM RESET ALL").unwrap();
            self.gateway.direct("postgres", "SELECT pg_reload_conf()").unwrap();
            wait_until("the server's settings to be as before", || {
                read("SELECT count(*) FROM pg_settings WHERE sourcefile LIKE '%auto.conf'") == "0"
            });
        }
    }

    /// Prints the number of differences of each kind.
    pub(crate) fn print_tally(&self) {
        for (times, first) in self.tally.values() {
            println!("{times:>6} times, first: {first}");
        }
    }

    /// Waits until another client has leased each used database, or pgfresh has dropped it.
    pub(crate) fn settle(&mut self, generator: &Generator) {
        let nothing = Case { sessions: Vec::new(), ..generator.case(0) };
        let mut held = Vec::new();
        for at in 0..48 {
            self.count_dropped();
            if self.used.is_empty() {
                break;
            }
            held.extend(self.check_out(&format!("settle_{at}"), BRIEF, &[], &nothing));
        }
        for session in held {
            session.close();
        }
        self.count_dropped();
        self.unsettled = u32::try_from(self.used.len()).unwrap();
    }

    fn count_dropped(&mut self) {
        let rows = self.gateway.direct("postgres", "SELECT oid FROM pg_database").unwrap();
        let alive: Vec<String> = rows.into_iter().flatten().flatten().collect();
        let before = self.used.len();
        self.used.retain(|oid, _| alive.contains(oid));
        self.dropped += u32::try_from(before - self.used.len()).unwrap();
    }

    /// Prints a line with counts, and fails if anything differed.
    pub(crate) fn report(&self, seed: u64) {
        let Self { played, recycled, dropped, unsettled, .. } = self;
        let share = 100 * recycled / (*played).max(1);
        // A database that two cases used before its comparison counts once.
        let unknown = played.saturating_sub(recycled + dropped + unsettled);
        let (major, status) = (self.gateway.major, self.gateway.status());
        println!(
            "differential: {played} cases, {} differences, {share} % recycled, seed {seed} (PostgreSQL {major}: {} \
             databases and sessions compared, {} tables restored, {recycled} recycled, {dropped} dropped, {unsettled} \
             neither, {unknown} not followed; {})",
            self.findings.len(),
            self.compared,
            self.restored,
            status["dropped"],
        );
        self.print_tally();
    }
}

/// Makes a database from the gateway's template with plain SQL.
pub(crate) fn make_copy(gateway: &Gateway, name: &str) {
    let templates =
        "SELECT datname FROM pg_database WHERE datistemplate AND datname NOT IN ('template0', 'template1')";
    let template = gateway.direct("postgres", templates).unwrap().remove(0).remove(0).unwrap();
    gateway.direct("postgres", &format!("CREATE DATABASE {name} TEMPLATE \"{template}\"")).unwrap();
    gateway.direct(name, DATABASE).unwrap();
}

fn oid(session: &mut Connection) -> Result<String, SqlError> {
    session.value("SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database()")
}

/// Sorts the rows in each COPY, and removes lines that differ between any two dumps.
fn sort_rows(dump: &str) -> String {
    let (mut lines, mut rows, mut in_copy) = (Vec::new(), Vec::new(), false);
    for line in
        dump.lines().filter(|line| !line.starts_with("\\restrict") && !line.starts_with("\\unrestrict"))
    {
        if in_copy && line != "\\." {
            rows.push(line);
            continue;
        }
        rows.sort_unstable();
        lines.append(&mut rows);
        in_copy = line.starts_with("COPY ");
        lines.push(line);
    }
    lines.join("\n")
}
