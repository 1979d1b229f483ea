//! Runs a PostgreSQL server dedicated to a single lease. With its own server, a test can change
//! state that all databases share, change server settings, and stop or crash the server.
//!
//! The server starts from the same template as the databases of other leases. Its one database for the client is named
//! after the lease. If the template has a replica, a standby follows the server.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ::template::{Provisioner, Started, end_sessions};
use pgwire::StartupParams;
use server::{Guard, RestartFailure, Server, identifier};
use storage::Place;
use sys::lock;

use crate::backends::backend::Backend;
use crate::error::{LeaseError, cause};
use crate::options::{ServerRole, TemplateDatabase};
use crate::runtime::replica::{Node, Replica, ReplicaLag, ReplicaWatch, STATEMENT_TIMEOUT, end_all_sessions};
use crate::runtime::template::database_of;

/// Name of the server's database until it is leased.
const READY: &str = "pgfresh_ready";
/// Timeout for a statement that terminates sessions. If it takes longer at the end of a lease, pgfresh kills the whole
/// server.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// An action on a leased server, requested by its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerAction {
    /// Shut the server down if it is running, then start it again. If it had crashed, it recovers.
    Restart,
    /// Shut the server down until a client restarts it.
    Stop,
    /// Kill the server immediately, as a power failure would, then start it again so that it recovers.
    Crash,
    /// Make the replica lag behind the server.
    Lag(ReplicaLag),
    /// Shut the server down, and make its replica the lease's server.
    Promote,
}

/// A leased server, which may be stopped.
#[derive(Debug)]
pub(crate) struct LeasedServer {
    place: Place,
    node: Node,
    power: Power,
    /// Current name of the server's database.
    name: String,
    standby: Standby,
}

/// The state of a leased server's replica.
#[derive(Debug)]
enum Standby {
    /// The template has no replica.
    None,
    Following(Box<Replica>),
    /// The replica has become the lease's server.
    Promoted(Arc<ReplicaWatch>),
    /// pgfresh couldn't terminate the sessions on the replica, so it has stopped the replica.
    Lost,
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
    /// pgfresh couldn't stop the server, for this reason, so pgfresh removes the server and its data.
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
    /// Starts a server with a database made from `template`. No database in this
    /// server has the name of one of `templates`, so the lease can use these names.
    pub(crate) fn start(
        provisioner: &Provisioner,
        template: &str,
        templates: &[TemplateDatabase],
    ) -> Result<Self, LeaseError> {
        let started = provisioner.start(&|_| ());
        let Started { server, place, entry, .. } = started
            .map_err(|source| LeaseError::Server { verb: "start a server", source: Box::new(source) })?;
        let major = provisioner.installation.version().major;
        let node = Node { directory: server.run().socket_directory(), major };
        let (power, name) = (Power::On(Box::new(server)), READY.to_owned());
        let standby = if provisioner.has_standby() {
            let entry = entry.ok_or_else(|| LeaseError::NotReplicated(template.to_owned()))?;
            Standby::Following(Box::new(Replica::start(provisioner, &entry, &node)?))
        } else {
            Standby::None
        };
        let leased = Self { place, node, power, name, standby };
        let prepare = templates.iter().filter_map(|TemplateDatabase { name, .. }| match name.as_str() {
            "template1" if template != name => None,
            "template1" => Some([end_sessions(name), format!("CREATE DATABASE {READY}")]),
            _ if name == template => Some(renaming(name, READY)),
            _ => Some(renaming(name, &database_of(name))),
        });
        leased.node.run("prepare a server", STATEMENT_TIMEOUT, prepare.flatten())?;
        Ok(leased)
    }

    /// Returns the name of the server's database.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Renames the server's database.
    pub(crate) fn rename(&mut self, name: &str) -> Result<(), LeaseError> {
        self.node.run("name a database", STATEMENT_TIMEOUT, renaming(&self.name, name))?;
        name.clone_into(&mut self.name);
        Ok(())
    }

    /// Opens a session in the database of the primary or of the replica, depending on `role`. Releases
    /// the lock before connecting, because a postmaster stopped with SIGSTOP doesn't respond.
    ///
    /// # Errors
    /// Returns the error from [`Self::expect_on`] if the server isn't running.
    pub(crate) fn connect(
        server: &Mutex<Self>,
        role: ServerRole,
        params: &StartupParams,
    ) -> Result<Backend, LeaseError> {
        let (directory, name) = {
            let server = lock(server);
            (server.directory_for(role)?, server.name.clone())
        };
        let backend = Backend::connect(&directory, params, &name);
        if matches!(backend, Err(LeaseError::Io { .. })) {
            lock(server).expect_listening(role)?;
        }
        backend
    }

    /// Checks that the server with this role accepts connections. An
    /// exiting server stops listening before its process has ended.
    ///
    /// # Errors
    /// Returns an error that explains why this server doesn't accept connections.
    fn expect_listening(&self, role: ServerRole) -> Result<(), LeaseError> {
        self.directory_for(role)?;
        match (&self.standby, role, &self.power) {
            (Standby::Following(replica), ServerRole::Replica, _) if !replica.server.is_listening() => {
                Err(replica.ended(&self.name))
            }
            (_, ServerRole::Primary, Power::On(server)) | (Standby::Promoted(_), _, Power::On(server))
                if !server.is_listening() =>
            {
                Err(self.ended(server))
            }
            _ => Ok(()),
        }
    }

    /// Runs one of pgfresh's own statements on the server, and on its replica if there is one.
    pub(crate) fn run_everywhere(
        server: &Mutex<Self>,
        verb: &'static str,
        sql: &str,
    ) -> Result<(), LeaseError> {
        let nodes = {
            let server = lock(server);
            let replica = match &server.standby {
                Standby::Following(replica) if replica.server.is_alive() => Some(replica.node.clone()),
                _ => None,
            };
            [Some(server.node.clone()), replica]
        };
        for node in nodes.into_iter().flatten() {
            node.run(verb, CLOSE_TIMEOUT, [sql.to_owned()])?;
        }
        Ok(())
    }

    /// Returns the directory with the socket for this role.
    ///
    /// # Errors
    /// Returns an error that explains why no server with this role is running.
    fn directory_for(&self, role: ServerRole) -> Result<PathBuf, LeaseError> {
        match (&self.standby, role) {
            (Standby::Promoted(_), ServerRole::Primary) => Err(LeaseError::Promoted(self.name.clone())),
            (Standby::Following(replica), ServerRole::Replica) => {
                replica.expect_on(&self.name)?;
                Ok(replica.node.directory.clone())
            }
            (Standby::None | Standby::Lost, ServerRole::Replica) => {
                Err(LeaseError::NoReplica(self.name.clone()))
            }
            (_, ServerRole::Primary) | (Standby::Promoted(_), ServerRole::Replica) => {
                self.expect_on()?;
                Ok(self.node.directory.clone())
            }
        }
    }

    /// Returns the lag of the replica and the statements that ran there, or `None` if there is no replica.
    pub(crate) fn replica_watch(&self) -> Option<Arc<ReplicaWatch>> {
        match &self.standby {
            Standby::Following(replica) => Some(Arc::clone(&replica.watch)),
            Standby::Promoted(watch) => Some(Arc::clone(watch)),
            Standby::None | Standby::Lost => None,
        }
    }

    /// Terminates all clients' sessions. If SQL can't terminate them, kills the whole server.
    pub(crate) fn close_sessions(&mut self) {
        let (verb, sql) = ("close the sessions of a server", end_all_sessions);
        if let Standby::Following(replica) = &self.standby {
            replica.server.resume();
            if let Err(error) = replica.node.run(verb, CLOSE_TIMEOUT, [sql()]) {
                tracing::debug!(%error, detail = error.detail(), "ending a replica whose sessions cannot be closed");
                self.standby = Standby::Lost;
            }
        }
        let Power::On(server) = &self.power else { return };
        server.resume();
        if let Err(error) = self.node.run(verb, CLOSE_TIMEOUT, [sql()]) {
            tracing::debug!(%error, detail = error.detail(), "ending a server whose sessions cannot be closed");
            self.power = self.take_power().off(ServerAction::Crash);
        }
    }

    /// Performs an action and waits until it is complete.
    ///
    /// # Errors
    /// Returns [`LeaseError::NotStarted`] if the server doesn't start. Since its data remains, a client can try
    /// again. Returns [`LeaseError::NoReplica`] if the action needs a replica and the server doesn't have one.
    pub(crate) fn act(&mut self, provisioner: &Provisioner, action: ServerAction) -> Result<(), LeaseError> {
        match action {
            ServerAction::Lag(lag) => self.set_lag(lag),
            ServerAction::Promote => self.promote(provisioner),
            ServerAction::Restart | ServerAction::Stop | ServerAction::Crash => {
                self.switch_power(provisioner, action)
            }
        }
    }

    fn set_lag(&self, lag: ReplicaLag) -> Result<(), LeaseError> {
        let replica = self.expect_replica()?;
        self.expect_on()?;
        replica.set_lag(&self.name, &self.node, lag)
    }

    /// Shuts the server down and makes its replica the lease's server. The replica first catches up, so no commit is
    /// lost, unless the server has exited and doesn't start again.
    ///
    /// A replica whose replay is paused or delayed doesn't reconnect to a server that has restarted. The shutdown of a
    /// server waits only for a connected replica.
    fn promote(&mut self, provisioner: &Provisioner) -> Result<(), LeaseError> {
        self.expect_replica()?.expect_on(&self.name)?;
        if self.expect_on().is_err()
            && let Err(error) = self.switch_power(provisioner, ServerAction::Restart)
        {
            tracing::debug!(%error, "promoting the replica of a server that does not start again");
        }
        if self.expect_on().is_ok() {
            self.set_lag(ReplicaLag::None)?;
        }
        self.power = self.take_power().off(ServerAction::Stop);
        self.expect_replica()?.promote(&self.name)?;
        // This removes the data of the old primary.
        if let Standby::Following(replica) = std::mem::replace(&mut self.standby, Standby::Lost) {
            let Replica { server, node, place, watch } = *replica;
            (self.place, self.node, self.power) = (place, node, Power::On(Box::new(server)));
            self.standby = Standby::Promoted(watch);
        }
        Ok(())
    }

    fn expect_replica(&self) -> Result<&Replica, LeaseError> {
        match &self.standby {
            Standby::Following(replica) => Ok(replica),
            Standby::Promoted(_) => Err(LeaseError::Promoted(self.name.clone())),
            Standby::None | Standby::Lost => Err(LeaseError::NoReplica(self.name.clone())),
        }
    }

    fn switch_power(&mut self, provisioner: &Provisioner, action: ServerAction) -> Result<(), LeaseError> {
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
            Power::On(server) => self.ended(server),
            Power::Off { failed: None, .. } => LeaseError::Stopped(name),
            Power::Off { guard, failed: Some(why) } => {
                LeaseError::NotStarted { name, why: why.clone(), data: guard.run().data() }
            }
            Power::Lost(why) => LeaseError::Lost { name, why: why.clone() },
        })
    }

    /// Returns the error for a server that has exited on its own.
    fn ended(&self, server: &Server) -> LeaseError {
        LeaseError::Ended { name: self.name.clone(), why: server.end_reason() }
    }
}

/// Returns statements that terminate all sessions in a database and rename it.
fn renaming(from: &str, to: &str) -> [String; 2] {
    let rename = format!("ALTER DATABASE {} RENAME TO {}", identifier(from), identifier(to));
    [end_sessions(from), rename]
}
