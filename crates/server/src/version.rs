//! Parses `PostgreSQL` versions, and the versions that users request.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::major::MAJORS;

/// A version, such as `17.10`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// The major version, which determines file formats and the protocol.
    pub major: u32,
    /// The minor version, which only contains bug fixes.
    pub minor: u32,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Numbers from this one on can't be major versions. They are more likely a year, or a version without its dot (1810).
const MAX_MAJOR: u32 = 100;

/// The version that the user requested.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum VersionRequest {
    /// The first server on PATH, or the newest installed version if PATH has no server.
    #[default]
    Any,
    /// A server with this major version.
    Major(u32),
    /// The binaries in this directory.
    Bin(PathBuf),
}

/// Error for a text that is neither a supported major version nor a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected a major from {} on, or a path to a directory with postgres and initdb{}",
    MAJORS.start(),
    .major.map(|major| format!("\nGive the major alone: \"{major}\".")).unwrap_or_default()
)]
pub struct ParseVersionError {
    /// The major version, if the text also contains a minor version, as in `17.2`.
    major: Option<u32>,
}

impl FromStr for VersionRequest {
    type Err = ParseVersionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let major = |text: &str| {
            let major = text.parse::<u32>().ok();
            major.filter(|major| (*MAJORS.start()..MAX_MAJOR).contains(major))
        };
        if let Some(major) = major(text) {
            return Ok(Self::Major(major));
        }
        if text.contains('/') {
            return Ok(Self::Bin(text.into()));
        }
        let minor = |minor: &str| minor.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        let whole = text.split_once('.').and_then(|(before, after)| major(before).filter(|_| minor(after)));
        Err(ParseVersionError { major: whole })
    }
}
