//! How what tests do to a database is kept from one another.

use std::str::FromStr;

/// The way of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Isolation {
    /// Each lease has a database of its own, a copy of the template.
    #[default]
    Clone,
    /// Each lease is one transaction, which is rolled back at its end.
    Rollback,
}

impl Isolation {
    /// The word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Clone => "clone",
            Self::Rollback => "rollback",
        }
    }
}

impl FromStr for Isolation {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "clone" => Ok(Self::Clone),
            "rollback" => Ok(Self::Rollback),
            _ => Err("expected \"clone\" or \"rollback\"".to_owned()),
        }
    }
}
