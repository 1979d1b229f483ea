//! Represents the failure of a command, and formats it like `PostgreSQL`'s errors.

use std::error::Error;
use std::fmt;
use std::process::ExitCode;

use anstyle::{AnsiColor, Style};
use bench::BenchError;
use doctor::DoctorError;
use profile::ProfileError;
use serde_json::{Value, json};
use storage::{CacheError, FileError};
use template::ProvisionError;

use crate::notice::print_notice;

/// Styles for the labels at the beginning of the lines.
const STYLES: [(&str, Style); 3] = [
    ("pgfresh:", AnsiColor::Red.on_default().bold()),
    ("DETAIL:", Style::new().bold()),
    ("HINT:", AnsiColor::Green.on_default()),
];

/// The failure of a command: a message, a detail and a hint.
#[derive(Debug)]
pub(crate) struct Failure {
    message: String,
    detail: Option<String>,
    hint: Option<String>,
    code: Option<u8>,
    sqlstate: Option<String>,
}

impl Failure {
    /// Creates a failure with a message. The message is one line, begins in lower case and has no full stop.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), detail: None, hint: None, code: None, sqlstate: None }
    }

    /// Adds the cause, as a full sentence.
    pub(crate) fn detail(mut self, detail: impl Into<Option<String>>) -> Self {
        self.detail = detail.into();
        self
    }

    /// Adds advice, as a full sentence.
    pub(crate) fn hint(mut self, hint: impl Into<Option<String>>) -> Self {
        self.hint = hint.into();
        self
    }

    /// Adds the action that was already completed to the beginning of the message.
    pub(crate) fn after(mut self, done: &str) -> Self {
        self.message = format!("{done}: {}", self.message);
        self
    }

    /// Sets an exit code other than the command's usual one.
    pub(crate) fn exit_with(mut self, code: u8) -> Self {
        self.code = Some(code);
        self
    }

    /// Sets the SQLSTATE of a server's error.
    pub(crate) fn sqlstate(mut self, sqlstate: Option<String>) -> Self {
        self.sqlstate = sqlstate;
        self
    }

    /// Whether the failure has this SQLSTATE.
    pub(crate) fn is(&self, sqlstate: &str) -> bool {
        self.sqlstate.as_deref() == Some(sqlstate)
    }

    /// Whether the hint contains `word`.
    pub(crate) fn hints_at(&self, word: &str) -> bool {
        self.hint.as_ref().is_some_and(|hint| hint.contains(word))
    }

    /// Prints the failure, with colours on a terminal. Returns the failure's own exit code, or else `usual`.
    pub(crate) fn report(&self, usual: u8) -> ExitCode {
        let mut text = self.to_string();
        for (word, style) in STYLES {
            if let Some(at) =
                text.starts_with(word).then_some(0).or_else(|| Some(text.find(&format!("\n{word}"))? + 1))
            {
                text.replace_range(at..at + word.len(), &format!("{style}{word}{style:#}"));
            }
        }
        print_notice(text);
        ExitCode::from(self.code.unwrap_or(usual))
    }

    /// Returns the failure as JSON, in the same form as the HTTP API's errors.
    pub(crate) fn to_json(&self) -> Value {
        let mut error = json!({ "message": without_numbers(&self.message) });
        let detail = self.detail.as_deref().map(without_numbers);
        for (key, text) in [("code", &self.sqlstate), ("detail", &detail), ("hint", &self.hint)] {
            if let Some(text) = text {
                error[key] = text.as_str().into();
            }
        }
        json!({ "error": error })
    }

    /// Parses a failure from JSON of this form.
    pub(crate) fn from_json(value: &Value) -> Option<Self> {
        let word = |name: &str| value["error"][name].as_str().map(str::to_owned);
        let failure = Self::new(word("message")?).detail(word("detail")).hint(word("hint"));
        Some(failure.sqlstate(word("code")))
    }

    /// Formats the failure as one line, for a log.
    pub(crate) fn on_one_line(&self) -> String {
        self.to_string().trim_end().replace('\n', " ")
    }

    /// Creates a failure from an error and its causes.
    fn of(error: &dyn Error) -> Self {
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            message = format!("{message}: {cause}");
            source = cause.source();
        }
        Self::new(message)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "pgfresh: {}", without_numbers(&self.message))?;
        if let Some(detail) = &self.detail {
            writeln!(f, "DETAIL:  {}", without_numbers(detail))?;
        }
        if let Some(hint) = &self.hint {
            writeln!(f, "HINT:  {hint}")?;
        }
        Ok(())
    }
}

/// Removes the numbers that the standard library appends to the operating system's errors, e.g. `(os error 2)`.
fn without_numbers(text: &str) -> String {
    let mut parts = text.split(" (os error ");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| match part.split_once(')') {
        Some((number, rest)) if number.bytes().all(|byte| byte.is_ascii_digit()) => text + rest,
        _ => text + " (os error " + part,
    })
}

/// Implements conversions from error types, including their details and hints.
macro_rules! failures {
    ($($error:path: $($part:ident)+;)+) => {$(
        impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                Self::of(&error)$(.$part(error.$part()))+
            }
        }
    )+};
}

failures! {
    ProvisionError: detail hint;
    FileError: hint;
    lease::LeaseError: detail hint;
    gateway::GatewayError: hint;
    gateway::CertificateError: hint;
    template::DumpError: detail hint;
    server::ConnectionStringError: hint;
    server::FetchError: detail hint;
    BenchError: detail hint;
    DoctorError: hint;
    ProfileError: detail hint;
}

impl From<CacheError> for Failure {
    fn from(error: CacheError) -> Self {
        ProvisionError::from(error).into()
    }
}

impl From<server::StartError> for Failure {
    fn from(error: server::StartError) -> Self {
        ProvisionError::from(error).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_the_operating_system_are_not_said() {
        let error = std::io::Error::from_raw_os_error(2);
        let failure = Failure::new(format!("could not read \"a\": {error}: b")).detail(format!("{error}"));
        assert_eq!(
            failure.to_string(),
            "pgfresh: could not read \"a\": No such file or directory: b\nDETAIL:  No such file or directory\n"
        );
        assert_eq!(Failure::new("an (os error of ours)").to_string(), "pgfresh: an (os error of ours)\n");
    }

    #[test]
    fn failure_round_trips_through_json() {
        let bare = Failure::new("no room");
        assert_eq!(bare.to_json().to_string(), r#"{"error":{"message":"no room"}}"#);
        let whole = bare.detail("One\n  two.".to_owned()).hint("Three.".to_owned());
        let back = Failure::from_json(&whole.sqlstate(Some("53100".to_owned())).to_json()).unwrap();
        assert_eq!(back.to_string(), "pgfresh: no room\nDETAIL:  One\n  two.\nHINT:  Three.\n");
        assert!(back.is("53100") && Failure::from_json(&json!({ "url": "" })).is_none());
    }
}
