//! Simulates a server for tests. The fake server speaks the PostgreSQL protocol on a
//! Unix socket, answers this crate's statements, and tracks which connections are open.

#![expect(clippy::let_underscore_must_use, reason = "a client that is gone reads no answer")]

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use pgwire::{Frame, StartupParams, encode};
use server::SOCKET;
use sys::lock;

use crate::backends::backend::Backend;
use crate::isolation::Isolation;
use crate::names::NameRules;
use crate::options::{LeaseOptions, TemplateDatabase};
use crate::reset::expressions::MAY_LEAVE_TRACES;
use crate::runtime::leases::Leases;
use crate::wal::evidence::log_with;

/// A timeout longer than anything takes even on a busy machine.
const HANG: Duration = Duration::from_secs(30);
/// The startup parameter that identifies pgfresh's own connections.
const OURS: &[u8] = b"application_name\0pgfresh\0";
/// The startup parameter that identifies backends started ahead of a client.
const READY: &[u8] = b"database\0pgfresh_preparing_";
/// The startup parameter that identifies sessions in the lease `db`.
const LEASED: &[u8] = b"database\0db\0";
/// The end of the server's log.
pub(crate) const POSITION: &str = "0/1000028";

/// A fake server. Clones share the same state.
#[derive(Clone, Default)]
pub(crate) struct FakeServer(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    last_pid: u32,
    last_oid: u32,
    /// The stamp read by pgfresh when a session starts. Empty if there are no databases.
    stamp: String,
    /// SQLSTATEs of the errors for the next client sessions, which are refused.
    refusals: VecDeque<&'static str>,
    /// How often pgfresh asked the server to terminate a lease's backends, which the fake server doesn't do.
    terminations: usize,
    /// Open connections by process id, except pgfresh's own.
    open: HashMap<u32, UnixStream>,
    /// Queries received by clients' backends, by process id.
    asked: HashMap<u32, Vec<String>>,
    /// The initial `transaction_timeout` of sessions.
    timeout: String,
    /// Queries in clients' backends fail if they contain this text.
    fails: Option<&'static str>,
    /// Whether the fake server currently leaves pgfresh's statements unanswered.
    stopped: bool,
}

/// Leases on a fake server, closed when this struct is dropped.
pub(crate) struct FakeLeases {
    pub(crate) leases: Leases,
    pub(crate) server: FakeServer,
    _folder: tempfile::TempDir,
}

impl Drop for FakeLeases {
    fn drop(&mut self) {
        self.leases.close();
    }
}

impl FakeLeases {
    /// Opens leases that linger for the given time after their last session.
    pub(crate) fn open(linger: Duration) -> Self {
        let folder = log_with(0xD118);
        let server = FakeServer::start(folder.path());
        let options = LeaseOptions {
            directory: folder.path().to_owned(),
            data: folder.path().to_owned(),
            major: 18,
            budget: 1 << 30,
            templates: vec![TemplateDatabase { name: "app".to_owned(), database: "template1".to_owned() }],
            entry: None,
            names: NameRules::default(),
            isolation: Isolation::Clone,
            linger,
            suite: None,
            paranoid: false,
            provisioner: None,
            observer: None,
        };
        let leases = Leases::open(options, None).unwrap();
        leases.0.evidence.change_settings("0/0".parse().unwrap());
        Self { leases, server, _folder: folder }
    }
}

impl FakeServer {
    fn start(folder: &Path) -> Self {
        let server = Self::default();
        server.lock().stamp = "as it was".to_owned();
        let listener = UnixListener::bind(folder.join(SOCKET)).unwrap();
        let accepting = server.clone();
        // Nothing stops this thread, which exits with the test process.
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let server = accepting.clone();
                thread::spawn(move || server.serve(stream));
            }
        });
        server
    }

    /// Changes the stamp read by pgfresh when a session starts.
    pub(crate) fn change_catalogs(&self) {
        self.lock().stamp.push('!');
    }

    /// Removes all databases.
    pub(crate) fn lose_databases(&self) {
        self.lock().stamp.clear();
    }

    /// Makes the server refuse the next client sessions and those that pgfresh opens in the lease `db`.
    pub(crate) fn refuse(&self, sqlstates: &[&'static str]) {
        self.lock().refusals.extend(sqlstates);
    }

    /// Returns how many refusals are left.
    pub(crate) fn refusals(&self) -> usize {
        self.lock().refusals.len()
    }

    /// Returns how often pgfresh asked the server to terminate a lease's backends.
    pub(crate) fn terminations(&self) -> usize {
        self.lock().terminations
    }

    /// Makes a backend send the bytes in `words` and, if `ends` is true, exit.
    pub(crate) fn send(&self, pid: u32, words: &[u8], ends: bool) {
        let mut state = self.lock();
        let mut stream = &state.open[&pid];
        stream.write_all(words).unwrap();
        if ends {
            stream.shutdown(Shutdown::Write).unwrap();
            state.open.remove(&pid);
        }
    }

    /// Terminates a backend the way `pg_terminate_backend()` does.
    pub(crate) fn terminate(&self, pid: u32) {
        self.send(pid, &error("57P01"), true);
    }

    /// Returns the queries received by a backend since the last call.
    pub(crate) fn asked(&self, pid: u32) -> Vec<String> {
        self.lock().asked.remove(&pid).unwrap_or_default()
    }

    /// Sets the initial `transaction_timeout` of sessions.
    pub(crate) fn set_timeout(&self, value: &str) {
        value.clone_into(&mut self.lock().timeout);
    }

    /// Makes queries in clients' backends fail from now on if they contain `words`.
    pub(crate) fn fail_on(&self, words: &'static str) {
        self.lock().fails = Some(words);
    }

    /// Stops or resumes answering pgfresh's own statements, which wait meanwhile as if their backend were stopped.
    pub(crate) fn stop(&self, stopped: bool) {
        self.lock().stopped = stopped;
    }

    /// Returns the process ids of clients' open backends.
    pub(crate) fn backends(&self) -> BTreeSet<u32> {
        self.lock().open.keys().copied().collect()
    }

    /// Waits until pgfresh has closed its connection to a backend.
    pub(crate) fn expect_closed(&self, pid: u32) {
        self.wait_until(&format!("the end of backend {pid}"), |backends| !backends.contains(&pid));
    }

    pub(crate) fn wait_until(&self, what: &str, holds: impl Fn(&BTreeSet<u32>) -> bool) {
        let end = Instant::now() + HANG;
        while !holds(&self.backends()) {
            assert!(Instant::now() < end, "{what} never comes: {:?}", self.backends());
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.0)
    }

    fn serve(&self, mut stream: UnixStream) {
        let Some(startup) = read_startup(&mut stream) else { return };
        let is_ours = startup.windows(OURS.len()).any(|words| words == OURS);
        let is_inside = startup.windows(LEASED.len()).any(|words| words == LEASED);
        // Refuse backends started ahead of a client, so that a test knows which backend the client gets.
        if !is_ours && startup.windows(READY.len()).any(|words| words == READY) {
            let _ = stream.write_all(&error("57P03"));
            return;
        }
        let pid = {
            let mut state = self.lock();
            state.last_pid += 1;
            if (!is_ours || is_inside)
                && let Some(sqlstate) = state.refusals.pop_front()
            {
                let _ = stream.write_all(&error(sqlstate));
                return;
            }
            if !is_ours {
                let pid = state.last_pid;
                state.open.insert(pid, stream.try_clone().unwrap());
            }
            state.last_pid
        };
        let key = [&pid.to_be_bytes()[..], b"key!"].concat();
        let startup_response = [encode(b'R', &[0; 4]), encode(b'K', &key), encode(b'Z', b"I")].concat();
        let _ = stream.write_all(&startup_response);
        self.answer(&mut stream, pid);
        self.lock().open.remove(&pid);
    }

    /// Answers queries until the other side closes the connection.
    fn answer(&self, stream: &mut UnixStream, pid: u32) {
        let (mut said, mut chunk) = (Vec::new(), [0; 4096]);
        while let Ok(count @ 1..) = stream.read(&mut chunk) {
            said.extend_from_slice(&chunk[..count]);
            while let Ok(Some((frame, length))) = Frame::first(&said) {
                // Flush doesn't need a response.
                if frame.tag == b'H' {
                    said.drain(..length);
                    continue;
                }
                let sql =
                    String::from_utf8_lossy(frame.body.strip_suffix(b"\0").unwrap_or_default()).into_owned();
                let rows = if frame.tag == b'Q' { self.rows(&sql) } else { Vec::new() };
                said.drain(..length);
                let rows = rows.iter().flat_map(|row| encode(b'D', &row_of(row)));
                let failure = self.note(pid, sql);
                let answer: Vec<u8> = rows.chain(failure).chain(encode(b'Z', b"I")).collect();
                if stream.write_all(&answer).is_err() {
                    return;
                }
            }
        }
    }

    /// Records a query. Returns an error message if the query should fail.
    fn note(&self, pid: u32, sql: String) -> Vec<u8> {
        let mut state = self.lock();
        if !state.open.contains_key(&pid) {
            return Vec::new();
        }
        let fails = state.fails.is_some_and(|words| sql.contains(words));
        state.asked.entry(pid).or_default().push(sql);
        if fails { encode(b'E', b"SERROR\0VERROR\0CXX000\0Mas the test wants it\0\0") } else { Vec::new() }
    }

    fn rows(&self, sql: &str) -> Vec<Vec<String>> {
        let row = |columns: &[&str]| vec![columns.iter().map(|column| (*column).to_owned()).collect()];
        while self.lock().stopped {
            thread::sleep(Duration::from_millis(1));
        }
        let mut state = self.lock();
        let of_lease = sql.contains("pg_terminate_backend") && sql.contains("datid = ");
        state.terminations += usize::from(of_lease);
        match sql {
            MAY_LEAVE_TRACES => row(&["f"]),
            _ if sql.contains("pg_database_size") => row(&["5", "1000", "f", "false", "735"]),
            _ if sql.starts_with("SELECT oid FROM pg_database") => {
                state.last_oid += 1;
                [row(&[&(16384 + state.last_oid).to_string()]), row(&[POSITION])].concat()
            }
            _ if state.stamp.is_empty() && sql.starts_with("EXECUTE ") => row(&[POSITION]),
            _ if sql.starts_with("EXECUTE name(") || sql.starts_with("EXECUTE stamp(") => {
                [row(&[&state.stamp]), row(&[POSITION])].concat()
            }
            _ if sql.starts_with("EXECUTE stats") => {
                [row(&["0", "f", "as it was made"]), row(&[POSITION])].concat()
            }
            _ if sql.contains("pg_logical_emit_message") => row(&[POSITION]),
            _ if sql.contains("current_setting('transaction_timeout'") => row(&[&state.timeout]),
            _ => Vec::new(),
        }
    }
}

/// Returns the process id from a backend's startup response.
pub(crate) fn pid_of(backend: &Backend) -> u32 {
    let key = pgwire::cancel_key(&backend.startup_response).unwrap();
    u32::from_be_bytes(backend.startup_response[key.start..key.start + 4].try_into().unwrap())
}

/// Returns a client's startup parameters.
pub(crate) fn params(application: &str) -> StartupParams {
    StartupParams::new([("user", "postgres"), ("application_name", application)])
}

fn read_startup(stream: &mut UnixStream) -> Option<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).ok()?;
    let mut rest = vec![0; u32::from_be_bytes(length) as usize - 4];
    stream.read_exact(&mut rest).ok()?;
    Some(rest)
}

fn error(sqlstate: &str) -> Vec<u8> {
    encode(b'E', format!("SFATAL\0VFATAL\0C{sqlstate}\0Mas the test wants it\0\0").as_bytes())
}

fn row_of(columns: &[String]) -> Vec<u8> {
    let mut row = u16::try_from(columns.len()).unwrap().to_be_bytes().to_vec();
    for column in columns {
        row.extend(u32::try_from(column.len()).unwrap().to_be_bytes());
        row.extend(column.as_bytes());
    }
    row
}
