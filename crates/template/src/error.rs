//! Defines the errors that occur when pgfresh looks up or builds a template,
//! or starts a server. Their texts follow the style of PostgreSQL's messages.

use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;
use std::{fmt, io};

use server::{InitdbError, InstallationError, SUPERUSER, SessionError, SettingError, StartError, StopError};
use storage::{AccountError, CacheError, CopyError, FileError, PlaceError};

use crate::Fingerprint;
use crate::inputs::InputError;

/// Name of the step that runs the user's setup command.
pub(crate) const SETUP: &str = "setup";
/// Name of the step that runs the user's prepare command.
pub(crate) const PREPARE: &str = "prepare";
/// The C library's message for a full file system.
const NO_SPACE: &str = "No space left on device";

/// Reasons why pgfresh couldn't provide a template or a server. No files are left behind except those that the error
/// lists.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum ProvisionError {
    #[error(transparent)]
    Account(#[from] AccountError),
    #[error(transparent)]
    Installation(#[from] InstallationError),
    #[error(transparent)]
    Cache(#[from] CacheError),
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Place(#[from] PlaceError),
    #[error(transparent)]
    Setting(#[from] SettingError),
    #[error(transparent)]
    Initdb(#[from] InitdbError),
    #[error(transparent)]
    Start(#[from] StartError),
    #[error(transparent)]
    Stop(#[from] StopError),
    #[error(transparent)]
    Input(#[from] InputError),
    #[error(transparent)]
    Setup(Box<SetupError>),
}

impl From<SessionError> for ProvisionError {
    fn from(error: SessionError) -> Self {
        Self::Start(error.into())
    }
}

impl From<SetupError> for ProvisionError {
    fn from(error: SetupError) -> Self {
        Self::Setup(Box::new(error))
    }
}

impl ProvisionError {
    /// Returns true if a cache entry's files differ from those that pgfresh stored.
    pub(crate) fn is_damage(&self) -> bool {
        matches!(self, Self::Start(StartError::Copy(error)) if error.is_damage())
    }

    /// Returns true if there was too little space for a server.
    #[must_use]
    pub fn is_lack_of_space(&self) -> bool {
        match self {
            Self::Place(PlaceError::File(error))
            | Self::File(error)
            | Self::Start(StartError::File(error) | StartError::Copy(CopyError::File(error))) => {
                matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
            }
            Self::Place(_) => true,
            Self::Start(StartError::Exited { log_line: Some(line), .. }) => line.contains(NO_SPACE),
            _ => false,
        }
    }

    /// Adds information about an incremental build to the error: the earlier template `parent` and the new files
    /// `added`.
    pub(crate) fn on_parent(self, parent: &Fingerprint, added: Vec<String>) -> Self {
        match self {
            Self::Setup(source) => SetupError::OnParent { parent: parent.clone(), added, source }.into(),
            other => other,
        }
    }

    /// Returns details of the error, such as a program's output.
    #[must_use]
    pub fn detail(&self) -> Option<String> {
        match self {
            Self::Installation(error) => error.detail(),
            Self::Initdb(error) => error.detail(),
            Self::Start(error) => error.detail(),
            Self::Stop(error) => error.detail(),
            Self::Setup(error) => error.detail(),
            _ => None,
        }
    }

    /// Returns advice for the user.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Account(error) => Some(error.hint()),
            Self::Installation(error) => error.hint(),
            Self::Cache(CacheError::File(error)) | Self::File(error) => error.hint(),
            Self::Place(error) => error.hint(),
            Self::Initdb(error) => error.hint(),
            Self::Start(error) => error.hint(),
            Self::Input(error) => error.hint(),
            Self::Setup(error) => error.hint(),
            Self::Cache(CacheError::Invalid { .. }) => Some(
                "A template can contain only regular files; create tablespaces in the tests that need them."
                    .to_owned(),
            ),
            Self::Cache(CacheError::Untrusted { .. }) => Some(
                "pgfresh accepts only templates signed with one of the [cache] keys: push again, or see \"pgfresh template sign\"."
                    .to_owned(),
            ),
            Self::Stop(_) | Self::Setting(_) => None,
        }
    }

    /// Like [`Self::hint`], but without options of `template build`. These options apply to the
    /// template of the working tree, so they don't help with the template of a different revision.
    #[must_use]
    pub fn cause_hint(&self) -> Option<String> {
        match self {
            Self::Setup(error) => error.cause_hint(),
            other => other.hint(),
        }
    }
}

/// A server that pgfresh retains after a failed setup for the user to inspect.
#[derive(Debug)]
pub struct KeptServer {
    /// The server's run directory.
    pub path: PathBuf,
    /// Shell command that opens the server.
    pub open: String,
    /// Shell command that removes the server.
    pub sweep: String,
}

impl fmt::Display for KeptServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, open, sweep } = self;
        write!(
            f,
            "The incomplete server is in \"{}\"; \"{sweep}\" removes it. To open it: {open}",
            path.display()
        )
    }
}

/// Errors that occur during a setup. The failed template doesn't enter the cache.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// A step returned an error.
    #[error("template \"{name}\" ({fingerprint}) is incomplete: {step} ended with {status}{}", server::time_after(*after))]
    Failed {
        /// Name of the template.
        name: String,
        /// Fingerprint the template would have had.
        fingerprint: Fingerprint,
        /// The step: "setup", or a program and its file.
        step: String,
        /// The step's exit status.
        status: ExitStatus,
        /// How long the step ran.
        after: Duration,
        /// True if a program in the step required TLS but didn't get it.
        wants_tls: bool,
        /// Advice if the step needs an extension that the installation lacks.
        extension: Option<String>,
        /// Last lines of the step's output.
        last_lines: Vec<String>,
        /// File with the step's whole output.
        log: Option<PathBuf>,
        /// The server, if `--keep` preserved it.
        kept: Option<KeptServer>,
    },
    /// The server rejected a SQL file that pgfresh ran without psql.
    #[error("could not run \"{file}\"")]
    Sql {
        /// Path of the file.
        file: String,
        /// Advice if the file needs an extension that the installation lacks.
        extension: Option<String>,
        /// The server's error.
        source: server::SessionError,
    },
    /// A SQL file contains psql commands, but psql is missing.
    #[error("cannot run \"{file}\": line {line} is a psql command, but psql is missing")]
    NeedsPsql {
        /// Path of the file.
        file: String,
        /// Line number of the first psql command.
        line: usize,
    },
    /// The list of SQL files contains a dump in one of `pg_dump`'s archive formats, which isn't SQL.
    #[error("\"{file}\" is a dump, not SQL")]
    DumpAsSql {
        /// Path of the file.
        file: String,
    },
    /// A SQL file or a dump is compressed.
    #[error("cannot run \"{file}\": it is compressed")]
    Compressed {
        /// Path of the file.
        file: String,
        /// Command that decompresses the file to stdout.
        unpack: &'static str,
    },
    /// A SQL file begins a transaction but doesn't end it, so its changes are lost.
    #[error("\"{file}\" leaves a transaction open")]
    OpenTransaction {
        /// Path of the file.
        file: String,
    },
    /// A program is missing.
    #[error("cannot restore \"{file}\": {program} is missing")]
    NoProgram {
        /// `pg_restore` or `psql`.
        program: &'static str,
        /// File that needs the program.
        file: String,
    },
    /// The server exited during a step.
    #[error("the server has ended while {step} was running")]
    ServerGone {
        /// The step: "setup", or a program and its file.
        step: String,
        /// Log line with the cause, or how the postmaster exited.
        why: String,
    },
    /// The server refused to create the template's database.
    #[error("could not create database \"{database}\"")]
    Database {
        /// Name of the database.
        database: String,
        /// The server's error.
        source: server::SessionError,
    },
    /// The steps left the server in a state that can't become a template.
    #[error("the steps of template \"{name}\" left {what}")]
    Spoiled {
        /// Name of the template.
        name: String,
        /// Something left behind by the steps that a template can't contain.
        what: String,
    },
    /// The steps removed the superuser attribute from pgfresh's own role.
    #[error("the steps of template \"{name}\" removed the superuser attribute from role \"{SUPERUSER}\"")]
    NoSuperuser {
        /// Name of the template.
        name: String,
    },
    /// After the steps, the server refuses pgfresh's statements.
    #[error("the steps of template \"{name}\" left a server that pgfresh cannot use")]
    Closed {
        /// Name of the template.
        name: String,
        /// The server's error.
        source: StartError,
    },
    /// An incremental build, i.e. a build that started from an earlier template, failed.
    #[error("could not build on template {parent}")]
    OnParent {
        /// Fingerprint of the earlier template.
        parent: Fingerprint,
        /// New files, which aren't in the earlier template.
        added: Vec<String>,
        /// The build's error.
        source: Box<SetupError>,
    },
    /// Each attempt at the build changed the build's own inputs.
    #[error("cannot keep template \"{name}\": its inputs change each time its setup runs")]
    Unsettled {
        /// Name of the template.
        name: String,
        /// Input changes during the last attempt.
        changes: Vec<String>,
    },
    /// The setup has no inputs, so its result can't be cached.
    #[error("cannot build template \"{name}\": its setup has no inputs, so it runs each time")]
    RunsEachTime {
        /// Name of the template.
        name: String,
    },
}

impl SetupError {
    /// Returns details of the error, such as the last lines of output.
    #[must_use]
    pub fn detail(&self) -> Option<String> {
        match self {
            Self::Failed { last_lines, log, .. } => {
                if last_lines.is_empty() {
                    return Some("The step printed nothing.".to_owned());
                }
                let lines = format!("Last lines of the output:\n    {}", last_lines.join("\n    "));
                let log =
                    log.as_ref().map(|log| format!("\n  The whole output is in \"{}\".", log.display()));
                Some(lines + &log.unwrap_or_default())
            }
            Self::Sql { source, .. } | Self::Database { source, .. } => source.detail(),
            Self::Closed { source, .. } => source.detail(),
            Self::ServerGone { why, .. } => Some(format!("The cause: {why}")),
            Self::Unsettled { changes, .. } => {
                Some(format!("Changed during the last build: {}.", changes.join(", ")))
            }
            Self::OnParent { added, source, .. } => {
                let added = format!("New in this build: {}.", added.join(", "));
                Some(source.detail().map_or_else(|| added.clone(), |detail| format!("{detail}\n  {added}")))
            }
            Self::NeedsPsql { .. }
            | Self::DumpAsSql { .. }
            | Self::Compressed { .. }
            | Self::OpenTransaction { .. }
            | Self::NoProgram { .. }
            | Self::RunsEachTime { .. }
            | Self::NoSuperuser { .. }
            | Self::Spoiled { .. } => None,
        }
    }

    /// Returns advice for the user.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Failed { kept: None, .. } => Some(self.cause_hint().unwrap_or_else(|| {
                "\"pgfresh template build --keep\" keeps the server to inspect it.".to_owned()
            })),
            Self::Failed { kept: Some(kept), .. } => {
                let hint = self.cause_hint().map(|hint| format!("{hint} ")).unwrap_or_default();
                Some(format!("{hint}{kept}"))
            }
            Self::DumpAsSql { file } => Some(format!("Set dump = \"{file}\" (--dump).")),
            Self::Compressed { file, unpack } => Some(format!(
                "Unpack it, or let a setup do so: setup = \"{unpack} {file} | psql -Xq -v ON_ERROR_STOP=1\", inputs = [\"{file}\"]."
            )),
            Self::OpenTransaction { .. } => {
                Some("End the transaction with COMMIT in the same file: each file runs in its own session.".to_owned())
            }
            Self::NeedsPsql { .. } | Self::NoProgram { .. } => {
                Some("Install PostgreSQL's client programs (Debian: apt install postgresql-client).".to_owned())
            }
            Self::Unsettled { .. } => {
                Some("Leave files that the setup writes out of inputs, or have git ignore them.".to_owned())
            }
            Self::OnParent { source, .. } => {
                let full = "With --full, all steps run from the start.";
                Some(source.hint().map_or_else(|| full.to_owned(), |hint| format!("{hint} {full}")))
            }
            Self::RunsEachTime { .. } => Some(
                "List what the setup reads: inputs = [\"migrations/**\"] in pgfresh.toml, or --inputs 'migrations/**'."
                    .to_owned(),
            ),
            Self::NoSuperuser { .. } => Some(format!(
                "pgfresh itself uses the role \"{SUPERUSER}\": create a role with fewer privileges, and connect as that role."
            )),
            Self::Spoiled { .. } => Some(
                "The steps must leave the databases of all templates in the server in a state that can be copied."
                    .to_owned(),
            ),
            Self::Sql { extension, .. } => extension.clone(),
            Self::Database { .. } | Self::Closed { .. } | Self::ServerGone { .. } => None,
        }
    }

    /// Returns advice about the cause alone. See [`ProvisionError::cause_hint`].
    fn cause_hint(&self) -> Option<String> {
        match self {
            Self::Failed { wants_tls: true, kept: None, .. } => Some(
                "The setup insists on TLS: append \"?sslmode=disable\" to its URL, or use \"pgfresh run --tls\"."
                    .to_owned(),
            ),
            Self::Failed { step, status, extension, last_lines, .. } => {
                extension.clone().or_else(|| step_hint(step, *status, last_lines))
            }
            Self::OnParent { source, .. } => source.cause_hint(),
            other => other.hint(),
        }
    }
}

/// Returns advice for a failure that pgfresh can explain without examining the server.
fn step_hint(step: &str, status: ExitStatus, last_lines: &[String]) -> Option<String> {
    let missing = last_lines.iter().find_map(|line| {
        let (before, _) = line.split_once("\" does not exist")?;
        before.split_once("database \"").map(|(_, database)| database)
    });
    match missing {
        Some(database) if is_command(step) => Some(format!(
            "Name the template \"{database}\" ([template.{database}] in pgfresh.toml), or let the setup connect to $PGDATABASE."
        )),
        _ if is_command(step) && last_lines.iter().any(|line| reports_refusal(line)) => Some(format!(
            "The {step} seems to connect to another server. It must connect to DATABASE_URL or PG*: the template's server has another port in each build."
        )),
        _ => program_hint(step, status).map(str::to_owned),
    }
}

/// Returns true if a line reports that no server listens at an address, or that the address is unknown. Drivers have
/// different texts for this.
fn reports_refusal(line: &str) -> bool {
    ["refused", "ECONNREFUSED", "ENOTFOUND", "could not translate host name"]
        .iter()
        .any(|sign| line.contains(sign))
}

/// Returns true for a step that runs a shell command.
fn is_command(step: &str) -> bool {
    [PREPARE, SETUP].contains(&step)
}

/// Returns advice if the setup's shell couldn't run a program. The server's log doesn't contain this failure.
fn program_hint(step: &str, status: ExitStatus) -> Option<&'static str> {
    // Source: POSIX, 2.8.2.
    match status.code() {
        _ if !is_command(step) => None,
        Some(127) => Some("sh cannot find the setup's program: install it, or write it with its path."),
        Some(126) => Some(
            "sh cannot run the setup's program: make it executable (chmod +x), or run it with its interpreter.",
        ),
        _ => None,
    }
}
