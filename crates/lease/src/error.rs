//! Defines the errors of leases and their sessions. Each has an SQLSTATE,
//! because clients receive the errors as if they came from the server.

use std::error::Error;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ::template::ProvisionError;
use server::SessionError;

use crate::isolation::Isolation;

/// pgfresh couldn't provide or change a lease or a session.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    /// The server refused a session. The bytes are an ErrorResponse, which the gateway can send to the client
    /// unchanged.
    #[error("the server refused the session")]
    Refused(Vec<u8>),
    /// There is no template with this name.
    #[error("template \"{name}\" does not exist")]
    UnknownTemplate {
        /// Name in the request.
        name: String,
        /// Names of the templates in service.
        known: Vec<String>,
    },
    /// There is no lease with this name, or SQL has given the name to another database.
    #[error("database \"{0}\" is not leased")]
    NotLeased(String),
    /// There is no lease with this name, so pgfresh can't inject faults into its sessions.
    #[error("cannot request a fault for database \"{0}\": it is not leased")]
    NoFaults(String),
    /// There is no lease with this name, and sessions aren't allowed to begin one.
    #[error("database \"{0}\" does not exist")]
    NoDatabase(String),
    /// The rules for names exclude this name.
    #[error("cannot create database \"{0}\": the rules for names exclude it")]
    Excluded(String),
    /// The name is already leased, so its database wouldn't be fresh.
    #[error("database \"{0}\" is already leased")]
    Leased(String),
    /// The database has open sessions, and the client didn't ask pgfresh to close them.
    #[error("database \"{name}\" has {sessions} open session{}", if *sessions == 1 { "" } else { "s" })]
    InUse {
        /// Name of the database.
        name: String,
        /// Number of the database's sessions.
        sessions: usize,
    },
    /// pgfresh can't copy the database, because it is in a leased server or because all its changes are in an open
    /// transaction.
    #[error("cannot copy database \"{name}\": it is leased in isolation \"{isolation}\"")]
    NotCopied {
        /// Name of the database.
        name: String,
        /// Isolation of the database's lease.
        isolation: Isolation,
    },
    /// All changes to the database are in an open transaction, so no other session can see them.
    #[error("cannot read database \"{0}\": it is leased in isolation \"rollback\"")]
    Hidden(String),
    /// The lease already has a session, and in rollback isolation, it can have only one at a time.
    #[error("database \"{0}\" already has a session")]
    Busy(String),
    /// The client's startup parameters differ from the lease's. In rollback isolation, all clients of a lease share one
    /// server session, so they must have identical parameters.
    #[error("database \"{0}\" has a session with different startup parameters")]
    OtherParameters(String),
    /// The name already has a lease, in a different isolation.
    #[error("database \"{name}\" is leased in isolation \"{isolation}\"")]
    OtherIsolation {
        /// Name of the database.
        name: String,
        /// Isolation of the existing lease.
        isolation: Isolation,
    },
    /// The name already has a lease, of a different template.
    #[error("database \"{name}\" is leased from template \"{template}\", not \"{asked}\"")]
    OtherTemplate {
        /// Name of the database.
        name: String,
        /// Template of the existing lease.
        template: String,
        /// Template requested by the client.
        asked: String,
    },
    /// A lease in rollback isolation stays writable after a failover, because all its
    /// transactions are savepoints in a single transaction, which has begun as writable.
    #[error("a failover cannot make database \"{0}\" read-only: it is leased in isolation \"rollback\"")]
    Writable(String),
    /// A lease in rollback isolation has nothing to replicate, because the server replicates only committed changes and
    /// such a lease never commits.
    #[error("cannot replicate in rollback isolation")]
    Replication,
    /// The request timed out.
    #[error("request for database \"{name}\" timed out after {} s", .waited.as_secs())]
    Timeout {
        /// Name of the database.
        name: String,
        /// How long the request waited.
        waited: Duration,
    },
    /// pgfresh can't prepare the database now, because a task for it keeps failing. pgfresh goes on trying.
    #[error("cannot prepare database \"{name}\"")]
    Blocked {
        /// Name of the database.
        name: String,
        /// Why the last attempt failed.
        source: Arc<LeaseError>,
    },
    /// A new database isn't fresh, for the given reason.
    #[error("could not make a fresh database: {0}")]
    Unfit(&'static str),
    /// The leases are closed.
    #[error("pgfresh is shutting down")]
    Closed,
    /// The server has exited unexpectedly.
    #[error("the server has ended")]
    Gone,
    /// The name can't be used.
    #[error("cannot use \"{name}\" as a name: {why}")]
    Name {
        /// Name in the request.
        name: String,
        /// Reason why the name can't be used.
        why: &'static str,
    },
    /// The name can't be used for a template.
    #[error(transparent)]
    TemplateName(#[from] ::template::TemplateNameError),
    /// There is already a template with this name.
    #[error("cannot use \"{0}\" as a name: a template with this name already exists")]
    TemplateExists(String),
    /// The leased server is stopped.
    #[error("the server of database \"{0}\" is stopped")]
    Stopped(String),
    /// A leased server exited on its own, for example after a crash.
    #[error("the server of database \"{name}\" has ended")]
    Ended {
        /// Name of the lease.
        name: String,
        /// Why the server exited.
        why: String,
    },
    /// A leased server failed to restart. Its data still exists.
    #[error("the server of database \"{name}\" did not restart")]
    NotStarted {
        /// Name of the lease.
        name: String,
        /// Cause of the failure.
        why: String,
        /// Data directory of the leased server.
        data: PathBuf,
    },
    /// A leased server didn't stop when requested. pgfresh has removed the server and its data.
    #[error("the server of database \"{name}\" could not be stopped, and its data is gone")]
    Lost {
        /// Name of the lease.
        name: String,
        /// Cause of the failure.
        why: String,
    },
    /// A crash emptied a template's unlogged tables, and pgfresh can't refill them.
    #[error("can no longer copy template \"{0}\": a server crash has emptied its unlogged tables")]
    Emptied(String),
    /// The template has changed in its server, which only a superuser can do.
    #[error("can no longer copy template \"{0}\": SQL has changed it in the server")]
    Changed(String),
    /// Leases in isolation `server` aren't available, because the service has no provisioner.
    #[error("leases in isolation \"server\" are not available")]
    NoServers,
    /// The template exists only in this server, because it is a copy of a leased database, so no other server can start
    /// from it.
    #[error("cannot start a server from template \"{0}\": it exists only in this server")]
    NoServerFrom(String),
    /// The template has no replica.
    #[error("database \"{0}\" has no replica")]
    NoReplica(String),
    /// The replica has become the lease's server, and its old server is gone.
    #[error("the primary of database \"{0}\" is gone: its replica was promoted")]
    Promoted(String),
    /// A replica exited on its own.
    #[error("the replica of database \"{name}\" has ended")]
    ReplicaEnded {
        /// Name of the lease.
        name: String,
        /// Why the replica exited.
        why: String,
    },
    /// A replica can't start from this template, because a setup changes each copy of it.
    #[error("cannot start a replica from template \"{0}\": its setup runs each time")]
    NotReplicated(String),
    /// The replication took too long to change.
    #[error("could not {verb} within {} s", .waited.as_secs())]
    Replica {
        /// Purpose of the change.
        verb: &'static str,
        /// How long pgfresh waited.
        waited: Duration,
    },
    /// The lease shares its server with other leases.
    #[error("database \"{0}\" has no server of its own")]
    NoServer(String),
    /// A leased server couldn't start.
    #[error("could not {verb}")]
    Server {
        /// Purpose of the attempt.
        verb: &'static str,
        /// Reason why the server couldn't start.
        source: Box<ProvisionError>,
    },
    /// Clients are using all sessions that the server has for them. The message is PostgreSQL's own.
    #[error("sorry, too many clients already")]
    TooManyClients {
        /// Number of sessions available to clients.
        most: usize,
    },
    /// The budget has no room for another database.
    #[error("no room for another database: {leased} of at most {most} are leased{}", of_failed_tests(*kept))]
    Full {
        /// Number of leases.
        leased: usize,
        /// Number of leases kept for failed tests.
        kept: usize,
        /// Maximum number of leases allowed by the budget.
        most: usize,
    },
    /// One of pgfresh's own statements failed.
    #[error("could not {verb}")]
    Sql {
        /// Purpose of the statement.
        verb: &'static str,
        /// Error from the server or the connection.
        source: SessionError,
    },
    /// All of pgfresh's own connections to the server remained in use for too long.
    #[error("could not {verb}: all of pgfresh's own connections were busy for {} s", .waited.as_secs())]
    NoConnection {
        /// Purpose of the statement.
        verb: &'static str,
        /// How long the statement waited.
        waited: Duration,
    },
    /// A task panicked, which is a bug in pgfresh.
    #[error("a pgfresh task panicked")]
    Panicked,
    /// A panic left the table of leases in an unknown state, so pgfresh refuses all requests.
    #[error("pgfresh is shutting down after an internal error")]
    Failed,
    /// The operating system couldn't start a thread.
    #[error("could not start the threads that prepare databases")]
    Threads(#[source] io::Error),
    /// The connection to the server failed.
    #[error("could not {verb}")]
    Io {
        /// Purpose of the attempt.
        verb: &'static str,
        /// Error of the operating system.
        source: io::Error,
    },
}

/// Returns a clause about the leases kept for failed tests, or an empty string if there are none.
fn of_failed_tests(kept: usize) -> String {
    if kept == 0 { String::new() } else { format!(", {kept} of them kept for failed tests") }
}

/// Returns the messages of an error and all its causes, separated by colons.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut words = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        words = format!("{words}: {cause}");
        source = cause.source();
    }
    words
}

/// Returns a sentence with the messages of an error and all its causes, followed by `detail`.
pub(crate) fn cause(error: &dyn Error, detail: Option<String>) -> String {
    let detail = detail.map(|detail| format!(" {detail}")).unwrap_or_default();
    format!("The cause: {}.{detail}", chain(error))
}

impl LeaseError {
    /// Returns true if the connection was lost, so that the server may or may not have run the statement.
    pub(crate) fn is_lost(&self) -> bool {
        matches!(self, Self::Sql { source, .. } if source.is_fatal())
    }

    /// Returns true if a retry would fail with this error again. Retries may succeed if the server just lacked
    /// resources or an operator intervened.
    pub(crate) fn is_lasting(&self) -> bool {
        const PASSING: [&str; 6] = ["08", "40", "53", "55", "57", "58"];
        let Self::Sql { source: SessionError::Server { sqlstate, .. }, .. } = self else { return false };
        !PASSING.iter().any(|class| sqlstate.starts_with(class))
    }

    /// Returns the SQLSTATE for clients. Source: appendix A of PostgreSQL's manual.
    #[must_use]
    pub fn sqlstate(&self) -> &str {
        match self {
            Self::Blocked { source, .. } => source.sqlstate(),
            Self::UnknownTemplate { .. } | Self::NotLeased(_) | Self::NoFaults(_) | Self::NoDatabase(_) => {
                "3D000"
            }
            Self::Leased(_) | Self::TemplateExists(_) => "42P04",
            Self::InUse { .. }
            | Self::NotCopied { .. }
            | Self::Hidden(_)
            | Self::Busy(_)
            | Self::OtherParameters(_)
            | Self::OtherIsolation { .. }
            | Self::OtherTemplate { .. } => "55006",
            Self::Timeout { .. } | Self::NoConnection { .. } | Self::Replica { .. } => "57014",
            Self::Panicked => "XX000",
            Self::Closed | Self::Gone | Self::Failed => "57P01",
            Self::Name { .. } | Self::TemplateName(_) | Self::Excluded(_) => "42602",
            Self::Full { .. } => "53100",
            Self::TooManyClients { .. } => "53300",
            Self::Stopped(_)
            | Self::Ended { .. }
            | Self::NotStarted { .. }
            | Self::Lost { .. }
            | Self::Promoted(_)
            | Self::ReplicaEnded { .. } => "57P03",
            Self::NoServers
            | Self::NoServerFrom(_)
            | Self::NoServer(_)
            | Self::NoReplica(_)
            | Self::NotReplicated(_)
            | Self::Replication
            | Self::Writable(_) => "0A000",
            Self::Server { source, .. } if source.is_lack_of_space() => "53100",
            Self::Server { .. } | Self::Emptied(_) | Self::Changed(_) | Self::Threads(_) | Self::Unfit(_) => {
                "58000"
            }
            Self::Sql { source: SessionError::Server { sqlstate, .. }, .. } => sqlstate,
            Self::Refused(_) | Self::Io { .. } | Self::Sql { .. } => "08006",
        }
    }

    /// Returns the messages of the error and its causes on one line, because many clients show only the first line.
    #[must_use]
    pub fn with_causes(&self) -> String {
        chain(self)
    }

    /// Returns the error's detail message, if there is one.
    #[must_use]
    pub fn detail(&self) -> Option<String> {
        match self {
            Self::UnknownTemplate { known, .. } if known.is_empty() => {
                Some("This server has no templates.".to_owned())
            }
            Self::UnknownTemplate { known, .. } => Some(format!("This server has {}.", known.join(", "))),
            Self::Ended { why, .. }
            | Self::NotStarted { why, .. }
            | Self::Lost { why, .. }
            | Self::ReplicaEnded { why, .. } => Some(why.clone()),
            Self::TooManyClients { most } => Some(format!("All {most} sessions for clients are in use.")),
            Self::NoFaults(_) => Some("pgfresh injects no faults into databases that SQL has created.".to_owned()),
            Self::Hidden(_) => Some("No other session sees the changes in the lease's open transaction.".to_owned()),
            Self::Busy(_) => Some(
                "In rollback isolation, the sessions of a lease run one after another and share one transaction.".to_owned(),
            ),
            Self::OtherParameters(_) => Some(
                "In rollback isolation, a lease has a single server session, with one user and one set of parameters."
                    .to_owned(),
            ),
            Self::Sql { source, .. } => source.detail(),
            Self::Blocked { source, .. } => source.detail(),
            Self::Changed(_) => Some("Names that begin with pgfresh_ are reserved for pgfresh's own databases.".to_owned()),
            Self::Server { source, .. } => source.detail(),
            _ => None,
        }
    }

    /// Returns advice for the user, if there is any.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::UnknownTemplate { .. } => {
                Some("To have several templates in one server, start it with --template NAME,NAME.".to_owned())
            }
            Self::Blocked { .. } => Some(
                "Remove the cause, then connect again: pgfresh goes on trying. A different name may work at once.".to_owned(),
            ),
            Self::Excluded(_) => Some(
                "Use a different name, or change [databases] in pgfresh.toml, --names or --except.".to_owned(),
            ),
            Self::Leased(_) => Some("Connect to the database by its name, or lease a database with a different name.".to_owned()),
            Self::Busy(_) => Some(
                "Close the other session first, or use isolation \"clone\" for tests with several sessions at once."
                    .to_owned(),
            ),
            Self::OtherParameters(_) => Some("Connect with the same user and parameters, or use isolation \"clone\".".to_owned()),
            Self::OtherIsolation { .. } => Some("Release the database first, or use a different name.".to_owned()),
            Self::OtherTemplate { .. } => {
                Some("Release the database first, connect with pgfresh.reset=on, or use a different name.".to_owned())
            }
            Self::Panicked | Self::Failed => Some("Please report it, with the log of pgfresh.".to_owned()),
            Self::Timeout { .. } | Self::NoConnection { .. } | Self::Replica { .. } => Some("pgfresh's log shows what it waits for.".to_owned()),
            Self::NoServerFrom(_) => Some("Use isolation \"clone\", or a template of pgfresh.toml.".to_owned()),
            Self::NoServer(_) => Some("Lease a database with isolation \"server\".".to_owned()),
            Self::NoReplica(_) => Some("Write replicas = 1 under [template] in pgfresh.toml.".to_owned()),
            Self::Promoted(_) => Some(
                "Connect to the replica's port, or to both ports with target_session_attrs=read-write.".to_owned(),
            ),
            Self::NotReplicated(_) => {
                Some("Name the files that the setup reads in \"inputs\", so that pgfresh can keep the template.".to_owned())
            }
            Self::Emptied(_) | Self::Changed(_) => Some("Run the command again, on a new server.".to_owned()),
            Self::Server { source, .. } => source.hint(),
            Self::Threads(source) => sys::limit_hint(source).map(str::to_owned),
            Self::Replication | Self::Writable(_) => Some("Use isolation \"clone\".".to_owned()),
            Self::NotCopied { .. } => Some("Use isolation \"clone\" to make a template.".to_owned()),
            Self::Hidden(_) => Some("Use isolation \"clone\" for databases that you want to inspect.".to_owned()),
            Self::NotLeased(_) | Self::NoFaults(_) => Some("\"pgfresh status\" lists those that are.".to_owned()),
            Self::InUse { .. } => Some("Close the sessions first, or set \"close_sessions\".".to_owned()),
            Self::TooManyClients { .. } => {
                Some("Close some sessions, use smaller connection pools, or set a larger max_connections with --set.".to_owned())
            }
            Self::Full { kept: 1.., .. } => Some(
                "Close the sessions in databases of failed tests, or remove these databases with \"pgfresh stop\"; --place and --space give more room."
                    .to_owned(),
            ),
            Self::Full { .. } => Some(
                "Release databases that are no longer needed, or give more room with --place or --space.".to_owned(),
            ),
            _ => self.leased_server_hint(),
        }
    }

    /// Returns advice about a leased server that doesn't run.
    fn leased_server_hint(&self) -> Option<String> {
        match self {
            Self::Stopped(_) => Some("POST /v1/databases/NAME/restart starts it.".to_owned()),
            Self::Ended { .. } => {
                Some("POST /v1/databases/NAME/restart starts it, and it recovers its data.".to_owned())
            }
            Self::NotStarted { data, .. } => Some(format!(
                "Its data is kept. Correct postgresql.auto.conf, or whatever else is wrong, in \"{}\", then restart the server; or reset the database for a fresh server.",
                data.display()
            )),
            Self::Lost { .. } => Some("Reset the database for a fresh server, or release it.".to_owned()),
            Self::ReplicaEnded { .. } => {
                Some("Reset the database for a fresh server and replica.".to_owned())
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use storage::Attempt;

    use super::*;

    #[test]
    fn server_start_error_has_cause_and_matching_sqlstate() {
        for (kind, code) in
            [(io::ErrorKind::StorageFull, "53100"), (io::ErrorKind::PermissionDenied, "58000")]
        {
            let error = Err::<(), _>(kind).attempt("write", Path::new("a")).unwrap_err();
            let error = LeaseError::Server { verb: "start a server", source: Box::new(error.into()) };
            assert_eq!(error.sqlstate(), code);
            let cause = io::Error::from(kind).to_string();
            assert_eq!(
                error.with_causes(),
                format!("could not start a server: could not write \"a\": {cause}")
            );
        }
    }
}
