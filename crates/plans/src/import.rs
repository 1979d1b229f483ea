//! Reads statistics from the production server, or from a file.
//!
//! A server import is a read-only transaction with a single snapshot. It only takes ACCESS SHARE locks, and waits for a
//! lock at most one second. All queries use the simple protocol and leave no session state behind, because a pooler may
//! give the session to another client afterwards. Neither errors nor logs contain column values.

mod array;
mod catalog;
mod columns;
mod error;
mod extended;
mod password_file;
mod server;
mod session;
mod tls;

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::{RelationName, Statistics};

pub(crate) use array::{numbers, values};
pub(crate) use catalog::MOST_PAGES;
pub use error::ImportError;
pub use server::StatisticsServer;

/// Maximum time to wait for a response from the server. A working server cancels each query after a minute, so a longer
/// wait means that the server has stopped.
const SILENCE: Duration = Duration::from_mins(2);

/// Imported statistics, and a list of the parts that couldn't be read.
#[derive(Debug)]
pub struct Import {
    /// Statistics, sorted by name.
    pub statistics: Statistics,
    /// Relations with incomplete statistics.
    pub gaps: Gaps,
}

/// Relations whose statistics are incomplete.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Gaps {
    /// Tables whose columns the role isn't allowed to read.
    pub without_privilege: Vec<RelationName>,
    /// Tables whose statistics row-level security hides from the role.
    pub row_security: Vec<RelationName>,
    /// Relations that another session had locked. Their file size and definition are missing.
    pub locked: Vec<RelationName>,
    /// Tables and materialized views that have never been analyzed.
    pub never_analyzed: Vec<RelationName>,
    /// Objects of CREATE STATISTICS whose contents the server doesn't show.
    pub extended: Vec<RelationName>,
}

impl Gaps {
    fn sort(&mut self) {
        let Self { without_privilege, row_security, locked, never_analyzed, extended } = self;
        for names in [without_privilege, row_security, locked, never_analyzed, extended] {
            names.sort();
        }
    }
}

/// Reads the statistics of the database that `server` points to.
///
/// # Errors
///
/// Returns an error if the server can't be reached, or if a query fails or takes longer than a minute.
pub fn read(server: StatisticsServer) -> Result<Import, ImportError> {
    read_within(server, SILENCE)
}

/// Reads in a second thread, because the driver waits for responses without a timeout.
fn read_within(server: StatisticsServer, silence: Duration) -> Result<Import, ImportError> {
    let location = server.location();
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let answered = sender.clone();
        // After a timeout, the receiver no longer exists, so ignore send errors.
        let result = read_all(&server, Box::new(move || drop(answered.send(None))));
        drop(sender.send(Some(result)));
    });
    loop {
        match receiver.recv_timeout(silence) {
            Ok(Some(result)) => return result,
            Ok(None) => {}
            Err(_) => return Err(ImportError::Silent { server: location, limit: silence }),
        }
    }
}

fn read_all(server: &StatisticsServer, answered: Box<dyn Fn()>) -> Result<Import, ImportError> {
    let mut session = session::Session::open(server, answered)?;
    let facts = session.begin()?;
    let settings = session.settings()?;
    session.bound()?;
    let mut gaps = Gaps::default();
    let mut relations = catalog::relations(&mut session, &mut gaps)?;
    columns::read(&mut session, facts.version, &mut relations)?;
    let extended = extended::read(&mut session, facts.version, &mut gaps)?;
    session.end()?;
    gaps.sort();
    let mut statistics = Statistics {
        format: crate::statistics::FORMAT,
        server_version: facts.version,
        taken: facts.taken,
        settings,
        relations: relations.into_statistics(),
        extended,
    };
    statistics.sort();
    Ok(Import { statistics, gaps })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silent_server_is_an_error() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("postgresql://me:secret@{}/shop", listener.local_addr().unwrap());
        let server = StatisticsServer::from_url(&url).unwrap();
        let error = read_within(server, Duration::from_millis(300)).unwrap_err();
        assert!(matches!(error, ImportError::Silent { .. }), "{error}");
        assert!(!error.to_string().contains("secret"), "{error}");
    }
}
