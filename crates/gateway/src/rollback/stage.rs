//! A database and the session with it on which leases are played, one after another. Blocking.

use std::io;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use lease::{Backend, Connected, LeaseError, Databases, Kind, Request, Sequences, Tenancy};
use server::{Session, SessionError};

use super::message::{BEGIN, DISCARD_ALL, RELEASE, UNDO};
use super::transaction::LeaseTransaction;

/// How long a statement of ours may take.
const PATIENCE: Duration = Duration::from_mins(1);
/// Timeouts that would end the lease's transaction while its client does nothing. Those of SET LOCAL last for all of it.
const TIMEOUTS: [&str; 2] = ["idle_in_transaction_session_timeout", "transaction_timeout"];

/// Between two leases it is as its template is.
#[derive(Debug)]
pub(super) struct Stage {
    /// What the database is called.
    pub(super) name: String,
    pub(super) template: Option<String>,
    pub(super) kind: Kind,
    pub(super) greeting: Vec<u8>,
    /// Ours between two sessions of clients.
    stream: Option<UnixStream>,
    pub(super) thread: LeaseTransaction,
    tenancy: Tenancy,
    sequences: Sequences,
    /// May set sequences back, where the client's own user may not.
    janitor: Option<Session>,
    /// Switches off what would end an idle transaction; empty if nothing would.
    patience_sql: String,
}

/// What a name stands for when a stage was to be opened under it.
pub(super) enum Opened {
    Stage(Box<Stage>),
    /// A database that was made by SQL.
    Plain(Connected),
}

impl Stage {
    /// Takes a fresh database and a session with it.
    pub(super) fn open(databases: &Databases, request: &Request<'_>) -> Result<Opened, LeaseError> {
        let connected = databases.connect_alone(request)?;
        if !connected.tenancy.is_leased() {
            return Ok(Opened::Plain(connected));
        }
        let Connected { backend: Backend { stream, greeting }, tenancy } = connected;
        let sql = |source| LeaseError::Sql { verb: "read the sequences of a database", source };
        let is_superuser = greeting.windows(16).any(|window| window == b"is_superuser\0on\0");
        let mut janitor = if is_superuser { None } else { Some(tenancy.open_session()?) };
        let mut session = Session::adopt(stream, PATIENCE).map_err(sql)?;
        let sequences = Sequences::read(janitor.as_mut().unwrap_or(&mut session)).map_err(sql)?;
        let patience_sql = patience_sql(&mut session).map_err(sql)?;
        Ok(Opened::Stage(Box::new(Self {
            name: request.database.to_owned(),
            template: request.template.map(str::to_owned),
            kind: request.kind.clone(),
            greeting,
            stream: Some(session.release().map_err(sql)?),
            thread: LeaseTransaction::default(),
            tenancy,
            sequences,
            janitor,
            patience_sql,
        })))
    }

    /// Has it serve a lease of that name. Returns whether it is as good as a new one: nothing has been set for its role
    /// or database since its session began.
    pub(super) fn pass_on(&mut self, name: &str) -> Result<bool, LeaseError> {
        let current = self.tenancy.pass_on(name)?;
        name.clone_into(&mut self.name);
        Ok(current)
    }

    /// Whether its session still is, with nothing to say: nobody has ended it.
    pub(super) fn is_alive(&self) -> bool {
        let Some(stream) = &self.stream else { return false };
        let peek = || {
            stream.set_nonblocking(true)?;
            let mut byte = [0];
            let peeked = rustix::net::recv(stream, &mut byte, rustix::net::RecvFlags::PEEK);
            stream.set_nonblocking(false)?;
            peeked.map_err(io::Error::from)
        };
        peek().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    /// The session, for a client; the transaction is begun if the next statement should not have to.
    pub(super) fn lend(&mut self) -> io::Result<UnixStream> {
        if !self.thread.begun && !self.patience_sql.is_empty() {
            let begin = format!("{}; {}; {}", BEGIN[0], self.patience_sql, BEGIN[1]);
            self.run(|session, _| session.query(&begin).map(drop)).map_err(io::Error::other)?;
            self.thread.begun = true;
        }
        self.stream.take().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Takes the session back, which is idle, and its transaction.
    pub(super) fn take_back(&mut self, stream: UnixStream, thread: LeaseTransaction) {
        (self.stream, self.thread) = (Some(stream), thread);
    }

    /// Makes the session as new for the next client of the same lease: only the data live on.
    pub(super) fn forget_session(&mut self, saved: bool) -> Result<(), SessionError> {
        if !self.thread.begun {
            return Ok(());
        }
        let mut sql = if saved { format!("{UNDO}; {RELEASE}; ") } else { String::new() };
        sql += &DISCARD_ALL.join("; ");
        if !self.patience_sql.is_empty() {
            sql = format!("{sql}; {}", self.patience_sql);
        }
        self.run(|session, _| session.query(&sql).map(drop))
    }

    /// Ends the lease: rolls back, sets back what that does not, and makes the session as new.
    ///
    /// # Errors
    /// The stage is not to be used any more. So it is if the transaction was not the one that had begun.
    pub(super) fn end_lease(&mut self) -> Result<(), SessionError> {
        if !self.thread.begun {
            return Ok(());
        }
        // To set sequences back is to write, which may not be the default.
        let undo = format!("ROLLBACK TO {}; ROLLBACK; SET TRANSACTION READ WRITE", BEGIN[1]);
        let discard = DISCARD_ALL.join("; ");
        self.run(|session, stage| {
            let Some(janitor) = &mut stage.janitor else {
                let restore = stage.sequences.restore_touched_sql().unwrap_or_default();
                return session.query(&format!("{undo}; {discard}; {restore}")).map(drop);
            };
            let touched = stage.sequences.touched_sql().unwrap_or_default();
            let rows = session.query(&format!("{undo}; {discard}; {touched}"))?;
            // The parts of DISCARD ALL have a row, too, which is empty.
            let touched = rows.iter().filter_map(|row| row.first()?.as_deref()).filter(|oid| !oid.is_empty());
            match stage.sequences.restore_sql(&touched.collect::<Vec<_>>()) {
                Some(sql) => janitor.query(&sql).map(drop),
                None => Ok(()),
            }
        })?;
        self.thread = std::mem::take(&mut self.thread).of_next_lease();
        Ok(())
    }

    fn run(
        &mut self,
        work: impl FnOnce(&mut Session, &mut Self) -> Result<(), SessionError>,
    ) -> Result<(), SessionError> {
        let gone = || SessionError::Io { verb: "use a session", source: io::ErrorKind::NotConnected.into() };
        let mut session = Session::adopt(self.stream.take().ok_or_else(gone)?, PATIENCE)?;
        work(&mut session, self)?;
        self.stream = Some(session.release()?);
        Ok(())
    }
}

/// Switches off, for a transaction, what would end it while it is idle; empty if nothing would.
fn patience_sql(session: &mut Session) -> Result<String, SessionError> {
    let currents: Vec<_> = TIMEOUTS.iter().map(|name| format!("current_setting('{name}', true)")).collect();
    let rows = session.query(&format!("SELECT {}", currents.join(", ")))?;
    let values = rows.into_iter().next().unwrap_or_default();
    let set =
        TIMEOUTS.iter().zip(values).filter(|(_, value)| value.as_deref().is_some_and(|value| value != "0"));
    let set: Vec<_> = set.map(|(name, _)| format!("SET LOCAL {name} = 0")).collect();
    Ok(set.join("; "))
}
