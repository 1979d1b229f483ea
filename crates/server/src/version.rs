//! Versions of `PostgreSQL`, and which one is asked for.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// The majors that pgfresh is tested with. A newer one is used as well.
pub const MAJORS: std::ops::RangeInclusive<u32> = 13..=18;

/// A version, as `17.10`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// Decides what is on disk and on the wire.
    pub major: u32,
    /// Fixes only.
    pub minor: u32,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Where numbers begin that cannot be a major: a version without its dot (1810), a year.
const NO_MAJOR: u32 = 100;

/// What the user asks for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum VersionRequest {
    /// The first one on PATH, else the newest.
    #[default]
    Any,
    /// One of this major.
    Major(u32),
    /// The binaries in this directory.
    Bin(PathBuf),
}

impl FromStr for VersionRequest {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse::<u32>() {
            Ok(major) if (*MAJORS.start()..NO_MAJOR).contains(&major) => Ok(Self::Major(major)),
            _ if text.contains('/') => Ok(Self::Bin(text.into())),
            _ => Err(format!(
                "expected a major from {} on, or a path to a directory with postgres and initdb",
                MAJORS.start()
            )),
        }
    }
}
