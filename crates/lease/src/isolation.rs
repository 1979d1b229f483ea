//! Defines how leases are isolated from each other.

use std::fmt;
use std::str::FromStr;

/// Resources that a lease doesn't share with other leases.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Isolation {
    /// Each lease has its own database, a copy of the template.
    #[default]
    Clone,
    /// Each lease is one transaction, rolled back when the lease ends.
    Rollback,
    /// Each lease has its own server.
    Server,
}

impl Isolation {
    /// Returns the isolation's name, as used in options and messages.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Clone => "clone",
            Self::Rollback => "rollback",
            Self::Server => "server",
        }
    }
}

impl fmt::Display for Isolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Error for a text that isn't the name of an isolation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected \"clone\", \"rollback\" or \"server\"")]
pub struct ParseIsolationError;

impl FromStr for Isolation {
    type Err = ParseIsolationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "clone" => Ok(Self::Clone),
            "rollback" => Ok(Self::Rollback),
            "server" => Ok(Self::Server),
            _ => Err(ParseIsolationError),
        }
    }
}
