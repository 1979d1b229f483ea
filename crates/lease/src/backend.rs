//! Backends: the server's ends of sessions, each started with one set of start-up parameters.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use pgwire::{Frame, StartupParams, cancel_key, frames};
use server::{AdminConnection, Rows, SOCKET, SessionError};

use crate::LeaseError;
use crate::admin::{AdminPool, Prepared};
use crate::seats::Seat;
use crate::table::ParamsId;
use crate::wal::Lsn;

/// The most that a server says before a session is ready; its own ParameterStatus messages are a kilobyte.
const LONGEST_GREETING: usize = 1 << 20;
/// How long a new backend may take to be ready.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a statement of ours in one that waits may take.
const STATEMENT_TIMEOUT: Duration = Duration::from_mins(1);
/// How long one that no client has asked for may take to start, and each of our statements in it: its database is not ready
/// before.
const UNASKED_TIMEOUT: Duration = Duration::from_secs(1);

/// Tables that a backend looks at beforehand; each takes it 0.1 ms.
const MOST_TABLES: usize = 64;

/// Names parameters where they are only compared.
pub(crate) fn params_id(params: &StartupParams) -> ParamsId {
    let mut hasher = DefaultHasher::new();
    params.hash(&mut hasher);
    ParamsId(hasher.finish())
}

/// Whether a session with `params` may have queries compiled, for which the server loads a library into its process.
pub(crate) fn may_compile(params: &StartupParams) -> bool {
    params.may_set(b"jit")
}

/// The setting by which a server ends sessions that ask nothing. The time that a backend has waited for its client counts.
pub(crate) const IDLE_TIMEOUT: &str = "idle_session_timeout";

/// Whether a session with `params` may be ended by that, in a database with this stamp.
pub(crate) fn may_be_too_idle(params: &StartupParams, stamp: &str) -> bool {
    params.may_set(IDLE_TIMEOUT.as_bytes()) || stamp.contains(IDLE_TIMEOUT)
}

/// A backend that waits for its session's first message.
#[derive(Debug)]
pub struct Backend {
    /// The connection to it, in blocking mode.
    pub stream: UnixStream,
    /// All that the server said until then: negotiation, parameters, cancel key, ReadyForQuery.
    pub greeting: Vec<u8>,
    /// Held for as long as the connection.
    pub seat: Seat,
}

impl Backend {
    /// Whether the session's user was a superuser when it started.
    pub(crate) fn is_superuser(&self) -> bool {
        const IS_SUPERUSER: &[u8] = b"is_superuser\0on\0";
        self.greeting.windows(IS_SUPERUSER.len()).any(|window| window == IS_SUPERUSER)
    }

    /// Returns the oid of the database that the backend is in; `None` if it has ended, or has no database.
    pub(crate) fn database(&self, admin: &AdminPool) -> Result<Option<u32>, LeaseError> {
        process_of(&self.greeting).map_or(Ok(None), |process| admin.database_of(process))
    }

    /// Whether the server would greet the client of a database with another name alike. A notice may name the database, as a
    /// warning of its collation's version does.
    pub(crate) fn may_greet_another(&self) -> bool {
        frames(&self.greeting).all(|frame| frame.tag != b'N')
    }

    /// Starts a session with `database` through the socket in `directory`.
    ///
    /// No connection is made ahead of this: one on which nothing is said keeps a server that has crashed from recovering
    /// until `authentication_timeout` is over.
    ///
    /// # Errors
    /// [`LeaseError::Refused`] carries the server's own words.
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
        let greeting = read_greeting(&mut stream)?;
        stream.set_read_timeout(None).map_err(io("bound the wait for the server"))?;
        Ok(Self { stream, greeting, seat: Seat::default() })
    }

    /// The same for a client that may come: it looks at `tables`, so that this one does not wait while it learns what they are,
    /// and forgets that it was asked to. `None` if it cannot, or not soon, or if it was greeted in a way that is not for that
    /// client.
    pub(crate) fn practised(
        directory: &Path,
        params: &StartupParams,
        database: &str,
        tables: &[&str],
    ) -> Option<Self> {
        let backend = Self::connect_within(UNASKED_TIMEOUT, directory, params, database).ok()?;
        let Self { stream, greeting, seat } = Some(backend).filter(Self::may_greet_another)?;
        let mut session = AdminConnection::adopt(stream, UNASKED_TIMEOUT).ok()?;
        let mut sql = String::from("SELECT 1;");
        for table in tables.iter().take(MOST_TABLES) {
            // No row is read, so that the table's statistics stay what they are.
            sql.push_str(&format!("SELECT * FROM ONLY {table} LIMIT 0;"));
        }
        // A role that may not look at a table learns the less.
        if let Err(error) = session.query(&sql) {
            tracing::debug!(%error, "a backend could not look at all tables");
        }
        session.query("DISCARD ALL").ok()?;
        Some(Self { stream: session.release().ok()?, greeting, seat })
    }
}

/// What the server had on record for a database when a session in it started: its rights and settings, and the version of the
/// server's configuration. A session does not hear of what changes there later, so it may be handed to a client only if nothing
/// has.
pub(crate) type CatalogStamp = Arc<str>;

/// A backend that waits for a client.
#[derive(Debug)]
pub(crate) struct WaitingBackend {
    pub(crate) params: StartupParams,
    pub(crate) backend: Backend,
    /// Read before it started.
    pub(crate) stamp: CatalogStamp,
    /// How far the log was read before it started, where that has not been proven to be of no consequence.
    pub(crate) since: Option<Lsn>,
}

impl WaitingBackend {
    /// Whether it still runs: tests terminate "all other sessions".
    pub(crate) fn is_alive(&self) -> bool {
        sys::is_silent(&self.backend.stream)
    }

    /// Whether the next client can have it. May wait for its answer.
    pub(crate) fn will_serve(&self) -> bool {
        will_serve(&self.backend.stream, &self.backend.greeting)
    }

    /// Has it do work of ours.
    pub(crate) fn lend<T, E: From<SessionError>>(
        self,
        work: impl FnOnce(&mut AdminConnection) -> Result<T, E>,
    ) -> Result<(Self, T), E> {
        let Self { params, backend: Backend { stream, greeting, seat }, stamp, since } = self;
        let mut session = AdminConnection::adopt(stream, STATEMENT_TIMEOUT)?;
        let done = work(&mut session)?;
        let backend = Backend { stream: session.release()?, greeting, seat };
        Ok((Self { params, backend, stamp, since }, done))
    }
}

/// Whether a backend, which has greeted so, waits for a message, and no signal is on its way to it. Any session may have told it to
/// end, or to cancel what it runs; it acts on that when it is scheduled, and until then its connection seems to be alive.
pub(crate) fn will_serve(stream: &UnixStream, greeting: &[u8]) -> bool {
    let is_asleep = process_of(greeting).is_some_and(sys::is_asleep);
    // In this order: what it says at its end comes before it sleeps again.
    sys::is_silent(stream) && (is_asleep || answers(stream))
}

/// Returns the number of the process that has greeted so.
fn process_of(greeting: &[u8]) -> Option<u32> {
    let number = greeting[cancel_key(greeting)?].first_chunk().copied()?;
    Some(u32::from_be_bytes(number))
}

/// Whether it answers to a message, which it does only after it has acted on all signals.
fn answers(stream: &UnixStream) -> bool {
    let Ok(stream) = stream.try_clone() else { return false };
    let Ok(mut session) = AdminConnection::adopt(stream, UNASKED_TIMEOUT) else { return false };
    session.query("").is_ok() && session.release().is_ok()
}

/// Names parameters in the table.
pub(crate) fn ids(waiting: &[WaitingBackend]) -> Vec<ParamsId> {
    waiting.iter().map(|waiting| params_id(&waiting.params)).collect()
}

/// Files of the data directory that say what a session is told at its start, and whether it may begin.
const CONFIGURATION: [&str; 4] = ["postgresql.conf", "postgresql.auto.conf", "pg_hba.conf", "pg_ident.conf"];

/// The stamp of a database of which these `rows` were read from the catalogs; empty if there are none.
pub(crate) fn stamp_of(rows: &Rows, data: &Path) -> CatalogStamp {
    let columns = rows.first().map(Vec::as_slice).unwrap_or_default();
    let Some((attributes, read)) = columns.split_first() else { return CatalogStamp::from("") };
    let mut stamp = format!("{}\n", attributes.as_deref().unwrap_or_default());
    for column in read {
        // Values have no zeros, and some are none.
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

/// What is read for it, of the row of `pg_database` with that oid ($1) and name ($2). Any change of a row gives it a new `xmin`. With
/// PostgreSQL 15 came rights on parameters.
macro_rules! stamp {
    (before 15) => {
        concat!(
            $crate::attributes::seen!("$1"),
            ", datallowconn, \
         ARRAY(SELECT setting::text FROM pg_db_role_setting setting WHERE setdatabase = 0), \
         ARRAY(SELECT xmin FROM pg_authid), ARRAY(SELECT xmin FROM pg_auth_members)"
        )
    };
    () => {
        concat!($crate::backend::stamp!(before 15), ", ARRAY(SELECT xmin FROM pg_parameter_acl)")
    };
}
pub(crate) use stamp;

/// Reads the stamp of a database in a server of that major version; nothing if SQL has renamed it.
pub(crate) const fn stamp_in(major: u32) -> &'static Prepared {
    const TYPES: &[&str] = &["oid", "name"];
    const BEFORE_15: Prepared = Prepared {
        name: "stamp",
        types: TYPES,
        sql: concat!("SELECT ", stamp!(before 15), " FROM pg_database WHERE oid = $1 AND datname = $2"),
    };
    const SINCE_15: Prepared = Prepared {
        name: "stamp",
        types: TYPES,
        sql: concat!("SELECT ", stamp!(), " FROM pg_database WHERE oid = $1 AND datname = $2"),
    };
    if major < 15 { &BEFORE_15 } else { &SINCE_15 }
}

/// Reads messages up to and including the first ReadyForQuery.
fn read_greeting(stream: &mut UnixStream) -> Result<Vec<u8>, LeaseError> {
    let mut greeting = Vec::with_capacity(1024);
    // Where the message begins that is not complete yet.
    let mut start = 0;
    loop {
        loop {
            let rest = &greeting[start..];
            match Frame::header(rest) {
                Ok(None) => break,
                Ok(Some((_, length))) if start + length <= LONGEST_GREETING => {}
                _ => return Err(malformed("a message of impossible length")),
            }
            let Ok(Some((frame, length))) = Frame::first(rest) else { break };
            let end = start + length;
            match frame.tag {
                b'Z' if greeting.len() == end => return Ok(greeting),
                // Any session may have told it to end just now.
                b'Z' if greeting[end] == b'E' => start = end,
                b'Z' => return Err(malformed("something behind ReadyForQuery")),
                b'E' => return Err(LeaseError::Refused(greeting[start..end].to_vec())),
                // Authentication: anything but "ok" means that a test has changed pg_hba.conf.
                b'R' if frame.body != [0, 0, 0, 0] => return Err(malformed("a request to authenticate")),
                _ => start = end,
            }
        }
        let mut chunk = [0; 4096];
        match stream.read(&mut chunk) {
            Ok(0) => return Err(malformed("nothing more")),
            Ok(count) => greeting.extend_from_slice(&chunk[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(source) => return Err(LeaseError::Io { verb: "read the server's greeting", source }),
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

    fn greeting(words: &[u8]) -> Result<Vec<u8>, LeaseError> {
        let (mut server, mut client) = UnixStream::pair().unwrap();
        server.write_all(words).unwrap();
        read_greeting(&mut client)
    }

    #[test]
    fn a_server_that_ends_a_session_as_it_begins_is_understood() {
        assert_eq!(greeting(READY).unwrap(), READY);
        let both = [READY, ENDS].concat();
        let Err(LeaseError::Refused(words)) = greeting(&both) else { panic!("it was let in") };
        assert_eq!(words, ENDS);
        let notice = [READY, b"N\0\0\0\x05\0"].concat();
        assert!(matches!(greeting(&notice), Err(LeaseError::Io { .. })));
    }
}
