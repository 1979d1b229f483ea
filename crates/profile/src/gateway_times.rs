//! Computes a suite's exact times from the reports of the gateway that the suite's sessions go through.
//!
//! A session is at work from a request until the last response to it. While n sessions are at work, the clock `shared`
//! runs at 1/n of real time. A statement's wall time is the time that passes on this clock between the statement's
//! start and end. In this way, concurrent statements divide the time among themselves.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::completed_statement::CompletedStatement;
use crate::created_databases::CreatedDatabases;
use crate::interner::Interner;
use crate::spared_sessions::SparedSessions;
use crate::test_records::TestRecords;
use crate::time::Time;
use pgwire::{NormalizedStatement, StatementKind};
use report::as_f64;

/// Maximum number of cached statement texts.
const MAX_CACHED_TEXTS: usize = 4096;
/// Maximum number of distinct statements. Any further statements only count toward their kind.
const MAX_DISTINCT_STATEMENTS: usize = 20_000;

/// Times of all sessions, as reported by the gateway.
#[derive(Debug, Clone)]
pub struct GatewayTimes {
    pub(crate) begun: Instant,
    /// Moment up to which all time has been attributed, in seconds since `begun`.
    pub(crate) now: f64,
    /// Sum of all seconds, each divided by the number of sessions at work during that second.
    pub(crate) shared: f64,
    sessions: HashMap<u64, Session>,
    /// Backend and database of each session that has started and hasn't ended.
    places: HashMap<u64, SessionPlace>,
    /// Number of statements that were still running at the end of the recording.
    unfinished: usize,
    /// Number of sessions at work right now.
    pub(crate) at_work: usize,
    /// Number of sessions that are waiting for their client with a transaction open.
    pub(crate) open: usize,
    pub(crate) known: HashMap<Arc<str>, u32>,
    /// Backend process IDs of all sessions reported by the gateway.
    pub(crate) backends: HashSet<i32>,
    /// True if the gateway's reports are incomplete.
    pub(crate) incomplete: bool,
    pub(crate) database: Time,
    pub(crate) in_transaction: f64,
    /// Seconds during which each number of sessions was at work.
    pub(crate) at_once: BTreeMap<usize, f64>,
    /// Each statement's time and how often it ran.
    pub(crate) statements: HashMap<u32, (Time, u64)>,
    pub(crate) databases: BTreeMap<Arc<str>, Time>,
    pub(crate) tests: TestRecords,
    pub(crate) clean_up: (Time, u64),
    /// Number of sessions started, and the total number of seconds clients waited for them.
    pub(crate) connected: (u64, f64),
    pub(crate) made: CreatedDatabases,
    pub(crate) spared: SparedSessions,
}

/// Backend and database of a session.
#[derive(Debug, Clone)]
struct SessionPlace {
    /// The backend's process ID, or 0 if the server doesn't report it.
    backend: i32,
    database: Arc<str>,
}

/// A session that is at work or has an open transaction.
#[derive(Debug, Clone, Copy, Default)]
struct Session {
    /// Start of the session's current work: seconds since `begun`, and the value of `shared`. `None` while the session
    /// isn't at work.
    working: Option<(f64, f64)>,
    open: bool,
    /// True if the session's transaction emptied a table.
    clears: bool,
}

impl GatewayTimes {
    pub(crate) fn new(begun: Instant) -> Self {
        Self {
            begun,
            now: 0.0,
            shared: 0.0,
            sessions: HashMap::new(),
            places: HashMap::new(),
            unfinished: 0,
            at_work: 0,
            open: 0,
            known: HashMap::new(),
            backends: HashSet::new(),
            incomplete: false,
            database: Time::default(),
            in_transaction: 0.0,
            at_once: BTreeMap::new(),
            statements: HashMap::new(),
            databases: BTreeMap::new(),
            tests: TestRecords::default(),
            clean_up: (Time::default(), 0),
            connected: (0, 0.0),
            made: CreatedDatabases::default(),
            spared: SparedSessions::default(),
        }
    }

    /// Records the start of a session with its user, its database and its backend. `waited` is how long the client
    /// waited for the session.
    pub fn session_started(
        &mut self,
        session: u64,
        waited: Duration,
        user: &Arc<str>,
        database: &Arc<str>,
        backend: i32,
    ) {
        self.tests.session_started(database);
        let is_spared = self.spared.session_started(session, waited.as_secs_f64(), user, database);
        self.made.session_started(session, waited.as_secs_f64(), database, is_spared);
        self.backends.insert(backend);
        self.places.insert(session, SessionPlace { backend, database: Arc::clone(database) });
        self.connected.0 += 1;
        self.connected.1 += waited.as_secs_f64();
    }

    /// Records a request in the session with this number. The session is at work from `at` on.
    pub fn request_sent(&mut self, session: u64, at: Instant) {
        self.advance(at);
        let since = (self.now, self.shared);
        let session = self.sessions.entry(session).or_default();
        self.open -= usize::from(std::mem::take(&mut session.open));
        self.at_work += usize::from(session.working.replace(since).is_none());
    }

    /// Returns true if the gateway reported a session with this backend.
    pub(crate) fn has_backend(&self, backend: i32) -> bool {
        self.backends.contains(&backend)
    }

    /// Records the end of the test that used `database`. `name` is the test's name as reported by the test runner.
    pub fn test_ended(&mut self, database: &str, name: Option<&str>) {
        self.tests.test_ended(database, name);
        self.database_reset(database);
    }

    /// Records a reset or the release of `database`, after which a client needs a new session.
    pub fn database_reset(&mut self, database: &str) {
        self.spared.database_reset(database);
    }

    /// Records that the gateway's reports are incomplete.
    pub fn mark_incomplete(&mut self) {
        self.incomplete = true;
    }

    /// Records the end of a session at `at`. If a statement was running, adds it to `statements` as an
    /// interrupted statement.
    pub fn session_ended(
        &mut self,
        session: u64,
        at: Instant,
        statements: &mut Interner<NormalizedStatement>,
    ) {
        self.advance(at);
        self.made.session_ended(session);
        self.spared.session_ended(session);
        if let Some(left) = self.sessions.remove(&session) {
            self.open -= usize::from(left.open);
            if let Some(since) = left.working {
                self.at_work -= 1;
                self.add_incomplete(session, since, statements.intern(NormalizedStatement::interrupted()));
            }
        }
        self.places.remove(&session);
    }

    /// Ends the recording at `at`. A statement that is still running counts with its time so far. `seen` returns the
    /// statement that samples saw in a backend after a moment, in seconds since the start of the recording.
    pub(crate) fn end(
        &mut self,
        at: Instant,
        statements: &mut Interner<NormalizedStatement>,
        seen: impl Fn(i32, f64) -> Option<u32>,
    ) {
        self.advance(at);
        let at_work: Vec<_> =
            self.sessions.iter().filter_map(|(session, state)| Some((*session, state.working?))).collect();
        self.unfinished = at_work.len();
        for (session, since) in at_work {
            let seen = self.places.get(&session).and_then(|place| seen(place.backend, since.0));
            let statement = seen.unwrap_or_else(|| statements.intern(NormalizedStatement::running()));
            self.add_incomplete(session, since, statement);
        }
    }

    /// Returns a sentence about the statements that were still running at the end, if there were any.
    pub(crate) fn unfinished_note(&self) -> Option<String> {
        match self.unfinished {
            0 => None,
            1 => Some("A statement was still running at the end. Its time until then counts.".to_owned()),
            count => Some(format!(
                "{count} statements were still running at the end. Their time until then counts."
            )),
        }
    }

    /// Adds the time of a statement that has no response. `since` is the start of the session's current work.
    fn add_incomplete(&mut self, session: u64, (since, shared): (f64, f64), statement: u32) {
        let spent = Time { wall: self.shared - shared, sessions: self.now - since, ..Time::default() };
        self.statements.entry(statement).or_default().0.add_time(spent);
        if let Some(place) = self.places.get(&session) {
            self.databases.entry(Arc::clone(&place.database)).or_default().add_time(spent);
        }
    }

    /// Attributes the time up to `at`. If a report is late, its time counts as the current time.
    pub(crate) fn advance(&mut self, at: Instant) {
        let at = at.saturating_duration_since(self.begun).as_secs_f64();
        let passed = (at - self.now).max(0.0);
        self.now += passed;
        if self.at_work > 0 {
            let among = as_f64(self.at_work);
            self.shared += passed / among;
            self.database.wall += passed;
            self.database.sessions += passed * among;
            *self.at_once.entry(self.at_work).or_default() += passed;
        } else if self.open > 0 {
            self.in_transaction += passed;
        }
    }
}

impl GatewayTimes {
    /// Records work completed by a session.
    pub fn statement_completed(
        &mut self,
        done: CompletedStatement<'_>,
        statements: &mut Interner<NormalizedStatement>,
    ) {
        self.advance(done.at);
        let place = self.statement_index(done.statement, statements);
        let (now, runs) = ((self.now, self.shared), done.runs);
        let session = self.sessions.entry(done.session).or_default();
        let Some((since, shared)) = session.working.replace(now) else {
            session.working = None;
            return self.mark_incomplete();
        };
        let time = Time { wall: self.shared - shared, sessions: self.now - since, ..Time::default() };
        let statement = statements.get(place);
        self.tests.statement_completed(&done, place, statement.kind, time);
        self.made.statement_completed(done.session, done.statement, statement.kind);
        session.clears |= statement.clears;
        let cleans = statement.clears || (session.clears && statement.kind == StatementKind::Commit);
        if let Some(open) = done.idle_in_transaction {
            (session.working, session.open) = (None, open);
            session.clears &= open;
            self.at_work -= 1;
            self.open += usize::from(open);
        }
        if cleans {
            self.clean_up.0.add_time(time);
            self.clean_up.1 += runs * u64::from(statement.clears);
        }
        let sum = self.statements.entry(place).or_default();
        sum.0.add_time(time);
        sum.1 += runs;
        self.databases.entry(Arc::clone(done.database)).or_default().add_time(time);
    }

    /// Returns the index of the statement with this text.
    fn statement_index(&mut self, text: &Arc<str>, statements: &mut Interner<NormalizedStatement>) -> u32 {
        if let Some(place) = self.known.get(text) {
            return *place;
        }
        let mut statement = NormalizedStatement::read(text);
        if statements.iter().count() > MAX_DISTINCT_STATEMENTS {
            statement.text = format!("(others: {})", statement.kind);
        }
        let place = statements.intern(statement);
        if self.known.len() >= MAX_CACHED_TEXTS {
            self.known.clear();
        }
        self.known.insert(Arc::clone(text), place);
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attribution::tests::recording;
    use crate::{Attribution, Recording};

    /// Replays these reports and returns the result.
    ///
    /// Each line has a time in milliseconds, a session, and `asked`, `left` or `idle|open|more:STATEMENT`. The samples
    /// have the format expected by [`recording`].
    fn replay(talk: &[&str], samples: &[&[&str]]) -> (Attribution, Recording) {
        let begun = Instant::now();
        let (mut exact, mut recording) = (GatewayTimes::new(begun), recording(samples));
        let statements = &mut recording.statements;
        for line in talk {
            exact.backends.insert(line.split(' ').nth(1).unwrap().bytes().map(i32::from).sum());
            let words: Vec<&str> = line.splitn(3, ' ').collect();
            let at = begun + Duration::from_millis(words[0].parse().unwrap());
            let session = u64::from(words[1].as_bytes()[0]);
            match (words[2], words[2].split_once(':')) {
                ("asked", _) => exact.request_sent(session, at),
                ("left", _) => exact.session_ended(session, at, statements),
                ("end", _) => exact.advance(at),
                (_, Some((then, sql))) => {
                    let rests = match then {
                        "idle" => Some(false),
                        "open" => Some(true),
                        _ => None,
                    };
                    let (database, statement) = (&words[1].into(), &sql.into());
                    exact.statement_completed(
                        CompletedStatement {
                            session,
                            database,
                            statement,
                            runs: 1,
                            values: None,
                            rows: 0,
                            idle_in_transaction: rests,
                            at,
                        },
                        statements,
                    );
                }
                _ => panic!("{line}"),
            }
        }
        recording.seconds = exact.now;
        recording.exact = Some(exact);
        (Attribution::of(&recording), recording)
    }

    fn near(one: f64, other: f64) -> bool {
        (one - other).abs() < 1e-9
    }

    /// Returns the wall time and the session time, both in milliseconds.
    fn in_ms(time: Time) -> (f64, f64) {
        ((time.wall * 1e6).round() / 1e3, (time.sessions * 1e6).round() / 1e3)
    }

    #[test]
    fn exact_time_is_divided_among_active_sessions() {
        let (seen, recording) = replay(
            &[
                "10 a asked",
                "20 b asked",
                "30 a open:BEGIN",
                "40 b idle:SELECT 1",
                "70 a asked",
                "80 a idle:COMMIT",
                "90 c asked",
                "95 c left",
                "100 d end",
            ],
            &[],
        );
        assert!(seen.exact && near(seen.wall, 0.1));
        assert_eq!(in_ms(seen.database), (45.0, 55.0));
        assert!(near(seen.in_transaction, 0.03) && near(seen.idle_seconds(), 0.055), "{seen:?}");
        let of = |text: &str| {
            let found =
                seen.statements.iter().find(|(place, _)| recording.statements.get(*place).text == text);
            in_ms(found.unwrap_or_else(|| panic!("no {text}: {seen:?}")).1.time)
        };
        assert_eq!((of("BEGIN"), of("SELECT ?"), of("COMMIT")), ((15.0, 20.0), (15.0, 20.0), (10.0, 10.0)));
        assert_eq!(of("(a session was ended in the midst of it)"), (5.0, 5.0));
        assert_eq!((seen.width, seen.max_sessions), (2.0, 2));
        assert_eq!(in_ms(seen.databases.iter().find(|(name, _)| name == "a").unwrap().1), (25.0, 30.0));
    }

    #[test]
    fn clean_up_time_includes_its_commit() {
        let talk = [
            "0 a asked",
            "10 a open:BEGIN",
            "10 a asked",
            "30 a open:TRUNCATE t",
            "30 a asked",
            "35 a idle:COMMIT",
            "40 a asked",
            "50 a idle:COMMIT",
            "60 a asked",
            "70 a more:DELETE FROM t",
            "75 a idle:COMMIT",
        ];
        let clean_up = replay(&talk, &[]).0.clean_up;
        assert_eq!((in_ms(clean_up.time), clean_up.seen), ((40.0, 40.0), 2));
    }

    #[test]
    fn samples_divide_exact_time_by_wait_cause() {
        let samples: [&[&str]; 3] = [&["a:TRUNCATE t:sync"], &["a:TRUNCATE t:cpu"], &["a:SELECT 1:lock"]];
        let talk = [
            "0 a asked",
            "60 a idle:TRUNCATE t",
            "60 a asked",
            "61 a idle:SELECT 1",
            "61 a asked",
            "62 a idle:COMMIT",
        ];
        let (seen, _) = replay(&talk, &samples);
        let causes: Vec<_> = seen.causes.iter().map(|(cause, time)| (cause.name(), in_ms(*time).1)).collect();
        assert_eq!(causes.len(), 3, "{causes:?}");
        assert!(["WAL sync", "CPU"].iter().all(|name| causes.contains(&(name, 30.0))), "{causes:?}");
        assert!(causes.contains(&("lock", 1.0)), "{causes:?}");
    }

    #[test]
    fn running_statement_counts_until_the_end() {
        let (begun, mut statements) = (Instant::now(), Interner::default());
        let mut exact = GatewayTimes::new(begun);
        for (session, backend) in [(1, 11), (2, 0)] {
            exact.session_started(session, Duration::ZERO, &"app".into(), &"d".into(), backend);
            exact.request_sent(session, begun);
        }
        let sleep = statements.intern(NormalizedStatement::read("SELECT pg_sleep(20)"));
        let seen = |backend, _| (backend == 11).then_some(sleep);
        exact.end(begun + Duration::from_millis(400), &mut statements, seen);
        let of = |statement: u32| in_ms(exact.statements[&statement].0);
        let unseen = statements.intern(NormalizedStatement::running());
        assert_eq!([of(sleep), of(unseen)], [(200.0, 400.0); 2]);
        assert_eq!((exact.unfinished, in_ms(exact.databases["d"])), (2, in_ms(exact.database)));
    }

    #[test]
    fn incomplete_reports_fall_back_to_samples() {
        let crowd: [&[&str]; 60] = [&["a:SELECT 1:cpu"]; 60];
        let (seen, _) = replay(&["0 b asked", "10 b idle:SELECT 2", "600 b end"], &crowd);
        assert!(!seen.exact && near(seen.database.sessions, 0.6), "{seen:?}");
        assert!(!replay(&["0 a idle:SELECT 1"], &[]).0.exact);
    }
}
