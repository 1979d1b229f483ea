//! Starts and checks backends. A backend is the server process
//! for one session, and it is tied to its startup parameters.
//!
//! Since starting a backend takes a few milliseconds, pgfresh starts some ahead of their
//! clients and retains others after their clients have disconnected. Before reusing an
//! idle backend, pgfresh checks that the backend still behaves like a new one.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use pgwire::{Frame, StartupParams, cancel_key, frames};
use server::{AdminConnection, Rows, SOCKET, SUPERUSER, SessionError};

use crate::admin::{AdminPool, Prepared};
use crate::backends::seats::Seat;
use crate::error::LeaseError;
use crate::lsn::Lsn;
use crate::table::ParamsId;

/// Maximum size of the server's startup response, in bytes. Usually, the response is about a kilobyte.
const LONGEST_STARTUP_RESPONSE: usize = 1 << 20;
/// Timeout for starting a backend.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout for pgfresh's own statements in an idle backend.
const STATEMENT_TIMEOUT: Duration = Duration::from_mins(1);
/// Timeout for starting a backend ahead of its client, and for each of pgfresh's statements there. The timeout is short
/// because the database becomes ready only afterwards.
const UNASKED_TIMEOUT: Duration = Duration::from_secs(1);

/// Maximum number of tables that a backend opens ahead of its client. Each table takes 0.1 ms.
const MOST_TABLES: usize = 64;

/// Returns a hash of the startup parameters, which the table compares instead of the parameters.
pub(crate) fn params_id(params: &StartupParams) -> ParamsId {
    let mut hasher = DefaultHasher::new();
    params.hash(&mut hasher);
    ParamsId(hasher.finish())
}

/// Returns true if a session with `params` may enable JIT compilation, which loads a library into its backend.
pub(crate) fn may_compile(params: &StartupParams) -> bool {
    params.may_set(b"jit")
}

/// Name of the setting that makes a server terminate idle sessions. A backend waiting for its client counts as idle.
pub(crate) const IDLE_TIMEOUT: &str = "idle_session_timeout";

/// Returns true if the server may terminate an idle session with `params` in a database with this stamp, because
/// [`IDLE_TIMEOUT`] may be set.
pub(crate) fn may_be_too_idle(params: &StartupParams, stamp: &str) -> bool {
    params.may_set(IDLE_TIMEOUT.as_bytes()) || stamp.contains(IDLE_TIMEOUT)
}

/// A backend that has started and waits for the first message of its session.
#[derive(Debug)]
pub struct Backend {
    /// Connection to the backend, in blocking mode.
    pub stream: UnixStream,
    /// All messages from the server so far, from the negotiation to ReadyForQuery, including the parameters and the
    /// cancel key.
    pub startup_response: Vec<u8>,
    /// The seat that the backend occupies as long as the connection is open.
    pub seat: Seat,
}

impl Backend {
    /// Returns true if the session's user was a superuser when the backend started.
    pub(crate) fn is_superuser(&self) -> bool {
        const IS_SUPERUSER: &[u8] = b"is_superuser\0on\0";
        self.startup_response.windows(IS_SUPERUSER.len()).any(|window| window == IS_SUPERUSER)
    }

    /// Returns the oid of the backend's database, or `None` if the backend has exited or has no database.
    pub(crate) fn database(&self, admin: &AdminPool) -> Result<Option<u32>, LeaseError> {
        process_of(&self.startup_response).map_or(Ok(None), |process| admin.database_of(process))
    }

    /// Returns true if the startup response would be the same for a database with another name. A notice may contain
    /// the name, for example in a warning about the collation version.
    pub(crate) fn may_serve_another(&self) -> bool {
        frames(&self.startup_response).all(|frame| frame.tag != b'N')
    }

    /// Starts a session in `database` through the socket in `directory`.
    ///
    /// Sends the startup message immediately after connecting, so call this only when the session is needed. A
    /// connection without a startup message would keep a crashed server from recovering until `authentication_timeout`
    /// expires.
    ///
    /// # Errors
    /// Returns [`LeaseError::Refused`] with the server's error message if the server refuses the session.
    pub fn connect(directory: &Path, params: &StartupParams, database: &str) -> Result<Self, LeaseError> {
        Self::connect_within(START_TIMEOUT, directory, params, database)
    }

    fn connect_within(
        timeout: Duration,
        directory: &Path,
        params: &StartupParams,
        database: &str,
    ) -> Result<Self, LeaseError> {
        let io = |verb| move |source| LeaseError::Io { verb, source };
        let mut stream = UnixStream::connect(directory.join(SOCKET)).map_err(io("connect to the server"))?;
        stream.set_read_timeout(Some(timeout)).map_err(io("bound the wait for the server"))?;
        stream.write_all(&params.startup_message(database)).map_err(io("write to the server"))?;
        let startup_response = read_startup_response(&mut stream)?;
        stream.set_read_timeout(None).map_err(io("bound the wait for the server"))?;
        Ok(Self { stream, startup_response, seat: Seat::default() })
    }

    /// Starts a backend for an expected client. Returns `None` if the server refuses or is slow.
    pub(crate) fn start_ahead(directory: &Path, params: &StartupParams, database: &str) -> Option<Self> {
        Self::connect_within(UNASKED_TIMEOUT, directory, params, database).ok()
    }

    /// Makes the backend open `tables`, which loads their definitions ahead of its client, and then discards the
    /// session's state. Returns `None` if the server refuses or is slow.
    pub(crate) fn practise(self, tables: &[&str]) -> Option<Self> {
        let Self { stream, startup_response, seat } = self;
        let mut session = AdminConnection::adopt(stream, UNASKED_TIMEOUT).ok()?;
        let mut sql = String::from("SELECT 1;");
        for table in tables.iter().take(MOST_TABLES) {
            // LIMIT 0 reads no rows, so this doesn't change the table's statistics.
            sql.push_str(&format!("SELECT * FROM ONLY {table} LIMIT 0;"));
        }
        // Don't give up if the role isn't allowed to read a table, because only some definitions will be missing.
        if let Err(error) = session.query(&sql) {
            tracing::debug!(%error, "a backend could not look at all tables");
        }
        session.query("DISCARD ALL").ok()?;
        Some(Self { stream: session.release().ok()?, startup_response, seat })
    }
}

/// A text representing everything that a session reads only at its start: roles, the database's privileges and
/// settings, and the server's configuration files. If any of these change, so does the stamp. Since running sessions
/// don't notice, pgfresh gives an idle backend to a client only if the stamp is still the same.
pub(crate) type CatalogStamp = Arc<str>;

/// A backend that waits for a client.
#[derive(Debug)]
pub(crate) struct WaitingBackend {
    pub(crate) params: StartupParams,
    pub(crate) backend: Backend,
    /// The stamp just before the backend started.
    pub(crate) stamp: CatalogStamp,
    /// The log position just before the backend started. `None` if the position doesn't matter.
    pub(crate) since: Option<Lsn>,
    /// Whether a client of the current lease has used the backend.
    pub(crate) is_used: bool,
}

impl WaitingBackend {
    /// Returns true if the backend is still running. Some tests terminate "all other sessions".
    pub(crate) fn is_alive(&self) -> bool {
        sys::is_idle_socket(&self.backend.stream)
    }

    /// Returns true if the backend can serve the next client. May wait for the backend's response.
    pub(crate) fn will_serve(&self) -> bool {
        will_serve(&self.backend.stream, &self.backend.startup_response)
    }

    /// Runs `work` in the backend's session.
    pub(crate) fn lend<T, E: From<SessionError>>(
        self,
        work: impl FnOnce(&mut AdminConnection) -> Result<T, E>,
    ) -> Result<(Self, T), E> {
        let Self { params, backend: Backend { stream, startup_response, seat }, stamp, since, is_used } =
            self;
        let mut session = AdminConnection::adopt(stream, STATEMENT_TIMEOUT)?;
        let done = work(&mut session)?;
        let backend = Backend { stream: session.release()?, startup_response, seat };
        Ok((Self { params, backend, stamp, since, is_used }, done))
    }
}

/// Returns true if the backend with this startup response is waiting for a message and has no pending signal. Another
/// session may have signaled the backend to terminate or to cancel its statement. Until the kernel schedules the
/// backend and the signal takes effect, the connection seems alive.
pub(crate) fn will_serve(stream: &UnixStream, startup_response: &[u8]) -> bool {
    let is_asleep = process_of(startup_response).is_some_and(sys::is_asleep);
    // Check the socket last, because an exiting backend sends its last message before it sleeps again.
    sys::is_idle_socket(stream) && (is_asleep || answers(stream))
}

/// Returns the process id from a startup response.
fn process_of(startup_response: &[u8]) -> Option<u32> {
    let number = startup_response[cancel_key(startup_response)?].first_chunk().copied()?;
    Some(u32::from_be_bytes(number))
}

/// Returns true if the backend responds to a message. Before responding, the backend acts on all pending signals.
fn answers(stream: &UnixStream) -> bool {
    let Ok(stream) = stream.try_clone() else { return false };
    let Ok(mut session) = AdminConnection::adopt(stream, UNASKED_TIMEOUT) else { return false };
    session.query("").is_ok() && session.release().is_ok()
}

/// Returns the ids of these backends' startup parameters.
pub(crate) fn ids(waiting: &[WaitingBackend]) -> Vec<ParamsId> {
    waiting.iter().map(|waiting| params_id(&waiting.params)).collect()
}

/// Configuration files in the data directory that determine how sessions start and which ones are allowed.
const CONFIGURATION: [&str; 4] = ["postgresql.conf", "postgresql.auto.conf", "pg_hba.conf", "pg_ident.conf"];

/// Computes a database's stamp from the `rows` selected by [`stamp_in`] and the configuration files in `data`. Without
/// rows, the stamp is empty.
pub(crate) fn stamp_of(rows: &Rows, data: &Path) -> CatalogStamp {
    let columns = rows.first().map(Vec::as_slice).unwrap_or_default();
    let Some((attributes, read)) = columns.split_first() else { return CatalogStamp::from("") };
    let mut stamp = format!("{}\n", attributes.as_deref().unwrap_or_default());
    for column in read {
        // Terminate each value with a zero byte, since values contain none. Write null as an extra zero byte.
        stamp.extend([column.as_deref().unwrap_or("\0"), "\0"]);
    }
    for file in CONFIGURATION {
        let version = fs::metadata(data.join(file)).map(|meta| (meta.ino(), meta.mtime(), meta.mtime_nsec()));
        if let Ok((inode, seconds, nanoseconds)) = version {
            stamp.push_str(&format!("{inode} {seconds} {nanoseconds}"));
        }
        stamp.push('\0');
    }
    stamp.into()
}

/// Text in the stamp if the database or any role except superusers has a connection limit.
const CONNECTION_LIMITS: &str = "connection limits";
/// Text in the stamp if the database has an event trigger that fires at the start of each session.
const LOGIN_TRIGGER: &str = "login trigger";

/// Returns true if connection limits allow a backend to wait in a database with this stamp. The limits apply to all
/// roles except superusers and count a waiting backend like one with a client.
pub(crate) fn has_unlimited(is_superuser: bool, stamp: &str) -> bool {
    is_superuser || !stamp.contains(CONNECTION_LIMITS)
}

/// Returns true if these startup parameters request a session of pgfresh's own superuser.
pub(crate) fn is_for_superuser(params: &StartupParams) -> bool {
    params.user() == Some(SUPERUSER.as_bytes())
}

/// Returns true if an event trigger may fire when a session starts in a database with this stamp.
pub(crate) fn may_fire_at_login(stamp: &str) -> bool {
    stamp.contains(LOGIN_TRIGGER)
}

/// Columns for the stamp of the database with this oid ($1) and name ($2). In some catalogs, reading `xmin` is enough,
/// because any change to a row gives the row a new `xmin`. PostgreSQL 15 introduced privileges on parameters, and
/// PostgreSQL 17 introduced event triggers that fire at login.
macro_rules! stamp {
    (before 15) => {
        concat!(
            $crate::runtime::attributes::seen!("$1"),
            ", datallowconn, \
         ARRAY(SELECT setting::text FROM pg_db_role_setting setting WHERE setdatabase = 0), \
         ARRAY(SELECT xmin FROM pg_authid), ARRAY(SELECT xmin FROM pg_auth_members), \
         CASE WHEN datconnlimit >= 0 OR EXISTS (SELECT FROM pg_authid WHERE rolconnlimit >= 0 AND NOT rolsuper) \
         THEN 'connection limits' END"
        )
    };
    (before 17) => {
        concat!($crate::backends::backend::stamp!(before 15), ", ARRAY(SELECT xmin FROM pg_parameter_acl)")
    };
    () => {
        concat!($crate::backends::backend::stamp!(before 17), ", CASE WHEN dathasloginevt THEN 'login trigger' END")
    };
}
pub(crate) use stamp;

/// Returns the statement for this major server version, out of those for versions before 15, before 17, and since 17.
pub(crate) const fn of_major(
    major: u32,
    [before_15, before_17, since_17]: [&'static Prepared; 3],
) -> &'static Prepared {
    let major = server::Major(major);
    if major.has_login_triggers() {
        since_17
    } else if major.has_parameter_privileges() {
        before_17
    } else {
        before_15
    }
}

/// Returns the statement that reads a database's stamp on this major server version. The statement returns no rows if
/// SQL has dropped or renamed the database.
pub(crate) const fn stamp_in(major: u32) -> &'static Prepared {
    const TYPES: &[&str] = &["oid", "name"];
    const BEFORE_15: Prepared = Prepared {
        name: "stamp",
        types: TYPES,
        sql: concat!("SELECT ", stamp!(before 15), " FROM pg_database WHERE oid = $1 AND datname = $2"),
    };
    const BEFORE_17: Prepared = Prepared {
        name: "stamp",
        types: TYPES,
        sql: concat!("SELECT ", stamp!(before 17), " FROM pg_database WHERE oid = $1 AND datname = $2"),
    };
    const SINCE_17: Prepared = Prepared {
        name: "stamp",
        types: TYPES,
        sql: concat!("SELECT ", stamp!(), " FROM pg_database WHERE oid = $1 AND datname = $2"),
    };
    of_major(major, [&BEFORE_15, &BEFORE_17, &SINCE_17])
}

/// Reads messages up to and including the first ReadyForQuery.
fn read_startup_response(stream: &mut UnixStream) -> Result<Vec<u8>, LeaseError> {
    let mut startup_response = Vec::with_capacity(1024);
    // Start of the message that is still incomplete.
    let mut start = 0;
    loop {
        loop {
            let rest = &startup_response[start..];
            match Frame::header(rest) {
                Ok(None) => break,
                Ok(Some((_, length))) if start + length <= LONGEST_STARTUP_RESPONSE => {}
                _ => return Err(malformed("a message of impossible length")),
            }
            let Ok(Some((frame, length))) = Frame::first(rest) else { break };
            let end = start + length;
            match frame.tag {
                b'Z' if startup_response.len() == end => return Ok(startup_response),
                // Another session may have terminated the backend just after it became ready. Continue with the error.
                b'Z' if startup_response[end] == b'E' => start = end,
                b'Z' => return Err(malformed("something behind ReadyForQuery")),
                b'E' => return Err(LeaseError::Refused(startup_response[start..end].to_vec())),
                // Any authentication message except "ok" means that a test changed pg_hba.conf.
                b'R' if frame.body != [0, 0, 0, 0] => return Err(malformed("a request to authenticate")),
                _ => start = end,
            }
        }
        let mut chunk = [0; 4096];
        match stream.read(&mut chunk) {
            Ok(0) => return Err(malformed("nothing more")),
            Ok(count) => startup_response.extend_from_slice(&chunk[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(source) => return Err(LeaseError::Io { verb: "read the server's startup response", source }),
        }
    }
}

fn malformed(what: &str) -> LeaseError {
    let source = io::Error::new(io::ErrorKind::InvalidData, format!("the server sent {what}"));
    LeaseError::Io { verb: "start a session", source }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READY: &[u8] = b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I";
    const ENDS: &[u8] = b"E\0\0\0\x0cC57P01\0\0";

    fn startup_response(words: &[u8]) -> Result<Vec<u8>, LeaseError> {
        let (mut server, mut client) = UnixStream::pair().unwrap();
        server.write_all(words).unwrap();
        read_startup_response(&mut client)
    }

    #[test]
    fn server_error_after_ready_is_a_refusal() {
        assert_eq!(startup_response(READY).unwrap(), READY);
        let both = [READY, ENDS].concat();
        let Err(LeaseError::Refused(words)) = startup_response(&both) else { panic!("it was let in") };
        assert_eq!(words, ENDS);
        let notice = [READY, b"N\0\0\0\x05\0"].concat();
        assert!(matches!(startup_response(&notice), Err(LeaseError::Io { .. })));
    }
}
