//! A PostgreSQL server dedicated to a single lease. With its own server, a test can change state that all databases
//! share, change server settings, and stop or crash the server.
//!
//! The server starts from the same template as the databases of other leases. Its one database for the client is named
//! after the lease.

use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use ::template::{Provisioner, Started, end_sessions};
use pgwire::StartupParams;
use server::{AdminConnection, Guard, RestartFailure, Server, admin_params, identifier};
use storage::Place;
use sys::lock;

use crate::backends::backend::Backend;
use crate::error::{LeaseError, cause};
use crate::options::TemplateDatabase;
use crate::runtime::template::database_of;

/// Name of the server's database until it is leased.
const READY: &str = "pgfresh_ready";
/// Timeout for pgfresh's own statements.
const STATEMENT_TIMEOUT: Duration = Duration::from_mins(1);
/// Timeout for the statement that terminates all sessions. If it takes longer, pgfresh kills the whole server.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// An action that a client can request for its leased server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerAction {
    /// Shut the server down if it is running, then start it again. If it had crashed, it recovers.
    Restart,
    /// Shut the server down until a client restarts it.
    Stop,
    /// Kill the server immediately, as a power failure would, then start it again so that it recovers.
    Crash,
}

/// A leased server, which may be stopped.
#[derive(Debug)]
pub(crate) struct LeasedServer {
    place: Place,
    /// Directory that contains the running server's socket.
    pub(crate) directory: PathBuf,
    power: Power,
    /// Current name of the server's database.
    name: String,
    major: u32,
}

#[derive(Debug)]
enum Power {
    On(Box<Server>),
    /// The server has exited, but its data still exists.
    Off {
        guard: Guard,
        /// The error from the last attempt to start the server again, if that attempt failed.
        failed: Option<String>,
    },
    /// pgfresh could not stop the server, for this reason, and removes it along with its data.
    Lost(String),
}

impl Power {
    /// Shuts the server down, or crashes it if `action` is [`ServerAction::Crash`], and returns the new state. The
    /// server may already have exited on its own.
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

    fn not_started(RestartFailure { error, guard }: RestartFailure) -> Self {
        let why = cause(&error, error.detail());
        match guard {
            Some(guard) => Self::Off { guard, failed: Some(why) },
            None => Self::Lost(why),
        }
    }
}

impl LeasedServer {
    /// Starts a server with a database made from `template`. No database in this server is named like any of the
    /// `templates`, so the lease can use these names.
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

    /// Opens a session in the server's database. The lock is released before connecting, because a postmaster stopped
    /// with SIGSTOP doesn't answer.
    ///
    /// # Errors
    /// Returns the error from [`Self::expect_on`] if the server isn't running.
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

    /// Terminates all clients' sessions. If SQL can't terminate them, kills the whole server.
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

    /// Restarts, stops or crashes the server and waits until this is done.
    ///
    /// # Errors
    /// Returns [`LeaseError::NotStarted`] if the server doesn't start. Since its data remains, a client can try again.
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

    /// Takes out the state so that the caller can replace it. Until then, the server counts as lost.
    fn take_power(&mut self) -> Power {
        std::mem::replace(&mut self.power, Power::Lost("pgfresh was interrupted.".to_owned()))
    }

    /// Checks that the server is running.
    ///
    /// # Errors
    /// Returns an error that explains why the server isn't running.
    fn expect_on(&self) -> Result<(), LeaseError> {
        let name = self.name.clone();
        Err(match &self.power {
            Power::On(server) if server.is_alive() => return Ok(()),
            Power::On(server) => LeaseError::Ended { name, why: server.end_reason() },
            Power::Off { failed: None, .. } => LeaseError::Stopped(name),
            Power::Off { guard, failed: Some(why) } => {
                LeaseError::NotStarted { name, why: why.clone(), data: guard.run().data() }
            }
            Power::Lost(why) => LeaseError::Lost { name, why: why.clone() },
        })
    }

    /// Runs statements in sequence in one session. Each response may take up to `timeout`.
    fn run(
        &self,
        verb: &'static str,
        timeout: Duration,
        statements: impl IntoIterator<Item = String>,
    ) -> Result<(), LeaseError> {
        let params = admin_params(self.major, &[]);
        let session = AdminConnection::open_with(&self.directory, &params, "postgres", timeout);
        let done = session
            .and_then(|mut session| statements.into_iter().try_for_each(|sql| session.query(&sql).map(drop)));
        done.map_err(|source| LeaseError::Sql { verb, source })
    }
}

/// Returns statements that terminate all sessions in a database and rename it.
fn renaming(from: &str, to: &str) -> [String; 2] {
    let rename = format!("ALTER DATABASE {} RENAME TO {}", identifier(from), identifier(to));
    [end_sessions(from), rename]
}
