//! A server of its own: for tests of what all databases of a server share, of its settings, and of its end.
//!
//! It is started from the same template, with one database in it, which has the lease's name.

use std::path::PathBuf;
use std::time::Duration;

use ::template::{ProvisionError, Provisioner, Started};
use pgwire::StartupParams;
use server::{AdminConnection, Guard, Server, identifier, own_params};
use storage::Place;

use crate::template::database_of;
use crate::{Backend, LeaseError, TemplateDatabase};

/// What its database is called until it has a holder.
const READY: &str = "pgfresh_ready";
/// How long a statement of ours may take.
const STATEMENT_TIMEOUT: Duration = Duration::from_mins(1);

/// What a lease's holder may have done to its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerAction {
    /// Shut down, if it runs, and started.
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
    /// Shut down, with its data.
    Off(Guard),
    /// It did not start again, for this reason, and its data are gone.
    Lost(String),
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
            "template1" => (template == name).then(|| format!("CREATE DATABASE {READY}")),
            _ if name == template => Some(renaming(name, READY)),
            _ => Some(renaming(name, &database_of(name))),
        });
        leased.run("prepare a server", prepare)?;
        Ok(leased)
    }

    /// Gives its database a name.
    pub(crate) fn rename(&mut self, name: &str) -> Result<(), LeaseError> {
        self.run("name a database", [renaming(&self.name, name)])?;
        name.clone_into(&mut self.name);
        Ok(())
    }

    /// A session with its database.
    ///
    /// # Errors
    /// [`LeaseError::Stopped`] while it is off, [`LeaseError::Lost`] once it cannot be started any more.
    pub(crate) fn connect(&self, params: &StartupParams) -> Result<Backend, LeaseError> {
        match &self.power {
            Power::On(_) => Backend::connect(&self.directory, params, &self.name),
            Power::Off(_) => Err(LeaseError::Stopped(self.name.clone())),
            Power::Lost(why) => Err(self.lost(why)),
        }
    }

    /// Ends all sessions with its database.
    pub(crate) fn close_sessions(&self) -> Result<(), LeaseError> {
        if !matches!(self.power, Power::On(_)) {
            return Ok(());
        }
        let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                   WHERE datid IS NOT NULL AND pid <> pg_backend_pid()";
        self.run("close the sessions of a server", [sql.to_owned()])
    }

    /// Restarts, stops or crashes it. Returns when that is over.
    pub(crate) fn act(&mut self, provisioner: &Provisioner, action: ServerAction) -> Result<(), LeaseError> {
        let failed = |verb| move |error: ProvisionError| LeaseError::Server { verb, source: Box::new(error) };
        let power = std::mem::replace(&mut self.power, Power::Lost(String::new()));
        let off = match (power, action) {
            (Power::On(server), ServerAction::Crash) => {
                server.crash().map_err(|error| failed("end a server")(error.into()))
            }
            (Power::On(server), _) => {
                server.shut_down().map_err(|error| failed("stop a server")(error.into()))
            }
            (Power::Off(guard), _) => Ok(guard),
            (Power::Lost(why), _) => Err(self.lost(&why)),
        };
        let power = off.and_then(|guard| match action {
            ServerAction::Stop => Ok(Power::Off(guard)),
            ServerAction::Restart | ServerAction::Crash => provisioner
                .start_again(guard, &self.place)
                .map(|server| Power::On(Box::new(server)))
                .map_err(failed("start a server again")),
        });
        match power {
            Ok(power) => self.power = power,
            Err(error) => {
                self.power = Power::Lost(error.detail().unwrap_or_else(|| error.to_string()));
                return Err(error);
            }
        }
        Ok(())
    }

    fn lost(&self, why: &str) -> LeaseError {
        LeaseError::Lost { name: self.name.clone(), why: why.to_owned() }
    }

    /// Runs statements one after the other, in one session.
    fn run(
        &self,
        verb: &'static str,
        statements: impl IntoIterator<Item = String>,
    ) -> Result<(), LeaseError> {
        let params = own_params(self.major, &[]);
        let session = AdminConnection::open_with(&self.directory, &params, "postgres", STATEMENT_TIMEOUT);
        let done = session
            .and_then(|mut session| statements.into_iter().try_for_each(|sql| session.query(&sql).map(drop)));
        done.map_err(|source| LeaseError::Sql { verb, source })
    }
}

fn renaming(from: &str, to: &str) -> String {
    format!("ALTER DATABASE {} RENAME TO {}", identifier(from), identifier(to))
}
