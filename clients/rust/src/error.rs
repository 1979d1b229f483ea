use std::fmt;

use serde::Deserialize;

/// What pgfresh could not do, in its own words. `Display` has all of them, in PostgreSQL's form.
#[derive(Debug, Clone, Deserialize)]
#[non_exhaustive]
pub struct Error {
    /// The SQLSTATE, if the server said so.
    pub code: Option<String>,
    /// What went wrong, in one line, unless a budget was exceeded: the statements follow.
    pub message: String,
    /// More of it, in sentences.
    pub detail: Option<String>,
    /// What to do.
    pub hint: Option<String>,
}

impl Error {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { code: None, message: message.into(), detail: None, hint: None }
    }

    pub(crate) fn hint(mut self, hint: &str) -> Self {
        self.hint = Some(hint.to_owned());
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)?;
        for (label, text) in [("DETAIL", &self.detail), ("HINT", &self.hint)] {
            if let Some(text) = text {
                write!(formatter, "\n{label}:  {text}")?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for Error {}
