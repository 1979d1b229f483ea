use std::fmt;

use serde::Deserialize;

/// Error of pgfresh or of the client. `Display` has all parts, in PostgreSQL's form. So has `Debug`, because `unwrap` prints it.
#[derive(Clone, Deserialize)]
#[non_exhaustive]
pub struct Error {
    /// SQLSTATE, if the error came from the HTTP API.
    pub code: Option<String>,
    /// Message of one line. After the line about an exceeded budget, it lists the statements.
    pub message: String,
    /// Details, in sentences.
    pub detail: Option<String>,
    /// Advice, in sentences.
    pub hint: Option<String>,
}

/// Replacements in hints: options of the HTTP API, and their equivalents in this crate.
const HINTS: [(&str, &str); 2] = [
    ("set \"close_sessions\"", "call reset_closing_sessions()"),
    ("Lease it with \"record\": true", "Lease it with Options::default().record(), or a budget"),
];

impl Error {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { code: None, message: message.into(), detail: None, hint: None }
    }

    pub(crate) fn hint(mut self, hint: &str) -> Self {
        self.hint = Some(hint.to_owned());
        self
    }

    /// Replaces options of the HTTP API in the hint by their equivalents in this crate.
    pub(crate) fn translate_hint(mut self) -> Self {
        self.hint = self.hint.as_deref().map(translated);
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

impl fmt::Debug for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl std::error::Error for Error {}

fn translated(hint: &str) -> String {
    HINTS.iter().fold(hint.to_owned(), |hint, (http, rust)| hint.replace(http, rust))
}

#[cfg(test)]
mod tests {
    use super::{Error, translated};

    #[test]
    fn debug_equals_display() {
        let error = Error::new("template \"app\" is incomplete").hint("Look.");
        assert_eq!(format!("{error:?}"), "template \"app\" is incomplete\nHINT:  Look.");
    }

    #[test]
    fn hints_name_functions_of_this_crate() {
        for (http, rust) in [
            (
                "Close them first, or set \"close_sessions\".",
                "Close them first, or call reset_closing_sessions().",
            ),
            ("Lease it with \"record\": true.", "Lease it with Options::default().record(), or a budget."),
            ("Release some databases.", "Release some databases."),
        ] {
            assert_eq!(translated(http), rust);
        }
    }
}
