//! Why there is no lease, or no session in it: each with its SQLSTATE.

use std::error::Error;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use ::template::ProvisionError;
use server::SessionError;

use crate::Isolation;

/// A lease could not be had, or not be changed.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    /// The server refused a session; these are the bytes of its ErrorResponse, fit to be passed on.
    #[error("the server refused the session")]
    Refused(Vec<u8>),
    /// No template has that name.
    #[error("template \"{name}\" does not exist")]
    UnknownTemplate {
        /// What was asked for.
        name: String,
        /// What there is.
        known: Vec<String>,
    },
    /// A database has to be leased for that.
    #[error("database \"{0}\" is not leased")]
    NotLeased(String),
    /// Its name is of those that clients do not make up, and it is not leased.
    #[error("database \"{0}\" does not exist")]
    NoDatabase(String),
    /// The rules for names exclude it.
    #[error("cannot create database \"{0}\": the rules for names exclude it")]
    Excluded(String),
    /// A client has it: it would not be fresh.
    #[error("database \"{0}\" is leased already")]
    Leased(String),
    /// It has sessions, and they were not to be closed.
    #[error("database \"{name}\" has {sessions} open session{}", if *sessions == 1 { "" } else { "s" })]
    InUse {
        /// The database.
        name: String,
        /// How many.
        sessions: usize,
    },
    /// It is in a server of its own, or all that was done to it is in a transaction that is not committed.
    #[error("cannot copy database \"{name}\": it is leased in isolation \"{isolation}\"")]
    NotCopied {
        /// The database.
        name: String,
        /// How it is isolated.
        isolation: Isolation,
    },
    /// All that was done to it is in a transaction that is not committed.
    #[error("cannot read database \"{0}\": it is leased in isolation \"rollback\"")]
    Hidden(String),
    /// In rollback isolation one session at a time is in a lease.
    #[error("database \"{0}\" has a session already")]
    Busy(String),
    /// In rollback isolation all sessions of a lease are one session of the server's.
    #[error("database \"{0}\" has a session with other start-up parameters")]
    OtherParameters(String),
    /// The name is leased on other terms.
    #[error("database \"{name}\" is leased in isolation \"{isolation}\"")]
    OtherIsolation {
        /// The database.
        name: String,
        /// How it is isolated.
        isolation: Isolation,
    },
    /// The same for its template.
    #[error("database \"{name}\" is leased from template \"{template}\", not \"{asked}\"")]
    OtherTemplate {
        /// The database.
        name: String,
        /// What it is a copy of.
        template: String,
        /// What was asked for.
        asked: String,
    },
    /// What is replicated is committed.
    #[error("cannot replicate in rollback isolation")]
    Replication,
    /// What was waited for did not happen.
    #[error("no answer for database \"{name}\" after {} s", .waited.as_secs())]
    Timeout {
        /// The database.
        name: String,
        /// How long.
        waited: Duration,
    },
    /// Nothing is leased any more.
    #[error("pgfresh is shutting down")]
    Closed,
    /// The server has ended unexpectedly.
    #[error("the server has ended")]
    Gone,
    /// The name cannot be one.
    #[error("cannot use \"{name}\" as a name: {why}")]
    Name {
        /// What was asked for.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The name cannot be a template's.
    #[error("{0}")]
    TemplateName(String),
    /// Its own server is off.
    #[error("the server of database \"{0}\" is stopped")]
    Stopped(String),
    /// A leased server has ended by itself.
    #[error("the server of database \"{name}\" has ended")]
    Ended {
        /// The lease.
        name: String,
        /// How.
        why: String,
    },
    /// A leased server did not start again. Its data are there.
    #[error("the server of \"{name}\" did not start again")]
    NotStarted {
        /// The lease.
        name: String,
        /// Why not.
        why: String,
        /// Its data directory.
        data: PathBuf,
    },
    /// A leased server could not be ended. It is removed with its data.
    #[error("the server of \"{name}\" could not be ended, and its data are gone")]
    Lost {
        /// The lease.
        name: String,
        /// Why not.
        why: String,
    },
    /// A crash has emptied unlogged tables of a template, and there is no way to fill them again.
    #[error("cannot copy template \"{0}\" any more: a crash of the server has emptied its unlogged tables")]
    Emptied(String),
    /// A superuser has found a way to change a template in its server.
    #[error("cannot copy template \"{0}\" any more: SQL has changed it in the server")]
    Changed(String),
    /// Servers cannot be started here.
    #[error("there are no servers to be leased")]
    NoServers,
    /// The template was made in this server, of a database in use.
    #[error("cannot start a server from template \"{0}\": it is in this server alone")]
    NoServerFrom(String),
    /// It shares the server with others.
    #[error("database \"{0}\" has no server of its own")]
    NoServer(String),
    /// A server of its own could not be had.
    #[error("could not {verb}")]
    Server {
        /// What was tried.
        verb: &'static str,
        /// Why not.
        source: Box<ProvisionError>,
    },
    /// All sessions that the server has for clients are taken. The words are the server's own.
    #[error("sorry, too many clients already")]
    TooManyClients {
        /// How many there are.
        most: usize,
    },
    /// There is no room for one more.
    #[error("no room for another database: {leased} of at most {most} are leased{}", of_failed_tests(*kept))]
    Full {
        /// Leases there are.
        leased: usize,
        /// Those of them that failed tests left.
        kept: usize,
        /// What the place's budget allows.
        most: usize,
    },
    /// A statement of ours failed.
    #[error("could not {verb}")]
    Sql {
        /// What it was for.
        verb: &'static str,
        /// The server's answer.
        source: SessionError,
    },
    /// All connections of pgfresh's own have been at work for so long.
    #[error("could not {verb}: no connection of pgfresh's own was free for {} s", .waited.as_secs())]
    NoConnection {
        /// What it was for.
        verb: &'static str,
        /// How long.
        waited: Duration,
    },
    /// A defect of pgfresh.
    #[error("a task of pgfresh has panicked")]
    Panicked,
    /// There are no threads.
    #[error("could not start the threads that prepare databases")]
    Threads(#[source] io::Error),
    /// The connection to the server failed.
    #[error("could not {verb}")]
    Io {
        /// What was tried.
        verb: &'static str,
        /// What the operating system said.
        source: io::Error,
    },
}

/// How many of the leased databases failed tests left, where there are any.
fn of_failed_tests(kept: usize) -> String {
    if kept == 0 { String::new() } else { format!(", {kept} of them kept for failed tests") }
}

/// What an error says, and what it says of its cause.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut words = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        words = format!("{words}: {cause}");
        source = cause.source();
    }
    words
}

/// The same as a sentence, with what came back.
pub(crate) fn cause(error: &dyn Error, detail: Option<String>) -> String {
    let detail = detail.map(|detail| format!(" {detail}")).unwrap_or_default();
    format!("The cause: {}.{detail}", chain(error))
}

impl LeaseError {
    /// Whether the connection was lost on the way: what was asked for may have been done or not.
    pub(crate) fn is_lost(&self) -> bool {
        matches!(self, Self::Sql { source, .. } if source.is_fatal())
    }

    /// Whether the server would say the same again: neither has it lacked something, nor has an operator intervened.
    pub(crate) fn is_lasting(&self) -> bool {
        const PASSING: [&str; 6] = ["08", "40", "53", "55", "57", "58"];
        let Self::Sql { source: SessionError::Server { sqlstate, .. }, .. } = self else { return false };
        !PASSING.iter().any(|class| sqlstate.starts_with(class))
    }

    /// The SQLSTATE that a client should see. Source: the manual's appendix A.
    #[must_use]
    pub fn sqlstate(&self) -> &str {
        match self {
            Self::UnknownTemplate { .. } | Self::NotLeased(_) | Self::NoDatabase(_) => "3D000",
            Self::Leased(_) => "42P04",
            Self::InUse { .. }
            | Self::NotCopied { .. }
            | Self::Hidden(_)
            | Self::Busy(_)
            | Self::OtherParameters(_)
            | Self::OtherIsolation { .. }
            | Self::OtherTemplate { .. } => "55006",
            Self::Timeout { .. } | Self::NoConnection { .. } => "57014",
            Self::Panicked => "XX000",
            Self::Closed | Self::Gone => "57P01",
            Self::Name { .. } | Self::TemplateName(_) | Self::Excluded(_) => "42602",
            Self::Full { .. } => "53100",
            Self::TooManyClients { .. } => "53300",
            Self::Stopped(_) | Self::Ended { .. } | Self::NotStarted { .. } | Self::Lost { .. } => "57P03",
            Self::NoServers | Self::NoServerFrom(_) | Self::NoServer(_) | Self::Replication => "0A000",
            Self::Server { source, .. } if source.is_lack_of_space() => "53100",
            Self::Server { .. } | Self::Emptied(_) | Self::Changed(_) | Self::Threads(_) => "58000",
            Self::Sql { source: SessionError::Server { sqlstate, .. }, .. } => sqlstate,
            Self::Refused(_) | Self::Io { .. } | Self::Sql { .. } => "08006",
        }
    }

    /// It and what caused it, in one line: many clients show no more.
    #[must_use]
    pub fn with_causes(&self) -> String {
        chain(self)
    }

    /// What came back.
    #[must_use]
    pub fn detail(&self) -> Option<String> {
        match self {
            Self::UnknownTemplate { known, .. } if known.is_empty() => {
                Some("This server has no templates.".to_owned())
            }
            Self::UnknownTemplate { known, .. } => Some(format!("This server has {}.", known.join(", "))),
            Self::Ended { why, .. } | Self::NotStarted { why, .. } | Self::Lost { why, .. } => Some(why.clone()),
            Self::TooManyClients { most } => Some(format!("All {most} sessions for clients are in use.")),
            Self::Hidden(_) => Some("No other session sees what its transaction has changed.".to_owned()),
            Self::Busy(_) => Some(
                "In rollback isolation all sessions of a lease share one transaction, one after another.".to_owned(),
            ),
            Self::OtherParameters(_) => Some(
                "In rollback isolation a lease has one session of the server's, with one user and set of parameters."
                    .to_owned(),
            ),
            Self::Sql { source, .. } => source.detail(),
            Self::Changed(_) => Some("Databases called pgfresh_… are pgfresh's own.".to_owned()),
            Self::Server { source, .. } => source.detail(),
            _ => None,
        }
    }

    /// What to do.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::UnknownTemplate { .. } => {
                Some("To have several templates in one server, start it with --template NAME,NAME.".to_owned())
            }
            Self::Excluded(_) => Some(
                "Choose another name, or change [databases] in pgfresh.toml, --names or --except.".to_owned(),
            ),
            Self::Leased(_) => Some("Connect to it by its name, or lease another one.".to_owned()),
            Self::Busy(_) => Some(
                "Close the other one first, or use isolation \"clone\" for tests with several sessions at once."
                    .to_owned(),
            ),
            Self::OtherParameters(_) => Some("Connect as before, or use isolation \"clone\".".to_owned()),
            Self::OtherIsolation { .. } => Some("Release it first, or choose another name.".to_owned()),
            Self::OtherTemplate { .. } => {
                Some("Release it first, connect with pgfresh.reset=on, or choose another name.".to_owned())
            }
            Self::Panicked => Some("Please report it, with the log of pgfresh.".to_owned()),
            Self::Timeout { .. } | Self::NoConnection { .. } => Some("See the log of pgfresh for what it waits for.".to_owned()),
            Self::NoServerFrom(_) => Some("Use isolation \"clone\", or a template of pgfresh.toml.".to_owned()),
            Self::NoServer(_) => Some("Lease one with isolation \"server\".".to_owned()),
            Self::Stopped(_) => Some("POST /v1/databases/NAME/restart starts it.".to_owned()),
            Self::Ended { .. } => {
                Some("POST /v1/databases/NAME/restart starts it, and it recovers its data.".to_owned())
            }
            Self::NotStarted { data, .. } => Some(format!(
                "Its data are kept: correct postgresql.auto.conf, or what else is wrong, in \"{}\" and restart it; or reset it for a fresh one.",
                data.display()
            )),
            Self::Emptied(_) | Self::Changed(_) => Some("Run the command again, on a new server.".to_owned()),
            Self::Lost { .. } => Some("Reset it for a fresh one, or release it.".to_owned()),
            Self::Server { source, .. } => source.hint(),
            Self::Threads(source) => sys::remedy(source).map(str::to_owned),
            Self::Replication => Some("Use isolation \"clone\".".to_owned()),
            Self::NotCopied { .. } => Some("Use isolation \"clone\" to make a template.".to_owned()),
            Self::Hidden(_) => Some("Use isolation \"clone\" for what is to be examined.".to_owned()),
            Self::NotLeased(_) => Some("\"pgfresh status\" lists those that are.".to_owned()),
            Self::InUse { .. } => Some("Close them first, or set \"close_sessions\".".to_owned()),
            Self::TooManyClients { .. } => {
                Some("Close some, use smaller connection pools, or set a larger max_connections with --set.".to_owned())
            }
            Self::Full { kept: 1.., .. } => Some(
                "Close the sessions in databases of failed tests, or remove these with \"pgfresh stop\"; --place and --space give more room."
                    .to_owned(),
            ),
            Self::Full { .. } => Some(
                "Release databases that are no longer needed, or give more room with --place or --space.".to_owned(),
            ),
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
    fn a_server_that_does_not_start_has_its_cause_in_the_error_and_its_kind_in_the_code() {
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
