//! How leases are kept apart.

use std::fmt;
use std::str::FromStr;

/// What a lease has of its own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Isolation {
    /// Each lease has a database of its own, a copy of the template.
    #[default]
    Clone,
    /// Each lease is one transaction, which is rolled back at its end.
    Rollback,
    /// Each lease is a server of its own, with one database in it.
    Server,
}

impl Isolation {
    /// The word for it.
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

impl FromStr for Isolation {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "clone" => Ok(Self::Clone),
            "rollback" => Ok(Self::Rollback),
            "server" => Ok(Self::Server),
            _ => Err("expected \"clone\", \"rollback\" or \"server\"".to_owned()),
        }
    }
}
