//! Wraps one side's session. The session reads a single snapshot, with settings that make equal values have
//! equal texts.

use server::{AdminConnection, Rows, SessionError};

use crate::DiffError;

/// Settings in addition to the settings of all pgfresh sessions: time limits, and a single read-only snapshot.
const SESSION_SETTINGS: &str = "SET lock_timeout = '2s'; SET statement_timeout = '10min'; SET jit = off; \
    SET cursor_tuple_fraction = 1; BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

/// A session in one of the two databases.
#[derive(Debug)]
pub(crate) struct Reader {
    session: AdminConnection,
    side: &'static str,
    pub(crate) encoding: String,
}

/// Errors of a query on one of the sides.
#[derive(Debug)]
pub(crate) enum ReadError {
    /// The server refused to return a table's rows, for this reason. The session is still usable.
    Refused(String),
    /// The session has ended.
    Lost(DiffError),
}

impl From<DiffError> for ReadError {
    fn from(error: DiffError) -> Self {
        Self::Lost(error)
    }
}

impl Reader {
    pub(crate) fn new(session: AdminConnection, side: &'static str) -> Result<Self, DiffError> {
        let mut reader = Self { session, side, encoding: String::new() };
        let rows = reader.query(&format!("{SESSION_SETTINGS}; SELECT getdatabaseencoding()"))?;
        reader.encoding = rows.into_iter().next().and_then(|row| row.into_iter().next()?).unwrap_or_default();
        Ok(reader)
    }

    /// Returns the rows of a query that the server isn't expected to refuse. If the server refuses it nevertheless,
    /// the session counts as lost.
    pub(crate) fn query(&mut self, sql: &str) -> Result<Rows, DiffError> {
        let Self { session, side, .. } = self;
        session.query(sql).map_err(|source| DiffError::Session { side, source })
    }

    /// Like [`Self::try_query`], but restores the session's state afterwards, even if the query fails.
    pub(crate) fn try_query_in_savepoint(&mut self, sql: &str) -> Result<Rows, ReadError> {
        self.in_savepoint(|reader| reader.try_query(sql))
    }

    /// Calls `read`, then restores the session's state even if `read` failed.
    pub(crate) fn in_savepoint<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, ReadError>,
    ) -> Result<T, ReadError> {
        self.query("SAVEPOINT apart")?;
        let found = read(self);
        self.query("ROLLBACK TO SAVEPOINT apart; RELEASE SAVEPOINT apart")?;
        found
    }

    /// Returns the rows of a query that the server may refuse. After a refusal, the transaction is in a failed state.
    pub(crate) fn try_query(&mut self, sql: &str) -> Result<Rows, ReadError> {
        match self.session.query(sql) {
            Ok(rows) => Ok(rows),
            Err(source) if source.is_fatal() => {
                Err(ReadError::Lost(DiffError::Session { side: self.side, source }))
            }
            Err(source) => Err(ReadError::Refused(reason(self.side, &source))),
        }
    }
}

fn reason(side: &str, error: &SessionError) -> String {
    match error {
        SessionError::Server { message, .. } => format!("the {side} says: {message}"),
        SessionError::Io { .. } => error.to_string(),
    }
}
