//! A server of its own: for tests of what all databases of a server share, of its settings, and of its end.
//!
//! It is started from the same template, with one database in it, which has the lease's name.

use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use ::template::{Provisioner, Started, end_sessions};
use pgwire::StartupParams;
use server::{AdminConnection, Guard, NotStarted, Server, identifier, own_params};
use storage::Place;
use sys::lock;

use crate::error::cause;
use crate::template::database_of;
use crate::{Backend, LeaseError, TemplateDatabase};

/// What its database is called until it has a holder.
const READY: &str = "pgfresh_ready";
/// How long a statement of ours may take.
const STATEMENT_TIMEOUT: Duration = Duration::from_mins(1);
/// The same for one that ends sessions. The server is ended then.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// What a lease's holder may have done to its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerAction {
    /// Shut down, if it runs, and started. One that has ended by itself recovers.
    Restart,
    /// Shut down; it stays so until it is restarted.
    Stop,
    /// Ended at once, as by a loss of power, and started: it recovers.
    Crash,
}

/// A server that may be off.
#[derive(Debug)]
pub(crate) struct LeasedServer {
    place: Place,
    /// Where its socket is, while it is on.
    pub(crate) directory: PathBuf,
    power: Power,
    /// What its database is called.
    name: String,
    major: u32,
}

#[derive(Debug)]
enum Power {
    On(Box<Server>),
    /// Ended, with its data.
    Off {
        guard: Guard,
        /// Why it did not start again, if that was tried.
        failed: Option<String>,
    },
    /// It could not be ended, for this reason, and is removed with its data.
    Lost(String),
}

impl Power {
    /// What it is once it is shut down, or ended at once for a crash. It may have ended by itself before.
    fn off(self, action: ServerAction) -> Self {
        let ended = match self {
            Self::On(server) if action == ServerAction::Crash => server.crash(),
            Self::On(server) => server.halt(),
            other => return other,
        };
        match ended {
            Ok(guard) => Self::Off { guard, failed: None },
            Err(error) => Self::Lost(cause(&error, None)),
        }
    }

    fn not_started(NotStarted { error, guard }: NotStarted) -> Self {
        let why = cause(&error, error.detail());
        match guard {
            Some(guard) => Self::Off { guard, failed: Some(why) },
            None => Self::Lost(why),
        }
    }
}

impl LeasedServer {
    /// Starts one, for the database of `template`. The names of all `templates` are free for it, as they are where leases are
    /// copies.
    pub(crate) fn start(
        provisioner: &Provisioner,
        template: &str,
        templates: &[TemplateDatabase],
    ) -> Result<Self, LeaseError> {
        let started = provisioner.start(&|_| ());
        let Started { server, place, .. } = started
            .map_err(|source| LeaseError::Server { verb: "start a server", source: Box::new(source) })?;
        let directory = server.run().socket_directory();
        let (power, name) = (Power::On(Box::new(server)), READY.to_owned());
        let major = provisioner.installation.version().major;
        let leased = Self { place, directory, power, name, major };
        let prepare = templates.iter().filter_map(|TemplateDatabase { name, .. }| match name.as_str() {
            "template1" if template != name => None,
            "template1" => Some([end_sessions(name), format!("CREATE DATABASE {READY}")]),
            _ if name == template => Some(renaming(name, READY)),
            _ => Some(renaming(name, &database_of(name))),
        });
        leased.run("prepare a server", STATEMENT_TIMEOUT, prepare.flatten())?;
        Ok(leased)
    }

    /// Gives its database a name.
    pub(crate) fn rename(&mut self, name: &str) -> Result<(), LeaseError> {
        self.run("name a database", STATEMENT_TIMEOUT, renaming(&self.name, name))?;
        name.clone_into(&mut self.name);
        Ok(())
    }

    /// A session with its database. It is not locked meanwhile: a postmaster that is stopped (SIGSTOP) does not answer.
    ///
    /// # Errors
    /// It does not run: see [`Self::expect_on`].
    pub(crate) fn connect(server: &Mutex<Self>, params: &StartupParams) -> Result<Backend, LeaseError> {
        let (directory, name) = {
            let server = lock(server);
            server.expect_on()?;
            (server.directory.clone(), server.name.clone())
        };
        let backend = Backend::connect(&directory, params, &name);
        if matches!(backend, Err(LeaseError::Io { .. })) {
            lock(server).expect_on()?;
        }
        backend
    }

    /// Ends all sessions with its database, and the server with them if SQL cannot do it.
    pub(crate) fn close_sessions(&mut self) {
        let Power::On(server) = &self.power else { return };
        server.resume();
        let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                   WHERE datid IS NOT NULL AND pid <> pg_backend_pid()";
        if let Err(error) = self.run("close the sessions of a server", CLOSE_TIMEOUT, [sql.to_owned()]) {
            tracing::debug!(%error, detail = error.detail(), "ending a server whose sessions cannot be closed");
            self.power = self.take_power().off(ServerAction::Crash);
        }
    }

    /// Restarts, stops or crashes it. Returns when that is over.
    ///
    /// # Errors
    /// It did not start. The data stay for another attempt.
    pub(crate) fn act(&mut self, provisioner: &Provisioner, action: ServerAction) -> Result<(), LeaseError> {
        let settings = provisioner
            .settings(self.place.budget())
            .map_err(|error| LeaseError::Server { verb: "start a server again", source: Box::new(error) })?;
        self.power = match (self.take_power().off(action), action) {
            (Power::Off { guard, .. }, ServerAction::Restart | ServerAction::Crash) => {
                match provisioner.start_again(guard, &self.place, &settings) {
                    Ok(server) => Power::On(Box::new(server)),
                    Err(failed) => Power::not_started(*failed),
                }
            }
            (power, _) => power,
        };
        match (&self.power, action) {
            (Power::Off { .. }, ServerAction::Stop) => Ok(()),
            _ => self.expect_on(),
        }
    }

    /// What it is while it is being changed.
    fn take_power(&mut self) -> Power {
        std::mem::replace(&mut self.power, Power::Lost("pgfresh was interrupted.".to_owned()))
    }

    /// # Errors
    /// Why it does not run.
    fn expect_on(&self) -> Result<(), LeaseError> {
        let name = self.name.clone();
        Err(match &self.power {
            Power::On(server) if server.is_alive() => return Ok(()),
            Power::On(server) => LeaseError::Ended { name, why: server.why_gone() },
            Power::Off { failed: None, .. } => LeaseError::Stopped(name),
            Power::Off { guard, failed: Some(why) } => {
                LeaseError::NotStarted { name, why: why.clone(), data: guard.run().data() }
            }
            Power::Lost(why) => LeaseError::Lost { name, why: why.clone() },
        })
    }

    /// Runs statements one after the other, in one session. No answer may take longer than `timeout`.
    fn run(
        &self,
        verb: &'static str,
        timeout: Duration,
        statements: impl IntoIterator<Item = String>,
    ) -> Result<(), LeaseError> {
        let params = own_params(self.major, &[]);
        let session = AdminConnection::open_with(&self.directory, &params, "postgres", timeout);
        let done = session
            .and_then(|mut session| statements.into_iter().try_for_each(|sql| session.query(&sql).map(drop)));
        done.map_err(|source| LeaseError::Sql { verb, source })
    }
}

/// Statements that rename a database, without the sessions that it has.
fn renaming(from: &str, to: &str) -> [String; 2] {
    let rename = format!("ALTER DATABASE {} RENAME TO {}", identifier(from), identifier(to));
    [end_sessions(from), rename]
}
