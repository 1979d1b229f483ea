//! Versions of `PostgreSQL`, and requests for one.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Majors that the tests cover. pgfresh also uses newer ones.
pub const MAJORS: std::ops::RangeInclusive<u32> = 13..=18;

/// Version, such as `17.10`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// Major, which decides the format of files and of the protocol.
    pub major: u32,
    /// Minor, which only fixes faults.
    pub minor: u32,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Number from which a request cannot be a major, such as a version without its dot (1810) or a year.
const NO_MAJOR: u32 = 100;

/// Version that the user asks for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum VersionRequest {
    /// The first server on PATH, else the newest.
    #[default]
    Any,
    /// A server of this major.
    Major(u32),
    /// The binaries in this directory.
    Bin(PathBuf),
}

impl FromStr for VersionRequest {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let major = |text: &str| {
            let major = text.parse::<u32>().ok();
            major.filter(|major| (*MAJORS.start()..NO_MAJOR).contains(major))
        };
        if let Some(major) = major(text) {
            return Ok(Self::Major(major));
        }
        if text.contains('/') {
            return Ok(Self::Bin(text.into()));
        }
        let expected = format!(
            "expected a major from {} on, or a path to a directory with postgres and initdb",
            MAJORS.start()
        );
        let minor = |minor: &str| minor.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        let whole = text.split_once('.').and_then(|(before, after)| major(before).filter(|_| minor(after)));
        Err(expected
            + &whole.map(|major| format!("\nGive the major alone: \"{major}\".")).unwrap_or_default())
    }
}
