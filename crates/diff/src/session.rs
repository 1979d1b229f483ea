//! One side of a comparison: a session in one snapshot, with settings on which no text depends that another has not.

use server::{AdminConnection, Rows, SessionError};

use crate::DiffError;

/// What holds besides what does in each session of pgfresh's own: the bounds of waiting, and one snapshot.
const READING: &str = "SET lock_timeout = '2s'; SET statement_timeout = '10min'; SET jit = off; \
    SET cursor_tuple_fraction = 1; BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

/// A database that is read.
#[derive(Debug)]
pub(crate) struct Reader {
    session: AdminConnection,
    side: &'static str,
    pub(crate) encoding: String,
}

/// Why something could not be read: the session may go on, or not.
#[derive(Debug)]
pub(crate) enum ReadError {
    /// One table could not be read, for this reason.
    Refused(String),
    /// There is no session any more.
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
        let rows = reader.ask(&format!("{READING}; SELECT getdatabaseencoding()"))?;
        reader.encoding = rows.into_iter().next().and_then(|row| row.into_iter().next()?).unwrap_or_default();
        Ok(reader)
    }

    /// Rows that there must be.
    pub(crate) fn ask(&mut self, sql: &str) -> Result<Rows, DiffError> {
        let Self { session, side, .. } = self;
        session.query(sql).map_err(|source| DiffError::Session { side, source })
    }

    /// Rows of what may not be readable, or an error; leaves the session as it was before, however that went.
    pub(crate) fn try_apart(&mut self, sql: &str) -> Result<Rows, ReadError> {
        self.apart(|reader| reader.try_ask(sql))
    }

    /// Leaves the session as it was before `read`, however that went.
    pub(crate) fn apart<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, ReadError>,
    ) -> Result<T, ReadError> {
        self.ask("SAVEPOINT apart")?;
        let found = read(self);
        self.ask("ROLLBACK TO SAVEPOINT apart; RELEASE SAVEPOINT apart")?;
        found
    }

    /// Rows of a table, which may be one that cannot be read: the transaction goes on then.
    pub(crate) fn try_ask(&mut self, sql: &str) -> Result<Rows, ReadError> {
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
