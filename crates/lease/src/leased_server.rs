//! A PostgreSQL server that belongs to one lease, for tests of what all databases of a server share, of its settings and of
//! its end.
//!
//! pgfresh starts it from the same template. It has one database, which has the lease's name.

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

/// Name of the server's database until a lease has it.
const READY: &str = "pgfresh_ready";
/// Timeout of pgfresh's own statements.
const STATEMENT_TIMEOUT: Duration = Duration::from_mins(1);
/// Timeout of a statement that ends sessions. pgfresh ends the server if the statement takes longer.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Change of the state of a leased server that a client may request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerAction {
    /// Shuts the server down if it runs, and starts it. A server that has ended by itself recovers.
    Restart,
    /// Shuts the server down until a restart.
    Stop,
    /// Ends the server at once, like a loss of power, and starts it: it recovers.
    Crash,
}

/// A leased server, which may be off.
#[derive(Debug)]
pub(crate) struct LeasedServer {
    place: Place,
    /// Directory of the server's socket while the server runs.
    pub(crate) directory: PathBuf,
    power: Power,
    /// Current name of the server's database.
    name: String,
    major: u32,
}

#[derive(Debug)]
enum Power {
    On(Box<Server>),
    /// The server has ended, and its data are still there.
    Off {
        guard: Guard,
        /// Error of the last attempt to start it again, if there was one.
        failed: Option<String>,
    },
    /// The server could not end, for this reason. pgfresh removes it with its data.
    Lost(String),
}

impl Power {
    /// Returns the state after a shutdown, or after an immediate end for a crash. The server may have ended by itself before.
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
    /// Starts a server for a database of `template`. The names of all `templates` are free in it, as they are for leases that
    /// are copies.
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

    /// Renames the server's database.
    pub(crate) fn rename(&mut self, name: &str) -> Result<(), LeaseError> {
        self.run("name a database", STATEMENT_TIMEOUT, renaming(&self.name, name))?;
        name.clone_into(&mut self.name);
        Ok(())
    }

    /// Opens a session with the server's database. Does not lock the server meanwhile: a postmaster that is stopped (SIGSTOP)
    /// does not answer.
    ///
    /// # Errors
    /// Errors of [`Self::expect_on`] if the server does not run.
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

    /// Ends all sessions with the server's database. Ends the server with them if SQL cannot end them.
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

    /// Restarts, stops or crashes the server, and waits until that is over.
    ///
    /// # Errors
    /// [`LeaseError::NotStarted`] if the server does not start. The data stay for another attempt.
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

    /// Takes the state for a change, and leaves "lost" in its place.
    fn take_power(&mut self) -> Power {
        std::mem::replace(&mut self.power, Power::Lost("pgfresh was interrupted.".to_owned()))
    }

    /// # Errors
    /// The reason if the server does not run.
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

/// Returns statements that end the sessions of a database, and rename it.
fn renaming(from: &str, to: &str) -> [String; 2] {
    let rename = format!("ALTER DATABASE {} RENAME TO {}", identifier(from), identifier(to));
    [end_sessions(from), rename]
}
