use std::fmt;

use serde::Deserialize;

/// What pgfresh could not do, in its own words. `Display` has all of them, in PostgreSQL's form, and so has `Debug`: tests show
/// errors by `unwrap`.
#[derive(Clone, Deserialize)]
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

/// What hints say to users of HTTP, and what they say here.
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

    /// The same with its hint in the words of this crate.
    pub(crate) fn in_rust(mut self) -> Self {
        self.hint = self.hint.as_deref().map(in_rust);
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

fn in_rust(hint: &str) -> String {
    HINTS.iter().fold(hint.to_owned(), |hint, (there, here)| hint.replace(there, here))
}

#[cfg(test)]
mod tests {
    use super::{Error, in_rust};

    #[test]
    fn unwrap_shows_an_error_as_people_read_it() {
        let error = Error::new("template \"app\" is incomplete").hint("Look.");
        assert_eq!(format!("{error:?}"), "template \"app\" is incomplete\nHINT:  Look.");
    }

    #[test]
    fn hints_are_in_the_words_of_this_crate() {
        for (there, here) in [
            (
                "Close them first, or set \"close_sessions\".",
                "Close them first, or call reset_closing_sessions().",
            ),
            ("Lease it with \"record\": true.", "Lease it with Options::default().record(), or a budget."),
            ("Release some databases.", "Release some databases."),
        ] {
            assert_eq!(in_rust(there), here);
        }
    }
}
