use std::fmt;

use contract::{ErrorDescription, Remedy};

/// Error from pgfresh or from this client. `Display` shows all parts in PostgreSQL's format. `Debug` does the same,
/// because `unwrap` prints it.
#[derive(Clone)]
#[non_exhaustive]
pub struct Error {
    /// SQLSTATE or a pgfresh error code. `None` if the error is from this client.
    pub code: Option<String>,
    /// Message of one line. The message about an exceeded budget lists the statements in further lines.
    pub message: String,
    /// Details, in complete sentences.
    pub detail: Option<String>,
    /// Advice, in complete sentences.
    pub hint: Option<String>,
    /// Machine-readable name of the action that resolves the error. The HTTP API documentation lists the names.
    pub remedy: Option<String>,
}

impl Error {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { code: None, message: message.into(), detail: None, hint: None, remedy: None }
    }

    pub(crate) fn hint(mut self, hint: &str) -> Self {
        self.hint = Some(hint.to_owned());
        self
    }
}

impl From<ErrorDescription> for Error {
    fn from(error: ErrorDescription) -> Self {
        let ErrorDescription { code, message, detail, hint, remedy } = error;
        let code = Some(code).filter(|code| !code.is_empty());
        let hint = remedy.and_then(own_hint).map(str::to_owned).or(hint);
        Self { code, message, detail, hint, remedy: remedy.and_then(Remedy::as_str).map(str::to_owned) }
    }
}

/// Returns a hint that names this crate's options, in place of a hint that names an HTTP API option.
fn own_hint(remedy: Remedy) -> Option<&'static str> {
    match remedy {
        Remedy::BeginHold => Some("The server was restarted. Start the tests again."),
        Remedy::CloseSessions => Some("Close them first, or call reset_closing_sessions()."),
        Remedy::Record => Some("Lease it with Options::default().record(), or a budget."),
        Remedy::SendSecret => Some("Check the password in PGFRESH_CONTROL."),
        _ => None,
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

#[cfg(test)]
mod tests {
    use super::{Error, ErrorDescription, Remedy};

    #[test]
    fn debug_equals_display() {
        let error = Error::new("template \"app\" is incomplete").hint("Look.");
        assert_eq!(format!("{error:?}"), "template \"app\" is incomplete\nHINT:  Look.");
    }

    #[test]
    fn hints_name_functions_of_this_crate() {
        for (remedy, hint) in [
            (Some(Remedy::CloseSessions), "Close them first, or call reset_closing_sessions()."),
            (Some(Remedy::Record), "Lease it with Options::default().record(), or a budget."),
            (Some(Remedy::MakeRoom), "Whatever the server says."),
            (None, "Whatever the server says."),
        ] {
            let hinted = Some("Whatever the server says.".to_owned());
            let error = ErrorDescription { hint: hinted, remedy, ..ErrorDescription::new("55006", "no") };
            assert_eq!(Error::from(error).hint.unwrap(), hint);
        }
    }
}
