//! Represents a command's failure and formats the failure like `PostgreSQL`'s errors.

use std::error::Error;
use std::fmt;
use std::process::ExitCode;

use anstyle::{AnsiColor, Style};
use bench::BenchError;
use contract::{ErrorBody, ErrorCode, ErrorDescription, Remedy};
use doctor::DoctorError;
use lease::LeaseError;
use profile::ProfileError;
use storage::{CacheError, FileError};
use template::ProvisionError;

use crate::notice::{plain, print_notice};

/// Styles of the labels at the start of lines.
const STYLES: [(&str, Style); 3] = [
    ("pgfresh:", AnsiColor::Red.on_default().bold()),
    ("DETAIL:", Style::new().bold()),
    ("HINT:", AnsiColor::Green.on_default()),
];

/// A command's failure: a message, a detail and a hint.
#[derive(Debug)]
pub(crate) struct Failure {
    message: String,
    detail: Option<String>,
    hint: Option<String>,
    exit_code: Option<u8>,
    /// SQLSTATE, or an [`ErrorCode`] that isn't an SQLSTATE.
    code: Option<String>,
    remedy: Option<Remedy>,
}

impl Failure {
    /// Creates a failure with a message, which is one line, starts in lower case and doesn't end with a period.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), detail: None, hint: None, exit_code: None, code: None, remedy: None }
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

    /// Prefixes the message with an action that completed before the failure.
    pub(crate) fn after(mut self, done: &str) -> Self {
        self.message = format!("{done}: {}", self.message);
        self
    }

    /// Replaces a text, such as a temporary path, in the message and the detail.
    pub(crate) fn replacing(mut self, from: &str, to: &str) -> Self {
        let replaced = |text: String| text.replace(from, to);
        (self.message, self.detail) = (replaced(self.message), self.detail.map(replaced));
        self
    }

    /// Sets an exit code that replaces the command's usual exit code.
    pub(crate) fn exit_with(mut self, code: u8) -> Self {
        self.exit_code = Some(code);
        self
    }

    /// Applies the exit code of the user's command unless that command succeeded: its failure is more important than
    /// the failure of a report.
    pub(crate) fn after_command(self, code: u8) -> Self {
        if code == 0 { self } else { self.exit_with(code) }
    }

    fn code(mut self, code: &str) -> Self {
        self.code = Some(code.to_owned());
        self
    }

    /// Returns true if `code` is this failure's code.
    pub(crate) fn is(&self, code: ErrorCode) -> bool {
        self.code.as_deref() == Some(code.as_str())
    }

    /// Returns true if `remedy` would resolve the failure.
    pub(crate) fn has_remedy(&self, remedy: Remedy) -> bool {
        self.remedy == Some(remedy)
    }

    /// Prints the failure, in color if standard error is a terminal. Returns the failure's own exit code, or `usual` if
    /// it has none.
    pub(crate) fn report(&self, usual: u8) -> ExitCode {
        let mut text = plain(self);
        for (word, style) in STYLES {
            if let Some(at) =
                text.starts_with(word).then_some(0).or_else(|| Some(text.find(&format!("\n{word}"))? + 1))
            {
                text.replace_range(at..at + word.len(), &format!("{style}{word}{style:#}"));
            }
        }
        print_notice(text);
        ExitCode::from(self.exit_code.unwrap_or(usual))
    }

    /// Converts the failure to the HTTP API's machine-readable error format.
    pub(crate) fn to_response(&self) -> ErrorBody {
        let code = self.code.as_deref().unwrap_or(ErrorCode::Failed.as_str());
        let error = ErrorDescription {
            detail: self.detail.as_deref().map(without_numbers),
            hint: self.hint.clone(),
            remedy: self.remedy.or(self.hint.is_some().then_some(Remedy::FollowHint)),
            ..ErrorDescription::new(code, without_numbers(&self.message))
        };
        ErrorBody { error, message: None }
    }

    /// Formats the failure as a single line, for a log.
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

/// Removes the error numbers, such as `(os error 2)`, that the standard library appends to OS error messages.
fn without_numbers(text: &str) -> String {
    let mut parts = text.split(" (os error ");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| match part.split_once(')') {
        Some((number, rest)) if number.bytes().all(|byte| byte.is_ascii_digit()) => text + rest,
        _ => text + " (os error " + part,
    })
}

/// Implements conversions from error types, including details and hints.
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
    FileError: hint;
    gateway::GatewayError: hint;
    gateway::CertificateError: hint;
    template::DumpError: detail hint;
    server::ConnectionStringError: hint;
    server::FetchError: detail hint;
    BenchError: detail hint;
    DoctorError: hint;
    ProfileError: detail hint;
    plans::ScratchError: detail hint;
    migrations::LaboratoryError: detail hint;
    migrations::SizesError: hint;
    plans::import::ImportError: hint;
    plans::redact::RedactError: hint;
}

impl From<ErrorDescription> for Failure {
    fn from(error: ErrorDescription) -> Self {
        let ErrorDescription { code, message, detail, hint, remedy } = error;
        let code = Some(code).filter(|code| !code.is_empty());
        Self { message, detail, hint, exit_code: None, code, remedy }
    }
}

impl From<LeaseError> for Failure {
    fn from(error: LeaseError) -> Self {
        Self::of(&error).detail(error.detail()).hint(error.hint()).code(error.sqlstate())
    }
}

impl From<ProvisionError> for Failure {
    fn from(error: ProvisionError) -> Self {
        let code = match &error {
            ProvisionError::Installation(_) => ErrorCode::NoInstallation,
            ProvisionError::Input(_) | ProvisionError::Setup(_) => ErrorCode::TemplateFailed,
            ProvisionError::Initdb(_) | ProvisionError::Start(_) => ErrorCode::StartFailed,
            _ => ErrorCode::Failed,
        };
        Self::of(&error).detail(error.detail()).hint(error.hint()).code(code.as_str())
    }
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
        let json = |failure: &Failure| serde_json::to_string(&failure.to_response()).unwrap();
        let bare = Failure::new("no room");
        assert_eq!(json(&bare), r#"{"error":{"code":"failed","message":"no room"}}"#);
        let whole = bare.detail("One\n  two.".to_owned()).hint("Three.".to_owned()).code("53100");
        let back: ErrorBody = serde_json::from_str(&json(&whole)).unwrap();
        let back = Failure::from(back.error);
        assert_eq!(back.to_string(), "pgfresh: no room\nDETAIL:  One\n  two.\nHINT:  Three.\n");
        assert!(back.is(ErrorCode::NoRoom) && back.has_remedy(Remedy::FollowHint));
    }
}
